"""MBPP, sanitized test split: 257 short functions, checked by the asserts that the prompt shows.

The authors split by task id: prompt to 10, test 11 to 510, validation 511 to 600, train 601 to 974.
A file that holds all splits, such as their sanitized-mbpp.json (427 rows), is cut to its test rows.

The published prompt shows all scoring asserts; so does the standard form, which is a plain
instruction without the reasoning template.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.eval.sandbox import Mode, Program
from goldimask.eval.tasks.base import Item, Protocol, Task
from goldimask.eval.tasks.programs import (
    Execution,
    Form,
    defined,
    extract_fixed,
    extract_lift,
    program_task,
)
from goldimask.eval.testsets import load_rows, pick

INSTRUCTION = """You are a coding expert. You will be given a coding problem to solve. \
Solve it step by step. Ensure you wrap the answer in ```python```.

Respond in the following format:
<reasoning>
Your reasoning here
</reasoning>
<answer>
```python
Your code here
```
</answer>
"""
STANDARD = (
    "{problem}\nThe code must pass these tests:\n\n{tests}\n\n"
    "Reply with the code in one ```python block."
)
TEST_IDS = range(11, 511)
_CALLED = re.compile(r"\b([A-Za-z_]\w{0,200})\s{0,4}\(")


def mbpp(
    protocol: Protocol = "fixed",
    form: Form = "published",
    allow_code_execution: bool = False,
    sandbox: Mode = "auto",
    seconds: float = 10.0,
    workers: int | None = None,
) -> Task:
    """MBPP sanitized test, 257 programs; `form` is the prompt, `seconds` the CPU time of one."""
    execution = Execution(allow_code_execution, sandbox, seconds, workers)
    lift = protocol == "lift"
    return program_task(
        "mbpp",
        form,
        protocol,
        execution,
        rows,
        item_of,
        extract_lift if lift else extract_fixed,
        build_lift if lift else build_fixed,
        stored,
    )


def rows(source: Path | str | None) -> list[Mapping[str, Any]]:
    found = load_rows(
        source,
        task="mbpp",
        names=("mbpp", "mbpp_sanitized", "sanitized-mbpp"),
        hub=("google-research-datasets/mbpp", "sanitized", "test"),
        how="take mbpp/sanitized-mbpp.json from google-research/google-research",
    )
    test = [row for row in found if task_number(row) is None or task_number(row) in TEST_IDS]
    if found and not test:
        raise GoldimaskError(
            f"task 'mbpp': none of {len(found)} rows is of the test split (11-510)"
        )
    return test


def task_number(row: Mapping[str, Any]) -> int | None:
    """11 of `task_id: 11` and of `id: mbpp/11`; None where a row has no such number."""
    named = re.fullmatch(r"mbpp/(\d{1,9})", str(row.get("id", "")), re.ASCII)
    number = row.get("task_id", named[1] if named else None)
    return int(number) if str(number).isdecimal() else None


def item_of(row: Mapping[str, Any], index: int, form: Form) -> Item:
    problem = pick(row, "prompt", "text", task="mbpp")
    asserts = "\n".join(pick(row, "test_list", task="mbpp"))
    imports = "\n".join(row.get("test_imports") or [])
    setup = row.get("test_setup_code") or ""
    code = row.get("code") or ""
    question = f"{problem}\n\n Your code should pass the following tests:\n\n{asserts}"
    text = f"{INSTRUCTION}\n\n{question}"
    if form == "standard":
        text = STANDARD.format(problem=problem, tests=asserts)
    called = set(_CALLED.findall(asserts))
    return Item(
        id=str(row.get("id") or row.get("task_id") or f"mbpp/{index}"),
        prompt=text,
        gold=f"{imports}\n\n{asserts}",
        meta={
            "question": question,
            "imports": imports,
            "tests": f"{setup}\n{asserts}" if setup else asserts,
            "names": tuple(n for n in defined(code) if n in called) or tuple(called),
            "reference": code,
        },
    )


def stored(row: Mapping[str, Any], index: int) -> Item | None:
    gold, question = row.get("ground_truth"), str(row.get("question", ""))
    if not isinstance(gold, str) or "assert" not in gold:
        return None
    called = sorted(set(_CALLED.findall(gold)))
    names = tuple(n for n in called if not hasattr(builtins, n)) or tuple(called)
    meta = {"question": question, "imports": "", "tests": gold, "names": names}
    return Item(str(index), question, gold, meta)


def build_fixed(item: Item, program: str) -> Program | str:
    meta = item.meta
    return Program(program, meta["tests"], prelude=meta["imports"], names=meta["names"])


def build_lift(item: Item, program: str) -> Program | str:
    return Program(program, item.gold, names=item.meta["names"], module="__main__")
