"""What could hang, crash or be silently wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from goldimask.decoding import DECODERS, decode, make_settings
from goldimask.decoding.prompts import sample_ids
from goldimask.decoding.scores import draw_tokens, filter_logits, score_rows
from goldimask.errors import GoldimaskError

SMALL = {"length": 12, "block": 8}


def prefer(backbone, token: int, by: float = 60.0):
    """The backbone with a head that always prefers one token."""
    head = backbone.model.lm_head
    hook = head.register_forward_hook(lambda m, i, out: out.index_fill(-1, TENSOR(token), by))
    return hook


def TENSOR(token):
    return torch.tensor([token])


def test_the_mask_token_is_never_committed(backbone):
    hook = prefer(backbone, backbone.mask_id)
    try:
        for name in DECODERS.names():
            (made,) = decode(backbone, ["a"], name, **SMALL)
            assert made.complete and backbone.mask_id not in made.tokens
    finally:
        hook.remove()


def test_as_released_the_mask_stalls_and_the_cap_ends_it(backbone):
    hook = prefer(backbone, backbone.mask_id)
    try:
        options = {**SMALL, "allow_mask": True}
        (made,) = decode(backbone, ["a"], **options, max_steps=5)
        assert made.steps == 5 and not made.complete
        assert set(made.tokens) == {backbone.mask_id}
        (made,) = decode(backbone, ["a"], **options)
        assert made.steps == 12 and not made.complete
        (made,) = decode(backbone, ["a"], "low-confidence", **options, steps=4)
        assert made.steps == 4 and not made.complete
    finally:
        hook.remove()


def test_cap(backbone):
    (made,) = decode(backbone, ["a"], length=12, block=8, tau=1.0, max_steps=3)
    assert made.steps == 3 and not made.complete and made.tokens.count(backbone.mask_id) == 9


@pytest.mark.parametrize("eos_stop", [False, True])
@pytest.mark.parametrize("end", ["pad_id", "turn_end_id"])
def test_end_token(backbone, eos_stop, end):
    """Everything is the end token: the first block settles it, the others are only counted."""
    token = getattr(backbone, end)
    hook = prefer(backbone, token)
    try:
        options = {"length": 24, "block": 8, "eos_stop": eos_stop}
        (made,) = decode(backbone, ["a"], **options)
    finally:
        hook.remove()
    assert made.steps_to_eos == 1 and made.text == "" and made.complete
    assert made.steps == (1 if eos_stop else 3)
    assert made.tokens[8:] == [backbone.pad_id if eos_stop else token] * 16


def test_no_end_token(backbone):
    ends = (backbone.pad_id, backbone.turn_end_id)
    (made,) = decode(backbone, ["a"], **SMALL, suppress=ends, eos_stop=True)
    assert made.steps_to_eos is None and not set(ends) & set(made.tokens)


def test_length_zero_and_no_prompts(backbone):
    (made,) = decode(backbone, ["a"], length=0)
    assert made.tokens == [] and made.steps == 0 and made.text == "" and made.complete
    assert decode(backbone, []) == []


def test_block_longer_than_the_response(backbone):
    assert decode(backbone, ["a"], length=5, block=64, tau=1.0)[0].steps == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tau": 0}, "tau: expected a confidence in"),
        ({"tau": 1.01}, "tau: expected a confidence in"),
        ({"tau": float("nan")}, "tau: expected a confidence in"),
        ({"length": -1}, "length: expected"),
        ({"length": 3.5}, "length: expected"),
        ({"block": 0}, "block: expected"),
        ({"temperature": -1.0}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"decoder": "tresholt"}, "did you mean 'threshold'"),
        ({"decoder": "low-confidence", "steps": 3, **SMALL}, "multiple of the 2 blocks"),
        ({"decoder": "low-confidence", "steps": 0}, "steps: expected"),
        ({"decoder": "entropy", "tau": -0.1}, "tau: expected an entropy"),
        ({"max_steps": 0}, "max_steps"),
        ({"cache": "both"}, "cache: expected"),
        ({"cache": "dual", "cfg": 1.0}, "cache: not available with cfg"),
        ({"decoder": "random", "tau": 0.9}, "tau: decoder 'random' does not use it"),
        ({"decoder": "low_confidence", "tau": 0.9}, "'low-confidence' .* takes steps and alg_temp"),
        ({"steps": 8}, "steps: decoder 'threshold' does not use it (it takes tau)"),
        ({"decoder": "entropy", "factor": 1.0}, "factor: decoder 'entropy' does not use it"),
        ({"decoder": "random", "alg_temp": 0.5}, "alg_temp: decoder 'random' does not use it"),
        ({"batch_size": 0}, "batch_size"),
        ({"samples": [1, 2]}, "samples: expected 1"),
    ],
)
def test_bad_settings(llada, options, words):
    with pytest.raises(GoldimaskError, match=words.replace("(", r"\(").replace(")", r"\)")):
        decode(llada, ["a"], **options)


@pytest.mark.parametrize(
    ("prompts", "words"),
    [
        ("a", "wrap a single prompt in a list"),
        ([3.5], r"prompts\[0\]: expected a string"),
        ([{"role": "user", "content": "a"}], r"prompts\[0\]: expected"),
        (["a", []], r"prompts\[1\]: no tokens"),
        ([[5] * 200], r"prompts\[0\]: 200 tokens and a response of 128 exceed"),
    ],
)
def test_bad_prompts(llada, prompts, words):
    with pytest.raises(GoldimaskError, match=words):
        decode(llada, prompts)


def test_empty_string_is_an_empty_turn(backbone):
    assert decode(backbone, [""], **SMALL)[0].complete


def test_samples_are_seeded_and_differ(backbone):
    hot = {**SMALL, "temperature": 1.5}
    three = decode(backbone, ["a"] * 3, **hot)
    assert len({tuple(d.tokens) for d in three}) == 3
    assert three[0].tokens == decode(backbone, ["a"], **hot)[0].tokens
    assert three[0].tokens != decode(backbone, ["a"], **hot, seed=1)[0].tokens
    again = decode(backbone, ["a"], **hot, samples=[three[2].sample])
    assert again[0].tokens == three[2].tokens
    assert sample_ids([np.array([1]), np.array([2])])[0] == sample_ids([np.array([1])])[0]


def test_guidance_changes_the_answer_but_not_without_weight(backbone):
    plain = decode(backbone, ["7 - 5 = ?"], **SMALL)[0].tokens
    assert decode(backbone, ["7 - 5 = ?"], **SMALL, cfg=0.0)[0].tokens == plain
    assert decode(backbone, ["7 - 5 = ?"], **SMALL, cfg=4.0)[0].tokens != plain


def test_defaults_of_decoders():
    assert make_settings("threshold").tau == 0.9
    assert make_settings("entropy").tau == 0.5
    assert make_settings("dream-entropy", length=77).block == 77
    assert make_settings("threshold", block=None).block == 32


def test_draws_follow_the_distribution():
    logits = torch.log(torch.tensor([[0.5, 0.0, 0.3, 0.2]], dtype=torch.float64)).expand(4000, 4)
    u = torch.linspace(0, 1 - 1e-9, 4000, dtype=torch.float64)
    share = torch.bincount(draw_tokens(logits, u), minlength=4) / 4000
    torch.testing.assert_close(share, torch.tensor([0.5, 0.0, 0.3, 0.2]), atol=1e-3, rtol=0)
    last = draw_tokens(torch.tensor([[0.0, 0.0, -torch.inf]]).double(), torch.tensor([1 - 2**-53]))
    assert last.item() == 1  # never a token without mass


def test_filters():
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log().double()
    kept = lambda **o: filter_logits(p, **{"temperature": 0.0, "top_p": 1.0, "top_k": 0, **o})  # noqa: E731
    assert torch.isfinite(kept(top_p=0.6)).tolist() == [[True, True, False, False]]
    assert torch.isfinite(kept(top_p=0.4)).tolist() == [[True, False, False, False]]
    assert torch.isfinite(kept(top_k=3)).tolist() == [[True, True, True, False]]
    torch.testing.assert_close(kept(temperature=0.5), p * 2)


def test_confidence_is_untempered_except_for_dream():
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    uniform = np.array([0.0])
    plain = score_rows(logits, "confidence", uniforms=uniform, temperature=0.5)
    dream = score_rows(logits, "confidence", uniforms=uniform, temperature=0.5, filtered=True)
    assert plain.token[0] == dream.token[0] == 0
    np.testing.assert_allclose(plain.confidence[0], logits.double().softmax(1)[0, 0])
    np.testing.assert_allclose(dream.confidence[0], (2 * logits).double().softmax(1)[0, 0])


def test_scores_in_chunks(monkeypatch):
    logits = torch.randn(50, 30, generator=torch.Generator().manual_seed(0))
    whole = {m: score_rows(logits, m, banned=(3,)) for m in ("confidence", "entropy", "margin")}
    monkeypatch.setattr("goldimask.decoding.scores.CHUNK", 70)
    for measure, expected in whole.items():
        got = score_rows(logits, measure, banned=(3,))
        assert (got.token == expected.token).all() and (got.token != 3).all()
        np.testing.assert_array_equal(got.score, expected.score)


def test_bfloat16_confidences_do_not_saturate():
    logits = torch.tensor([[8.0, 0.0], [9.0, 0.0]], dtype=torch.bfloat16)
    scores = score_rows(logits, "confidence")
    assert scores.confidence[0] < scores.confidence[1] < 1
