"""What a study looks at: the first examples of a corpus or a file, turn end supervised."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np

from goldimask.backbones import Backbone
from goldimask.data.batches import make_batch
from goldimask.data.corpora import named_rows
from goldimask.data.examples import Message, Renderer, load_examples, to_pair
from goldimask.errors import GoldimaskError
from goldimask.types import Batch, Example

StudyRow = dict[str, str | list[Message]]
Advance = Callable[..., None]  # of `console.progress`


def quiet(count: int = 1, note: str = "") -> None:
    """No bar."""


def study_rows(corpus: str, count: int, first: int = 0) -> list[StudyRow]:
    """Rows `first` .. `first + count` as prompts and responses, whatever the corpus calls them."""
    pairs = [to_pair(row) for row in islice(named_rows(corpus, first + count), first, None)]
    enough(corpus, first + len(pairs), first + count)
    return [{"prompt": pair.prompt, "response": pair.response} for pair in pairs]


def study_examples(renderer: Renderer, corpus: str, count: int) -> list[Example]:
    """The first `count` examples of a named corpus or a data file."""
    found, _ = load_examples(corpus, renderer, limit=count, supervise_turn_end=True)
    enough(corpus, len(found), count)
    return found


def enough(corpus: str, found: int, wanted: int) -> None:
    """Refuse a corpus that is smaller than the study."""
    if found < wanted:
        raise GoldimaskError(
            f"corpus '{corpus}': has {found} usable examples, {wanted} were asked for"
        )


def study_batches(
    backbone: Backbone, examples: Sequence[Example], batch_size: int = 16
) -> Iterator[tuple[np.ndarray, Batch]]:
    """Batches of similar length on the model's device, with the numbers of their examples."""
    device = next(backbone.model.parameters()).device
    order = sorted(range(len(examples)), key=lambda i: (len(examples[i]), i))
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        batch = make_batch([examples[i] for i in chosen], backbone.pad_id, 8)
        yield np.asarray(chosen), batch.to(device)
