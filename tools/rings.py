"""Which ring of the house a module stands in; the import guard and the table of sizes read this.

    method <- workshop <- laboratory <- door

A module may import from its own step and from the steps before it, also inside functions.
"""

from __future__ import annotations

RINGS: dict[str, tuple[frozenset[str], ...]] = {
    "method": (
        frozenset(
            {
                *("errors", "files", "keys", "types", "registry", "settings", "processes"),
                *("tabulated", "known"),
            }
        ),
        frozenset({"noise", "objective", "weighting", "select", "baselines"}),
        frozenset({"methods", "presets"}),
        frozenset({"step", "metrics"}),
        frozenset({"backbones"}),
    ),
    "workshop": (
        frozenset({"config", "records", "jobs", "workers", "console"}),
        frozenset({"data", "stats", "thresholds", "bootstrap", "tables", "figures"}),
        frozenset({"decoding", "train"}),
        frozenset({"eval"}),
        frozenset({"report", "selftest"}),
    ),
    "laboratory": (frozenset({"tiny"}), frozenset({"studies"}), frozenset({"campaign"})),
    "door": (frozenset({"cli", "__main__"}),),
}
BEFORE = {  # rooms of the first house, for the comparison of sizes
    "method": {"adaptive", "memory", "lora", "merge", "threads"},
    "workshop": {"build", "runs", "decode", "layer_probe", "launch"},
    "laboratory": {"lab", "demo", "demo_page", "bench"},
}
STEPS = [(ring, rooms) for ring, steps in RINGS.items() for rooms in steps]


def room(module: str) -> str:
    """`goldimask.select.lazy` -> `select`."""
    return module.split(".")[1] if "." in module else ""


def step(module: str) -> int | None:
    """How far out a module stands; None for the package itself, which may name anything."""
    return next((i for i, (_, rooms) in enumerate(STEPS) if room(module) in rooms), None)


def ring(module: str, before: bool = False) -> str | None:
    """The ring of a module, by the names of today or of the first house."""
    for name, rooms in STEPS:
        if room(module) in rooms:
            return name
    if before:
        return next((name for name, rooms in BEFORE.items() if room(module) in rooms), None)
    return None
