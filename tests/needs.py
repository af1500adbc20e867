"""What a test needs beyond Python: skipped without it on a user's machine, a failure in CI."""

from __future__ import annotations

import os

import pytest


def need(what: str, present: bool, how: str) -> None:
    """Go on if `present`; else say what is missing and how to get it."""
    __tracebackhide__ = True
    if present:
        return
    said = f"{what} is missing: {how}"
    if os.environ.get("CI"):
        pytest.fail(f"{said} (in CI this test must run)", pytrace=False)
    pytest.skip(said)
