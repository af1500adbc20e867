"""A missing tool skips a test here and fails it in CI, with the same words."""

import pytest

from needs import need


def test_what_is_there_is_no_news(monkeypatch):
    monkeypatch.setenv("CI", "true")
    need("python", True, "ask a friend")


def test_a_skip_says_how_to_get_it(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="chromium is missing: apt install chromium"):
        need("chromium", False, "apt install chromium")


def test_in_ci_it_is_a_failure(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="chromium is missing: apt install chromium"):
        need("chromium", False, "apt install chromium")
