"""The benchmarks, one small file each, registered lazily."""

from __future__ import annotations

from typing import Any

from goldimask.eval.tasks.base import TASKS, Item, Task, Verdict

__all__ = ["TASKS", "Item", "Task", "Verdict", "get_task", "known_tasks"]


def known_tasks() -> list[str]:
    """Names of all tasks, the tiny ones included."""
    _register_tiny()
    return TASKS.names()


def get_task(task: str | Task, **options: Any) -> Task:
    """A task by name, its options checked by the factory's signature; a Task passes through."""
    if isinstance(task, Task):
        return task
    from goldimask.methods import check_options

    if task not in TASKS:
        _register_tiny()
    factory = TASKS.get(task, "tasks")
    return factory(**check_options(factory, options, f"task {task}"))


def _register_tiny() -> None:
    """Add `tiny-<family>` for every family, at look-up: importing `goldimask.tiny` costs."""
    from goldimask.eval.tasks.tiny import PREFIX, families, tiny_factory

    for family in families():
        name = PREFIX + family
        if name not in TASKS:
            TASKS.add(name, tiny_factory(name), summary=f"embedded tiny task '{family}'")
