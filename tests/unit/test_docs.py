"""The documentation can be navigated: short, whole, and its reference is what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from reference import PAGES, commands_page, keys_page, names_page

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WRITTEN = [*sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("methods/*.md"))]
LIMIT = 20_000


def test_the_pages_are_short() -> None:
    """Words have a letter or a digit, code included; the bars of tables are none."""
    counts = {
        f.name: sum(1 for word in f.read_text("utf-8").split() if re.search(r"\w", word))
        for f in WRITTEN
    }
    longest = sorted(counts.items(), key=lambda item: -item[1])[:5]
    assert sum(counts.values()) < LIMIT, (sum(counts.values()), longest)


def nav_pages(entry: object) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    parts = entry.values() if isinstance(entry, dict) else entry
    return [page for part in parts for page in nav_pages(part)]  # type: ignore[union-attr]


def test_every_page_is_in_the_navigation_and_linked_from_the_first() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    nav = nav_pages(yaml.safe_load(text)["nav"])
    pages = [*WRITTEN, *DOCS.glob("log/*.md")]  # results/ holds the files of campaigns
    there = {str(f.relative_to(DOCS)) for f in pages} | set(PAGES)
    assert len(nav) == len(set(nav)) and there <= set(nav)
    first = (DOCS / "index.md").read_text("utf-8")
    linked = set(re.findall(r"\(([\w/.-]+\.md)", first))
    methods = {f"methods/{f.name}" for f in DOCS.glob("methods/*.md")}  # linked from their overview
    log = {page for page in nav if page.startswith("log/")}
    assert set(nav) - log - methods <= linked | {"index.md"}


def test_every_verb_and_option_is_in_the_reference() -> None:
    from goldimask.cli.app import VERBS, load

    page = commands_page()
    for verb in VERBS:
        command = load(verb)
        for name, one in (getattr(command, "commands", None) or {"": command}).items():
            title = f"{verb} {name}".strip()
            part = page.partition(f"# {title}\n")[2].partition("\n#")[0]
            assert part, title
            for parameter in one.params:
                if parameter.name == "help":
                    continue
                called = [
                    *parameter.opts,
                    parameter.name.upper(),
                    str(parameter.metavar).replace("|", "\\|"),
                ]
                rows = [line for line in part.splitlines() if line.startswith("| `")]
                assert any(o in row for o in called for row in rows), (title, parameter.name)


def test_every_key_of_a_recipe_is_in_the_reference_with_its_meaning() -> None:
    from goldimask.config import LoraSection, MixtureItem, Recipe, recipe_dict

    def keys(values: dict, above: str = "") -> list[str]:
        return [
            key
            for name, value in values.items()
            for key in (
                [
                    f"{above}{name}",
                    *(keys(value, f"{above}{name}.") if isinstance(value, dict) else []),
                ]
            )
        ]

    wanted = keys(recipe_dict(Recipe()))
    wanted += [f"lora.{name}" for name in LoraSection.__dataclass_fields__]
    wanted += [f"data.mixture[].{name}" for name in MixtureItem.__dataclass_fields__]
    rows = {
        cells[1].strip(" `"): cells
        for line in keys_page().partition("## Campaign")[0].splitlines()
        if (cells := re.split(r"(?<!\\)\|", line)) and len(cells) == 6
    }
    assert [key for key in wanted if key not in rows] == []
    assert [key for key in wanted if not rows[key][4].strip()] == []


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_has_no_internal_codes(name: str) -> None:
    text = PAGES[name]()
    assert not re.search(r"\b[DFNH]\d{1,2}\b|docs/decisions|\.py\)", text)
    assert all(line.count("|") >= 3 for line in text.splitlines() if line.startswith("|"))


def test_named_things_are_in_the_reference() -> None:
    from goldimask.backbones import BACKBONES
    from goldimask.presets import PRESETS

    page = names_page()
    for registry in (PRESETS, BACKBONES):
        assert all(f"| `{name}` |" in page for name in registry.names())
