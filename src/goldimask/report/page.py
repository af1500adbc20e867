"""One self-contained HTML file: no network, no CDN, works from file://.

    page = skeleton + styles + scripts of the section kinds used + one block of JSON

Two walls keep data from acting. The data sits in a `<script type="application/json">` block with
`<`, `>`, `&` and the JavaScript line ends escaped, and the scripts put it on the page through
`textContent` alone. The content security policy names the hashes of the page's own script and style
and forbids everything else, the network included, so that markup which got through could not run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError, nearest
from goldimask.files import write_text

LIMIT = 500_000  # bytes of one page
# section kind -> scripts that draw it, in the order they are needed
KINDS: dict[str, tuple[str, ...]] = {
    "facts": ("table.js",),
    "table": ("table.js",),
    "prose": ("table.js",),
    "links": ("table.js",),
    "results": ("table.js", "results.js"),
    "curves": ("chart.js", "curves.js"),
    "figure": ("table.js", "chart.js", "curves.js"),
    "steps": ("table.js", "chart.js", "step_model.js", "step_strip.js", "step_side.js", "step.js"),
    "decodes": ("chart.js", "decode.js"),
    "samples": ("table.js",),
}
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
    names = ["base.js"]
    for part in sections:
        names += [name for name in KINDS[part["kind"]] if name not in names]
    order = ["base.js", "table.js", "chart.js"]  # helpers first, whatever section comes first
    names.sort(key=lambda n: order.index(n) if n in order else len(order))
    script = "\n".join(template(name) for name in [*names, "boot.js"])
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
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda m: _ESCAPES.get(m[0], f"\\u{ord(m[0]):04x}"), text)


@cache
def template(name: str) -> str:
    """A file of the package's templates."""
    return (files("goldimask.report") / "templates" / name).read_text("utf-8").strip()


def significant(x: float, digits: int = 4) -> float:
    """Rounded to significant digits: what a page can show, in few bytes."""
    return float(f"{x:.{digits}g}")
