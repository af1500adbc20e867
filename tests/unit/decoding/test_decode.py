"""Whole decodes: against the straightforward decoder, and independence of the batch."""

from __future__ import annotations

import numpy as np
import pytest

import goldimask
from goldimask.decoding import Decoded, decode, decode_iter, make_settings
from oracles import decoding as oracle

PROMPTS = [
    "How many apples are left?",
    "a",
    "There were 12 apples and 5 were eaten. The answer is a longer sentence than the others.",
    "def add(a, b):",
    "7 - 5 = ?",
]
SMALL = {"length": 20, "block": 8}  # the last block is short


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("threshold", {"tau": 0.3}),
        ("threshold", {"tau": 0.9}),
        ("entropy", {"tau": 2.0}),
        ("factor", {"factor": 1.5}),
        ("low-confidence", {"steps": 12}),
        ("dream-maskgit-plus", {"steps": 12}),
        ("dream-topk-margin", {"steps": 24}),
        ("dream-entropy", {"steps": 9}),
    ],
)
def test_same_as_the_straightforward_decoder(backbone, name, options):
    settings = make_settings(name, **SMALL, **options)
    ids = [backbone.prompt_ids(p) for p in PROMPTS]
    quota = options.get("steps", 0) // 3 or None
    expected = [oracle.plain_decode(backbone, [p], settings, quota)[0] for p in ids]
    got = decode(backbone, PROMPTS, name, **SMALL, **options, batch_size=3)
    assert [(d.tokens, d.steps) for d in got] == expected
    if name == "threshold" and options["tau"] == 0.3:  # the case is not the trivial one
        assert any(1 < d.steps < 20 for d in got)
    # the oracle in a batch of its own agrees with itself
    assert oracle.plain_decode(backbone, ids, settings, quota) == expected


@pytest.mark.parametrize("full_call", [1, 1024])  # every length in a call of its own, or not
@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_prompt_decodes_alike_in_any_batch(backbone, monkeypatch, full_call, side, temperature):
    monkeypatch.setattr("goldimask.decoding.forward.FULL_CALL", full_call)
    options = {**SMALL, "tau": 0.3, "temperature": temperature, "seed": 5, "padding_side": side}
    alone = [decode(backbone, [p], **options)[0] for p in PROMPTS]
    for order in ([0, 1, 2, 3, 4], [2, 0, 4, 1]):
        for size in (2, 5):
            got = decode(backbone, [PROMPTS[i] for i in order], **options, batch_size=size)
            for i, d in zip(order, got, strict=True):
                assert (d.tokens, d.steps, d.text) == (
                    alone[i].tokens,
                    alone[i].steps,
                    alone[i].text,
                )


def test_kinds_of_prompt_agree(backbone):
    text = "7 - 5 = ?"
    kinds = [text, [{"role": "user", "content": text}], backbone.prompt_ids(text)]
    found = decode(backbone, kinds, **SMALL)
    assert found[0].tokens == found[1].tokens == found[2].tokens
    assert found[0].prompt_ids == backbone.prompt_ids(text)
    array = decode(backbone, [np.array(kinds[2])], **SMALL)
    assert array[0].tokens == found[0].tokens


def test_prefill_continues_the_prompt(backbone):
    ids = backbone.prompt_ids("a") + backbone.response_ids("The answer", turn_end=False)
    assert (
        decode(backbone, ["a"], prefill="The answer", **SMALL)[0].tokens
        == decode(backbone, [ids], **SMALL)[0].tokens
    )


def test_trace_rebuilds_the_response(backbone):
    for name in ("threshold", "low-confidence", "dream-origin", "entropy"):
        seen = []
        tau = {"tau": 0.4} if name in ("threshold", "entropy") else {}
        (made,) = decode(
            backbone, ["a"], name, **SMALL, **tau, watch=lambda i, c, seen=seen: seen.append((i, c))
        )
        assert seen == [(0, c) for c in made.trace]
        tokens = [-1] * 20
        for commit in made.trace:
            for position, token in zip(commit.positions, commit.tokens, strict=True):
                assert tokens[position] == -1  # permanent
                tokens[position] = token
            assert all(0 < c <= 1 for c in commit.confidence)
            assert len(commit.confidence) == len(commit.positions) > 0
        assert tokens == made.tokens and made.complete
        assert [c.step for c in made.trace] == list(range(1, made.steps + 1))


def test_blocks_are_finished_left_to_right(backbone):
    (made,) = decode(backbone, ["a"], **SMALL, tau=0.5)
    blocks = [c.block for c in made.trace]
    assert blocks == sorted(blocks) and set(blocks) == {0, 1, 2}
    assert all(
        8 * c.block <= min(c.positions) <= max(c.positions) < 8 * c.block + 8 for c in made.trace
    )


def test_extreme_thresholds(backbone):
    (one,) = decode(backbone, ["a"], **SMALL, tau=1.0)
    assert one.steps == 20
    (all_,) = decode(backbone, ["a"], **SMALL, tau=1e-9)
    assert all_.steps == 3


def test_results_come_as_they_finish(backbone):
    found = dict(decode_iter(backbone, PROMPTS, make_settings(**SMALL), batch_size=2))
    again = goldimask.decode(backbone, PROMPTS, **SMALL, batch_size=2)
    assert isinstance(again[0], Decoded)
    assert [found[i].tokens for i in range(5)] == [d.tokens for d in again]


def test_training_mode_is_restored_and_dropout_off(backbone):
    backbone.model.train()
    try:
        first = decode(backbone, ["a"], **SMALL)[0].tokens
        assert backbone.model.training
    finally:
        backbone.model.eval()
    assert first == decode(backbone, ["a"], **SMALL)[0].tokens
