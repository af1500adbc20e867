"""What HumanEval and MBPP share: finding the program in a text, and running it in the sandbox.

Published reading (`lift`): the first closed ```` ```python ```` fence, as `__main__`; the first
function defined is the one tested. `fixed`: the fence in the answer block first, a fence cut off at
the end of the text counts, and the function of the right name is tested.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from goldimask.eval import answers
from goldimask.eval.sandbox import Limits, Mode, Program, Sandbox, open_sandbox
from goldimask.eval.tasks.base import Item, Judge, Protocol, Task, Verdict

Form = Literal["published", "standard"]
_FENCE = re.compile(r"```[ \t]{0,4}(?:[pP]y(?:thon)?3?)?[ \t]{0,4}\r?\n")
_DEFINED = re.compile(r"^(?:async[ \t]{1,4})?def[ \t]{1,4}([A-Za-z_]\w{0,200})", re.MULTILINE)
_LIFT_DEFINED = re.compile(r"def\s+([A-Za-z_][A-Za-z0-9_]*)\s*\(")


@dataclass(frozen=True)
class Execution:
    """Permission and bounds for running programs; the sandbox is opened on first use."""

    allow: bool
    mode: Mode = "auto"
    seconds: float = 10.0
    workers: int | None = None

    def sandbox(self) -> Sandbox:
        return _sandbox(self.allow, self.mode, self.seconds)

    def prepare(self) -> str:
        """Open the sandbox and say which protection is in force."""
        return self.sandbox().describe()


@lru_cache(maxsize=8)
def _sandbox(allow: bool, mode: Mode, seconds: float) -> Sandbox:
    return open_sandbox(allow, mode, Limits(cpu=seconds, wall=3 * seconds))


def extract_fixed(text: str) -> str | None:
    """The first fenced block of the answer, else of the whole text; an open last fence counts."""
    block = answers.answer_block(text, closed=False)
    for part in (block, text):
        if part and (found := _fenced(part)):
            return found
    return None


def _fenced(text: str) -> str | None:
    opening = _FENCE.search(text)
    if opening is None:
        return None
    end = text.find("```", opening.end())
    if end < 0:
        ends = [text.find(t, opening.end()) for t in (*answers.END_TOKENS, answers.CLOSE)]
        end = min((e for e in ends if e >= 0), default=len(text))
    return text[opening.end() : end] or None


def extract_lift(text: str) -> str | None:
    """The first ```` ```python ```` fence on a line of its own, closing fence required."""
    opening = "```python\n"
    start = text.find(opening)
    end = text.find("```", start + len(opening)) if start >= 0 else -1
    return text[start + len(opening) : end] if end >= 0 else None


def defined(program: str) -> list[str]:
    """Functions defined at the top level, in order."""
    return _DEFINED.findall(program)


def lift_defined(program: str) -> str | None:
    """The first function defined anywhere."""
    match = _LIFT_DEFINED.search(program)
    return match[1] if match else None


def runner(execution: Execution, build: Callable[[Item, str], Program | str]) -> Judge:
    """A judge that builds programs and runs them in parallel; `build` may say why there is none."""

    def judge(items: Sequence[Item], extracted: Sequence[str | None]) -> list[Verdict]:
        built = [
            "unparsable" if x is None else build(item, x)
            for item, x in zip(items, extracted, strict=True)
        ]
        programs = [b for b in built if isinstance(b, Program)]
        outcomes = iter(execution.sandbox().run_all(programs, execution.workers))
        verdicts = []
        for b in built:
            if isinstance(b, str):
                verdicts.append(Verdict(False, b))
                continue
            outcome = next(outcomes)
            detail = "" if outcome.passed else f"{outcome.status}: {outcome.detail}".rstrip(": ")
            verdicts.append(Verdict(outcome.passed, detail))
        return verdicts

    return judge


def program_task(
    name: str,
    form: Form,
    protocol: Protocol,
    execution: Execution,
    rows: Callable[[Path | str | None], list[Mapping[str, Any]]],
    item_of: Callable[[Mapping[str, Any], int, Form], Item],
    extract: Callable[[str], str | None],
    build: Callable[[Item, str], Program | str],
    stored: Callable[[Mapping[str, Any], int], Item | None],
) -> Task:
    """A test set of programs under its own prompt, parsing and way to run."""
    return Task(
        name=name if form == "published" else f"{name}-standard",
        version="1",
        load=lambda source: [item_of(row, i, form) for i, row in enumerate(rows(source))],
        extract=extract,
        judge=runner(execution, build),
        length=256,
        lengths=(256,),
        prefill="<reasoning>" if form == "published" else "",
        protocol=protocol,
        metric="pass@1",
        prepare=execution.prepare,
        raw=True,
        program=build,
        row=lambda row, index: item_of(row, index, form),
        stored=stored,
    )
