"""One registry class, used for noises, selectors, weighers, methods, backbones, tasks and corpora.

Names are looked up with aliases and a "did you mean"; a target may be given lazily as
`"module:attribute"`, so that listing names imports nothing heavy. Other packages add entries
through the entry point group `goldimask.plugins` (a module, or a callable that registers things).
What the package itself adds from an outer room is in `BUILTIN`: it needs no metadata, so it is
found from a source folder as well as from a wheel.

A recipe is data. It may also name `module:attribute`, under three conditions (docs/security.md):
the module is imported only where plug-ins are allowed, it is named on stderr first, and the
attribute must be what the module registered in this very registry; nothing else is ever called.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from goldimask.errors import GoldimaskError, nearest, short

T = TypeVar("T")
BUILTIN = {  # kind of registry -> a function that is given the registry and adds to it
    "corpus": "goldimask.tiny.registration:add_corpora",
    "task": "goldimask.tiny.registration:add_tasks",
}
ALLOW = "--allow-plugins"  # the option of the commands
_plugins_loaded = False
_allowed = False


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered thing with what `goldimask list` says about it."""

    name: str
    target: T | str  # the thing, or "module:attribute"
    summary: str = ""
    info: dict[str, Any] = field(default_factory=dict)

    def load(self) -> Any:
        if isinstance(self.target, str):
            return import_target(self.target)
        return self.target


def import_target(target: str) -> Any:
    """Resolve the `module:attribute` of an entry; only code says it, never a recipe."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


# --- plug-ins ------------------------------------------------------------------------------------


def load_plugins() -> None:
    """Import every `goldimask.plugins` entry point once, and call it if it is callable."""
    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True
    from importlib.metadata import entry_points

    for point in entry_points(group="goldimask.plugins"):
        try:
            found = point.load()
            if callable(found):
                found()
        except Exception as error:  # somebody else's code
            raise GoldimaskError(
                f"the installed plug-in '{point.name}' ({point.value}) cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error


@contextmanager
def allow_plugins(allowed: bool = True) -> Iterator[None]:
    """Within the block, recipes may name modules that are then imported (or may not)."""
    global _allowed
    before, _allowed = _allowed, allowed
    try:
        yield
    finally:
        _allowed = before


def passed_on() -> list[str]:
    """Words for a command that this process starts."""
    return [ALLOW] if _allowed else []


def is_plugin(name: object) -> bool:
    """Whether a name in a recipe would be looked up in a module."""
    return isinstance(name, str) and ":" in name


def import_plugin(module: str, where: str) -> Any:
    """The module that a recipe names, from the working directory too; refused unless allowed."""
    if module in sys.modules:  # the caller's own Python did it
        return sys.modules[module]
    at = f"{where}: " if where else ""
    if not _allowed:
        raise GoldimaskError(
            f"{at}'{module}' is a plug-in's module, and importing it runs its code; if you trust "
            f"it, add {ALLOW} (in Python: with goldimask.allow_plugins())"
        )
    sys.stderr.write(f"plug-in: importing '{module}'{f' for {where}' if where else ''}\n")
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(module)
    except Exception as error:  # somebody else's code
        raise GoldimaskError(
            f"{at}cannot import '{module}': {type(error).__name__}: {error}"
        ) from error


class Registry(Generic[T]):
    """Named things of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry[T]] = {}
        self._aliases: dict[str, str] = {}
        self._builtin = BUILTIN.get(kind)

    def add(
        self,
        name: str,
        target: T | str,
        *,
        aliases: tuple[str, ...] = (),
        summary: str = "",
        **info: Any,
    ) -> None:
        if name in self._entries or name in self._aliases:
            raise GoldimaskError(f"{self.kind} '{name}' is registered twice")
        self._entries[name] = Entry(name, target, summary, info)
        self._aliases.update(dict.fromkeys(aliases, name))

    def register(self, name: str, **options: Any) -> Callable[[T], T]:
        """Decorator form of `add`; the summary defaults to the first line of the docstring."""

        def decorate(target: T) -> T:
            lines = (getattr(target, "__doc__", None) or "").strip().splitlines()
            options.setdefault("summary", lines[0] if lines else "")
            self.add(name, target, **options)
            return target

        return decorate

    def entry(self, name: str, where: str = "") -> Entry[T]:
        """Find by name, alias or `module:attribute`; `where` is the recipe key for the message."""
        at = f"{where}: " if where else ""
        if not isinstance(name, str):
            raise GoldimaskError(f"{at}the name of a {self.kind} is a text, not {short(name)}")
        self._complete()
        name = self._aliases.get(name, name)
        if name in self._entries:
            return self._entries[name]
        if is_plugin(name):
            return self._registered(name, where)
        raise GoldimaskError(
            f"{at}unknown {self.kind} '{short(name)}'; {nearest(name, self._entries)}"
        )

    def _registered(self, name: str, where: str) -> Entry[T]:
        """What a module registered here under any name, found by its attribute."""
        module, _, attribute = name.partition(":")
        found = vars(import_plugin(module, where)).get(attribute)
        for entry in self._entries.values():
            if found is not None and entry.target is found:
                return entry
        at = f"{where}: " if where else ""
        raise GoldimaskError(
            f"{at}'{name}' is not a {self.kind}: only what its module registers as one can be "
            "named (docs/methods/plugins.md)"
        )

    def get(self, name: str, where: str = "") -> T:
        return self.entry(name, where).load()

    def names(self) -> list[str]:
        self._complete()
        return list(self._entries)

    def __iter__(self) -> Iterator[Entry[T]]:
        self._complete()
        return iter(self._entries.values())

    def __contains__(self, name: str) -> bool:
        self._complete()
        return name in self._entries or name in self._aliases

    def _complete(self) -> None:
        """Before a name is looked up: what outer rooms and other packages add."""
        builtin, self._builtin = self._builtin, None
        if builtin is not None:
            import_target(builtin)(self)
        load_plugins()
