"""What goes wrong because of the input, said in one sentence.

Every message names the file, line, key or argument it is about and says what to do. The command
line prints these without a traceback (`--debug` shows it) and exits with `exit_code`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

MOST = 40  # valid names that a message lists
LONGEST = 200  # characters of a value that a message quotes


class GoldimaskError(ValueError):
    """A mistake in a recipe, a file or an argument; the message is meant for the user."""

    exit_code = 2


class RunFailed(GoldimaskError):
    """A run that began well and could not go on, such as a non-finite loss."""

    exit_code = 3


def short(value: object) -> str:
    """A value as a message quotes it: one line, however long the value is."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # a number of 5,000 digits, a list in itself
        text = f"a {type(value).__name__}"
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text)} characters)"


def nearest(name: str, choices: Iterable[str]) -> str:
    """A hint that ends an error message: the closest valid name, or the list of them."""
    names = sorted(choices)
    close = difflib.get_close_matches(str(name)[:LONGEST], names, n=1, cutoff=0.5)
    valid = f"valid: {', '.join(names[:MOST])}{', ...' if len(names) > MOST else ''}"
    if close:
        return f"did you mean '{close[0]}'?" + (f" ({valid})" if len(names) <= MOST else "")
    return valid
