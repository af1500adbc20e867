"""Rows, examples, batches: exact boundary, stable ids, nothing dropped in silence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from goldimask.data.batches import Collator, EpochDataset, EpochSampler, make_batch, pad_share
from goldimask.data.examples import data_hash, load_examples, split
from goldimask.data.rows import Row, read_rows
from goldimask.data.shapes import to_pair
from goldimask.errors import GoldimaskError
from goldimask.types import Example


@dataclass(frozen=True)
class Letters:
    """A renderer with one id per character; 0 is the turn end, 1 the header."""

    special_ids: frozenset[int] = frozenset({0, 1})
    turn_end_id: int = 0
    max_length: int = 64
    usable_length: int = 64

    def prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
        return [i for m in messages for i in (*m["content"].encode(), 0)] + [1]

    def response_ids(self, text: str, turn_end: bool = True) -> list[int]:
        return [b if b != ord("~") else 1 for b in text.encode()] + [0] * turn_end


def write(path: Path, rows: list) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def load(path: Path, **options):
    return load_examples(path, Letters(), **options)


def test_boundary_and_supervisable(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", [{"prompt": "ab", "response": "xyz"}])
    (example,), _ = load(file)
    assert list(example.ids) == [97, 98, 0, 1, 120, 121, 122, 0]
    assert example.prompt_length == 4
    assert list(example.supervisable) == [False] * 4 + [True] * 3 + [False]
    (ended,), _ = load(file, supervise_turn_end=True)
    assert list(ended.supervisable) == [False] * 4 + [True] * 4
    assert ended.example_id == example.example_id


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "q", "completion": "a"},
        {"prompt": "q", "response": "a"},
        {"question": "q", "answer": "a"},
        {"prompt": [{"role": "user", "content": "q"}], "completion": "a"},
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]},
    ],
)
def test_columns(row: dict) -> None:
    pair = to_pair(Row("here", row))
    assert pair.prompt == [{"role": "user", "content": "q"}]
    assert pair.response == "a"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"prompt": "q"}, "no response"),
        ({"prompt": "q", "response": "  "}, "empty"),
        ({"text": "q"}, "no known columns"),
        ({"messages": [{"role": "user", "content": "q"}]}, "assistant"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\]"),
        ({"messages": "q"}, "list"),
        ([1, 2], "object"),
    ],
)
def test_bad_rows_name_their_place(row: object, words: str) -> None:
    with pytest.raises(GoldimaskError, match=words) as error:
        to_pair(Row("f.jsonl:3", row))
    assert "f.jsonl:3" in str(error.value)


def test_bad_rows_are_counted_when_skipped(tmp_path: Path) -> None:
    rows = [{"prompt": "q", "response": "a"}, {"prompt": "q"}, {"prompt": "q", "response": "~"}]
    file = write(tmp_path / "a.jsonl", rows)
    with pytest.raises(GoldimaskError, match=r"a\.jsonl:2"):
        load(file)
    examples, report = load(file, skip_bad_rows=True)
    assert len(examples) == 1
    assert (report.rows, report.bad) == (3, 2)
    assert "2 bad rows" in " ".join(report.lines())


def test_what_a_template_refuses_has_a_place_too(tmp_path: Path) -> None:
    class Refusing(Letters):
        def prompt_ids(self, messages: list[dict[str, str]]) -> list[int]:
            raise GoldimaskError("prompt: the last message is the assistant's")

    file = write(tmp_path / "a.jsonl", [{"prompt": "q", "response": "a"}])
    with pytest.raises(GoldimaskError, match=r"a\.jsonl:1: prompt: the last"):
        load_examples(file, Refusing())
    with pytest.raises(GoldimaskError, match=r"a\.jsonl:1: prompt: the last"):
        load_examples(file, Refusing(), skip_bad_rows=True)


def test_only_special_tokens(tmp_path: Path) -> None:
    with pytest.raises(GoldimaskError, match="only special tokens"):
        load(write(tmp_path / "a.jsonl", [{"prompt": "q", "response": "~~"}]))


def test_empty_and_missing_files(tmp_path: Path) -> None:
    with pytest.raises(GoldimaskError, match="no usable rows"):
        load(write(tmp_path / "a.jsonl", []))
    with pytest.raises(GoldimaskError, match="does not exist"):
        load(tmp_path / "b.jsonl")
    (tmp_path / "c.txt").write_text("x")
    with pytest.raises(GoldimaskError, match="must end in"):
        load(tmp_path / "c.txt")
    (tmp_path / "d.jsonl").write_text('{"prompt": "q", "response": "a"}\n{"prompt": \n')
    with pytest.raises(GoldimaskError, match=r"d\.jsonl:2: not valid JSON"):
        load(tmp_path / "d.jsonl")


def test_formats_agree(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rows = [{"prompt": "q1", "response": "a, b"}, {"prompt": "q2", "response": 'c"d'}]
    write(tmp_path / "x.jsonl", rows)
    (tmp_path / "x.json").write_text(json.dumps(rows))
    (tmp_path / "x.csv").write_text('prompt,response\nq1,"a, b"\nq2,"c""d"\n')
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    for suffix in ("jsonl", "json", "csv", "parquet"):
        assert [row.values for row in read_rows(tmp_path / f"x.{suffix}")] == rows


def test_overlength(tmp_path: Path) -> None:
    rows = [{"prompt": "q", "response": "a" * 20}, {"prompt": "q", "response": "short"}]
    file = write(tmp_path / "a.jsonl", rows)
    cut, report = load(file, max_length=13)
    assert len(cut[0]) == 13 and report.truncated == 1 and report.answer_lost == 1
    kept, report = load(file, max_length=13, overlength="drop")
    assert len(kept) == 1 and report.dropped == 1
    with pytest.raises(GoldimaskError, match=r"a\.jsonl:1: 24 tokens"):
        load(file, max_length=13, overlength="error")
    _, report = load(file, max_length=23)
    assert report.truncated == 1 and report.answer_lost == 0
    with pytest.raises(GoldimaskError, match="leaves no room"):
        load(write(tmp_path / "b.jsonl", [{"prompt": "q" * 90, "response": "a"}]))


def test_a_trained_length_is_counted_and_cuts_nothing(tmp_path: Path) -> None:
    rows = [{"prompt": "q", "response": "a" * n} for n in (5, 20, 30)]
    file = write(tmp_path / "a.jsonl", rows)
    kept, report = load_examples(file, Letters(usable_length=16), max_length=30)
    assert [len(e) for e in kept] == [9, 24, 30]
    assert report.beyond == 2 and report.truncated == 1
    assert report.warning() == (
        "2 of 3 rows are longer than the 16 tokens that the checkpoint was trained for; they are "
        "kept, up to 30"
    )
    assert load(file)[1].warning() is None


def test_ids_depend_on_content_only(tmp_path: Path) -> None:
    one = {"prompt": "q", "response": "a"}
    two = {"prompt": "q", "response": "b"}
    first, _ = load(write(tmp_path / "a.jsonl", [one, two]))
    second, _ = load(write(tmp_path / "b.jsonl", [two, one, one]))
    assert first[0].example_id == second[1].example_id
    assert len({e.example_id for e in second}) == 3  # a repeated row has an id of its own
    assert data_hash(first) != data_hash(second)


def test_split_is_a_partition_of_the_seed() -> None:
    examples = [Example([i], 0, [True], i) for i in range(100)]
    train, held = split(examples, 0.1, 3)
    assert len(held) == 10 and len(train) == 90
    assert {e.example_id for e in train} | {e.example_id for e in held} == set(range(100))
    assert split(examples, 10, 3)[1] == held
    assert split(examples, 10, 4)[1] != held
    with pytest.raises(GoldimaskError, match=r"data\.validation"):
        split(examples, 100, 3)


def test_collate_pads_and_says_so() -> None:
    examples = [Example([5, 6, 7], 1, [False, True, True], 1), Example([5, 6], 1, [False, True], 2)]
    batch = make_batch(examples, pad_id=9, multiple=4)
    assert batch.ids.tolist() == [[5, 6, 7, 9], [5, 6, 9, 9]]
    assert batch.valid.tolist() == [[True, True, True, False], [True, True, False, False]]
    assert batch.lengths().tolist() == [2, 1]
    assert batch.padded and batch.attention_mask() is batch.valid
    assert make_batch(examples[:1], pad_id=9).attention_mask() is None


@pytest.mark.parametrize("group", [False, True])
def test_order_is_a_function_of_seed_and_epoch(group: bool) -> None:
    lengths = np.random.default_rng(0).integers(5, 200, 203).tolist()
    sampler = EpochSampler(lengths, 8, seed=1, group_by_length=group)
    again = EpochSampler(lengths, 8, seed=1, group_by_length=group)
    assert len(sampler) == 200
    assert list(sampler) == list(again)
    assert len(set(sampler.order(0).tolist())) == 200
    assert sampler.order(0).tolist() != sampler.order(1).tolist()
    assert EpochSampler(lengths, 8, 2, group).order(0).tolist() != sampler.order(0).tolist()
    sampler.set_epoch(3)
    dataset = EpochDataset([Example([0] * n, 0, [True] * n, i) for i, n in enumerate(lengths)])
    items = [dataset[number] for number in sampler]
    assert {epoch for _, epoch in items} == {3}
    assert [e.example_id for e, _ in items] == sampler.order(3).tolist()


def test_grouping_saves_padding() -> None:
    rng = np.random.default_rng(0)
    examples = [Example([0] * n, 0, [True] * n, i) for i, n in enumerate(rng.integers(5, 200, 400))]
    lengths = [len(e) for e in examples]
    grouped = pad_share(examples, EpochSampler(lengths, 8, 1, True), 8, 1)
    shuffled = pad_share(examples, EpochSampler(lengths, 8, 1, False), 8, 1)
    assert grouped < shuffled / 3


def test_small_sets_get_other_batches_in_every_epoch() -> None:
    """Distinct lengths: with one window over the epoch every epoch would have the same batches."""
    sampler = EpochSampler(list(range(10, 138)), 8, 1)
    first, second = (
        {frozenset(batch) for batch in sampler.order(epoch).reshape(-1, 8).tolist()}
        for epoch in (0, 1)
    )
    assert len(first & second) < 4


def test_too_few_examples_for_one_batch() -> None:
    with pytest.raises(GoldimaskError, match="global_batch_size: 8"):
        EpochSampler([3] * 7, 8, 0)


def test_collator_carries_the_epoch() -> None:
    example = Example([5, 6], 1, [False, True], 4)
    inputs = Collator(9, 1)([(example, 6)])
    assert inputs["epoch"] == 6 and inputs["example_id"].tolist() == [4]


def test_a_conversation_is_not_split_between_training_and_validation(tmp_path: Path) -> None:
    from goldimask.config import load_recipe
    from goldimask.train.prepare import make_data

    roles = ("user", "assistant")
    rows = [
        {"messages": [{"role": r, "content": f"{r[0]}{i}{k}"} for k in "xyz" for r in roles]}
        for i in range(10)
    ]
    file = write(tmp_path / "talks.jsonl", rows)
    words = ["data.turns=all", "data.validation=3", "data.max_length=64"]
    recipe = load_recipe("tiny", [f"data.path={file}", *words])
    data = make_data(recipe.data, Letters(), 0)
    assert (len(data.train), len(data.validation)) == (21, 9)
    assert data.report.several == 10 and "each is trained" in " ".join(data.report.lines())
    whole = {"".join(chr(i) for i in e.ids if i > 1)[:4] for e in data.validation}
    assert len(whole) == 3  # three whole conversations, by their beginning
    train, held_out = split(list(data.train), 0.5, 0)  # without groups: examples
    assert len(held_out) == 10 and len(train) == 11
