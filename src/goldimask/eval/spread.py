"""Answers from several processes: each holds the model on a device of its own and only decodes.

Trials, lengths, seeds and thresholds stand in one queue (`goldimask.workers`); this process plans,
judges while the others decode, and is the only one that writes. A unit is a few running batches of
one trial, the same ones for any number of processes, so that every number is the same too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from goldimask.eval.run import Answer, Response, backbone_answer
from goldimask.eval.tasks.base import Prompt
from goldimask.processes import use_device, worker_devices
from goldimask.records import Decoding
from goldimask.workers import Numbered, Pool, Work

BATCHES = 4  # of a unit


@contextmanager
def answering(
    run: str,
    processes: int | None,
    batch_size: int,
    *,
    device: str | None = None,
    dtype: str | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Answer]:
    """Who decodes: this process, or several."""
    if processes is None:
        yield own_answer(run, device, dtype, batch_size)
        return
    devices = worker_devices(processes, device)
    setup = {"run": run, "dtype": dtype, "batch_size": batch_size}
    with Pool("goldimask.eval.spread:worker", setup, devices, BATCHES * batch_size, say) as pool:

        def answer(
            prompts: Sequence[Prompt], *, decoding: Decoding, **how: Any
        ) -> Iterable[Response]:
            replies = pool.submit(prompts, decoding=decoding.model_dump(), **how)
            return (Response(number, *rest) for number, rest in replies)

        yield answer


def own_answer(run: str, device: str | None, dtype: str | None, batch_size: int) -> Answer:
    from goldimask.backbones import load_backbone

    return backbone_answer(load_backbone(run, dtype=dtype, device=device), batch_size)


def worker(device: str, **setup: Any) -> Work:
    """What one of several processes does."""
    use_device(device)
    answer = own_answer(device=device, **setup)

    def work(items: list[Prompt], decoding: dict[str, Any], **how: Any) -> Iterator[Numbered]:
        for made in answer(items, decoding=Decoding(**decoding), **how):
            yield made.index, made[1:]

    return work
