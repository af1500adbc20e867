"""State of a method over several processes.

Every example is visited at most once an epoch. So when the ranks share what they learnt at the end
of an epoch, and before a checkpoint, every visit finds the memory that a single process would have
found (goldimask-a). Other state (the DRO normaliser) is a running figure that each process keeps
for itself; a checkpoint holds one per rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from torch import Tensor

from goldimask.processes import gather, world

if TYPE_CHECKING:
    from goldimask.methods import Method


def share_memory(method: Method, seen: list[int]) -> None:
    """Give every rank the traces that the others updated; `seen` is emptied."""
    memory = method.memory
    if memory is not None and world() > 1:
        for traces in gather({i: memory.traces[i] for i in seen if i in memory.traces}):
            memory.traces.update(traces)
    seen.clear()


def joined_state(method: Method) -> dict[str, Tensor]:
    """The state of all ranks under `rankN.` names; a shared memory once. Called by every rank."""
    state = {k: v.detach().cpu().contiguous() for k, v in method.state_dict().items()}
    states = [state] if method.memory is not None else gather(state)
    return {f"rank{r}.{k}": v for r, part in enumerate(states) for k, v in part.items()}


def own_state(saved: Mapping[str, Tensor], rank: int) -> dict[str, Tensor]:
    """This rank's part of a saved state; rank 0's when it has none of its own."""
    for prefix in (f"rank{rank}.", "rank0."):
        mine = {k.removeprefix(prefix): v for k, v in saved.items() if k.startswith(prefix)}
        if mine:
            return mine
    return {}
