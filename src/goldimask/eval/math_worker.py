"""One worker of the equivalence pool, `python -m goldimask.eval.math_worker`: JSON lines.

The worker imports math-verify once and then forks a child that does the work, so that a killed
child is replaced in milliseconds. Three bounds per item:
  * CPU time: a Python exception after `soft` seconds (slow symbolic algebra), and the kernel's own
    SIGPROF after `hard` seconds, which also ends a computation that never returns to Python;
  * wall-clock time `wall`, after which the worker kills the child;
  * address space.
The process is single-threaded, so that forking is safe and signals arrive in the main thread.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from typing import Any

MEMORY = 3 << 30


class Deadline(BaseException):
    """Not an Exception: sympy and math-verify swallow those."""


def main() -> None:
    """Answer one line per item until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limits = json.loads(sys.stdin.readline())
    _warm_up()
    print(json.dumps("ready"), flush=True)
    child = None
    for line in sys.stdin:
        child = child or Child(limits)
        result = child.ask(line, limits["wall"])
        if result is None:
            child.kill()
            child, result = None, "timeout"
        print(json.dumps(result), flush=True)
    if child:
        child.kill()


def _warm_up() -> None:
    """Load the parser's tables before any child is forked."""
    from goldimask.eval.equivalence import fixed_equal
    from goldimask.eval.lift_judge import lift_equal

    fixed_equal("\\frac{x}{2}", "0.5x")
    lift_equal("\\frac{x}{2}", "0.5x")


class Child:
    """A forked process with a pipe in and a pipe out."""

    def __init__(self, limits: dict[str, float]) -> None:
        give, self.take = os.pipe()
        self.read, back = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.take)
            os.close(self.read)
            try:
                serve(os.fdopen(give, "r"), back, limits)
            finally:
                os._exit(1)
        os.close(give)
        os.close(back)

    def ask(self, line: str, wall: float) -> str | None:
        """The child's answer; None when it died or took too long."""
        try:
            os.write(self.take, line.encode())
        except BrokenPipeError:
            return None
        ready, _, _ = select.select([self.read], [], [], wall)
        answer = os.read(self.read, 64) if ready else b""
        return answer.decode().strip() or None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.take)
        os.close(self.read)


def serve(lines: Any, back: int, limits: dict[str, float]) -> None:
    """The child: judge lines until the pipe closes."""
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGVTALRM, _expired)
    sys.setrecursionlimit(2000)
    for line in lines:
        signal.setitimer(signal.ITIMER_PROF, limits["hard"])
        signal.setitimer(signal.ITIMER_VIRTUAL, limits["soft"])
        result = judge(*json.loads(line))
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(back, result.encode() + b"\n")


def _expired(signum: int, frame: Any) -> None:
    raise Deadline


def judge(protocol: str, gold: str, answer: str) -> str:
    """'equal', or why not."""
    from goldimask.eval.equivalence import fixed_equal
    from goldimask.eval.lift_judge import lift_equal

    try:
        return (
            "equal"
            if (lift_equal if protocol == "lift" else fixed_equal)(gold, answer)
            else "wrong"
        )
    except Deadline:
        return "timeout"
    except MemoryError:
        return "memory"
    except (Exception, RecursionError):
        return "not comparable"


if __name__ == "__main__":
    main()
