"""A page is one inert file: hostile data stays data, and nothing can be loaded."""

import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldimask.errors import GoldimaskError
from goldimask.report.page import (
    KINDS,
    bundle,
    digest,
    embed,
    entry,
    page_html,
    section,
)
from unit.report.support import HOSTILE, embedded

MODULES = {
    path.name: path.read_text("utf-8")
    for path in sorted((files("goldimask.report") / "templates").iterdir())
    if path.name.endswith(".mjs")
}
texts = st.text(alphabet=st.characters(), max_size=20)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


class Tags(HTMLParser):
    """Start tags with their attributes, and comments."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags, self.comments = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, tuple(attrs)))

    def handle_comment(self, data):
        self.comments.append(data)


@settings(max_examples=200, deadline=None)
@given(values)
def test_embedded_data_comes_back_and_is_inert(value):
    text = embed(value)
    assert json.loads(text) == value
    assert not re.search("[<>&\u2028\u2029]", text)
    text.encode("utf-8")  # lone surrogates too


@settings(max_examples=60, deadline=None)
@given(texts, texts)
def test_no_text_changes_the_structure_of_a_page(title, word):
    plain = Tags(page_html("t", [section("prose", "t", {"paragraphs": ["w"]}, "n")]))
    other = Tags(page_html(title, [section("prose", word, {"paragraphs": [word]}, word)]))
    assert other.tags == plain.tags and not other.comments


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_words_stay_in_the_data_block(word):
    page = page_html(word, [section("prose", word, {"paragraphs": [word] * 2}, word)])
    assert embedded(page)["sections"][0]["data"]["paragraphs"] == [word] * 2
    tags = [tag for tag, _ in Tags(page).tags]
    assert tags.count("script") == 2 and "img" not in tags
    assert page.count("<script") == 2


def test_the_policy_allows_this_script_and_this_style_and_nothing_else():
    page = page_html("t", [section(kind, kind, {}) for kind in KINDS])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    script = re.search(r"<script>(.*)</script>\n</body>", page, re.DOTALL)[1]
    style = re.search(r"<style>(.*)</style>", page, re.DOTALL)[1]
    assert f"script-src '{digest(script)}'" in policy and f"style-src '{digest(style)}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy and "http" not in policy


def test_no_address_is_in_any_module():
    found = {name: re.findall(r"https?://[^'\"` ]+", text) for name, text in MODULES.items()}
    assert found.pop("dom.mjs") == ["http://www.w3.org/2000/svg"]  # a name, never fetched
    assert not any(found.values()), found


@pytest.mark.parametrize("name", MODULES)
def test_no_module_can_write_markup(name):
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser"
    )
    assert not re.search(forbidden, MODULES[name])


@pytest.mark.parametrize("name", MODULES)
def test_every_module_keeps_to_the_forms_that_can_be_bundled(name):
    """`import { a } from './x.mjs';`, `export const`, `export function`; every name is there."""
    text = MODULES[name]
    assert not re.search(r"</script|<!--|\bimport\s*\(|\brequire\b", without_comments(text))
    assert bundle(text)
    statements = re.findall(r"^(?:import|export)\b[^;=(]*", text, re.MULTILINE)
    assert len(statements) == len(
        re.findall(r"^(?:import \{|export (?:const|function) )", text, re.M)
    )
    for names, source in re.findall(r"^import \{([^}]*)\} from '\./([^']+)';$", text, re.MULTILINE):
        exported = re.findall(r"^export (?:const|function) (\w+)", MODULES[source], re.MULTILINE)
        assert {n.strip() for n in names.split(",") if n.strip()} <= set(exported), source


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|^ *//.*?$", "", text, flags=re.DOTALL | re.MULTILINE)


def test_every_module_is_on_some_page():
    script = bundle(entry(KINDS))
    assert {name for name in MODULES if f'modules["{name}"] = ' in script} == set(MODULES)
    assert "step.mjs" not in bundle(entry({"table"}))


def test_a_bundle_holds_each_module_once_and_after_what_it_needs():
    modules = {
        "a.mjs": "import {\n  b,\n} from './b.mjs';\nimport { c } from './c.mjs';\n"
        "export const a = b + c;",
        "b.mjs": "import { c } from './c.mjs';\nexport const b = c;",
        "c.mjs": "export const c = 1;\nexport function d() {}",
    }
    script = bundle("import { a } from './a.mjs';\nstart(a);", modules.__getitem__)
    order = re.findall(r'^modules\["(.*)"\]', script, re.MULTILINE)
    assert order == ["c.mjs", "b.mjs", "a.mjs", "page"]
    assert "return { c, d };" in script and "export" not in script and "import" not in script


@pytest.mark.parametrize(
    "line",
    [
        "export default 1;",
        "export { a };",
        "export let a = 1;",
        "import a from './a.mjs';",
        "import { a } from 'a';",
        "import { a } from '../a.mjs';",
    ],
)
def test_another_form_is_an_error(line):
    with pytest.raises(ValueError, match="is not a form that can be bundled"):
        bundle(line, lambda name: "")


def test_modules_that_import_each_other_are_an_error():
    modules = {"a.mjs": "import { b } from './b.mjs';", "b.mjs": "import { a } from './a.mjs';"}
    with pytest.raises(ValueError, match=r"a\.mjs -> b\.mjs -> a\.mjs"):
        bundle("import { a } from './a.mjs';", modules.__getitem__)


def test_an_unknown_kind_is_an_error():
    with pytest.raises(GoldimaskError, match="did you mean 'table'"):
        section("tabel", "x", {})


def test_what_is_not_a_number_is_shown_as_missing():
    assert embed({"rows": [[float("nan"), 1.5], [float("-inf")]]}) == '{"rows":[[null,1.5],[null]]}'
