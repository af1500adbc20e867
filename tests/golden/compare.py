"""Compare the golden records of two commits, or of a commit and the working tree.

    python tests/golden/compare.py                   HEAD and the working tree
    python tests/golden/compare.py main              a commit and the working tree
    python tests/golden/compare.py v1 v2             two commits
    python tests/golden/compare.py tests/golden/record.json    a record and the working tree

Each tree is recorded by its own `tests/golden/record.py`, on this machine, one after the other; a
commit is checked out in a temporary worktree. Decisions must be equal and losses within 1e-5.
The exit code is 0 when everything agrees; the keys of `--json`, which change by intent, are listed
in a part of their own and count only with `--strict-keys`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WORKING = "working tree"
BY_INTENT = "keys"  # the section whose changes are listed, but are no failure
LOSS = 1e-5  # absolute
ABSOLUTE = {"losses": LOSS, "held_out_losses": LOSS, "t": 0.0, "rho": 0.0}
RELATIVE = 1e-4  # of the other measured numbers: weights, gradients, values of F
# Of a record that another processor wrote. A gain is a difference of two nearly equal log
# probabilities: where all of a row's are small, their last digits decide its weights.
ELSEWHERE = {"losses": 1e-3, "held_out_losses": 1e-3, "gradient_norm": 2e-3, "weight_norms": 0.05}
MISSING = "(absent)"


@dataclass(frozen=True)
class Difference:
    """One value that differs by more than it may."""

    section: str
    case: str
    what: str
    before: Any
    after: Any


def differences(
    section: str, before: dict[str, Any], after: dict[str, Any], elsewhere: bool = False
) -> list[Difference]:
    """All that differs between two records of a section; `elsewhere`: of two processors."""
    found = []
    for case in sorted(before.keys() | after.keys()):
        if case not in before or case not in after:
            sides = ("present" if case in x else MISSING for x in (before, after))
            found.append(Difference(section, case, "case", *sides))
            continue
        a, b = (x if isinstance(x, dict) else {"": x} for x in (before[case], after[case]))
        for what in sorted(a.keys() | b.keys()):
            one, two = a.get(what, MISSING), b.get(what, MISSING)
            if not agree(what, one, two, elsewhere):
                found.append(Difference(section, case, what, one, two))
    return found


def agree(what: str, a: Any, b: Any, elsewhere: bool = False) -> bool:
    """Equal, or for measured numbers close enough."""
    if isinstance(a, list) and isinstance(b, list):
        pairs = zip(a, b, strict=False)
        return len(a) == len(b) and all(agree(what, x, y, elsewhere) for x, y in pairs)
    if isinstance(a, float) and isinstance(b, float):
        allowed = ABSOLUTE.get(what, RELATIVE * max(1.0, abs(a)))
        if elsewhere and what in ELSEWHERE:
            allowed = ELSEWHERE[what] * max(1.0, abs(a))
        return abs(a - b) <= allowed
    return type(a) is type(b) and a == b


def largest_change(before: dict[str, Any], after: dict[str, Any]) -> float:
    """The largest movement of a loss, also of those within the tolerance."""
    moved = [
        abs(x - y)
        for case in before.keys() & after.keys()
        if isinstance(before[case], dict) and isinstance(after[case], dict)
        for x, y in zip(before[case].get("losses", ()), after[case].get("losses", ()), strict=False)
    ]
    return max(moved, default=0.0)


# ---------------------------------------------------------------- two trees


@contextmanager
def tree(name: str) -> Iterator[Path]:
    """The folder of a commit, checked out for as long as it is needed."""
    if name == WORKING:
        yield ROOT
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "tree"
        git("worktree", "add", "--quiet", "--detach", str(folder), name)
        try:
            yield folder
        finally:
            git("worktree", "remove", "--force", str(folder))


def git(*words: str) -> None:
    subprocess.run(["git", "-C", str(ROOT), *words], check=True)


def record_of(name: str, sections: str) -> dict[str, Any]:
    """The record of a commit, of the working tree, or read from a file."""
    if name.endswith(".json"):
        return json.loads(Path(name).read_text(encoding="utf-8"))
    with tree(name) as folder, tempfile.TemporaryDirectory() as scratch:
        script, out = folder / "tests" / "golden" / "record.py", Path(scratch) / "record.json"
        if not script.is_file():
            sys.exit(f"{name}: has no tests/golden/record.py; choose a later commit")
        words = [sys.executable, str(script), "--out", str(out)]
        words += ["--sections", sections] if sections else []
        environment = os.environ | {"PYTHONPATH": str(folder / "src")}
        done = subprocess.run(words, env=environment, cwd=folder, stdout=subprocess.PIPE)
        if done.returncode:
            sys.exit(f"{name}: tests/golden/record.py failed; its messages are above")
        return json.loads(out.read_text(encoding="utf-8"))


# ---------------------------------------------------------------- what is printed


def shown(value: Any, width: int = 44) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= width else text[: width - 3] + "..."


def table(found: list[Difference], most: int) -> str:
    """One line per difference."""
    lines = []
    for d in found[:most]:
        lines.append(f"  {d.case}\n    {d.what}: {changed(d.before, d.after)}")
    if len(found) > most:
        lines.append(f"  ... and {len(found) - most} more (--most {len(found)})")
    return "\n".join(lines)


def changed(before: Any, after: Any) -> str:
    """Two values; of two lists of names, what came and what went."""
    lists = isinstance(before, list) and isinstance(after, list)
    if lists and all(isinstance(x, str) for x in (*before, *after)):
        gone, new = (sorted(set(x) - set(y)) for x, y in ((before, after), (after, before)))
        return "  ".join([*(f"-{x}" for x in gone), *(f"+{x}" for x in new)])
    return f"{shown(before)}  ->  {shown(after)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("before", nargs="?", default="HEAD", help="a commit or a record's file")
    parser.add_argument("after", nargs="?", default=WORKING, help="default: the working tree")
    parser.add_argument("--sections", default="", help="by commas; default all")
    parser.add_argument("--most", type=int, default=20, help="differences shown per section")
    parser.add_argument("--strict-keys", action="store_true", help="--json keys must be equal too")
    given = parser.parse_args()
    before, after = (record_of(x, given.sections) for x in (given.before, given.after))
    wanted = given.sections.split(",") if given.sections else [*before, *(after.keys() - before)]
    failed = False
    print(f"{given.before} -> {given.after}")
    for section in wanted:
        a, b = before.get(section, {}), after.get(section, {})
        found = differences(section, a, b)
        matters = section != BY_INTENT or given.strict_keys
        failed |= bool(found) and matters
        note = f"{len(found)} differ" if found else "equal"
        note += "" if matters or not found else " (changes by intent, no failure)"
        moved = largest_change(a, b)
        note += f"; losses moved by at most {moved:.1e}" if moved else ""
        print(f"{section:10s} {len(b):4d} cases  {note}")
        if found:
            print(table(found, given.most))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
