"""The program's process: run the program, then answer the judge's questions about its names.

A question is a tuple (operation, argument, ...), the answer a tuple:

    ("value", v)    ("raised", class name, text)    ("memory",)    ("left", status)
    before the first question: ("ready",), or ("syntax", text), or one of those above

Nothing here is trusted. A program may bend this very file: all it can reach is what it answers.
"""

from __future__ import annotations

import _operator as operator
import sys

from . import wire

TYPE_CHECKING = False  # importing `typing` would cost a tenth of the start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

Module = type(sys)
Answer = tuple[object, ...]
PLAINER: dict[type, Callable[[Any], object]] = {  # subclasses of these are sent as what they hold
    int: int.__int__,
    float: float.__float__,
    complex: complex,
    str: str.__str__,
    bytes: bytes,
    bytearray: bytes,
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    dict: dict,
}


class Objects:
    """What stays here, by number."""

    def __init__(self) -> None:
        self.kept: list[object] = []
        self.numbers: dict[int, int] = {}

    def number(self, thing: object) -> int:
        if id(thing) not in self.numbers:
            self.numbers[id(thing)] = len(self.kept)
            self.kept.append(thing)
        return self.numbers[id(thing)]

    def other(self, value: Any) -> object:
        """Bytes, or something plainer, for what is no plain value."""
        for base, plainer in PLAINER.items():
            if isinstance(value, base):
                return plainer(value)
        module = type(value).__module__
        if module == "numpy" and getattr(value, "shape", None) == ():
            return value.item()
        if module == "decimal" and type(value).__name__ == "Decimal":
            return wire.named(b"q", str(value).encode())
        if module == "fractions" and type(value).__name__ == "Fraction":
            parts = (wire.scalar(value.numerator), wire.scalar(value.denominator))
            return b"r\2\0\0\0" + b"".join(p for p in parts if p)
        return b"o" + self.number(value).to_bytes(4, "little")


def attempt(action: Callable[..., object], *arguments: object) -> Answer:
    """The answer that an action gives, whatever it raises."""
    try:
        return ("value", action(*arguments))
    except MemoryError:
        return ("memory",)
    except SystemExit as error:
        return ("left", repr(error.code)[:100])
    except BaseException as error:
        return ("raised", type(error).__name__, text_of(error))


def text_of(error: BaseException) -> str:
    try:
        return str(error)[:300]
    except BaseException:
        return "an error that cannot be shown"


def serve(job: dict[str, Any], pipe: wire.Pipe) -> None:
    """Run the program of a job and answer until the judge has no more questions."""
    module = Module(job["module"])
    sys.modules[job["module"]] = module
    objects = Objects()

    def reply(answer: Answer) -> None:
        try:
            data = wire.encode(answer, objects.other)
        except BaseException as error:
            memory = isinstance(error, MemoryError)
            plain = ("memory",) if memory else ("raised", "TypeError", text_of(error))
            data = wire.encode(plain, objects.other)
        pipe.send(data)

    def load() -> None:
        exec(compile(job["prelude"], "<prelude>", "exec"), vars(module))
        exec(code, vars(module))

    operations = {
        "name": lambda name: vars(module)[name],
        "call": lambda thing, args, options: thing(*args, **options),
        "get": getattr,
        "set": setattr,
        "iter": iter,
        "next": next,
        "len": len,
        "item": operator.getitem,
        "truth": operator.truth,
    }
    try:
        code = compile(job["program"], "<program>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        reply(("syntax", f"{type(error).__name__}: {text_of(error)}"))
        return
    loaded = attempt(load)
    reply(("ready",) if loaded[0] == "value" else loaded)
    while True:
        operation, *arguments = wire.decode(pipe.receive(), objects.kept.__getitem__)
        reply(attempt(operations[operation], *arguments))
