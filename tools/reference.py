"""Reference pages, made from the code whenever the documentation is built (a hook of mkdocs).

    reference/commands.md   every verb with its options, as `--help` says them
    reference/keys.md       every key of a recipe and of a campaign, every option of a method's part
    reference/names.md      everything that has a name: methods, tasks, decoders, corpora, ...

Nothing of it is written into docs/. `python tools/reference.py` prints the pages.

The meaning of a key is the comment beside it, or above it, in the class that holds it.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MADE = "Made from the code when this page was built.\n"
CODES = re.compile(r"\s*\(?(?:D\d+(?:-D\d+)?,? ?)+,? ?docs/decisions\.md\)?")
FILES = re.compile(r"\s*\((?:backbones|train|data)/\w+\.py\)")


# --- text ----------------------------------------------------------------------------------------


def plain(text: str) -> str:
    """One cell of a table: no line ends, no bars, no numbers of decisions."""
    text = FILES.sub("", CODES.sub("", text))
    return " ".join(text.replace("|", "\\|").split())


def code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|") if text else ""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


# --- verbs ---------------------------------------------------------------------------------------


def commands_page() -> str:
    from goldimask.cli.app import VERBS, load

    parts = ["# Commands\n", MADE]
    for verb in VERBS:
        command = load(verb)
        inner = getattr(command, "commands", None)
        parts += [f"## {verb}\n", help_text(command)]
        if inner is None:
            parts.append(usage(f"goldimask {verb}", command))
        for name, one in (inner or {}).items():
            parts += [
                f"### {verb} {name}\n",
                help_text(one),
                usage(f"goldimask {verb} {name}", one),
            ]
    return "\n".join(parts)


def help_text(command: Any) -> str:
    """The text of `--help`; indented lines are commands already in Markdown's form."""
    return inspect.cleandoc(command.help or "") + "\n"


def usage(name: str, command: Any) -> str:
    """How it is called, and a table of what it takes."""
    given = [p for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    words = [p.metavar or p.name.upper() if p.param_type_name == "argument" else "" for p in given]
    line = " ".join(w for w in (name, *words, "[OPTIONS]") if w)
    rows = [
        (code(option_name(p, word)), code(default_of(p)), plain(p.help or ""))
        for p, word in zip(given, words, strict=True)
    ]
    return f"```\n{line}\n```\n\n{table(('option', 'default', 'meaning'), rows)}"


def option_name(parameter: Any, metavar: str) -> str:
    if parameter.param_type_name == "argument":
        return metavar
    return ", ".join(sorted(parameter.opts, key=len))


def default_of(parameter: Any) -> str:
    value = parameter.default
    if value is None or value is False or value == "" or callable(value):
        return ""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


# --- keys ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Key:
    name: str
    kind: str
    default: str
    meaning: str


def keys_of(text: str, root: str, above: str = "") -> Iterator[tuple[str, str, list[Key]]]:
    """(section, what it is, its keys) of a class and of the classes that its keys hold."""
    tree = ast.parse(text)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    comments = comments_of(text)
    said = {  # a key without a word means what the same key of another section means
        field.target.id: found
        for node in classes.values()
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if (found := meaning_of(field, comments))
    }
    own: list[Key] = []
    inner: list[tuple[str, str]] = []
    for field in classes[root].body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        kind, name = ast.unparse(field.annotation), f"{above}{field.target.id}"
        named = next((c for c in classes if re.search(rf"\b{c}\b", kind)), None)
        if named:
            inner.append((f"{name}[]." if "tuple" in kind else f"{name}.", named))
        shown = "a section" if named else kind_text(kind)
        meaning = meaning_of(field, comments) or said.get(field.target.id, "")
        if named and not meaning:
            meaning = plain(ast.get_docstring(classes[named]) or "")
        own.append(Key(name, shown, default_text(field.value), meaning))
    yield above.rstrip("."), plain(ast.get_docstring(classes[root]) or ""), own
    for prefix, name in inner:
        yield from keys_of(text, name, prefix)


def comments_of(text: str) -> dict[int, tuple[bool, str]]:
    """line -> (stands alone, its comment)."""
    found = {}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            found[token.start[0]] = (alone, token.string.lstrip("# "))
    return found


def meaning_of(field: ast.AnnAssign, comments: dict[int, tuple[bool, str]]) -> str:
    """The comment behind a field, or the lines of comment above it."""
    alone, text = comments.get(field.end_lineno or field.lineno, (True, ""))
    if text and not alone:
        return plain(text)
    lines: list[str] = []
    line = field.lineno - 1
    while comments.get(line, (False, ""))[0]:
        lines.insert(0, comments[line][1])
        line -= 1
    return plain(" ".join(lines))


def kind_text(kind: str) -> str:
    """`Literal['a', 'b'] | None` -> `a | b | None`."""
    return re.sub(r"Literal\[([^]]*)\]", lambda m: m[1].replace(", ", " | "), kind).replace("'", "")


def default_text(value: ast.expr | None) -> str:
    """A default as it is written; of a factory, what it makes."""
    if value is None:
        return ""
    made = next(
        (k.value for k in getattr(value, "keywords", ()) if k.arg == "default_factory"), None
    )
    if made is None:
        return ast.unparse(value)
    return {"dict": "{}", "list": "[]"}.get(ast.unparse(made), "")


def keys_page() -> str:
    import goldimask.methods  # noqa: F401 (the baselines register their parts)
    from goldimask import config
    from goldimask.campaign import settings
    from goldimask.decoding import DECODERS
    from goldimask.eval.tasks import TASKS
    from goldimask.noise import NOISES
    from goldimask.select.base import SELECTORS
    from goldimask.weighting import WEIGHERS

    parts = [
        "# Keys\n",
        MADE,
        "What a recipe means is in [recipes](../recipes.md), what a campaign is in "
        "[campaigns](../campaigns.md).\n",
    ]
    for title, module, root in (
        ("Recipe", config, "Recipe"),
        ("Campaign", settings, "Campaign"),
    ):
        parts.append(f"## {title}\n")
        for section, what, keys in keys_of(inspect.getsource(module), root):
            parts += [f"### {title} {code(section)}\n" if section else "", f"{what}\n"]
            rows = [(code(k.name), code(k.kind), code(k.default), k.meaning) for k in keys]
            parts.append(table(("key", "type", "default", "meaning"), rows))
    parts.append("## Parts of a method\n")
    parts.append("`kind` names the part; the other keys are its options.\n")
    for key, registry in (("noise", NOISES), ("select", SELECTORS), ("weigh", WEIGHERS)):
        parts += [f"### method.{key}\n", options_table(registry)]
    parts += ["## Options of tasks\n", options_table(TASKS)]
    parts.append("## Options of decoders\n")
    rows = [(code(e.name), code(" ".join(e.load().options)), plain(e.summary)) for e in DECODERS]
    parts.append(table(("decoder", "options of its own", "what it does"), rows))
    return "\n".join(parts)


def options_table(registry: Any) -> str:
    """The factory of each entry: its signature is its options."""
    rows = []
    for entry in registry:
        made = entry.load()
        takes = inspect.signature(made).parameters.values()
        options = " ".join(
            f"{p.name}={p.default}" if p.default is not p.empty else p.name for p in takes
        )
        first = (inspect.getdoc(made) or "").partition("\n\n")[0]
        rows.append((code(entry.name), code(plain(options)), plain(entry.summary or first)))
    return table(("name", "options", "what it does"), rows)


# --- names ---------------------------------------------------------------------------------------


def names_page() -> str:
    from goldimask.backbones import BACKBONES
    from goldimask.cli.listing import first_comment, source
    from goldimask.config import packaged_recipes
    from goldimask.data.corpora import CORPORA
    from goldimask.decoding import DECODERS
    from goldimask.eval.tasks import TASKS
    from goldimask.presets import PRESETS

    parts = ["# Names\n", MADE, "What `goldimask list` prints, whole.\n"]
    recipes = [(code(n), plain(first_comment(f))) for n, f in packaged_recipes().items()]
    parts += ["## Recipes and campaigns\n", table(("name", "what it is"), recipes)]
    rows = [(code(e.name), plain(e.summary), plain(e.load().paper)) for e in PRESETS]
    parts += ["## Methods\n", table(("preset", "what it is", "in the paper"), rows)]
    for title, registry in (("Tasks", TASKS), ("Decoders", DECODERS), ("Corpora", CORPORA)):
        rows = [(code(e.name), plain(e.summary)) for e in registry]
        parts += [f"## {title}\n", table(("name", "what it is"), rows)]
    rows = [(code(e.name), plain(e.summary), code(source(e.load()))) for e in BACKBONES]
    parts += ["## Backbones\n", table(("name", "what it is", "from"), rows)]
    return "\n".join(parts)


PAGES = {
    "reference/commands.md": commands_page,
    "reference/keys.md": keys_page,
    "reference/names.md": names_page,
}


def on_files(files: Any, config: Any) -> Any:
    """mkdocs: the pages join those of docs/."""
    from mkdocs.structure.files import File

    for name, make in PAGES.items():
        files.append(File.generated(config, name, content=make()))
    return files


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
    print("\n".join(make() for make in PAGES.values()))
