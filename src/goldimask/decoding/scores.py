"""From the logits of the window to a token and its scores.

    greedy:        token = argmax l                              ties to the lowest id
    temperature:   token ~ softmax(l / T), top-p and top-k filtered, by one uniform number each
    confidence     softmax(l)[token], of the untempered logits (LLaDA); of the filtered ones (Dream)
    entropy        -sum p log p;   margin  p_(1) - p_(2)

Greedy scores are made in float32 from float32 logits, as odds so that they do not saturate:
    confidence = 1 / (1 + s),   s = sum over the other tokens v of exp(l_v - l_token)
Rows on which a decision could hang by that rounding (two scores of a window, or a score and a
threshold, closer than the error) are made again in float64; so is all that is drawn or filtered.
The choices are those of float64 throughout. A call is answered with one copy to the host, and a
second one for rows in doubt. Chunks bound the memory. The mask token and suppressed tokens have
logit -inf, so they are never chosen. One uniform number per position replaces LLaDA's Gumbel noise
over the vocabulary; the distribution is the same, the draws are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from goldimask.decoding.rules import Measure
from goldimask.processes import send

CHUNK = 1 << 23  # logits per chunk: 32 MB as float32, 64 MB as float64
ODDS, SHARE, NATS = 2e-5, 1e-5, 1e-4  # bounds of float32's error: relative for s, else absolute


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
    sizes: Sequence[int] | None = None,  # rows of each window; one window unless told
    edges: Sequence[float] | None = (),  # thresholds of the rule; None if it reads no score
) -> WindowScores:
    """Choose and score a token per row."""
    shaped = filtered and (temperature > 0 or top_p < 1 or top_k > 0)
    if uniforms is not None or shaped or logits.dtype == torch.float64:
        options = (measure, uniforms, temperature, top_p, top_k, filtered)
        return WindowScores(*fetch(logits, banned, torch.float64, _score, *options))
    token, odds, score = fetch(logits, banned, torch.float32, _odds, measure)
    confidence = 1.0 / (1.0 + odds)
    score = confidence.copy() if measure == "confidence" else score
    found = WindowScores(token, confidence, score)
    if edges is None:
        return found
    rows = np.flatnonzero(doubtful(found, measure, sizes or [len(token)], edges))
    if len(rows):
        again = logits.index_select(0, send(rows, logits.device))
        exact = fetch(again, banned, torch.float64, _score, measure, None, 0.0, 1.0, 0, False)
        for column, values in zip((found.token, found.confidence, found.score), exact, strict=True):
            column[rows] = values
    return found


def fetch(
    logits: Tensor, banned: Sequence[int], dtype: torch.dtype, score: Any, *options: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`score` of all rows, a chunk at a time in `dtype`: token, and two columns; one copy."""
    rows = max(1, CHUNK // logits.shape[1])
    parts = []
    for start in range(0, logits.shape[0], rows):
        table = logits[start : start + rows].to(dtype, copy=True)  # [m, V]
        for token in banned:  # one by one: a list would be an index that travels to the device
            table[:, token] = float("-inf")
        own = (x[start : start + rows] if isinstance(x, np.ndarray) else x for x in options)
        parts.append(torch.stack([x.to(dtype) for x in score(table, *own)]))
    found = torch.cat(parts, 1).double().cpu().numpy() if parts else np.zeros((3, 0))
    return found[0].astype(np.int64), found[1].copy(), found[2].copy()


def _odds(logits: Tensor, measure: Measure) -> tuple[Tensor, Tensor, Tensor]:
    """Greedy token, its s, and the measure where that is not the confidence."""
    token = logits.argmax(1, keepdim=True)
    others = logits - logits.gather(1, token)
    others = others.exp_().scatter_(1, token, 0.0)
    s = others.sum(1)
    if measure == "confidence":
        return token[:, 0], s, s
    if measure == "margin":
        return token[:, 0], s, (1.0 - others.amax(1)) / (1.0 + s)
    logs = logits.log_softmax(1)
    entropy = -(logs.exp() * logs.clamp_min(torch.finfo(logs.dtype).min)).sum(1)
    return token[:, 0], s, entropy if measure == "entropy" else -entropy


def doubtful(
    found: WindowScores, measure: Measure, sizes: Sequence[int], edges: Sequence[float]
) -> np.ndarray:
    """[n] bool: rows whose place among the scores of their window, or side of an edge, is open."""
    x = found.score
    error = NATS if measure in ("entropy", "negentropy") else SHARE
    bound = ODDS * x * (1.0 - x) + 1e-13 if measure == "confidence" else np.full(len(x), error)
    doubt = np.zeros(len(x), dtype=bool)
    for edge in edges:
        doubt |= np.abs(x - edge) <= bound
    window = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort((x, window))
    a, b = order[:-1], order[1:]
    close = (window[a] == window[b]) & (x[b] - x[a] <= np.maximum(bound[a], bound[b]))
    doubt[a[close]] = doubt[b[close]] = True
    return doubt


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
        token = draw_tokens(shaped, send(uniforms, logits.device))
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
