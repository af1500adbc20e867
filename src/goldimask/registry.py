"""One registry class, used for noises, selectors, weighers, methods, backbones, tasks and corpora.

Names are looked up with aliases and a "did you mean"; a target may be given lazily as
`"module:attribute"`, so that listing names imports nothing heavy. Other packages add entries
through the entry point group `goldimask.plugins` (a callable that registers things when called),
and recipes may name `module:attribute` directly. What the package itself adds from an outer room is
in `BUILTIN`: it needs no metadata, so it is found from a source folder as well as from a wheel.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from goldimask.errors import GoldimaskError, nearest

T = TypeVar("T")
BUILTIN = {  # kind of registry -> a function that is given the registry and adds to it
    "corpus": "goldimask.tiny.registration:add_corpora",
    "task": "goldimask.tiny.registration:add_tasks",
}
_plugins_loaded = False


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


def import_target(target: str, where: str = "") -> Any:
    """Resolve `module:attribute`."""
    module, _, attribute = target.partition(":")
    at = f"{where}: " if where else ""
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise GoldimaskError(f"{at}cannot import '{module}' for '{target}': {error}") from error
    try:
        return getattr(found, attribute)
    except AttributeError as error:
        raise GoldimaskError(f"{at}module '{module}' has no attribute '{attribute}'") from error


def load_plugins() -> None:
    """Call every `goldimask.plugins` entry point once."""
    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True
    from importlib.metadata import entry_points

    for point in entry_points(group="goldimask.plugins"):
        point.load()()


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
        self._complete()
        name = self._aliases.get(name, name)
        if name in self._entries:
            return self._entries[name]
        if ":" in name:
            return Entry(name, import_target(name, where))
        at = f"{where}: " if where else ""
        raise GoldimaskError(f"{at}unknown {self.kind} '{name}'; {nearest(name, self._entries)}")

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
