"""One self-contained HTML file: no network, no CDN, works from file://.

    page = skeleton + styles + the modules that draw its sections + one block of JSON

Two walls keep data from acting. The data sits in a `<script type="application/json">` block with
`<`, `>`, `&` and the JavaScript line ends escaped, and the scripts put it on the page through
`textContent` alone. The content security policy names the hashes of the page's own script and style
and forbids everything else, the network included, so that markup which got through could not run.

The scripts are ES modules, so that an editor, a type checker and node read them as they are. A page
opened from file:// cannot import a neighbour, and modules behind data: addresses would need a wider
policy; `bundle` therefore joins them into one script, each in a function of its own:

    const modules = {};
    modules["b.mjs"] = (() => { const { a } = modules["a.mjs"]; ... return { b }; })();

That keeps every module's names to itself and takes a few lines, because only three forms are
allowed: `import { a, b } from './x.mjs';`, `export const a = ...` and `export function a(...)`.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError, nearest
from goldimask.files import write_text
from goldimask.stats import finite

LIMIT = 500_000  # bytes of one page
# section kind -> the module that draws it: "table" is drawn by `drawTable` of table.mjs
KINDS: dict[str, str] = {
    "table": "table.mjs",
    "tables": "table.mjs",
    "prose": "prose.mjs",
    "links": "prose.mjs",
    "cells": "cells.mjs",
    "overlay": "overlay.mjs",
    "answers": "answers.mjs",
    "results": "results.mjs",
    "curves": "curves.mjs",
    "steps": "step.mjs",
    "decodes": "replay.mjs",
}
_IMPORT = re.compile(r"^import \{([\w\s,]+)\} from '\./([\w.]+)';$", re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:const|function) (\w+))", re.MULTILINE)
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
_UNSAFE = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def section(kind: str, title: str, data: Any, note: str = "") -> dict[str, Any]:
    """A part of a page; `kind` is a key of `KINDS`."""
    if kind not in KINDS:
        raise GoldimaskError(f"section '{title}': unknown kind '{kind}'; {nearest(kind, KINDS)}")
    return {"kind": kind, "title": title, "note": note, "data": data}


def write_page(
    path: Path | str,
    title: str,
    sections: Sequence[Mapping[str, Any]],
    *,
    subtitle: str = "",
) -> Path:
    """Write one HTML file atomically; its size stays the caller's concern (`LIMIT`)."""
    return write_text(path, page_html(title, sections, subtitle=subtitle))


def page_html(title: str, sections: Sequence[Mapping[str, Any]], *, subtitle: str = "") -> str:
    """The whole page as text."""
    script = bundle(entry({part["kind"] for part in sections}))
    style = template("page.css")
    data = {"title": title, "subtitle": subtitle, "sections": list(sections)}
    slots = {
        "TITLE": html.escape(title, quote=True),
        "POLICY": policy(script, style),
        "STYLE": style,
        "SCRIPT": script,
        "DATA": embed(data),
    }
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda m: slots[m[1]], template("page.html"))


def entry(kinds: Collection[str]) -> str:
    """The module that starts a page: what draws each kind of section, handed to `boot`."""
    draws = {kind: f"draw{kind.capitalize()}" for kind in sorted(kinds)}
    lines = [f"import {{ {draw} }} from './{KINDS[kind]}';" for kind, draw in draws.items()]
    table = ", ".join(f"{kind}: {draw}" for kind, draw in draws.items())
    return "\n".join([*lines, "import { boot } from './boot.mjs';", f"boot({{ {table} }});"])


def bundle(start: str, read: Callable[[str], str] | None = None) -> str:
    """One script of a module's text and of all that it imports, each after what it needs."""
    read = read or template
    parts: dict[str, str] = {}

    def add(name: str, text: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise ValueError(f"modules import each other: {' -> '.join((*above, name))}")
        for _, needed in _IMPORT.findall(text):
            if needed not in parts:
                add(needed, read(needed), (*above, name))
        parts[name] = wrapped(name, text)

    add("page", start, ())
    return "\n".join(["'use strict';", "const modules = {};", *parts.values()])


def wrapped(name: str, text: str) -> str:
    """A module as a function that returns what it exports."""
    exports = ", ".join(_EXPORT.findall(text))
    body = _IMPORT.sub(lambda m: f"const {{{m[1]}}} = modules[{json.dumps(m[2])}];", text)
    body = _EXPORT.sub("", body)
    if left := re.search(r"^\s*(import|export)\b.*", body, re.MULTILINE):
        raise ValueError(f"{name}: '{left[0]}' is not a form that can be bundled")
    return f"modules[{json.dumps(name)}] = (() => {{\n{body}\nreturn {{ {exports} }};\n}})();"


def policy(script: str, style: str) -> str:
    """Nothing may be loaded or sent; only this script and this style may act."""
    return (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def digest(text: str) -> str:
    """A hash source of a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def embed(value: Any) -> str:
    """JSON that is inert inside an HTML script element and can always be encoded."""
    text = json.dumps(finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda m: _ESCAPES.get(m[0], f"\\u{ord(m[0]):04x}"), text)


@cache
def template(name: str) -> str:
    """A file of the package's templates."""
    return (files("goldimask.report") / "templates" / name).read_text("utf-8").strip()


def significant(x: float, digits: int = 4) -> float:
    """Rounded to significant digits: what a page can show, in few bytes."""
    return float(f"{x:.{digits}g}")
