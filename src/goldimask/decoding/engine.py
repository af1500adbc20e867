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

import numpy as np
import torch

from goldimask.decoding.caches import Store, cached_logits
from goldimask.decoding.forward import Decodable, exact_logits
from goldimask.decoding.options import make_settings
from goldimask.decoding.prompts import Prompt, check_lengths, render, sample_ids
from goldimask.decoding.rows import RowState, advance, commit, new_row, prepare, window
from goldimask.decoding.rules import DECODERS, Decoder, at_random, named
from goldimask.decoding.scores import WindowScores, score_rows
from goldimask.decoding.types import Cache, Commit, Decoded, PaddingSide, Settings, first_end
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.step import module_mode

Watch = Callable[[int, Commit], None]  # index of the prompt, what its step committed


def decode(
    backbone: Decodable,
    prompts: Sequence[Prompt],
    decoder: str = "threshold",
    *,
    length: int = 128,
    block: int | None = None,
    tau: float | None = None,
    factor: float | None = None,
    steps: int | None = None,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    alg_temp: float | None = None,
    eps: float | None = None,
    cfg: float = 0.0,
    suppress: Sequence[int] = (),
    allow_mask: bool = False,
    eos_stop: bool = False,
    max_steps: int | None = None,
    cache: Cache = "none",
    padding_side: PaddingSide = "right",
    seed: int = 0,
    batch_size: int = 16,
    prefill: str = "",
    samples: Sequence[int] | None = None,
    watch: Watch | None = None,
) -> list[Decoded]:
    """Decode every prompt; results in the order of the prompts.

    `prompts` holds strings (one user turn each), lists of messages or lists of token ids. None
    means the decoder's own value (`threshold`: blocks of 32, tau 0.9); an option that the decoder
    does not use is an error. `Settings` says what each option does. `prefill` is text the response
    begins with. `samples` gives each prompt the id of its random stream (default: from its content
    and how often it occurred before). `watch` is called with (prompt index, commit) after every
    step.
    """
    settings = make_settings(
        decoder,
        length=length,
        block=block,
        tau=tau,
        factor=factor,
        steps=steps,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        alg_temp=alg_temp,
        eps=eps,
        cfg=cfg,
        suppress=suppress,
        allow_mask=allow_mask,
        eos_stop=eos_stop,
        max_steps=max_steps,
        cache=cache,
        padding_side=padding_side,
        seed=seed,
    )
    return decode_with(
        backbone,
        prompts,
        settings,
        batch_size=batch_size,
        prefill=prefill,
        samples=samples,
        watch=watch,
    )


def decode_with(
    backbone: Decodable,
    prompts: Sequence[Prompt],
    settings: Settings,
    *,
    batch_size: int = 16,
    prefill: str = "",
    samples: Sequence[int] | None = None,
    watch: Watch | None = None,
) -> list[Decoded]:
    """`decode` with settings that were made before (`make_settings`)."""
    running = decode_iter(
        backbone,
        prompts,
        settings,
        batch_size=batch_size,
        prefill=prefill,
        samples=samples,
        watch=watch,
    )
    return [made for _, made in sorted(running, key=lambda found: found[0])]


def decode_iter(
    backbone: Decodable,
    prompts: Sequence[Prompt],
    settings: Settings,
    *,
    batch_size: int = 16,
    prefill: str = "",
    samples: Sequence[int] | None = None,
    watch: Watch | None = None,
) -> Iterator[tuple[int, Decoded]]:
    """Like `decode_with`, yielding (index, result) as examples finish."""
    if batch_size < 1:
        raise GoldimaskError(f"batch_size: expected a whole number >= 1, got {batch_size!r}")
    ids = render(backbone, prompts, prefill)
    check_lengths(ids, settings.length, backbone.max_length)
    streams = sample_ids(ids) if samples is None else [int(s) for s in samples]
    if len(streams) != len(ids):
        raise GoldimaskError(f"samples: expected {len(ids)}, one per prompt, got {len(streams)}")
    decoder, keys = DECODERS.get(settings.decoder), Keys(settings.seed)
    store = Store(min(batch_size, len(ids)), max(map(len, ids), default=0) + settings.length)
    # longest first: neighbours have like lengths, and memory trouble shows at once
    waiting = sorted(range(len(ids)), key=lambda i: len(ids[i]), reverse=True)[::-1]
    active: list[RowState] = []
    while waiting or active:
        while waiting and len(active) < batch_size:
            i = waiting.pop()
            rng = keys.rng(streams[i], Stream.DECODE)
            active.append(new_row(i, streams[i], ids[i], settings, backbone.mask_id, rng))
        done = active if settings.length == 0 else []
        with torch.inference_mode(), module_mode(backbone.model, train=False):
            while not done:
                step(backbone, active, decoder, settings, store, watch)
                ends = end_ids(backbone)
                done = [row for row in active if advance(row, settings, ends, backbone.pad_id)]
        active = [row for row in active if row not in done]
        for row in done:
            store.leave(row)
            yield row.index, finished(backbone, row, settings)


def step(
    backbone: Decodable,
    rows: Sequence[RowState],
    decoder: Decoder,
    settings: Settings,
    store: Store,
    watch: Watch | None = None,
) -> None:
    """One step of every active example."""
    for row in rows:
        prepare(row, decoder, settings)
    windows = [window(row, settings) for row in rows]
    if settings.cache == "none":
        logits = exact_logits(backbone, rows, windows, settings)  # [n, V]
    else:
        logits = cached_logits(backbone, rows, windows, settings, store)
    scores = score_windows(logits, rows, windows, decoder, settings, backbone.mask_id)
    start = 0
    for row, where in zip(rows, windows, strict=True):
        part = slice(start, start + len(where))
        mine = WindowScores(scores.token[part], scores.confidence[part], scores.score[part])
        made = commit(row, where, mine, decoder, settings, backbone.mask_id)
        if watch is not None:
            watch(row.index, made)
        start += len(where)


def score_windows(
    logits: torch.Tensor,
    rows: Sequence[RowState],
    windows: Sequence[np.ndarray],
    decoder: Decoder,
    settings: Settings,
    mask_id: int,
) -> WindowScores:
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
        sizes=[len(where) for where in windows],
        edges=edges(decoder, settings, max(map(len, windows))),
    )


def edges(decoder: Decoder, settings: Settings, ranks: int) -> list[float] | None:
    """Scores at which the rule's choice changes, besides their order; None if it reads no score."""
    if decoder.rule in (at_random, named):
        return None
    if "tau" in decoder.options:
        return [settings.tau]
    if "factor" in decoder.options:
        return [1.0 - settings.factor / (rank + 1) for rank in range(1, ranks + 1)]
    return []


def end_ids(backbone: Decodable) -> frozenset[int]:
    """Tokens that end a response: the end of the turn, and of the text (which also pads)."""
    return frozenset({backbone.pad_id, backbone.turn_end_id})


def finished(backbone: Decodable, row: RowState, settings: Settings) -> Decoded:
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
