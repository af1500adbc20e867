"""The judge's process: run the tests here, with the program's functions at the far end of a pipe.

    verdict = (status, detail); status is one of pass, fail, timeout, memory, killed, syntax error

A plain value of the program is copied. Anything else (a function, a class, a match, a generator) is
a `Remote`: it can be called, iterated, indexed, asked for an attribute, and it equals itself alone.
It has no arithmetic and no comparisons, since those would show the program what the tests expect.

Built-in functions, the prelude's helpers and well-known modules are the judge's own, whatever the
program calls by their names, unless the tests are about that name.
"""

from __future__ import annotations

import _signal as signal  # pyright: ignore[reportMissingImports]  # `signal` starts slowly
import builtins
import os
import time

from . import wire

TYPE_CHECKING = False  # importing `typing` would cost a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType
    from typing import Any, NoReturn


# tests may use them though only the program imports them
MODULES = ("math", "cmath", "re", "sys", "string", "random", "copy", "heapq", "bisect", "datetime")
MODULES += ("collections", "itertools", "functools", "operator", "statistics", "numpy")


class Ended(BaseException):
    """There is a verdict before the tests have come to their end."""


class ProgramError(Exception):
    """What the program raised, if it is no built-in exception."""


class Remote:
    """An object that lives in the program's process."""

    def __init__(self, ask: Callable[..., Any], number: int) -> None:
        vars(self).update(_ask=ask, _number=number)

    def __call__(self, *args: object, **options: object) -> Any:
        return self._ask("call", self, args, options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._ask("get", self, name)

    def __setattr__(self, name: str, value: object) -> None:
        self._ask("set", self, name, value)

    def __iter__(self) -> Any:
        return self._ask("iter", self)

    def __next__(self) -> Any:
        return self._ask("next", self)

    def __len__(self) -> int:
        return self._ask("len", self)

    def __getitem__(self, key: object) -> Any:
        return self._ask("item", self, key)

    def __bool__(self) -> bool:
        return self._ask("truth", self)

    def __eq__(self, other: object) -> bool:
        return type(other) is Remote and vars(other)["_number"] == vars(self)["_number"]

    def __hash__(self) -> int:
        return hash(vars(self)["_number"])

    def __repr__(self) -> str:
        return "<an object of the program>"


class Judge:
    """Asks the program, and ends with a verdict when it does not answer."""

    def __init__(self, pipe: wire.Pipe, child: int, cpu: float) -> None:
        self.pipe, self.child, self.cpu = pipe, child, cpu
        self.verdict: tuple[str, str] | None = None  # stands even if the tests catch `Ended`

    def end(self, status: str, detail: str) -> NoReturn:
        self.verdict = self.verdict or (status, detail)
        raise Ended

    def ask(self, *question: object) -> Any:
        try:
            self.pipe.send(wire.encode(question, send_remote))
        except wire.Closed:
            self.gone()
        return self.answer()

    def answer(self) -> Any:
        """The program's next answer as a value or an exception."""
        try:
            reply = wire.decode(self.pipe.receive(), lambda number: Remote(self.ask, number))
        except wire.Closed:
            self.gone()
        except MemoryError:
            self.end("memory", "the program's value does not fit into memory")
        except Exception as error:
            self.end("fail", f"the program sent no value: {error}"[:300])
        kind, *rest = reply if type(reply) is tuple and reply else ("",)
        shown = [x if type(x) is str else "?" for x in rest][:2]
        if kind == "value" and len(rest) == 1:
            return rest[0]
        if kind == "ready":
            return None
        if kind == "memory":
            self.end("memory", "the memory limit was reached")
        if kind == "left" and shown:
            self.end("killed", f"left early with status {shown[0]}")
        if kind == "syntax" and shown:
            self.end("syntax error", shown[0])
        if kind == "raised" and len(shown) == 2:
            raise exception(*shown)
        self.end("fail", "the program sent no answer")

    def gone(self) -> NoReturn:
        """Why the program's process ended."""
        if self.verdict:
            raise Ended
        for _ in range(40):
            pid, status, used = os.wait4(self.child, os.WNOHANG)
            if pid:
                break
            time.sleep(0.005)
        else:
            self.end("killed", "the program closed its pipe")
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        spent = used.ru_utime + used.ru_stime
        if number == signal.SIGXCPU or (number == signal.SIGKILL and spent >= self.cpu):
            self.end("timeout", "the deadline passed")
        if number:
            names = [n for n, v in vars(signal).items() if n[:3] == "SIG" and v == number]
            self.end("killed", f"by signal {names[0] if names else number}")
        self.end("killed", f"left early with status {os.WEXITSTATUS(status)}")


def send_remote(value: object) -> bytes:
    if type(value) is Remote:
        return b"o" + vars(value)["_number"].to_bytes(4, "little")
    raise TypeError(f"the tests hand over a {type(value).__name__}, which is no plain value")


def exception(name: str, text: str) -> Exception:
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except Exception:
            return ProgramError(f"{name}: {text}")
    return ProgramError(f"{name}: {text}")


def watch(judge: Judge, folder: str, limits: dict[str, int]) -> None:
    """Look at the private file system ten times a second, whatever the tests are doing."""

    def look(*_: object) -> None:
        now = os.statvfs(folder)
        if now.f_files - now.f_ffree > limits["entries"] + 8:
            judge.end("killed", "the folder grew past its limit")

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)


def names_in(code: CodeType) -> set[str]:
    """Names that a piece of code, and the functions in it, may look up as globals."""
    found: set[str] = set()
    todo = [code]
    while todo:
        code = todo.pop()
        found.update(code.co_names)
        todo += [x for x in code.co_consts if type(x) is type(code)]
    return found


def namespace(code: CodeType, prelude: str, names: set[str], judge: Judge) -> dict[str, Any]:
    """The globals of the tests: the judge's own, and what the program gives."""
    scope: dict[str, Any] = {"__name__": "tests", "__builtins__": builtins}
    exec(compile(prelude, "<prelude>", "exec"), scope)
    for name in sorted(names_in(code)):
        if name in names or not (name in scope or hasattr(builtins, name)):
            try:
                given = judge.ask("name", name)
                own = name in MODULES and name not in names
                scope[name] = __import__(name) if own else given
            except KeyError:
                scope.pop(name, None)  # what is tested must come from the program
            except (TypeError, ProgramError):
                continue
    return scope


def verdict(task: dict[str, Any], judge: Judge) -> tuple[str, str]:
    """Run the tests; (status, detail)."""
    try:
        judge.answer()  # the program is loaded
        try:
            code = compile(task["tests"], "<tests>", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError) as error:
            return "fail", "the tests themselves do not parse: " + describe(error)
        if "random" in task["tests"]:  # the same draws every time
            __import__("random").seed(0)
        exec(code, namespace(code, task["prelude"], set(task["names"]), judge))
    except MemoryError:
        return judge.verdict or ("memory", "the memory limit was reached")
    except BaseException as error:
        return judge.verdict or ("fail", describe(error))
    return judge.verdict or ("pass", "")


def describe(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"[:300]
    except BaseException:
        return "an error that cannot be shown"


def run(
    task: dict[str, Any], pipe: wire.Pipe, child: int, report: int, job: dict[str, Any]
) -> None:
    """Judge and report; the last thing that this process does."""
    judge = Judge(pipe, child, job["limits"]["cpu"])
    guards = wire.decode(pipe.receive(), lambda _: None)  # sent before the program's first line
    os.write(report, f"{int(guards[0])} {int(guards[1])}\n".encode())
    if job["sized"]:
        watch(judge, job["folder"], job["limits"])
    status, detail = verdict(task, judge)
    signal.setitimer(signal.ITIMER_REAL, 0)
    detail = " ".join(detail.split())
    os.write(report, f"{status}\t{detail}\n".encode("utf-8", "replace"))
