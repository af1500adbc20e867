"""Evaluation: tasks, honest scoring, sandboxed code, statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from goldimask.eval.run import EvalResult, TaskResult, evaluate

__all__ = ["EvalResult", "TaskResult", "evaluate"]


def __getattr__(name: str) -> object:
    if name in __all__:
        from goldimask.eval import run

        return getattr(run, name)
    raise AttributeError(name)
