"""HumanEval: 164 functions to write, checked by running their tests.

The published prompt holds only the first docstring: no signature, imports or name; for items 10,
32, 38 and 50 it is the docstring of a helper, so that they can hardly be solved. `form="standard"`
shows the whole prompt. The two are not comparable.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goldimask.eval.sandbox import Mode, Program
from goldimask.eval.tasks.base import Item, Protocol, Task
from goldimask.eval.tasks.programs import (
    Execution,
    Form,
    defined,
    extract_fixed,
    extract_lift,
    lift_defined,
    program_task,
)
from goldimask.eval.testsets import load_rows, pick

INSTRUCTION = """You are a coding expert. You will be given a coding problem to solve. \
Solve it step by step.

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
    "Complete the following Python function. Reply with the complete function, signature included, "
    "in one ```python block.\n\n```python\n{prompt}\n```"
)


def humaneval(
    protocol: Protocol = "fixed",
    form: Form = "published",
    allow_code_execution: bool = False,
    sandbox: Mode = "auto",
    seconds: float = 10.0,
    workers: int | None = None,
) -> Task:
    """HumanEval, 164 programs; `form` is the prompt, `seconds` the CPU time of a program."""
    execution = Execution(allow_code_execution, sandbox, seconds, workers)
    lift = protocol == "lift"
    return program_task(
        "humaneval",
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
    return load_rows(
        source,
        task="humaneval",
        names=("humaneval", "HumanEval"),
        hub=("openai/openai_humaneval", None, "test"),
        how="take data/HumanEval.jsonl.gz from openai/human-eval",
    )


def item_of(row: Mapping[str, Any], index: int, form: Form) -> Item:
    prompt = pick(row, "prompt", task="humaneval")
    entry = pick(row, "entry_point", task="humaneval")
    question = first_docstring(prompt)
    text = f"{INSTRUCTION}\n\n{question}"
    if form == "standard":
        text = STANDARD.format(prompt=prompt.rstrip())
    return Item(
        id=str(row.get("id") or row.get("task_id") or f"HumanEval/{index}"),
        prompt=text,
        gold=pick(row, "test", task="humaneval"),
        meta={
            "question": question,
            "entry": entry,
            "prelude": prompt[: prompt.find(f"def {entry}")],
            "prompt": prompt,
            "form": form,
            "reference": prompt + row.get("canonical_solution", ""),
        },
    )


def first_docstring(prompt: str) -> str:
    """The text between the first triple quotes that open a line, line by line without indent."""
    quote, lines = "", []
    for line in (x.strip() for x in prompt.splitlines()):
        if not quote:
            if line.startswith(('"""', "'''")):
                quote = line[:3]
                if line.count(quote) == 2 and len(line) > 6:
                    return line[3:-3].strip()
                lines.append(line[3:])
        elif line.endswith(quote):
            lines.append(line[:-3])
            break
        else:
            lines.append(line)
    return "\n".join(lines).strip()


def stored(row: Mapping[str, Any], index: int) -> Item | None:
    """The stored gold is the test code; name and helpers come from the test set if there is one."""
    gold, question = row.get("ground_truth"), str(row.get("question", ""))
    if not isinstance(gold, str) or "def" not in gold:
        return None
    meta = {"question": question, "entry": None, "prelude": "", "prompt": "", "form": "published"}
    return Item(str(index), question, gold, meta)


def build_fixed(item: Item, program: str) -> Program | str:
    entry, names = item.meta["entry"], defined(program)
    if entry is None or (entry not in names and item.meta["form"] == "published"):
        entry = names[-1] if names else None  # the published prompt does not tell the name
    elif entry not in names:
        program = item.meta["prompt"] + program  # a bare body continues the prompt
    if entry is None:
        return "no function"
    tests = f"{item.gold}\n\ncheck({entry})"
    return Program(program, tests, prelude=item.meta["prelude"], names=(entry,))


def build_lift(item: Item, program: str) -> Program | str:
    entry = lift_defined(program)
    if entry is None:
        return "no function"
    tests = f"{item.gold[item.gold.index('def') :]}\n\ncheck({entry})"
    return Program(program, tests, names=(entry,), module="__main__")
