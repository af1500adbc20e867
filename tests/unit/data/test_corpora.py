"""Named corpora on small files with the real columns; folders, Hub ids and mixtures."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from goldimask.config import DataSection, MixtureItem, parse_recipe
from goldimask.data.corpora import CORPORA, FORMAT, mix, open_rows
from goldimask.data.examples import load_examples
from goldimask.data.rows import is_hub_id
from goldimask.data.shapes import to_pair
from goldimask.errors import GoldimaskError
from goldimask.train.prepare import make_data
from unit.data.test_examples import Letters

ROWS = {
    "s1k": {"question": "Q", "thinking_trajectories": ["T", "other"], "attempt": "A"},
    "s1k-1.1": {
        "question": "Q",
        "deepseek_thinking_trajectory": "T",
        "deepseek_attempt": "A",
        "thinking_trajectories": ["wrong"],
    },
    "gsm8k": {"question": "Q", "answer": "T\n#### A"},
    "lift-sft-12k": {
        "question": "Q",
        "thinking_trajectories": ["T"],
        "sol": ["A", "B"],
        "source_type": "x",
    },
    "kodcode": {
        "question": "no",
        "conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "T"}],
        "r1_solution": "A",
        "solution": "B",
    },
}


def write(path: Path, rows: list) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


def pairs(corpus=None, path=None, **options):
    return [to_pair(row) for row in open_rows(corpus, path, seed=3, **options)]


@pytest.mark.parametrize("corpus", ROWS)
def test_formatting(tmp_path: Path, corpus: str) -> None:
    (pair,) = pairs(corpus=corpus, path=str(write(tmp_path / "x.jsonl", [ROWS[corpus]])))
    assert pair.prompt == [{"role": "user", "content": f"{FORMAT}\n\nQ"}]
    assert pair.response == "<reasoning>T</reasoning>\n<answer>A</answer>"


@pytest.mark.parametrize(
    ("changes", "response"),
    [
        (
            {"conversations": [{"from": "gpt", "value": "<think>T</think> so"}]},
            "<reasoning>T</reasoning> so\n<answer>A</answer>",
        ),
        (
            {"conversations": [{"from": "gpt", "value": "<think>T</think><answer>C</answer>"}]},
            "<reasoning>T</reasoning><answer>C</answer>",
        ),
        ({"conversations": None}, "<reasoning></reasoning>\n<answer>A</answer>"),
        (
            {"conversations": None, "r1_solution": None},
            "<reasoning></reasoning>\n<answer>B</answer>",
        ),
    ],
)
def test_kodcode_shapes(changes: dict, response: str) -> None:
    row = CORPORA.get("kodcode").format({**ROWS["kodcode"], **changes})  # type: ignore[union-attr]
    assert row["response"] == response
    assert row["prompt"].endswith("\n\nno")


def test_missing_columns_name_file_line_and_corpus(tmp_path: Path) -> None:
    bad = [ROWS["s1k"], {"question": "Q"}, {"question": "Q", "thinking_trajectories": []}]
    file = write(tmp_path / "x.jsonl", bad)
    with pytest.raises(GoldimaskError, match=r"x\.jsonl:2: corpus 's1k': column 'thinking"):
        pairs(corpus="s1k", path=str(file))
    rows = open_rows("s1k", str(file))
    good, report = load_examples(rows, Letters(max_length=999), skip_bad_rows=True)
    assert len(good) == 1 and (report.rows, report.bad) == (3, 2)
    with pytest.raises(GoldimaskError, match="####"):
        pairs(
            corpus="gsm8k",
            path=str(write(tmp_path / "g.jsonl", [{"question": "Q", "answer": "4"}])),
        )


def test_folders(tmp_path: Path) -> None:
    from datasets import Dataset, DatasetDict

    rows = [{"prompt": "q", "response": x} for x in "ab"]
    Dataset.from_list(rows).save_to_disk(tmp_path / "one")
    splits = {"train": Dataset.from_list(rows), "test": Dataset.from_list(rows[:1])}
    DatasetDict(splits).save_to_disk(tmp_path / "two")
    (tmp_path / "three").mkdir()
    write(tmp_path / "three" / "train-1.jsonl", rows[:1])
    with gzip.open(tmp_path / "three" / "train-2.jsonl.gz", "wt") as file:
        file.write(json.dumps(rows[1]) + "\n")
    write(tmp_path / "three" / "test.jsonl", rows)
    for name, split, count in (("one", None, 2), ("two", None, 2), ("two", "test", 1)):
        found = pairs(path=str(tmp_path / name), split=split)
        assert [p.response for p in found] == ["a", "b"][:count]
    found = pairs(path=str(tmp_path / "three"), split="train")
    assert [p.response for p in found] == ["a", "b"]
    with pytest.raises(GoldimaskError, match=r"data\.split: 'dev' is not in .*train, test"):
        pairs(path=str(tmp_path / "two"), split="dev")
    (tmp_path / "four").mkdir()
    with pytest.raises(GoldimaskError, match="neither a saved dataset nor"):
        pairs(path=str(tmp_path / "four"))


def test_hub_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked of `datasets`, and what a failure says."""
    import datasets

    asked = []

    def load_dataset(name, subset, split):
        asked.append((name, subset, split))
        if name.startswith("missing"):
            raise ConnectionError("no network")
        return [ROWS["gsm8k"]]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.chdir(tmp_path)
    pairs(corpus="gsm8k")
    pairs(path="someone/rows", split="test", subset="tiny")
    assert asked == [("openai/gsm8k", "main", "train"), ("someone/rows", "tiny", "test")]
    with pytest.raises(GoldimaskError, match=r"missing/rows.*no network.*data\.path"):
        pairs(path="missing/rows")


@pytest.mark.parametrize(
    ("place", "hub"),
    [("a/b", True), ("a/b.jsonl", False), ("./a/b", False), ("a", False), ("a/b/c", False)],
)
def test_what_looks_like_a_hub_id(place: str, hub: bool) -> None:
    assert is_hub_id(place) is hub


def test_mixture_has_the_shares_and_depends_on_the_seed(tmp_path: Path) -> None:
    a = write(tmp_path / "a.jsonl", [{"prompt": "a", "response": f"a{i}"} for i in range(100)])
    b = write(tmp_path / "b.jsonl", [{"prompt": "b", "response": f"b{i}"} for i in range(30)])

    def texts(seed: int = 3, mixture_size: int | None = None):
        parts = [open_rows(path=str(file)) for file in (a, b)]
        return [to_pair(row).response for row in mix(parts, [3, 1], mixture_size, seed)]

    found = texts()
    assert len(found) == len(set(found)) == 120  # no row twice
    assert sum(x[0] == "a" for x in found) == 90
    assert texts() == found and texts(seed=4) != found
    larger = texts(mixture_size=200)
    assert sum(x[0] == "b" for x in larger) == 50 and len(set(larger)) < 200


def test_mixture_mistakes(tmp_path: Path) -> None:
    with pytest.raises(GoldimaskError, match=r"data\.mixture: weights"):
        mix([[], []], [0.0, 0.0], None, 0)
    item = MixtureItem(corpus="tiny-sft")
    with pytest.raises(GoldimaskError, match="not both"):
        make_data(DataSection(mixture=(item,), corpus="tiny-sft"), Letters(), seed=0)
    with pytest.raises(GoldimaskError, match=r"data\.mixture\[1\]\.wieght: .*weight"):
        parse_recipe({"data": {"mixture": [{"corpus": "s1k"}, {"corpus": "gsm8k", "wieght": 1}]}})
    with pytest.raises(GoldimaskError, match="is generated and reads no file"):
        pairs(corpus="tiny-sft", path=str(tmp_path / "x.jsonl"))


def test_a_generated_corpus_is_drawn_with_seed_and_options() -> None:
    """The very rows that the corpus's function draws."""
    from goldimask.tiny.corpora import corpus, tiny_1k_labels

    def rows(drawn: int, **options):
        return [
            r.values for r in open_rows("tiny-1k-labels", limit=40, seed=drawn, options=options)
        ]

    assert rows(1, eta=0.3) == tiny_1k_labels(40, 1, eta=0.3)
    assert rows(1) == corpus("tiny-1k-labels", 40, 1)
    assert rows(2) != rows(1) and rows(2, seed=1) == rows(1)
    with pytest.raises(GoldimaskError, match=r"data\.options\.etta: .*did you mean 'eta'"):
        rows(1, etta=0.3)
    with pytest.raises(GoldimaskError, match=r"data\.options\.eta: .*number"):
        rows(1, eta="much")
    with pytest.raises(GoldimaskError, match=r"data\.options: only a generated corpus"):
        open_rows("s1k", options={"eta": 0.3})
