"""Rows as people have them: every usual shape gives the same prompt and response."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldimask.data.corpora import open_rows
from goldimask.data.rows import Row
from goldimask.data.shapes import asked, shape_of, to_pair, to_pairs, to_prompt
from goldimask.errors import GoldimaskError

USER, SAID = {"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}
SYSTEM = {"role": "system", "content": "be short"}
SHAREGPT = [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]


@pytest.mark.parametrize(
    ("shape", "row"),
    [
        ("messages", {"messages": [USER, SAID]}),
        ("conversations", {"conversations": SHAREGPT}),
        ("conversations", {"conversations": [USER, SAID]}),
        ("prompt + completion", {"prompt": [USER], "completion": [SAID]}),
        ("prompt + response", {"prompt": "q", "response": "a"}),
        ("instruction + output", {"instruction": "q", "input": "", "output": "a"}),
        ("question + answer", {"question": "q", "answer": "a"}),
    ],
)
def test_every_usual_shape(shape: str, row: dict) -> None:
    assert shape_of(row) == shape
    for system, turns in ((None, [USER]), ("be short", [SYSTEM, USER])):
        pair = to_pair(Row("here", {**row, "system": system}))
        assert (pair.prompt, pair.response) == (turns, "a")
    assert asked(Row("here", row)) == "q"
    assert to_prompt(Row("here", {**row, "system": "be short"})) == [SYSTEM, USER]


def test_alpaca_puts_the_input_below_the_instruction() -> None:
    row = {"instruction": "add", "input": "1 2", "output": 3}
    pair = to_pair(Row("here", row))
    assert pair.prompt[0]["content"] == "add\n\n1 2" and pair.response == "3"


def test_columns_of_another_name(tmp_path: Path) -> None:
    file = tmp_path / "table.csv"
    file.write_text('title,body,hint\nq,a,"be short"\n')
    names = {"prompt": "title", "response": "body", "system": "hint"}
    (row,) = open_rows(path=str(file), columns=names)
    assert to_pair(row).prompt == [SYSTEM, USER]
    (row,) = open_rows(path=str(file), columns={"prompt": "titel", "response": "body"})
    with pytest.raises(GoldimaskError, match=r"row 1: data\.columns\.prompt.*mean 'title'"):
        to_pair(row)
    for wrong in ({"prompt": "title"}, {"promt": "title", "response": "body"}):
        with pytest.raises(GoldimaskError, match=r"data\.columns"):
            open_rows(path=str(file), columns=wrong)
    (row,) = open_rows(path=str(file))
    with pytest.raises(GoldimaskError, match=r"data\.columns='\{prompt: \.\.\., response"):
        to_pair(row)
    with pytest.raises(GoldimaskError, match=r"data\.corpus=null"):
        open_rows("gsm8k", str(file), columns=names)


def test_turns_of_a_conversation() -> None:
    later = [{"role": "user", "content": "r"}, {"role": "assistant", "content": "b"}]
    row = Row("here", {"messages": [USER, SAID, *later]})
    assert [(len(p.prompt), p.response) for p in to_pairs(row)] == [(3, "b")]
    assert [(len(p.prompt), p.response) for p in to_pairs(row, "all")] == [(1, "a"), (3, "b")]
    open_ended = Row("here", {"messages": [SAID, USER, SAID, USER]})  # a greeting, an open question
    with pytest.raises(GoldimaskError, match=r"data\.turns=all"):
        to_pairs(open_ended)
    assert [len(p.prompt) for p in to_pairs(open_ended, "all")] == [2]
    stranger = {"conversations": [{"from": "narrator", "value": "x"}]}
    with pytest.raises(GoldimaskError, match="unknown speaker 'narrator'"):
        to_pairs(Row("here", stranger))
