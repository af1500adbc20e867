"""Finished cells -> what the tables ask for.

Only seeds for which every shown row of a backbone is finished take part, so that all rows of a
table are means over the same seeds and problems; what is left out is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from goldimask.bootstrap import Draws, Grid, draw, grid_of, problems_of
from goldimask.campaign.grid import Finished, tau_of
from goldimask.campaign.settings import BASE, Campaign, Cell, label, problems_at
from goldimask.records import Outcome

Shown = Literal["correct", "steps"]


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
    spread: bool  # problems are divided over the seeds
    cells: dict[str, list[Finished]]  # row -> one per seed
    costs: dict[str, float] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    made: dict[tuple[str, float, Shown, int], Grid] = field(default_factory=dict, repr=False)

    @property
    def title(self) -> str:
        return self.backbone

    def grid(self, row: str, tau: float, what: Shown = "correct", problems: int = 0) -> Grid:
        """What a row scored at a threshold; `problems` keeps the first ones of each task."""
        place = (row, tau, what, problems or self.problems)
        if place not in self.made:
            self.made[place] = self._grid(*place)
        return self.made[place]

    def _grid(self, row: str, tau: float, what: Shown, problems: int) -> Grid:
        def answers(of: str) -> list[list[Outcome]]:
            return [
                [o for o in cell.outcomes if tau_of(o) == tau and o.index < problems]
                for cell in self.cells[of]
            ]

        runs = answers(row)
        value = _correct if what == "correct" else _steps
        return grid_of(runs, problems_of(*answers(self.rows[0]), *runs), value)

    def shared(self, row: str, tau: float, what: Shown = "correct") -> Grid:
        """Only the problems that were judged at every threshold."""
        return self.grid(row, tau, what, self.common)

    def draws(self, grid: Grid) -> Draws:
        """Weights of the bootstrap for a grid of this board."""
        return draw(grid)

    def weights(self) -> Draws:
        return self.draws(self.grid(self.rows[0], self.main_tau))

    def fact(self, row: str, *names: str) -> list[Any]:
        """A fact of the trainings per seed; empty where the row has none."""
        found = []
        for cell in self.cells[row]:
            value: Any = cell.facts
            for name in names:
                value = value.get(name) if isinstance(value, Mapping) else None
            found.append(value)
        return [x for x in found if x is not None]

    def by_seed(self, row: str, tau: float) -> dict[int, dict[str, float]]:
        """seed -> task -> accuracy."""
        grid = self.grid(row, tau)
        return {
            seed: {short(task): float(np.nanmean(found[i])) for task, found in grid.items()}
            for i, seed in enumerate(self.seeds)
        }


def _correct(outcome: Outcome) -> float:
    return float(outcome.correct)


def _steps(outcome: Outcome) -> float:
    return float(outcome.steps)


@dataclass
class Pool(Board):
    """Several backbones as one: pairs of backbone and seed take the place of the seeds."""

    boards: tuple[Board, ...] = ()

    def grid(self, row: str, tau: float, what: Shown = "correct", problems: int = 0) -> Grid:
        grids = [b.grid(row, tau, what, problems) for b in self.boards]
        return {task: np.concatenate([g[task] for g in grids]) for task in grids[0]}

    @property
    def title(self) -> str:
        return f"{self.backbone} ({', '.join(b.backbone for b in self.boards)})"

    def draws(self, grid: Grid) -> Draws:
        return draw(grid, backbones=len(self.boards))


def pool(boards: Sequence[Board]) -> Pool | None:
    """What the boards have in common; None unless there are several with the same seeds."""
    if len(boards) < 2 or len({b.seeds for b in boards}) > 1:
        return None
    one = boards[0]
    rows = tuple(r for r in one.rows if all(r in b.rows for b in boards))
    shape = (one.seeds, one.taus, one.main_tau, one.problems, one.common, one.spread)
    return Pool("all", rows, *shape, cells={}, boards=tuple(boards))


def board(
    campaign: Campaign,
    cells: Mapping[Cell, Finished],
    backbone: str,
    costs: Mapping[str, float] | None = None,
) -> Board | None:
    """The board of a backbone; None when no seed is complete for at least one row."""
    rows = tuple(
        r for r in campaign.rows if any(c.row == r and c.backbone == backbone for c in cells)
    )
    left = [f"row {r}: no cell" for r in campaign.rows if r not in rows]
    judging = campaign.judging

    def cell(row: str, seed: int) -> Finished | None:
        fixed = row == BASE and not judging.spread
        return cells.get(Cell(backbone, row, campaign.seeds[0] if fixed else seed))

    seeds = tuple(s for s in campaign.seeds if all(cell(row, s) is not None for row in rows))
    left += [f"seed {s}: not all rows are done" for s in campaign.seeds if s not in seeds]
    if not rows or not seeds:
        return None
    return Board(
        backbone=label(backbone),
        rows=rows,
        seeds=seeds,
        taus=tuple(sorted(judging.taus)),
        main_tau=judging.main_tau,
        problems=judging.problems,
        common=min(problems_at(judging, tau) for tau in judging.taus),
        spread=judging.spread,
        cells={r: [x for s in seeds if (x := cell(r, s)) is not None] for r in rows},
        costs=dict(costs or {}),
        left_out=left,
    )


def short(task: str) -> str:
    return task.removeprefix("tiny-")


def known(rows: Sequence[str], names: Sequence[str]) -> list[str]:
    """Those of `names` that the board has, in their order."""
    return [n for n in names if n in rows]
