"""The families of the tiny world, and the sets drawn from them.

`corpus("tiny-sft", 1000, seed)` gives training rows, `test_set("chain", 100, seed)` test problems.
Both come from the same hard distribution; they are disjoint by the rule in `problem.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from goldimask.errors import GoldimaskError
from goldimask.registry import Registry
from goldimask.tiny import chain, program, sort, story, sudoku
from goldimask.tiny.problem import Problem, Split, Task

TASKS: Registry[Task] = Registry("tiny task")
for _module in (chain, story, sort, program, sudoku):
    TASKS.add(_module.TASK.name, _module.TASK, summary=_module.TASK.summary)

Row = dict[str, str]  # prompt, response, answer, task
CORPORA: Registry[Callable[..., list[Row]]] = Registry("tiny corpus")


@CORPORA.register("tiny-sft")
def tiny_sft(n: int = 1000, seed: int = 0) -> list[Row]:
    """Hard problems of every family in turn, all with wordy prompts."""
    return mixed(Split.SFT, n, seed)


@CORPORA.register("tiny-pretrain")
def tiny_pretrain(n: int = 1000, seed: int = 0) -> list[Row]:
    """What the shipped model saw in pretraining: mostly easy, mostly in the terse style."""
    return mixed(Split.PRETRAIN, n, seed)


for _name, _summary in (
    ("tiny-1k", "1,000 rows with wrong labels and random identifiers."),
    ("tiny-12k", "12,000 rows with wrong labels and random identifiers."),
    ("tiny-1k-clean", "The rows of tiny-1k without the wrong labels."),
    ("tiny-1k-labels", "The rows of tiny-1k without the identifiers."),
):
    _target = f"goldimask.tiny.corpora:{_name.replace('-', '_')}"
    CORPORA.add(_name, _target, summary=_summary)


def corpus(name: str = "tiny-sft", n: int = 1000, seed: int = 0) -> list[Row]:
    """Training rows of a named corpus."""
    if n < 0:
        raise GoldimaskError(f"corpus '{name}': n = {n} is negative; ask for 0 or more rows")
    return CORPORA.get(name, "corpus")(n, seed)


def corpus_rows() -> list[Row]:
    """The default fine-tuning corpus, for the registry of corpora."""
    return corpus()


def mixed(split: Split, n: int, seed: int) -> list[Row]:
    """`n` rows, the families in turn; a longer corpus starts with the shorter one."""
    tasks = [entry.load() for entry in TASKS]
    per_task = [t.problems(-(-n // len(tasks)), seed, split) for t in tasks]
    turns = [p for problems in zip(*per_task, strict=True) for p in problems]
    return [as_row(p) for p in turns[:n]]


def test_set(task: str, n: int = 100, seed: int = 0) -> list[Problem]:
    """`n` distinct test problems of one family."""
    return TASKS.get(task, "task").problems(n, seed, Split.TEST)


test_set.__test__ = False  # pyright: ignore[reportFunctionMemberAccess]  # not a test for pytest


def as_row(problem: Problem) -> Row:
    return {
        "prompt": problem.prompt,
        "response": problem.response,
        "answer": problem.answer,
        "task": problem.task,
    }
