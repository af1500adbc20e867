"""The kinds of tables and figures, and the rows of the paper's ablations; imports nothing heavy.

A kind is made when the folders hold what it needs. Each is a function of evaluated runs alone, so
that a campaign and `goldimask report FOLDER...` show the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TABLES: dict[str, str] = {
    "main": "accuracy by method and task, the best of several lengths (paper, main results)",
    "fixed": "the same at each task's fixed length (paper, fixed lengths)",
    "code": "HumanEval and MBPP (paper, code generation)",
    "aime": "AIME, pass@16 (paper, AIME24)",
    "paired": "differences on the same problems and seeds, with 95 % intervals; steps too",
    "mcnemar": "the same task by task: n, what was lost and won, exact McNemar test",
    "rates": "every row at each of its learning rates (`METHOD@RATE`), and the best of them",
    "components": "selection and weighting, one at a time (paper, section 4.4)",
    "priority": "other supervision priorities (paper, section 4.4)",
    "weighting": "other loss weightings (paper, section 4.4)",
    "cap": "the cap of the water-filling",
    "layer": "the layer whose attention is read",
    "support": "other support functions",
    "maximisers": "GoldiMask-D, -R, -T, -P and the strongest baseline (paper, appendix Maximizers)",
    "ablations": "paired differences of all these rows to GoldiMask-D",
    "thresholds": "accuracy, steps and seconds at every threshold (paper, Figures 2 and 3)",
    "reductions": "steps against the most accurate baseline at each threshold",
    "aup": "accuracy under parallelism",
    "decoding": "averages over tasks by threshold, held-out loss, effective targets",
    "frontier": "accuracy against Vanilla's at the same number of steps",
    "supervision": "which tokens are targets and carry the weight, where a corpus has classes",
    "time": "training time relative to Vanilla (paper, relative training time)",
    "runs": "trainings, with their held-out losses",
    "recipes": "keys in which the recipes differ",
    "evaluation": "every task, length and way of decoding, with 95 % intervals",
    "published": "published scores of untuned models beside the measured ones",
    "cost": "seconds of each phase of a micro-batch",
}
FIGURES: dict[str, str] = {
    "steps": "accuracy against decoding steps, a panel for each backbone (paper, Figures 2 and 3)",
    "paired": "differences to Vanilla with their intervals",
    "training": "logged values by step",
}
PER_RUN = ("runs", "recipes", "evaluation", "published", "cost")  # grow with the number of runs
ALL = "all"

# --- rows of the ablations: name of the method -> what the table calls it -------------------------

OWN = "goldimask-d"
ABLATIONS: dict[str, tuple[str, dict[str, str]]] = {
    "components": (
        "Contributions of selection and weighting",
        {
            "vanilla": "None (Vanilla), uniform",
            "random-uniform": "Random, uniform",
            "random-waterfill": "Random, water-filling",
            "random-c2": "Random, water-filling (c = 2)",
            "random-floor": "Random, water-filling above a floor",
            "static-uniform": "Static initial-marginal, uniform",
            "static-waterfill": "Static initial-marginal, water-filling",
            "goldimask-d-uniform": "GoldiMask-D, uniform",
            "goldimask-d-c2": "GoldiMask-D, water-filling (c = 2)",
            "goldimask-d-floor": "GoldiMask-D, water-filling above a floor",
            "goldimask-d": "GoldiMask-D, water-filling",
        },
    ),
    "priority": (
        "Supervision priority",
        {
            "goldimask-d-1mp": "λ ∝ 1-p (peak at 0)",
            "goldimask-d-p1mp": "λ ∝ p(1-p) (peak at 1/2)",
            "goldimask-d-p1mp2": "λ ∝ p(1-p)² (peak at 1/3)",
            "goldimask-d": "λ ∝ p(1-p)³ (ours, peak at 1/4)",
        },
    ),
    "weighting": (
        "Loss weighting",
        {
            "goldimask-d-uniform": "Uniform",
            "goldimask-d-dro": "DRO-tilted hardness",
            "goldimask-d-uncapped": "Uncapped utility weighting",
            "goldimask-d-clip": "Normalised, then clipped",
            "goldimask-d-c5": "Water-filling (c = 5)",
            "goldimask-d-c15": "Water-filling (c = 15)",
            "goldimask-d": "Water-filling (c = 10, ours)",
        },
    ),
    "cap": (
        "Cap of the water-filling",
        {
            "goldimask-d-uniform": "c = 1 (uniform)",
            "goldimask-d-c2": "c = 2",
            "goldimask-d-c5": "c = 5",
            "goldimask-d": "c = 10 (ours)",
            "goldimask-d-c15": "c = 15",
            "goldimask-d-uncapped": "no cap",
        },
    ),
    "layer": (
        "Attention layer",
        {
            "random-waterfill": "none (random reveals)",
            "goldimask-d-first": "first",
            "goldimask-d-middle": "middle",
            "goldimask-d-probe": "chosen by a probe",
            "goldimask-d-uniform-probe": "chosen by a probe, uniform weights",
            "goldimask-d": "last (ours)",
        },
    ),
    "support": (
        "Support function",
        {
            "goldimask-d-linear": "linear",
            "goldimask-d-s10": "saturating, s0 = 0.1",
            "goldimask-d-s20": "saturating, s0 = 0.2",
            "goldimask-d": "saturating, s0 = 0.05 (ours)",
        },
    ),
}
MAXIMISERS = ("goldimask-d", "goldimask-r", "goldimask-t", "goldimask-p", "goldimask-a")
CONTROLS = {  # what selects its reveals -> the control that draws them
    "goldimask-d": "random-waterfill",
    "goldimask-r": "random-waterfill",
    "goldimask-d-uniform": "random-uniform",
    "goldimask-d-c2": "random-c2",
    "goldimask-d-floor": "random-floor",
}
VARIANTS: dict[str, Mapping[str, Any]] = {  # rows above that are no presets
    "random-c2": {"preset": "random-waterfill", "weigh": {"cap": 2}},
    "random-floor": {"preset": "random-waterfill", "weigh": {"floor": 0.5}},
    "goldimask-d-first": {"preset": OWN, "attention_layer": 0},
    "goldimask-d-middle": {"preset": OWN, "attention_layer": 0.5},
    "goldimask-d-probe": {"preset": OWN, "attention_layer": "probe"},
    "goldimask-d-uniform-probe": {"preset": f"{OWN}-uniform", "attention_layer": "probe"},
    "goldimask-d-s10": {"preset": OWN, "select": {"support": {"s0": 0.1}}},
    "goldimask-d-s20": {"preset": OWN, "select": {"support": {"s0": 0.2}}},
}


def one_part_away() -> list[str]:
    """Every row of the ablation tables but GoldiMask-D and Vanilla, in their order."""
    listed = dict.fromkeys(row for _, rows in ABLATIONS.values() for row in rows)
    return [row for row in listed if row not in (OWN, "vanilla")]
