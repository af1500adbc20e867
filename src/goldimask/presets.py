"""The table of methods: every baseline of the paper, GoldiMask, its ablations, and our controls.

A row is three recipe sections (noise x select x weigh) and how the probe runs. Rows are data:
listing them imports neither torch nor the parts they name. `paper` says where the paper trains and
shows a row; rows that it does not have say `not in the paper`. `goldimask.methods.method` turns a
row into a `Method`; `passes` counts its forward passes, one of them with gradient (a test compares
it with the signals that the built method asks for).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from goldimask.registry import Registry

Section = Mapping[str, Any]
OWN = "not in the paper"


@dataclass(frozen=True)
class Preset:
    """A named row: the three parts as recipe sections."""

    noise: Section
    select: Section
    weigh: Section
    paper: str = ""  # where it is defined, or that it is not
    options: Section = field(default_factory=dict)  # attention_layer, probe_mode
    passes: int = 0  # forward passes of a step; 0: not stated, ask the built method
    cost: float | None = None  # training time relative to Vanilla in the paper (four B200)

    @property
    def published(self) -> bool:
        """Does the paper show a model that was trained so?"""
        return bool(self.paper) and not self.paper.startswith(OWN)


PRESETS: Registry[Preset] = Registry("method")

MAIN = (  # the paper's tables and appendix, and goldimask-a; every other row changes one part
    "vanilla",
    "cart",
    "gift",
    "lift-2",
    "lift-3",
    "agdo",
    "goldimask-d",
    "goldimask-r",
    "goldimask-t",
    "goldimask-p",
    "goldimask-a",
)

UNIFORM: Section = {"kind": "uniform"}
OVERMASK: Section = {"kind": "overmask"}
CURVE = "p(1-p)^3"
SUPPORT: Section = {"kind": "saturating", "s0": 0.05}
WATERFILL: Section = {"kind": "waterfill", "cap": 10.0, "priority": CURVE}
ABLATIONS = "section 4.4"


def reveal(kind: str, priority: str = CURVE, support: Section = SUPPORT) -> Section:
    """The select section of a maximiser of F."""
    return {"kind": kind, "priority": priority, "support": dict(support)}


def _add(
    name: str,
    summary: str,
    paper: str,
    *,
    noise: Section = OVERMASK,
    select: Section | None = None,
    weigh: Section = WATERFILL,
    passes: int = 2,
    cost: float | None = None,
) -> None:
    row = Preset(noise, select or reveal("greedy"), weigh, paper=paper, passes=passes, cost=cost)
    PRESETS.add(name, row, summary=summary)


# --- baselines -----------------------------------------------------------------------------------
_add(
    "vanilla",
    "Mask at rate t, every target counts the same.",
    "section 3.1",
    noise=UNIFORM,
    select={"kind": "none"},
    weigh=UNIFORM,
    passes=1,
    cost=1.0,
)
_add(
    "cart",
    "Vanilla masks; targets near visible tokens count more.",
    "Dream 7B; section 4.1",
    noise=UNIFORM,
    select={"kind": "none"},
    weigh={"kind": "cart", "p": 0.1},
    passes=1,
    cost=1.01,
)
_add(
    "gift",
    "Mask again at entropy rates; weigh by the inverse rate.",
    "GIFT; section 4.1",
    noise={"kind": "full"},
    select={"kind": "entropy-resample"},
    weigh={"kind": "inverse-rate"},
    cost=1.17,
)
for _h, _what in ((2, "easy or hard"), (3, "easy, random or hard")):
    _add(
        f"lift-{_h}",
        f"Over-mask; by t, keep {_what} targets.",
        "LIFT; section 4.1",
        select={"kind": "confidence", "components": _h},
        weigh=UNIFORM,
        cost=1.24,
    )
_add(
    "agdo",
    "Reveal what attends to visible tokens; weigh by attention.",
    'AGDO; appendix "Training setup"',
    select={"kind": "attention-visible"},
    weigh={"kind": "importance", "gamma": 100.0},
    cost=1.17,
)

# --- GoldiMask -----------------------------------------------------------------------------------
for _letter, _kind, _what, _cost in (
    ("d", "greedy", "by deterministic greedy", 1.21),
    ("r", "randomized", "by randomised greedy", 1.23),
    ("t", "twin", "up to B by TwinGreedy", None),
    ("p", "practical", "up to B by practical 0.385", None),
):
    _add(
        f"goldimask-{_letter}",
        f"Reveal {_what}; water-filled weights.",
        "Algorithm 1" if _letter in "dr" else 'appendix "Maximizers"',
        select=reveal(_kind),
        cost=_cost,
    )
_add(
    "goldimask-a",
    "GoldiMask-D in one pass, from signals of earlier visits.",
    f"{OWN}: our design, hinted at in section 5",
    select={"kind": "recall", "maximiser": "greedy", "priority": CURVE, "support": dict(SUPPORT)},
    weigh={"kind": "recall", "cap": 10.0, "priority": CURVE},
    passes=1,
)

# --- ablations -----------------------------------------------------------------------------------
_add(
    "random-waterfill",
    "Random reveal; water-filled weights.",
    ABLATIONS,
    select={"kind": "random"},
)
_add(
    "random-uniform",
    "Random reveal; uniform weights: the budget alone.",
    f"{OWN}: a control",
    select={"kind": "random"},
    weigh=UNIFORM,
    passes=1,
)
_add(
    "static-waterfill",
    "Reveal by initial marginals; water-filled weights.",
    ABLATIONS,
    select=reveal("static"),
)
_add(
    "static-uniform",
    "Reveal by initial marginals; uniform weights.",
    f"{OWN}: a control",
    select=reveal("static"),
    weigh=UNIFORM,
)
_OURS = {"clip": "a control", "c2": "a control", "floor": "for text with errors"}
for _suffix, _weigh, _what in (
    ("uniform", UNIFORM, "uniform weights"),
    ("uncapped", {"kind": "uncapped", "priority": CURVE}, "weights normalised, no cap"),
    (
        "clip",
        {"kind": "normalize-then-clip", "cap": 10.0, "priority": CURVE},
        "weights normalised, then clipped",
    ),
    ("dro", {"kind": "dro", "tau": 0.25}, "hard examples weighted up"),
    ("c2", {**WATERFILL, "cap": 2.0}, "water-filling with cap 2"),
    ("c5", {**WATERFILL, "cap": 5.0}, "water-filling with cap 5"),
    ("c15", {**WATERFILL, "cap": 15.0}, "water-filling with cap 15"),
    ("floor", {**WATERFILL, "floor": 0.5}, "water-filling above a floor of 0.5"),
):
    _add(
        f"goldimask-d-{_suffix}",
        f"GoldiMask-D's reveal; {_what}.",
        f"{OWN}: {_OURS[_suffix]}" if _suffix in _OURS else ABLATIONS,
        weigh=_weigh,
    )
for _suffix, _curve in (("1mp", "1-p"), ("p1mp", "p(1-p)"), ("p1mp2", "p(1-p)^2")):
    _add(
        f"goldimask-d-{_suffix}",
        f"GoldiMask-D with the priority {_curve} in both places.",
        ABLATIONS,
        select=reveal("greedy", _curve),
        weigh={**WATERFILL, "priority": _curve},
    )
_add(
    "goldimask-d-linear",
    "GoldiMask-D with linear support, phi(s) = s.",
    f"{OWN}: Study 3 fits this curve, no model is trained with it",
    select=reveal("greedy", support={"kind": "linear"}),
)
_add(
    "budget-sample",
    "Vanilla masks; 32 targets, drawn by priority, carry loss.",
    f"{OWN}'s tables: a rule of Study 1, which has settings of its own",
    noise=UNIFORM,
    select={"kind": "none"},
    weigh={"kind": "budget-sample", "k": 32, "priority": CURVE},
    passes=1,
)
