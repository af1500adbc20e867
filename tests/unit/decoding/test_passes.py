"""The ways to get logits: batched calls against the whole model, caches against a slow one."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from goldimask.decoding import decode, make_settings
from goldimask.decoding.forward import exact_logits, like_lengths
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
    settings = make_settings("threshold", **SMALL, cfg=cfg, padding_side=side)
    rows = rows_of(backbone, settings)
    windows = [window(row, settings) for row in rows]
    assert [len(w) for w in windows] == [5, 5]
    expected = torch.cat([whole(backbone, r, w, cfg) for r, w in zip(rows, windows, strict=True)])
    got = exact_logits(backbone, rows, windows, settings)
    torch.testing.assert_close(got, expected, rtol=2e-5, atol=2e-4)


def test_calls_hold_like_lengths():
    def cut(lengths, full):
        return [lengths[group] for group in like_lengths(lengths, full)]

    assert cut([9, 9, 8, 5, 5, 5], 18) == [[9, 9], [8, 5, 5], [5]]
    assert cut([9, 9, 8, 5], 19) == [[9, 9, 8], [5]]
    assert cut([9, 8, 5], 1) == [[9], [8], [5]]
    assert cut([7] * 5, 7) == [[7] * 5]  # no padding, no cut
    assert cut([9, 8, 5], 1000) == [[9, 8, 5]]


def test_an_adapter_decodes(llada):
    from goldimask.backbones.lora import add_lora

    adapted = add_lora(llada, 0, r=4, alpha=8.0)
    with torch.no_grad():
        for name, p in adapted.model.named_parameters():
            if "lora_B" in name:
                p.normal_(std=0.3, generator=torch.Generator().manual_seed(1))
    prompts = ["a", "7 - 5"]
    tuned = [d.tokens for d in decode(adapted, prompts, **SMALL, tau=0.3)]
    with adapted.model.disable_adapter():
        assert [d.tokens for d in decode(adapted, prompts, **SMALL, tau=0.3)] != tuned


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
