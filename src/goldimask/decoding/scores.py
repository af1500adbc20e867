"""From the logits of the window to a token and its scores.

    greedy:        token = argmax l                              ties to the lowest id
    temperature:   token ~ softmax(l / T), top-p and top-k filtered, by one uniform number each
    confidence     softmax(l)[token], of the untempered logits (LLaDA); of the filtered ones (Dream)
    entropy        -sum p log p;   margin  p_(1) - p_(2)

Everything is float64 on the rows that are asked for, in chunks: bfloat16 confidences saturate and
tie (0.9985 becomes 1). The mask token and suppressed tokens have logit -inf, so they are never
chosen. One uniform number per position replaces LLaDA's Gumbel noise over the vocabulary; the
distribution is the same, the draws are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from goldimask.decoding.rules import Measure

CHUNK = 1 << 23  # logits per chunk: 64 MB as float64


@dataclass(frozen=True)
class WindowScores:
    """One entry per window position, on the host."""

    token: np.ndarray  # [n] int64
    confidence: np.ndarray  # [n] float64
    score: np.ndarray  # [n] float64, the decoder's measure


def score_rows(
    logits: Tensor,  # [n, V]
    measure: Measure,
    banned: Sequence[int] = (),
    uniforms: np.ndarray | None = None,  # [n] in [0, 1); None is greedy
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    filtered: bool = False,
) -> WindowScores:
    """Choose and score a token per row."""
    rows = max(1, CHUNK // logits.shape[1])
    parts = []
    for start in range(0, logits.shape[0], rows):
        table = logits[start : start + rows].double()  # [m, V], a copy unless already float64
        if banned:
            table = table.clone() if table is logits else table
            table[:, list(banned)] = float("-inf")
        draw = None if uniforms is None else uniforms[start : start + rows]
        parts.append(_score(table, measure, draw, temperature, top_p, top_k, filtered))
    columns = parts[0] if len(parts) == 1 else tuple(torch.cat(x) for x in zip(*parts, strict=True))
    token, confidence, score = (x.cpu().numpy() for x in columns)
    return WindowScores(token, confidence, score)


def _score(
    logits: Tensor,
    measure: Measure,
    uniforms: np.ndarray | None,
    temperature: float,
    top_p: float,
    top_k: int,
    filtered: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    shaped = logits
    if uniforms is not None or filtered:
        shaped = filter_logits(logits, temperature, top_p, top_k)
    if uniforms is None:
        token = logits.argmax(1)
    else:
        token = draw_tokens(shaped, torch.as_tensor(uniforms, device=logits.device))
    source = shaped if filtered else logits
    if measure == "confidence":  # p[token] without the whole softmax
        picked = source.gather(1, token[:, None])[:, 0]
        confidence = (picked - source.logsumexp(1)).exp()
        return token, confidence, confidence
    p = source.softmax(1)
    confidence = p.gather(1, token[:, None])[:, 0]
    if measure == "margin":
        top = p.topk(min(2, p.shape[1]), dim=1).values
        return token, confidence, top[:, 0] - top[:, -1] if top.shape[1] > 1 else top[:, 0]
    entropy = -torch.xlogy(p, p).sum(1)
    return token, confidence, entropy if measure == "entropy" else -entropy


def filter_logits(logits: Tensor, temperature: float, top_p: float, top_k: int) -> Tensor:
    """Temperature, then top-p (keeping the token that crosses p), then top-k."""
    out = logits / temperature if temperature > 0 else logits
    if top_p < 1:
        order = out.argsort(dim=1, descending=True, stable=True)
        p = out.gather(1, order).softmax(1)
        drop = p.cumsum(1) - p > top_p  # the mass before this token already exceeds p
        out = out.masked_fill(torch.zeros_like(drop).scatter(1, order, drop), float("-inf"))
    if 0 < top_k < out.shape[1]:
        least = out.topk(top_k, dim=1).values[:, -1:]
        out = out.masked_fill(out < least, float("-inf"))
    return out


def draw_tokens(logits: Tensor, uniforms: Tensor) -> Tensor:
    """Inverse of the cumulative distribution at one uniform number per row."""
    edges = logits.softmax(1).cumsum(1)
    total = edges[:, -1:]
    target = uniforms.to(edges.dtype)[:, None] * total
    target = torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))
    return (edges <= target).sum(1)  # the first token past the target; never one without mass
