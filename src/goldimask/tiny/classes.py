"""Kinds of tokens in the tiny corpora, to see where the supervision goes.

    words         everything that is none of the following
    numbers       right numbers
    wrong         numbers that the corpus got wrong (only in corpora with wrong labels)
    identifiers   random words of the opening line

A method that tells noise from signal moves weight away from `wrong` and `identifiers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from goldimask.data.corpora import TokenClasses
from goldimask.data.examples import Renderer
from goldimask.tiny.identifiers import IDENTIFIERS, OPENING
from goldimask.types import Example

WORDS, NUMBERS, WRONG, RANDOM = range(4)


def classify(row: Mapping[str, Any], example: Example, renderer: Renderer) -> np.ndarray:
    """The kind of every token of an example."""
    numbers, opening = _known(renderer)
    ids, first = np.asarray(example.ids), example.prompt_length
    found = np.where(np.isin(ids, numbers), NUMBERS, WORDS)
    if "clean" in row:
        right = renderer.response_ids(row["clean"])
        given = ids[first:]
        if len(right) == len(given):  # one token per number, so that places agree
            found[first:][given != np.asarray(right)] = WRONG
    if row.get("identifiers"):
        after = np.arange(len(ids)) >= first
        found[after & np.isin(ids, opening)] = RANDOM
    return found


@lru_cache(maxsize=4)
def _known(renderer: Any) -> tuple[list[int], list[int]]:
    """Ids of numbers, and of the words of an opening line."""
    numbers = [i for text, i in renderer.tokenizer.get_vocab().items() if text.isdigit()]
    words = (*IDENTIFIERS, OPENING)
    return numbers, sorted({i for w in words for i in renderer.response_ids(w, turn_end=False)})


CLASSES = TokenClasses(("words", "numbers", "wrong", "identifiers"), classify)
