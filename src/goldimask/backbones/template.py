"""Chat templates, rendered as transformers does, within limits.

A template is a program from a model folder. Jinja's sandbox keeps it from the machine, not from
taking all of its time and memory: `'x' * 3000000000`, four loops in each other, a list of itself
twice, forty times. Here

    every turn of a loop or macro, every call, filter and operator looks at the clock    SECONDS
    every text or list that one of them takes or makes is measured                       MOST
    what a call could make of its two largest arguments is bounded before it is made     PRODUCT

and what exceeds them is an error. Nothing is started, no process and no thread.
"""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from goldimask.errors import GoldimaskError, short

SECONDS = 3.0  # of the processor: a busy machine is not the template's fault
MOST = 5_000_000  # characters or elements of a value
PRODUCT = 50_000_000
SOURCE = 200_000  # characters of a template
# filters that no chat needs and whose work is not bounded by what they take and make
SLOW = ("filesizeformat", "pprint", "random", "striptags", "sum", "urlize", "wordwrap", "xmlattr")
WIDTH = re.compile(r"\d{5}")  # of a format: `{:>99999}`


class TooMuch(GoldimaskError):
    """A template exceeded a limit."""


class Generation(Extension):
    """`{% generation %}` marks what an assistant said; here it means nothing."""

    tags = {"generation"}  # noqa: RUF012 (jinja's way)

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Measured(NodeTransformer):
    """Puts the clock into loops and macros, and measures what is joined or listed."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        return self.ticking(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self.ticking(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self.ticking(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return method("join", nodes.List(node.nodes))

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        return method("measured", node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return method("measured", node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        return method("measured", node) if node.ctx == "load" else node

    def ticking(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(method("tick")))
        return node


def method(name: str, *arguments: nodes.Expr) -> nodes.Call:
    """A call of the environment's own method."""
    return nodes.Call(nodes.EnvironmentAttribute(name), list(arguments), [], None, None)


class Limited(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with a clock and a measure."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        extensions = ["jinja2.ext.loopcontrols", Generation]
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # nothing is worked out while compiling
            extensions=extensions,
            finalize=self.measured,
        )
        self.until = self.earliest = 0.0  # of the thread's clock, and of the wall's
        self.filters["tojson"] = tojson
        for name in SLOW:
            del self.filters[name]
        self.filters = {name: self.guarded(f, name) for name, f in self.filters.items()}
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": refuse, "strftime_now": strftime_now}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return Measured().visit(super()._parse(source, name, filename))

    def tick(self) -> None:
        # a thread cannot have spent what has not passed, and its own clock is slow to read
        if time.monotonic() > self.earliest and time.thread_time() > self.until:
            raise TooMuch(f"takes more than {SECONDS:g} s")

    def measured(self, value: Any) -> Any:
        self.tick()
        size(value)
        return value

    def join(self, parts: list[Any]) -> str:
        self.tick()
        return self.concat(map(str, parts))

    def concat(self, parts: Iterable[str]) -> str:  # type: ignore[override]
        """Of everything that is written, too: counted as it comes."""
        made, total = [], 0
        for part in parts:
            total += len(part)
            if total > MOST:
                raise TooMuch(f"makes more than {MOST} characters")
            made.append(part)
        return "".join(made)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        self.tick()
        if operator == "**" or (operator == "%" and isinstance(left, str)):
            raise TooMuch(f"uses '{operator}', which is not supported here")
        if operator == "*":
            bound(left, right)
        return self.measured(super().call_binop(context, operator, left, right))

    def call(self, context: Any, function: Any, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        self.tick()
        if getattr(function, "__self__", None) is self:  # put there by `Measured`
            return function(*args)
        inner = getattr(function, "__wrapped__", function)  # jinja wraps `str.format`
        name, owner = getattr(inner, "__name__", ""), getattr(inner, "__self__", None)
        check(name, (owner, *args, *kwargs.values()))
        return self.measured(super().call(context, function, *args, **kwargs))

    def guarded(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """A filter whose arguments and result are measured."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.tick()
            check(name, (*args, *kwargs.values()))
            return self.measured(function(*args, **kwargs))

        return run


def check(name: str, arguments: Iterable[Any]) -> None:
    """Refuse a call that could make too much of what it is given."""
    given = list(arguments)
    bound(*given)
    if name.startswith("format") and any(isinstance(x, str) and WIDTH.search(x) for x in given):
        raise TooMuch("formats with too large a width")


def bound(*arguments: Any) -> None:
    """The product of the two largest: a text times a number, an old part times a new one."""
    sizes = sorted((size(x) for x in arguments), reverse=True)[:2]
    if len(sizes) == 2 and sizes[0] * sizes[1] > PRODUCT:
        raise TooMuch(f"could make more than {PRODUCT} characters at once")


def size(value: Any) -> int:
    """Characters and elements of a value with all that is in it; a whole number is its own size."""
    if isinstance(value, int):
        total = abs(value)
    else:
        total, waiting = 0, [value]
        while waiting and total <= MOST:
            one = waiting.pop()
            total += len(one) if isinstance(one, str | bytes) else 1
            if isinstance(one, dict):
                waiting += one.keys()
                waiting += one.values()
            elif isinstance(one, list | tuple | set | frozenset):
                waiting += one
    if total > MOST:
        raise TooMuch(f"makes a value of more than {MOST}")
    return total


def tojson(value: Any, indent: int | None = None, **options: Any) -> str:
    """As transformers: plain JSON, not made safe for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def refuse(message: str) -> NoReturn:
    """A template's own `raise_exception`."""
    raise TemplateError(message)


def strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


@functools.lru_cache(maxsize=16)
def compiled(source: str) -> Any:
    if len(source) > SOURCE:
        raise TooMuch(f"has {len(source)} characters; more than {SOURCE} are refused")
    return Limited().from_string(source)


def render(source: str, **values: Any) -> str:
    """The text that a template makes of its values."""
    try:
        template = compiled(source)
        template.environment.until = time.thread_time() + SECONDS
        template.environment.earliest = time.monotonic() + SECONDS
        return template.render(**values)
    except Exception as error:  # a program of somebody else
        kind = "" if isinstance(error, TooMuch | TemplateError) else f"{type(error).__name__}: "
        raise GoldimaskError(f"the chat template {kind}{short(str(error))}") from error
