"""Hostile bytes and values from a seeded generator; the same seed gives the same case."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

TEXTS = [
    "",
    " ",
    "\0",
    "\ud800",
    "\u202e",
    "\ufeff",
    "é" * 9,
    "a\r\nb",
    "=HYPERLINK(1)",
    "[x](javascript:1)",
    "<script>",
    "<answer>",
    "</answer>",
    "\\boxed{",
    "}",
    "{" * 50,
    "<|eot_id|>",
    "../../x",
    "module:thing",
    "subprocess:getoutput",
    "9" * 5000,
    "1e999",
    "-1",
    "nan",
    "x" * 5000,
    "<|a|>  " * 30,
    "#### 7",
    "\\frac{1}{0}",
]
VALUES = [
    None,
    True,
    0,
    -1,
    10**6,
    2**70,
    0.5,
    -0.0,
    float("nan"),
    float("inf"),
    [],
    {},
    [[]],
    {"a": 1},
    *TEXTS,
]
TOKENS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b",",
    b":",
    b"\\",
    b"\n",
    b"\r",
    b"\xff",
    b"\xed\xa0\x80",
    b"\0",
]
TOKENS += [
    b"NaN",
    b"1e999",
    b"9" * 5000,
    b"[" * 3000,
    b'{"a":' * 900,
    b"- " * 400,
    b"&a [*a]",
    b"<<: *a",
]
TOKENS += [
    b"!!timestamp x",
    b"!!binary x",
    b"2024-99-99",
    b"? ",
    b"|",
    b"%",
    b"\xef\xbb\xbf",
    b'"\\ud800"',
]


def damaged(data: bytes, rng: Random) -> bytes:
    """A few bytes, tokens or pieces changed, cut or repeated."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(6)
        if kind == 0 and out:
            out[min(at, len(out) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            out[at:at] = rng.choice(TOKENS)
        elif kind == 2:
            del out[at : at + rng.choice((1, 3, 20, 500))]
        elif kind == 3:
            out[at:at] = out[at : at + rng.randrange(200)] * rng.choice((1, 2, 30))
        elif kind == 4:
            del out[at:]
        else:
            out[at : at + 4] = rng.randbytes(4)
    return bytes(out)


def changed(value: Any, rng: Random) -> Any:
    """A value with one place in it replaced, removed or renamed."""
    value = copy.deepcopy(value)
    place = value
    while isinstance(place, dict | list) and place:
        key = rng.choice(list(place)) if isinstance(place, dict) else rng.randrange(len(place))
        inner = place[key]
        if not (isinstance(inner, dict | list) and inner) or rng.random() < 0.3:
            kind = rng.randrange(4)
            if kind == 0:
                del place[key]
            elif kind == 1 and isinstance(place, dict):
                place[rng.choice(TEXTS)] = inner
            else:
                place[key] = rng.choice(VALUES)
            return value
        place = inner
    return rng.choice(VALUES)


def as_json(value: Any) -> bytes:
    """As Python writes it: NaN and halves of characters included."""
    try:
        return json.dumps(value).encode()
    except (ValueError, TypeError):
        return b"{}"


def text(rng: Random) -> str:
    """Pieces of texts that parsers look for, in any order."""
    pieces = [
        *TEXTS,
        "The answer is 42",
        "<reasoning>",
        "</reasoning>",
        "$",
        "\n",
        "1 2 3 4",
        "(1+2)*3",
        "12",
    ]
    made = "".join(
        rng.choice(pieces) * rng.choice((1, 1, 1, 3)) for _ in range(rng.randrange(1, 12))
    )
    return made * rng.choice((1, 1, 1, 1, 40)) if len(made) < 2000 else made
