"""Tokens shown unambiguously: nothing invisible is left in a text run."""

import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldimask.report.text import HIDDEN, byte_alphabet, plain, runs, token_runs, token_table
from unit.report.support import Tokenizer


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.characters(), max_size=30))
def test_text_runs_hold_only_visible_characters(text):
    for run in runs(text):
        if run[0] == "t":
            shown = run[1].replace(" ", "")
            assert not any(unicodedata.category(c) in HIDDEN for c in shown)
        else:
            assert run[0] == "m" and len(run) == 3 and run[2]


@pytest.mark.parametrize(
    ("text", "shown", "spoken"),
    [
        ("\n", "⏎", "newline"),
        (" ", "·", "space"),
        ("\t", "⇥", "tab"),
        ("\u202e", "U+202E", "right-to-left override"),
        ("\u200b", "U+200B", "zero width space"),
        ("\x00", "U+0000", "code point 0000"),
        ("\ud800", "U+D800", "code point D800"),
        ("", "∅", "empty"),
    ],
)
def test_marks(text, shown, spoken):
    assert runs(text) == [["m", shown, spoken]]


def test_a_literal_mark_is_text_and_a_newline_is_a_mark():
    assert runs("⏎") == [["t", "⏎"]]
    assert runs("⏎") != runs("\n")


def test_spaces_at_the_edge_are_marked_and_single_ones_between_words_are_not():
    assert runs(" the cat") == [["m", "·", "space"], ["t", "the cat"]]
    assert plain(runs("a  b")) == "a··b"


def test_a_very_long_token_is_cut_and_says_so():
    assert runs("x" * 1000)[-1] == ["m", "…", "800 more characters"]


def test_byte_fragments_are_shown_as_bytes():
    class Bytes:
        def decode(self, ids, **_):
            return "\ufffd"

        def convert_ids_to_tokens(self, token):
            return next(c for c, b in byte_alphabet().items() if b == token)

    assert token_runs(Bytes(), 0xE6) == [["m", "\\xE6", "byte E6"]]
    assert token_runs(Bytes(), 0x0A) == [["m", "\\x0A", "byte 0A"]]
    assert sorted(byte_alphabet().values()) == list(range(256))


def test_the_table_holds_each_token_once_and_marks_specials():
    tokenizer = Tokenizer(["a", "b"])
    table = token_table(tokenizer, [1, 0, 1, 2])
    assert [v["id"] for v in table["vocab"]] == [1, 0, 2] and table["index"] == [0, 1, 0, 2]
    assert [v.get("special", False) for v in table["vocab"]] == [False, False, True]
