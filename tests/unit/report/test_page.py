"""A page is one inert file: hostile data stays data, and nothing can be loaded."""

import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldimask.errors import GoldimaskError
from goldimask.report.page import KINDS, digest, embed, page_html, section, template
from unit.report.support import HOSTILE, embedded

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


def test_no_address_is_in_any_template():
    for kind in KINDS.values():
        for name in kind:
            found = re.findall(r"https?://[^'\"` ]+", template(name))
            assert not found, name
    assert re.findall(r"https?://[^'\"` ]+", template("base.js")) == ["http://www.w3.org/2000/svg"]


def test_the_scripts_have_no_way_to_write_markup():
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser"
    )
    for name in {n for names in KINDS.values() for n in names} | {"base.js", "boot.js"}:
        assert not re.search(forbidden, template(name)), name


def test_an_unknown_kind_is_an_error():
    with pytest.raises(GoldimaskError, match="did you mean 'table'"):
        section("tabel", "x", {})


def test_not_a_number_cannot_be_embedded():
    with pytest.raises(ValueError):
        embed({"x": float("nan")})
