"""The straightforward decoder: what the engine must agree with and what the benchmark compares.

One forward of the whole padded batch per step, logits of all positions, float64 softmax over all of
them, blocks in lock step (a finished row waits for the slowest), no compaction. The rules are
stated literally, one position at a time. Greedy only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from goldimask.decoding.forward import Decodable
from goldimask.decoding.types import Settings
from goldimask.step import module_mode

Scores = dict[int, float]  # position -> score, of the masked positions in the window


def ranked(scores: Scores) -> list[int]:
    """Positions by (-score, position)."""
    return sorted(scores, key=lambda i: (-scores[i], i))


def slow_threshold(scores: Scores, tau: float) -> set[int]:
    chosen = {i for i, c in scores.items() if c >= tau}
    return chosen or {ranked(scores)[0]}


def slow_entropy(scores: Scores, tau: float) -> set[int]:
    chosen = {i for i, h in scores.items() if h <= tau}
    return chosen or {min(scores, key=lambda i: (scores[i], i))}


def slow_factor(scores: Scores, factor: float) -> set[int]:
    chosen: set[int] = set()
    for rank, i in enumerate(ranked(scores), start=1):
        if rank > 1 and scores[i] < 1 - factor / (rank + 1):
            break
        chosen.add(i)
    return chosen


def slow_best(scores: Scores, quota: int) -> set[int]:
    return set(ranked(scores)[:quota])


def slow_even(masks: int, steps: int) -> list[int]:
    """LLaDA's quotas, zeros included: hand out one at a time, round after round."""
    quotas = [0] * steps
    for i in range(masks):
        quotas[i % steps] += 1
    return quotas


def slow_dream(masks: int, steps: int, eps: float) -> list[int]:
    """Dream's counts, zeros included."""
    counts = []
    for i in range(steps):
        t = 1 + (eps - 1) * i / steps
        s = 1 + (eps - 1) * (i + 1) / steps
        counts.append(masks if i == steps - 1 else int(masks * (1 - s / t)))
        masks -= counts[-1]
    return counts


def measure_all(logits: Tensor, measure: str) -> tuple[Tensor, Tensor]:
    """Token and score of every position: [B, T] each."""
    p = logits.double().softmax(-1)
    confidence, token = p.max(-1)
    if measure == "confidence":
        return token, confidence
    if measure == "margin":
        top = p.sort(-1, descending=True).values
        return token, top[..., 0] - top[..., 1]
    entropy = -torch.where(p > 0, p * p.clamp_min(1e-300).log(), torch.zeros_like(p)).sum(-1)
    return token, entropy if measure == "entropy" else -entropy


def choose(name: str, settings: Settings, masks: int, steps: int) -> Callable[[Scores, int], set]:
    """The literal rule of a decoder as a function of (scores, step within the block)."""
    if name == "threshold":
        return lambda scores, _: slow_threshold(scores, settings.tau)
    if name == "entropy":
        return lambda scores, _: slow_entropy(scores, settings.tau)
    if name == "factor":
        return lambda scores, _: slow_factor(scores, settings.factor)
    if name == "low-confidence":
        quotas = [q for q in slow_even(masks, steps) if q]
    else:
        quotas = [q for q in slow_dream(masks, steps, settings.eps) if q]
    return lambda scores, step: slow_best(scores, quotas[step])


MEASURES = {
    "entropy": "entropy",
    "dream-topk-margin": "margin",
    "dream-entropy": "negentropy",
}


@torch.inference_mode()
def plain_decode(
    backbone: Decodable,
    prompts: Sequence[Sequence[int]],
    settings: Settings,
    block_steps: int | None = None,
) -> list[tuple[list[int], int]]:
    """(tokens, steps) per prompt; `block_steps` is the number of steps of a block with quotas."""
    width = max(len(p) for p in prompts)
    device = next(backbone.model.parameters()).device
    total = width + settings.length
    ids = torch.full((len(prompts), total), backbone.mask_id, dtype=torch.int64, device=device)
    valid = torch.ones_like(ids)
    for b, prompt in enumerate(prompts):  # left padding, as the released decoders batch
        pad = width - len(prompt)
        ids[b, :pad] = backbone.pad_id
        valid[b, :pad] = 0
        ids[b, pad:width] = torch.as_tensor(list(prompt), device=device)
    positions = (valid.cumsum(1) - 1).clamp_min(0)
    steps = [0] * len(prompts)
    for start in range(width, total, settings.block):
        end = min(start + settings.block, total)
        rule = choose(settings.decoder, settings, end - start, block_steps or 1)
        step = 0
        while bool((ids[:, start:end] == backbone.mask_id).any()):
            with module_mode(backbone.model, train=False):
                logits = backbone.model(
                    input_ids=ids, attention_mask=valid, position_ids=positions
                ).logits
            if backbone.shift:
                logits = torch.cat([logits[:, :1], logits[:, :-1]], dim=1)
            logits[..., backbone.mask_id] = float("-inf")
            token, score = measure_all(logits, MEASURES.get(settings.decoder, "confidence"))
            for b in range(len(prompts)):
                masked = (ids[b, start:end] == backbone.mask_id).nonzero()[:, 0] + start
                if not len(masked):
                    continue
                scores = dict(zip(masked.tolist(), score[b, masked].tolist(), strict=True))
                chosen = sorted(rule(scores, step))
                ids[b, chosen] = token[b, chosen]
                steps[b] += 1
            step += 1
    return [
        (np.asarray(row).tolist(), n) for row, n in zip(ids[:, width:].cpu(), steps, strict=True)
    ]
