"""The ways to get logits: lean and batched against the whole model, caches against a slow one."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from goldimask.decoding import decode
from goldimask.decoding.forward import exact_logits
from goldimask.decoding.fused import dense, lean_parts
from goldimask.decoding.lean import Pass, lean_logits
from goldimask.decoding.prompts import make_settings
from goldimask.decoding.rows import new_row, window

SMALL = {"length": 20, "block": 8}


def rows_of(backbone, settings, prompts=("7 - 5 = ?", "There were 12 apples and 5")):
    rng = np.random.default_rng(0)
    rows = []
    for i, text in enumerate(prompts):
        ids = np.array(backbone.prompt_ids(text))
        row = new_row(i, i, ids, settings, backbone.mask_id, rng)
        row.block = i
        row.open_[: 8 * i + 3] = False
        row.response()[: 8 * i + 3] = rng.integers(0, 300, 8 * i + 3)
        rows.append(row)
    return rows


def whole(backbone, row, where, cfg=0.0):
    """Logits of all positions of one canvas, shifted by concatenation, then picked."""

    def full(canvas):
        logits = backbone.model(input_ids=torch.from_numpy(canvas)[None]).logits[0]
        if backbone.shift:
            logits = torch.cat([logits[:1], logits[:-1]])
        return logits[row.prompt + where]

    given = full(row.canvas)
    if not cfg:
        return given
    blind = row.canvas.copy()
    blind[: row.prompt] = backbone.mask_id
    free = full(blind)
    return free + (cfg + 1) * (given - free)


@torch.inference_mode()
@pytest.mark.parametrize("cfg", [0.0, 1.5])
@pytest.mark.parametrize("side", ["left", "right"])
def test_logits_of_the_window(backbone, cfg, side):
    settings, _ = make_settings("threshold", **SMALL, cfg=cfg, padding_side=side)
    rows = rows_of(backbone, settings)
    windows = [window(row, settings) for row in rows]
    assert [len(w) for w in windows] == [5, 5]
    expected = torch.cat([whole(backbone, r, w, cfg) for r, w in zip(rows, windows, strict=True)])
    lean = lean_parts(backbone, max(r.length for r in rows))
    assert lean is not None
    for got in (
        lean_logits(Pass(lean), rows, windows, settings, backbone.mask_id),
        exact_logits(backbone, rows, windows, settings),
    ):
        torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-4)


@torch.inference_mode()
def test_lean_without_the_token_table(backbone, monkeypatch):
    monkeypatch.setattr("goldimask.decoding.fused.TABLE", 0)
    settings, _ = make_settings("threshold", **SMALL)
    rows = rows_of(backbone, settings)
    lean = lean_parts(backbone, 100)
    assert lean is not None and lean.table is None
    windows = [window(row, settings) for row in rows]
    got = lean_logits(Pass(lean), rows, windows, settings, backbone.mask_id)
    expected = torch.cat([whole(backbone, r, w) for r, w in zip(rows, windows, strict=True)])
    torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-4)


@torch.inference_mode()
@pytest.mark.parametrize("sharpness", [1.0, 80.0])
def test_sums_carried_over_many_steps(backbone, sharpness):
    """Filling a canvas in any order gives the logits of the whole model at every step."""
    model = copy.deepcopy(backbone.model)
    model.model.layers[0].self_attn.q_proj.weight.mul_(sharpness)  # attention on few positions
    sharp = replace(backbone, model=model)
    settings, _ = make_settings("threshold", length=80, block=80)
    row = rows_of(sharp, settings)[0]
    row.canvas[row.prompt :], row.open_[:] = sharp.mask_id, True
    lean = lean_parts(sharp, row.length)
    assert lean is not None
    work, rng, afresh = Pass(lean), np.random.default_rng(5), []
    filled, tops = np.arange(0), np.zeros(0)
    while row.open_.any():
        where = window(row, settings)
        got = lean_logits(work, [row], [where], settings, sharp.mask_id)
        torch.testing.assert_close(got, whole(sharp, row, where), rtol=2e-5, atol=5e-4)
        kept = work.sums[row.index, False].top
        if len(filled):  # rows that were summed afresh though nothing was filled in there
            moved = (kept != tops).any(0)
            moved[row.prompt + filled] = False
            afresh.append((len(filled), int(moved.sum())))
        tops = kept.copy()
        many = 40 if len(afresh) == 6 else 1 + int(rng.integers(6))
        filled = rng.permutation(where)[:many]
        row.response()[filled] = rng.integers(5, 60, len(filled))
        row.open_[filled] = False
    few = [moved for many, moved in afresh if many < 40]
    assert len(few) > 8 and any(many == 40 and moved for many, moved in afresh)
    assert (sum(few) > 0) == (sharpness > 1)


def test_lean_declines_what_it_does_not_serve(backbone, monkeypatch):
    monkeypatch.setattr("goldimask.decoding.fused.LARGEST", 10)
    assert lean_parts(backbone, 10) is None


@torch.inference_mode()
def test_dense_reads_an_affine_module_off():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.in_features = torch.nn.Linear(3, 5), 3

        def forward(self, x):
            return 2 * self.linear(x) + x.sum(-1, keepdim=True)

    module = Twice()
    weight, bias = dense(module)
    x = torch.tensor([[0.3, -2.0, 1.0]])
    torch.testing.assert_close(F.linear(x, weight, bias), module(x))


def test_engines_decode_alike(backbone):
    prompts = ["a", "There were 12 apples", "7 - 5"]
    options = {**SMALL, "tau": 0.3, "cfg": 0.5}
    lean = decode(backbone, prompts, **options)
    model = decode(backbone, prompts, **options, engine="model")
    assert [(d.tokens, d.steps) for d in lean] == [(d.tokens, d.steps) for d in model]


def test_lean_with_an_adapter(llada):
    from goldimask.backbones.lora import add_lora

    adapted = add_lora(llada, 0, r=4, alpha=8.0)
    with torch.no_grad():
        for name, p in adapted.model.named_parameters():
            if "lora_B" in name:
                p.normal_(std=0.3, generator=torch.Generator().manual_seed(1))
    assert lean_parts(adapted, 64) is not None
    prompts = ["a", "7 - 5"]
    lean = decode(adapted, prompts, **SMALL, tau=0.3)
    model = decode(adapted, prompts, **SMALL, tau=0.3, engine="model")
    assert [d.tokens for d in lean] == [d.tokens for d in model]
    with adapted.model.disable_adapter():
        assert [d.tokens for d in decode(adapted, prompts, **SMALL, tau=0.3)] != [
            d.tokens for d in lean
        ]


class Slow:
    """A model with stale keys, stated literally: one canvas, one layer, one head at a time."""

    def __init__(self, backbone):
        self.model, self.shift = backbone.model, backbone.shift
        self.known: list = [None] * len(backbone.model.model.layers)

    def __call__(self, canvas, begin, end):
        body = self.model.model
        x = body.embed_tokens(torch.from_numpy(canvas[begin:end]))
        cos, sin = body.rotary_emb(x, torch.arange(begin, end)[None])
        for i, layer in enumerate(body.layers):
            x = x + self.attend(i, layer.self_attn, layer.input_layernorm(x), cos[0], sin[0], begin)
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.model.lm_head(body.norm(x))

    def attend(self, i, attention, h, cos, sin, begin):
        size = attention.head_dim

        def turn(y):
            return y * cos + torch.cat([-y[:, size // 2 :], y[:, : size // 2]], 1) * sin

        q, k, v = attention.q_proj(h), attention.k_proj(h), attention.v_proj(h)
        k = torch.cat([turn(part) for part in k.split(size, 1)], 1)
        if self.known[i] is not None:
            for new, old in zip((k, v), self.known[i], strict=True):
                old[begin : begin + len(h)] = new
        else:
            self.known[i] = (k, v)
        k, v = self.known[i]
        group = q.shape[1] // k.shape[1]
        out = []
        for head, part in enumerate(q.split(size, 1)):
            at = slice(head // group * size, (head // group + 1) * size)
            p = (turn(part) @ k[:, at].T * attention.scaling).softmax(1)
            out.append(p @ v[:, at])
        return attention.o_proj(torch.cat(out, 1))


def slow_cached(backbone, prompt, cache, tau, length, block):
    canvas = np.array([*prompt, *[backbone.mask_id] * length])
    begin, steps, shift = len(prompt), 0, int(backbone.shift)
    for start in range(0, length, block):
        end = min(start + block, length)
        slow = Slow(backbone)
        first = True
        while (canvas[begin + start : begin + end] == backbone.mask_id).any():
            low = 0 if first else begin + start - shift
            high = len(canvas) if first or cache == "prefix" else begin + end
            logits = slow(canvas, low, high).double()
            logits[:, backbone.mask_id] = -torch.inf
            open_ = [i for i in range(begin + start, begin + end) if canvas[i] == backbone.mask_id]
            p, token = logits[[i - shift - low for i in open_]].softmax(1).max(1)
            chosen = [j for j in range(len(open_)) if p[j] >= tau] or [int(p.argmax())]
            for j in chosen:
                canvas[open_[j]] = int(token[j])
            first, steps = False, steps + 1
    return canvas[begin:].tolist(), steps


@torch.inference_mode()
@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_caches_against_the_slow_statement(backbone, cache):
    prompts = ["7 - 5 = ?", "There were 12 apples and 5 were eaten", "a"]
    got = decode(backbone, prompts, **SMALL, tau=0.3, cache=cache, batch_size=2)
    for text, made in zip(prompts, got, strict=True):
        expected = slow_cached(backbone, backbone.prompt_ids(text), cache, 0.3, 20, 8)
        assert (made.tokens, made.steps) == expected
        assert not made.exact


@pytest.mark.parametrize("cache", ["prefix", "dual"])
def test_a_block_of_one_makes_caches_exact(backbone, cache):
    """Every step begins a block, so that nothing stale is ever used."""
    options = {"length": 6, "block": 1}
    exact = decode(backbone, ["7 - 5 = ?"], **options)[0]
    cached = decode(backbone, ["7 - 5 = ?"], **options, cache=cache)[0]
    assert (exact.tokens, exact.steps) == (cached.tokens, cached.steps)
    assert exact.exact and not cached.exact


def test_kernels_against_plain_statements():
    from goldimask.decoding import kernels

    rng = np.random.default_rng(3)
    scores = (rng.standard_normal((7, 16)) * 8).astype(np.float32)
    soft, share = scores.copy(), np.zeros(7, np.float32)
    kernels.soften(soft, 13, share)
    expected = torch.from_numpy(scores[:, :13]).double().softmax(1)
    made = torch.from_numpy(soft * share[:, None]).double()
    torch.testing.assert_close(made[:, :13], expected, rtol=1e-5, atol=1e-12)
    assert not soft[:, 13:].any()

    both = (rng.standard_normal((5, 22)) * 30).astype(np.float32)
    both[0, :3] = (-200.0, 200.0, 0.0)  # beyond the range of a float32 exponential
    out = np.zeros((5, 11), np.float32)
    kernels.gate(both, out)
    wide = torch.from_numpy(both).double()
    want = (F.silu(wide[:, :11]) * wide[:, 11:]).float()
    torch.testing.assert_close(torch.from_numpy(out), want, rtol=1e-5, atol=1e-6)

    kernels.unit(both, np.float32(1e-5), unit := np.zeros_like(both))
    want = wide / (wide.square().mean(1, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(torch.from_numpy(unit), want.float(), rtol=1e-5, atol=1e-6)
