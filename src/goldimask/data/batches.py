"""Examples become batches, in an order that depends only on (seed, epoch).

One epoch is a permutation cut into global batches; whatever does not fill the last one waits for
another epoch. Consecutive examples of the order form one optimiser step, however they are divided
over ranks and accumulation. With length grouping, windows of the permutation are sorted by length
before they are cut, and the global batches are shuffled again, so a step still sees a random
batch but little padding. A window holds at most half of the epoch: were it all of it, every epoch
would have nearly the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.types import Batch, Example

WINDOW = 32  # most global batches per sorted window


def collate(
    examples: Sequence[Example], pad_id: int, multiple: int = 1, epoch: int = 0
) -> dict[str, Any]:
    """Right-pad to the longest example, rounded up to `multiple`.

    One alone is never padded, so that attention needs no mask and may take its fastest kernel.
    """
    longest = max(len(e) for e in examples)
    multiple = multiple if len(examples) > 1 else 1
    width = -(-longest // multiple) * multiple
    shape = (len(examples), width)
    ids = np.full(shape, pad_id, dtype=np.int64)
    response, valid = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for row, example in enumerate(examples):
        n = len(example)
        ids[row, :n] = example.ids
        response[row, :n] = example.supervisable
        valid[row, :n] = True
    numbers = np.array([e.example_id for e in examples], dtype=np.int64)
    return {
        "ids": torch.from_numpy(ids),
        "response": torch.from_numpy(response),
        "valid": torch.from_numpy(valid),
        "example_id": torch.from_numpy(numbers),
        "host": (response, numbers),  # stays when the tensors go to a device
        "padded": not bool(valid.all()),
        "tokens": sum(len(e) for e in examples),
        "epoch": epoch,
    }


def to_batch(inputs: dict[str, Any]) -> tuple[Batch, int]:
    """(batch, epoch) from what `collate` made."""
    fields = {k: inputs[k] for k in ("ids", "response", "valid", "example_id", "padded", "host")}
    return Batch(**fields), int(inputs["epoch"])


def make_batch(examples: Sequence[Example], pad_id: int, multiple: int = 1) -> Batch:
    """A batch for use outside of a loader."""
    return to_batch(collate(examples, pad_id, multiple))[0]


class EpochSampler(Sampler[int]):
    """Yields `epoch * n + index`: the item carries its epoch, so prefetching and resuming cannot
    mix it up.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        global_batch_size: int,
        seed: int,
        group_by_length: bool = True,
    ) -> None:
        if len(lengths) < global_batch_size:
            raise GoldimaskError(
                f"global_batch_size: {global_batch_size} is more than the {len(lengths)} training "
                "examples; lower it or add data"
            )
        self.lengths = np.asarray(lengths)
        self.size = global_batch_size
        self.seed = seed
        self.group = group_by_length
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths) // self.size * self.size

    def order(self, epoch: int) -> np.ndarray:
        """Indices of one epoch, a whole number of global batches."""
        rng = Keys(self.seed, epoch).rng(0, Stream.ORDER)
        order = rng.permutation(len(self.lengths))[: len(self)]
        if not self.group:
            return order
        window = max(1, min(WINDOW, len(order) // self.size // 2)) * self.size
        pieces = [order[i : i + window] for i in range(0, len(order), window)]
        ordered = np.concatenate([p[np.argsort(-self.lengths[p], kind="stable")] for p in pieces])
        batches = ordered.reshape(-1, self.size)
        return batches[rng.permutation(len(batches))].ravel()

    def __iter__(self) -> Iterator[int]:
        offset = self.epoch * len(self.lengths)
        return iter((self.order(self.epoch) + offset).tolist())


class EpochDataset(Dataset[tuple[Example, int]]):
    """Examples addressed by the sampler's numbers."""

    def __init__(self, examples: Sequence[Example]) -> None:
        self.examples = examples

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, number: int) -> tuple[Example, int]:
        epoch, index = divmod(number, len(self.examples))
        return self.examples[index], epoch


class Collator:
    """`collate` bound to a backbone, for data loaders."""

    def __init__(self, pad_id: int, multiple: int = 1) -> None:
        self.pad_id, self.multiple = pad_id, multiple

    def __call__(self, items: Sequence[tuple[Example, int]]) -> dict[str, Any]:
        return collate([e for e, _ in items], self.pad_id, self.multiple, items[0][1])


def pad_share(
    examples: Sequence[Example], sampler: EpochSampler, micro: int, multiple: int
) -> float:
    """Share of padding cells in the first epoch, for micro-batches of a given size."""
    lengths = np.asarray([len(e) for e in examples])[sampler.order(0)]
    usable = lengths[: len(lengths) // micro * micro].reshape(-1, micro)
    multiple = multiple if micro > 1 else 1
    cells = (-(-usable.max(1) // multiple) * multiple * micro).sum()
    return float(1 - usable.sum() / cells)
