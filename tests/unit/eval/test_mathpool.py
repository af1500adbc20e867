"""Mathematical equivalence: what is equal, what is not, and that nothing hangs."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from goldimask.eval.equivalence import as_number, normalised
from goldimask.eval.mathpool import Deadlines, close_pool, compared, equivalent, shared_pool
from goldimask.eval.tasks import get_task

EQUAL = [
    ("\\frac{1}{2}", "0.5"),
    ("\\frac{1}{2}", "\\dfrac12"),
    ("(x-1)(x+1)", "x^2-1"),
    ("025", "25"),
    ("1234", "1,234"),
    ("-3", "\u22123"),
    ("\\left( 3, \\frac{\\pi}{2} \\right)", "(3, \\frac{\\pi}{2})"),
    ("\\text{Evelyn}", "\\text{Evelyn}"),
    ("2\\sqrt{3}", "\\sqrt{12}"),
    ("90^\\circ", "90"),
    ("\\{1, 2\\}", "\\{2, 1\\}"),
    ("x = 5", "5"),
]
DIFFERENT = [
    ("\\frac{1}{2}", "0.6"),
    ("0.5", "50"),  # the released judge accepts a factor of 100
    ("(1, 2)", "(2, 1)"),
    ("x^2-1", "x^2+1"),
    ("\\text{Evelyn}", "\\text{Brian}"),
    ("3", "-3"),
    ("7", ""),
]


def test_fixed_equivalence():
    results = equivalent([*EQUAL, *DIFFERENT])
    assert results[: len(EQUAL)] == ["equal"] * len(EQUAL)
    assert "equal" not in results[len(EQUAL) :]


def test_lift_judge():
    pairs = {
        ("0.5", "50"): True,
        ("0.5", "51"): False,
        ("1,2,3", "3,1,2"): True,
        ("1,2", "1,2,3"): False,
        ("x=\\pm 2", "x=2,x=-2"): True,
        ("[0,\\frac{1}{2}]", "[0,0.5]"): True,
        ("[0,1)", "[0,1]"): False,
        ("\\frac{\\pi}{2}", "1.5707963"): True,
        ("x+y=1", "2x+2y=2"): True,
        ("(x-1)(x+1)", "x^2-1"): True,
        ("90^\\circ", "90"): True,
        ("025", "25"): True,
        ("3", "\\boxed{4"): False,
    }
    results = equivalent(list(pairs), "lift")
    assert dict(zip(pairs, [r == "equal" for r in results], strict=True)) == pairs


HANGS = [
    ("5", "9^{9^{9^{9}}}"),
    ("5", "(" * 400 + "x" + ")" * 400),
    ("5", "\\frac{" * 150 + "1" + "}{2}" * 150),
    ("x^{10}", "(x+1)^{5000}(y+2)^{4000}"),
    ("5", "10^{10^{10}}"),
    ("5", "\\int_0^1 \\sin(\\sin(\\sin(x^x)))dx"),
    ("5", "{" * 400),
    ("5", "1" * 900),
    ("5", "100000000000000000000!"),
    ("5", "\ud800"),
    ("5", "\x00"),
]


@pytest.mark.parametrize("protocol", ["fixed", "lift"])
def test_hostile_answers_end_and_are_wrong(protocol):
    """Each ends by its own deadline (0.85 s of CPU time); the pool stays usable."""
    results = equivalent(HANGS, protocol)
    assert "equal" not in results
    assert equivalent([("x+1", "1+x")], protocol) == ["equal"]


def test_a_killed_computation_is_a_timeout_and_order_is_kept():
    jobs = [("fixed", "5", "10^{10^{10}}"), ("fixed", "a+b", "b+a"), ("fixed", "5", "x")] * 2
    found = compared(jobs, Deadlines(soft=0.2, hard=0.3, wall=30.0), workers=2)
    assert found == ["timeout", "equal", "wrong"] * 2


def test_a_worker_that_dies_loses_no_other_item():
    """Idle workers that something killed are replaced; the pool goes on or is made anew."""
    assert equivalent([("p+q", "q+p")]) == ["equal"]
    for child in multiprocessing.active_children():
        if child.name == "pebble_pool_worker" and child.pid:
            os.kill(child.pid, signal.SIGKILL)
    pairs = [(f"x+{i}", f"{i}+x") for i in range(2, 12)]
    assert equivalent(pairs) == ["equal"] * 10


def test_wall_clock_bounds_a_worker_that_only_waits(monkeypatch):
    """The pool ends a worker whose CPU time does not grow."""
    pool = shared_pool(1)
    future = pool.schedule(time.sleep, (60,), timeout=0.3)
    with pytest.raises(TimeoutError):
        future.result()
    assert pool.schedule(len, ("abc",)).result() == 3
    close_pool()


def test_a_script_without_a_guard_runs_once(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "print('once')\n"
        "from goldimask.eval.mathpool import equivalent\n"
        "print(equivalent([('x+1', '1+x'), ('x', 'y')]))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["once", "['equal', 'wrong']"], done.stderr
    assert done.returncode == 0 and done.stderr == ""


def test_pool_works_outside_the_main_thread():
    found = []
    thread = threading.Thread(target=lambda: found.extend(equivalent([("a+b+c", "c+b+a")])))
    thread.start()
    thread.join()
    assert found == ["equal"]


def test_numbers_and_normalisation():
    assert as_number("\\$1,234.50") == as_number("1234.5")
    assert as_number("12,34") is None and as_number("") is None and as_number("-") is None
    assert normalised("\\tfrac12") == normalised("\\frac{1}{2}") == normalised("1/2")
    assert normalised("5\\text{ cm}") == "5"
    assert normalised("\\sqrt") == "\\sqrt"  # too odd: stays as it is


def test_tasks_use_the_pool():
    task = get_task("math500")
    assert task.stored is not None
    item = task.stored({"question": "q", "ground_truth": "\\frac{3}{4}"}, 0)
    assert item is not None
    right = task.extract("thus</reasoning><answer>\\boxed{0.75}</answer>")
    wrong = task.extract("thus</reasoning><answer>\\boxed{75}</answer>")
    verdicts = task.judge_all([item] * 3, [right, wrong, None])
    assert [v.correct for v in verdicts] == [True, False, False]
    assert verdicts[2].detail == "unparsable"
