"""Records of cells -> what the tables ask for.

Only seeds for which every shown row of a backbone has a record take part, so that all rows of a
table are means over the same seeds and problems; what is left out is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from goldimask.campaign.paired import Draws, Grid, crossed, draws, grid_of
from goldimask.campaign.settings import BASE, Cell, Lab, label, problems_at

Records = Mapping[Cell, dict[str, Any]]


@dataclass
class Board:
    """All rows of one backbone on common seeds."""

    backbone: str
    rows: tuple[str, ...]
    seeds: tuple[int, ...]
    taus: tuple[float, ...]
    main_tau: float
    problems: int
    common: int  # problems per task that were judged at every threshold
    records: dict[str, list[dict[str, Any]]]  # row -> one record per seed
    costs: dict[str, float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        return self.backbone

    def grid(self, row: str, tau: float, field: str = "correct") -> Grid:
        parts = [r["tasks"][f"{tau:g}"] for r in self.records[row]]
        return grid_of(parts, self.problems, field)

    def shared(self, row: str, tau: float, field: str = "correct") -> Grid:
        """Only the problems that were judged at every threshold."""
        return {t: x[:, : self.common] for t, x in self.grid(row, tau, field).items()}

    def draws(self, grid: Grid) -> Draws:
        """Weights of the bootstrap for a grid of this board."""
        return draws(grid)

    def weights(self) -> Draws:
        return self.draws(self.grid(self.rows[0], self.main_tau))

    def heldout(self, row: str, name: str) -> list[float]:
        return [r["heldout"][name] for r in self.records[row]]

    def metric(self, row: str, name: str) -> list[float]:
        """A training metric per seed; empty where the row has none."""
        found = [(r["training"] or {}).get("metrics", {}).get(name) for r in self.records[row]]
        return [x for x in found if x is not None]

    def share(self, row: str, kind: str, name: str) -> float | None:
        """Mean share of a class of tokens in the candidates, targets or weight."""
        found = [r["training"]["classes"][kind][name] for r in self.records[row] if r["training"]]
        return sum(found) / len(found) if found else None

    def by_seed(self, row: str, tau: float, field: str = "correct") -> dict[int, dict[str, float]]:
        """seed -> task -> mean."""
        grid = self.grid(row, tau, field)
        return {
            seed: {short(task): float(np.nanmean(found[i])) for task, found in grid.items()}
            for i, seed in enumerate(self.seeds)
        }


@dataclass
class Pool(Board):
    """Several backbones as one: pairs of backbone and seed take the place of the seeds."""

    boards: tuple[Board, ...] = ()

    def grid(self, row: str, tau: float, field: str = "correct") -> Grid:
        grids = [b.grid(row, tau, field) for b in self.boards]
        return {task: np.concatenate([g[task] for g in grids]) for task in grids[0]}

    @property
    def title(self) -> str:
        return f"{self.backbone} ({', '.join(b.backbone for b in self.boards)})"

    def draws(self, grid: Grid) -> Draws:
        return crossed(grid, len(self.boards))


def pool(boards: Sequence[Board]) -> Pool | None:
    """What the boards have in common; None unless there are several with the same seeds."""
    if len(boards) < 2 or len({b.seeds for b in boards}) > 1:
        return None
    one = boards[0]
    rows = tuple(r for r in one.rows if all(r in b.rows for b in boards))
    shape = (one.seeds, one.taus, one.main_tau, one.problems, one.common)
    return Pool("all", rows, *shape, records={}, boards=tuple(boards))


def board(
    lab: Lab, records: Records, backbone: str, costs: Mapping[str, float] | None = None
) -> Board | None:
    """The board of a backbone; None when no seed is complete for at least one row."""
    rows = tuple(r for r in lab.rows if any(c.row == r and c.backbone == backbone for c in records))
    left = [f"row {r}: no cell" for r in lab.rows if r not in rows]

    def record(row: str, seed: int) -> dict[str, Any] | None:
        fixed = row == BASE and not lab.judging.spread
        return records.get(Cell(backbone, row, lab.seeds[0] if fixed else seed))

    seeds = tuple(s for s in lab.seeds if all(record(row, s) is not None for row in rows))
    left += [f"seed {s}: not all rows are done" for s in lab.seeds if s not in seeds]
    if not rows or not seeds:
        return None
    return Board(
        backbone=label(backbone),
        rows=rows,
        seeds=seeds,
        taus=tuple(sorted(lab.judging.taus)),
        main_tau=lab.judging.main_tau,
        problems=lab.judging.problems,
        common=min(problems_at(lab.judging, tau) for tau in lab.judging.taus),
        records={r: [x for s in seeds if (x := record(r, s)) is not None] for r in rows},
        costs=dict(costs or {}),
        left_out=left,
    )


def short(task: str) -> str:
    return task.removeprefix("tiny-")


def known(rows: Sequence[str], names: Sequence[str]) -> list[str]:
    """Those of `names` that the board has, in their order."""
    return [n for n in names if n in rows]
