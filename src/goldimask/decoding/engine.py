"""Block decoding of many examples at once (paper, app. "Parallel-Decoding Behavior").

    canvas = prompt + `length` masks;  for each block, left to right:
      while the block has masked positions:
        scores <- one model call on the whole canvas          (steps += 1)
        commit the positions the rule chooses, for good
    full length, no stop at the end token unless asked

Each example has its own block position and leaves when it is done; a waiting one takes its place.
So a call holds only examples that need it, whatever the slowest does. Every prompt gets the tokens
and steps it has alone (up to floating-point ties: batch shapes change the last bits of a matrix
product).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from goldimask.decoding.caches import Store, cached_logits
from goldimask.decoding.forward import Decodable, exact_logits
from goldimask.decoding.fused import lean_parts
from goldimask.decoding.prompts import check_lengths, make_settings, render, sample_ids
from goldimask.decoding.rows import Row, advance, commit, new_row, prepare, window
from goldimask.decoding.rules import Decoder
from goldimask.decoding.scores import Scores, score_rows
from goldimask.decoding.types import Commit, Decoded, Settings, first_end
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.step import module_mode

Watch = Callable[[int, Commit], None]
Logits = Callable[[Sequence[Row], Sequence[np.ndarray]], torch.Tensor]  # rows, windows -> [n, V]


def decode(
    backbone: Decodable,
    prompts: Sequence[Any],
    decoder: str = "threshold",
    *,
    length: int = 128,
    block: int | None = None,
    tau: float | None = None,
    batch_size: int = 16,
    prefill: str = "",
    samples: Sequence[int] | None = None,
    watch: Watch | None = None,
    **options: Any,
) -> list[Decoded]:
    """Decode every prompt; results in the order of the prompts.

    `prompts` holds strings (one user turn each), lists of messages or lists of token ids. `block`
    and `tau` default to the decoder's own (32 and 0.9 for `threshold`). `samples` gives each prompt
    the id of its random stream (default: from its content and how often it occurred before).
    `watch` is called with (prompt index, commit) after every step. Other options are the fields of
    `Settings`: factor, steps, temperature, top_p, top_k, alg_temp, eps, cfg, suppress, allow_mask,
    eos_stop, max_steps, cache, padding_side, seed.
    """
    found: dict[int, Decoded] = {}
    for index, decoded in decode_iter(
        backbone,
        prompts,
        decoder,
        length=length,
        block=block,
        tau=tau,
        batch_size=batch_size,
        prefill=prefill,
        samples=samples,
        watch=watch,
        **options,
    ):
        found[index] = decoded
    return [found[i] for i in range(len(found))]


def decode_iter(
    backbone: Decodable,
    prompts: Sequence[Any],
    decoder: str = "threshold",
    *,
    batch_size: int = 16,
    prefill: str = "",
    samples: Sequence[int] | None = None,
    watch: Watch | None = None,
    **options: Any,
) -> Iterator[tuple[int, Decoded]]:
    """Like `decode`, yielding (index, result) as examples finish."""
    settings, rule = make_settings(decoder, **options)
    if batch_size < 1:
        raise GoldimaskError(f"batch_size: expected a whole number >= 1, got {batch_size!r}")
    ids = render(backbone, prompts, prefill)
    check_lengths(ids, settings.length, backbone.max_length)
    streams = sample_ids(ids) if samples is None else [int(s) for s in samples]
    if len(streams) != len(ids):
        raise GoldimaskError(f"samples: expected {len(ids)}, one per prompt, got {len(streams)}")
    store: Store = {}
    training = any(m.training for m in backbone.model.modules())  # asked once: it takes a while
    with module_mode(backbone.model, train=not training):  # a no-op unless training
        logits = model_call(backbone, settings, max(map(len, ids), default=0), store)
    keys, ends = Keys(settings.seed), end_ids(backbone)
    # longest first: rows of like length share a batch, and memory trouble shows at once
    waiting = sorted(range(len(ids)), key=lambda i: len(ids[i]), reverse=True)[::-1]
    active: list[Row] = []
    while waiting or active:
        while waiting and len(active) < batch_size:
            i = waiting.pop()
            rng = keys.rng(streams[i], Stream.DECODE)
            active.append(new_row(i, streams[i], ids[i], settings, backbone.mask_id, rng))
        done = active if settings.length == 0 else []
        if settings.length:
            with torch.inference_mode(), module_mode(backbone.model, train=not training):
                while not done:
                    tick(logits, active, rule, settings, backbone.mask_id, watch)
                    done = [row for row in active if advance(row, settings, ends, backbone.pad_id)]
        active = [row for row in active if row not in done]
        for row in done:
            store.pop(row.index, None)
            yield row.index, result(backbone, row, settings)


def model_call(backbone: Decodable, settings: Settings, prompt: int, store: Store) -> Logits:
    """The pass that serves these settings: cached, lean, or the model's own."""
    if settings.cache != "none":
        return partial(cached_logits, backbone, settings=settings, store=store)
    if settings.engine == "auto":
        lean = lean_parts(backbone, prompt + settings.length)
        if lean is not None:
            from goldimask.decoding.lean import Pass, lean_logits  # imports numba

            return partial(lean_logits, Pass(lean), settings=settings, mask_id=backbone.mask_id)
    return partial(exact_logits, backbone, settings=settings)


def tick(
    model: Logits,
    rows: Sequence[Row],
    decoder: Decoder,
    settings: Settings,
    mask_id: int,
    watch: Watch | None = None,
) -> None:
    """One step of every active example."""
    for row in rows:
        prepare(row, decoder, settings)
    windows = [window(row, settings) for row in rows]
    logits = model(rows, windows)  # [n, V]
    scores = look(logits, rows, windows, decoder, settings, mask_id)
    start = 0
    for row, where in zip(rows, windows, strict=True):
        part = slice(start, start + len(where))
        mine = Scores(scores.token[part], scores.confidence[part], scores.score[part])
        made = commit(row, where, mine, decoder, settings, mask_id)
        if watch is not None:
            watch(row.index, made)
        start += len(where)


def look(
    logits: torch.Tensor,
    rows: Sequence[Row],
    windows: Sequence[np.ndarray],
    decoder: Decoder,
    settings: Settings,
    mask_id: int,
) -> Scores:
    """Tokens and scores of all windows; each example draws from its own stream."""
    uniforms = None
    if settings.temperature > 0:
        draws = [row.rng.random(len(where)) for row, where in zip(rows, windows, strict=True)]
        uniforms = np.concatenate(draws)
    return score_rows(
        logits,
        decoder.measure,
        banned=settings.suppress if settings.allow_mask else (mask_id, *settings.suppress),
        uniforms=uniforms,
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        filtered=decoder.filtered,
    )


def end_ids(backbone: Decodable) -> frozenset[int]:
    """Tokens that end a response: the end of the turn, and of the text (which also pads)."""
    return frozenset({backbone.pad_id, backbone.turn_end_id})


def result(backbone: Decodable, row: Row, settings: Settings) -> Decoded:
    tokens = row.response().tolist()
    return Decoded(
        text=backbone.decode(tokens[: first_end(tokens, end_ids(backbone))]),
        tokens=tokens,
        steps=row.step,
        trace=tuple(row.commits),
        steps_to_eos=row.to_eos,
        complete=not row.open_.any(),
        prompt_ids=row.canvas[: row.prompt].tolist(),
        sample=row.sample,
        exact=settings.cache == "none",
        settings=settings,
    )
