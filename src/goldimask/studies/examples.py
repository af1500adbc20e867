"""What a study looks at: rows of a corpus or a file as examples, in batches of similar length."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

import numpy as np

from goldimask.backbones import Backbone
from goldimask.data.batches import make_batch
from goldimask.data.corpora import named_rows
from goldimask.data.examples import Renderer, load_examples
from goldimask.data.shapes import Message, to_pair
from goldimask.errors import GoldimaskError
from goldimask.types import Batch, Example

StudyRow = dict[str, str | list[Message]]
Advance = Callable[..., None]  # of `console.progress`
BATCH = 16


def quiet(count: int = 1, note: str = "") -> None:
    """No bar."""


def study_rows(corpus: str, count: int, first: int = 0) -> list[StudyRow]:
    """Rows `first` .. `first + count` as prompts and responses, whatever the corpus calls them."""
    pairs = [to_pair(row) for row in islice(named_rows(corpus, first + count), first, None)]
    enough(corpus, first + len(pairs), first + count)
    return [{"prompt": pair.prompt, "response": pair.response} for pair in pairs]


def study_examples(
    renderer: Renderer,
    corpus: str,
    count: int,
    *,
    turn_end: bool = True,
    max_length: int = 4096,
) -> list[Example]:
    """The first `count` examples of a named corpus or a data file."""
    found, _ = load_examples(
        corpus, renderer, limit=count, supervise_turn_end=turn_end, max_length=max_length
    )
    enough(corpus, len(found), count)
    return found


def enough(corpus: str, found: int, wanted: int) -> None:
    """Refuse a corpus that is smaller than the study."""
    if found < wanted:
        raise GoldimaskError(
            f"corpus '{corpus}': has {found} usable examples, {wanted} were asked for"
        )


def study_groups(examples: Sequence[Example], batch_size: int = BATCH) -> list[np.ndarray]:
    """Numbers of the examples of each batch, similar lengths together."""
    order = sorted(range(len(examples)), key=lambda i: (len(examples[i]), i))
    return [np.asarray(order[i : i + batch_size]) for i in range(0, len(order), batch_size)]


def study_batch(backbone: Backbone, examples: Sequence[Example], chosen: np.ndarray) -> Batch:
    """One of these batches, on the model's device."""
    batch = make_batch([examples[i] for i in chosen], backbone.pad_id, 8)
    return batch.to(next(backbone.model.parameters()).device)
