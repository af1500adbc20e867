"""The benchmarks, one small file each, registered lazily; the tiny ones are in `goldimask.tiny`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache

from goldimask.eval.tasks.base import TASKS, Item, Protocol, Task, Verdict

__all__ = [
    "TASKS",
    "Item",
    "Task",
    "Verdict",
    "accepted",
    "get_task",
    "known_tasks",
    "own_length",
    "own_samples",
]


for _name, _where, _summary in (
    ("gsm8k", "gsm8k:gsm8k", "grade-school word problems, 1,319; a number"),
    ("math500", "math500:math500", "MATH-500; a LaTeX expression"),
    ("countdown", "countdown:countdown", "reach a target from three numbers, 256; an expression"),
    ("sudoku", "sudoku:sudoku", "4x4 Sudoku, 256 of 500; cell accuracy and solved puzzles"),
    ("aime24", "aime:aime24", "AIME 2024, 30, pass@16; an integer"),
    ("aime25", "aime:aime25", "AIME 2025, 30, pass@16; an integer"),
    ("humaneval", "humaneval:humaneval", "HumanEval, 164; a function, run in the sandbox"),
    ("mbpp", "mbpp:mbpp", "MBPP sanitized, 257; a function, run in the sandbox"),
):
    TASKS.add(_name, f"goldimask.eval.tasks.{_where}", summary=_summary)


def known_tasks() -> list[str]:
    """Names of all tasks, the tiny ones included."""
    return TASKS.names()


def own_length(task: str) -> int:
    """The fixed length of a task by its name in outcomes; 0 for one that is not known."""
    found = _known(task)
    return found.length if found else 0


def own_samples(task: str) -> int:
    """How many samples a task is published with, by its name in outcomes: 16 for AIME, else 1."""
    found = _known(task)
    return found.samples if found else 1


@cache
def _known(task: str) -> Task | None:
    name = task.removesuffix("-standard")
    return get_task(name) if name in TASKS.names() else None


def accepted(task: str | Task, options: Mapping[str, object]) -> dict[str, object]:
    """Those of the options that the task's factory takes (only code tasks run programs, ...)."""
    if isinstance(task, Task):
        return {}
    known = inspect.signature(factory(task)).parameters
    return {k: v for k, v in options.items() if k in known}


def get_task(task: str | Task, **options: object) -> Task:
    """A task by name, its options checked by the factory's signature; a Task passes through."""
    if isinstance(task, Task):
        return task
    from goldimask.settings import make

    return make(factory(task), options, f"task {task}")


def factory(task: str) -> Callable[..., Task]:
    """What makes a task: that of its name, or of a file of questions (`file:test.jsonl`)."""
    if not task.startswith("file:"):
        return TASKS.get(task, "tasks")
    from goldimask.eval.tasks.own import own_task

    def own(protocol: Protocol = "fixed", judge: str | None = None) -> Task:
        return own_task(task, protocol, judge)

    return own
