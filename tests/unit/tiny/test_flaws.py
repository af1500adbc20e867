"""Corpora with flaws: how many, where, and always the same ones."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from goldimask.data.corpora import open_rows
from goldimask.errors import GoldimaskError
from goldimask.tiny.corpora import Flaws, corpus, flawed, tiny_1k
from goldimask.tiny.families import PROBLEM_FAMILIES, test_set
from goldimask.tiny.identifiers import IDENTIFIERS, OPENING

NUMBER = re.compile(r"\d+")


def trace(response: str) -> list[str]:
    return response.split("<reasoning>\n")[1].split("\n</reasoning>")[0].split("\n")


def test_a_clean_row_is_the_solution_with_an_opening_line() -> None:
    for plain, row in zip(corpus("tiny-sft", 20, 3), corpus("tiny-1k-clean", 20, 3), strict=True):
        words = row["identifiers"].split()
        assert row["wrong"] == "0" and len(words) == 3 and set(words) <= set(IDENTIFIERS)
        opening = f"{OPENING} {' '.join(words)}:\n"
        assert row["response"].replace(opening, "", 1) == plain["response"]
        assert {k: row[k] for k in ("prompt", "answer", "task")} == {
            k: plain[k] for k in ("prompt", "answer", "task")
        }


def test_noisy_and_clean_rows_are_paired() -> None:
    noisy, clean = corpus("tiny-1k", 60, 1), corpus("tiny-1k-clean", 60, 1)
    for a, b in zip(noisy, clean, strict=True):
        assert (a["prompt"], a["identifiers"], a["answer"]) == (
            b["prompt"],
            b["identifiers"],
            b["answer"],
        )
        before, after = (NUMBER.findall(x["response"]) for x in (b, a))
        assert sum(x != y for x, y in zip(before, after, strict=True)) == int(a["wrong"])


def test_rate_of_wrong_results_is_eta() -> None:
    rows = corpus("tiny-1k", 600, 0)
    results = sum(sum(bool(NUMBER.search(line)) for line in trace(r["response"])) + 1 for r in rows)
    share = sum(int(r["wrong"]) for r in rows) / results
    assert abs(share - 0.15) < 0.02  # 4,000 results: six standard deviations
    assert 0.3 < sum(r["wrong"] != "0" for r in rows) / len(rows) < 0.9


def test_identifiers_are_uniform() -> None:
    counts = Counter(w for r in corpus("tiny-1k", 1500, 0) for w in r["identifiers"].split())
    assert set(counts) == set(IDENTIFIERS)
    expected = 4500 / len(IDENTIFIERS)
    chi = sum((n - expected) ** 2 / expected for n in counts.values())
    assert chi < 2 * len(IDENTIFIERS)


def test_wrong_numbers_stay_within_the_row_and_are_wrong() -> None:
    plain = corpus("tiny-sft", 40, 0)
    for row, spoilt in zip(plain, flawed(plain, Flaws(1.0, 0)), strict=True):
        assert "identifiers" in spoilt and not spoilt["identifiers"]
        numbers = [int(x) for x in NUMBER.findall(row["prompt"] + " " + row["response"])]
        for a, b in zip(trace(row["response"]), trace(spoilt["response"]), strict=True):
            old, new = NUMBER.findall(a), NUMBER.findall(b)
            assert old[:-1] == new[:-1]
            if old:
                assert old[-1] != new[-1] and min(numbers) <= int(new[-1]) <= max(numbers)
        task = PROBLEM_FAMILIES[row["task"]]
        assert task.extract(spoilt["response"]) != row["answer"] == spoilt["answer"]


def test_same_seed_same_rows_and_a_longer_corpus_begins_with_the_shorter() -> None:
    assert corpus("tiny-1k", 50, 4) == corpus("tiny-12k", 80, 4)[:50]
    assert corpus("tiny-1k", 50, 4) != corpus("tiny-1k", 50, 5)


def test_disjoint_from_the_test_side() -> None:
    train = {r["prompt"] for r in corpus("tiny-1k", 500, 0)}
    for name in list(PROBLEM_FAMILIES):
        assert not train & {p.prompt for p in test_set(name, 100, 0)}


def test_recipes_find_them_by_name() -> None:
    assert [row.values for row in open_rows("tiny-1k", limit=5)] == tiny_1k(5)


@pytest.mark.parametrize("wrong", [{"eta": 1.5}, {"identifiers": -1}])
def test_impossible_flaws_are_refused(wrong: dict) -> None:
    with pytest.raises(GoldimaskError, match=r"eta|identifiers"):
        tiny_1k(1, **wrong)
