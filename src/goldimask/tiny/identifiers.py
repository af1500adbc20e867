"""Words without meaning, for tokens that nothing predicts.

The corpora of the lab put random identifiers into a response; no model can learn them. They are in
the vocabulary and occur in no problem of pretraining or test.
"""

from __future__ import annotations

TAKEN = ("be", "to", "so", "up", "is", "it", "do", "no", "go", "me", "he", "we")
IDENTIFIERS = tuple(
    word for word in (c + v for c in "bdfgklmnprstvz" for v in "aeiou") if word not in TAKEN
)
OPENING = "case"  # the word that announces them
