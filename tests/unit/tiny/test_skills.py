"""Skills: three sides that never meet, rows that say what they are, lengths as promised."""

from __future__ import annotations

import pytest

from goldimask.errors import GoldimaskError
from goldimask.eval.tasks import get_task
from goldimask.tiny.corpora import tiny_skills
from goldimask.tiny.families import PROBLEM_FAMILIES, problem_family
from goldimask.tiny.problem import Split
from goldimask.tiny.skills import REPLAYED, SKILLS, TAUGHT


@pytest.mark.parametrize("name", list(SKILLS))
def test_three_sides_never_meet(name):
    sides = [
        {p.key for seed in (0, 1) for p in problem_family(name).problems(60, seed, split)}
        for split in (Split.SFT, Split.VALIDATION, Split.TEST)
    ]
    assert not (sides[0] & sides[1] or sides[0] & sides[2] or sides[1] & sides[2])


def test_families_of_pretraining_have_no_validation_side():
    with pytest.raises(GoldimaskError, match="'chain': has no validation problems"):
        PROBLEM_FAMILIES["chain"].problem(0, 0, Split.VALIDATION)


def test_rows_say_what_is_taught_and_what_is_replayed():
    rows = tiny_skills(50, seed=3)
    assert [r["task"] for r in rows[:4]] == [*TAUGHT, *REPLAYED]
    assert {r["task"] for r in rows if r["role"] == "taught"} == set(TAUGHT)
    assert {r["task"] for r in rows if r["role"] == "replayed"} == set(REPLAYED)


def test_more_wrong_results_leave_the_problems_alone():
    clean, spoilt = tiny_skills(200, eta=0.0), tiny_skills(200, eta=0.3)
    assert [r["clean"] for r in clean] == [r["clean"] for r in spoilt]
    assert all(r["wrong"] == "0" for r in clean)
    assert sum(int(r["wrong"]) > 0 for r in spoilt) > 150


def test_replayed_rows_have_a_share_of_wrong_results_of_their_own():
    mixed, spoilt = tiny_skills(80, eta=0.3, replayed_eta=0.0), tiny_skills(80, eta=0.3)
    for one, other in zip(mixed, spoilt, strict=True):
        if one["role"] == "taught":
            assert one == other  # the same rows, wrong in the same places
        else:
            assert one["wrong"] == "0" and one["response"] == other["clean"]
    assert any(row["wrong"] != "0" for row in mixed)


def test_an_unknown_skill_is_named():
    with pytest.raises(GoldimaskError, match=r"unknown skill 'extrems'.*extremes"):
        tiny_skills(4, taught=["extrems"])
    with pytest.raises(GoldimaskError, match="at least one"):
        tiny_skills(4, taught=[], replayed=[])


@pytest.mark.parametrize("name", list(SKILLS))
def test_own_solutions_are_right_and_wrong_ones_wrong(name):
    for task in (get_task(f"tiny-{name}{end}", n=5) for end in ("", "-val", "-new", "-newer")):
        for item in task.load(None):
            problem = item.meta["problem"]
            assert item.id.startswith(f"{task.name}/")
            right = task.extract(problem.response)
            wrong = task.extract(problem.response.replace("<answer> ", "<answer> 1 "))
            assert [task.check(item, x).correct for x in (right, wrong, None)] == [
                True,
                False,
                False,
            ]


@pytest.mark.parametrize("name", list(SKILLS))
def test_draws_have_problems_of_their_own(name):
    """A confirmation is worth nothing on problems that a regime was chosen by."""
    chosen, *draws = (
        {item.prompt for item in get_task(f"tiny-{name}{end}", n=200).load(None)}
        for end in ("-val", "", "-new", "-newer")
    )
    for i, one in enumerate(draws):
        assert len(one) == 200 and not one & chosen  # another side
        assert all(len(one & other) <= 1 for other in draws[:i])  # the same side: chance alone


def test_responses_have_the_promised_lengths():
    from goldimask.backbones import load_backbone

    tokenizer = load_backbone("tiny").tokenizer
    lengths = [len(tokenizer(r["response"])["input_ids"]) for r in tiny_skills(100)]
    assert min(lengths) >= 60 and max(lengths) <= 160
