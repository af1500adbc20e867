"""What the tiny world adds to the registries of corpora and of evaluation tasks.

`goldimask.registry.BUILTIN` calls these functions when such a registry is first asked for a name.
Only names are added here; a generator is imported when its corpus or task is used.
"""

from __future__ import annotations

from typing import Any

from goldimask.registry import Registry


def add_corpora(registry: Registry[Any]) -> None:
    """Generated training rows (`corpora.py`)."""
    for name, function, summary in (
        ("tiny-sft", "tiny_sft", "1,000 generated problems, harder than the model's pretraining"),
        ("tiny-1k", "tiny_1k", "1,000 problems with wrong labels and random identifiers"),
        ("tiny-12k", "tiny_12k", "12,000 problems with wrong labels and random identifiers"),
        ("tiny-1k-clean", "tiny_1k_clean", "tiny-1k without the wrong labels"),
        ("tiny-1k-labels", "tiny_1k_labels", "tiny-1k without the identifiers"),
        ("tiny-skills", "tiny_skills", "1,000 problems of a skill to teach and three to repeat"),
    ):
        registry.add(
            name,
            f"goldimask.tiny.corpora:{function}",
            summary=summary,
            classes="goldimask.tiny.classes:CLASSES",
        )


def add_tasks(registry: Registry[Any]) -> None:
    """Generated test problems (`evaluation.py`)."""
    for family, summary in (
        ("chain", "9-10 additions and subtractions; a number"),
        ("story", "two people, six days of buying and giving; a number"),
        ("sort", "seven numbers, up or down; a list"),
        ("program", "two inputs and 4-5 assignments; a number"),
        ("sudoku", "4x4 with 6-8 blanks and one solution; a grid"),
    ):
        registry.add(f"tiny-{family}", f"goldimask.tiny.evaluation:{family}", summary=summary)
    for skill, summary in (
        ("extremes", "9-10 operations with max and min; a number"),
        ("sudoku-hard", "4x4 with 9-10 blanks and one solution; a grid"),
        ("chain-kept", "9-10 additions and subtractions; a number"),
        ("sort-kept", "seven numbers, up or down; a list"),
    ):
        target = f"goldimask.tiny.evaluation:{skill.replace('-', '_')}"
        registry.add(f"tiny-{skill}", target, summary=f"skill: {summary}")
        for end, why in (
            ("val", "to choose settings on"),
            ("new", "drawn later, to confirm"),
            ("newer", "drawn later still"),
        ):
            registry.add(f"tiny-{skill}-{end}", f"{target}_{end}", summary=f"the same, {why}")
