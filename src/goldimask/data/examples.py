"""Pairs become examples: an exact boundary between prompt and response, a stable id (D1, D12, D20).

Prompt (ending with the assistant header) and response are rendered and tokenised separately and
then concatenated, so the boundary is exact by construction. Supervisable positions are response
tokens that are not special; `supervise_turn_end` adds the turn-end token, `supervise:
all_after_prompt` everything.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from goldimask.config import DataSection
from goldimask.data.rows import Message, Pair
from goldimask.data.sources import mix, source_pairs
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream, content_id
from goldimask.types import Example

SPECIAL_TEXT = re.compile(r"(\s*<\|[^|\s]*\|>\s*)+")


class Renderer(Protocol):
    """The part of a backbone that turns text into ids."""

    @property
    def special_ids(self) -> frozenset[int]: ...
    @property
    def turn_end_id(self) -> int: ...
    @property
    def max_length(self) -> int: ...
    def prompt_ids(self, messages: list[Message]) -> list[int]: ...
    def response_ids(self, text: str, turn_end: bool = True) -> list[int]: ...


@dataclass
class DataReport:
    """What happened to the rows, printed before training starts."""

    rows: int = 0
    bad: int = 0
    dropped: int = 0  # too long, with overlength: drop
    truncated: int = 0
    answer_lost: int = 0  # truncated by more than the turn-end token
    first_bad: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        counts = [f"{self.rows} rows"]
        if self.bad:
            counts.append(f"{self.bad} bad rows skipped (first: {self.first_bad[0]})")
        if self.dropped:
            counts.append(f"{self.dropped} dropped as too long")
        if self.truncated:
            counts.append(f"{self.truncated} truncated, {self.answer_lost} of them lost their end")
        return counts


def load_pairs(section: DataSection, report: DataReport, seed: int = 0) -> list[Pair]:
    """All rows of the section's file, corpus or mixture."""

    def count() -> None:
        report.rows += 1

    def bad(error: GoldimaskError) -> None:
        _bad(section, report, error)

    if section.mixture:
        if section.path is not None or section.corpus is not None:
            raise GoldimaskError("data: give data.mixture, or data.path and data.corpus, not both")
        parts = [source_pairs(item, section.limit, bad, count) for item in section.mixture]
        weights = [item.weight for item in section.mixture]
        pairs = mix(parts, weights, section.mixture_size, seed)
        source = "mixture"
    else:
        pairs = source_pairs(section, section.limit, bad, count)
        source = section.path or section.corpus
    if not pairs:
        raise GoldimaskError(f"data: '{source}' holds no usable rows ({report.rows} read)")
    return pairs


def _bad(section: DataSection, report: DataReport, error: GoldimaskError) -> None:
    if not section.skip_bad_rows:
        raise GoldimaskError(
            f"{error} (or set data.skip_bad_rows=true to skip and count such rows)"
        )
    report.bad += 1
    report.first_bad = report.first_bad or [str(error)]


def to_example(
    pair: Pair, renderer: Renderer, section: DataSection, report: DataReport
) -> Example | None:
    """Tokenise one pair; None when it is dropped as too long."""
    prompt = renderer.prompt_ids(pair.prompt)
    response = renderer.response_ids(pair.response, turn_end=True)
    limit = min(section.max_length, renderer.max_length)
    if len(prompt) >= limit:
        raise GoldimaskError(
            f"{pair.where}: the prompt has {len(prompt)} tokens and leaves no room for a "
            f"response within {limit}; shorten it or raise data.max_length (the backbone allows "
            f"{renderer.max_length})"
        )
    if len(prompt) + len(response) > limit:
        if section.overlength == "error":
            raise GoldimaskError(
                f"{pair.where}: {len(prompt) + len(response)} tokens exceed data.max_length {limit}"
            )
        if section.overlength == "drop":
            report.dropped += 1
            return None
        report.truncated += 1
        report.answer_lost += len(prompt) + len(response) - limit > 1  # more than the turn end
        response = response[: limit - len(prompt)]
    if section.supervise == "all_after_prompt":
        flags = [True] * len(response)
    else:
        special = renderer.special_ids
        extra = renderer.turn_end_id if section.supervise_turn_end else None
        flags = [i not in special or i == extra for i in response]
    written = SPECIAL_TEXT.fullmatch(pair.response)  # such text is never read as a special token
    if written or all(i in renderer.special_ids for i in response):
        raise GoldimaskError(
            f"{pair.where}: the response holds only special tokens; nothing to supervise"
        )
    return Example(
        ids=prompt + response,
        prompt_length=len(prompt),
        supervisable=[False] * len(prompt) + flags,
        example_id=content_id(
            *(f"{m['role']}\x00{m['content']}" for m in pair.prompt), pair.response
        ),
    )


def load_examples(
    section: DataSection,
    renderer: Renderer,
    limit_note: DataReport | None = None,
    seed: int = 0,
) -> tuple[list[Example], DataReport]:
    """Rows -> examples with unique stable ids (a repeated row gets an id of its own).

    `seed` orders the rows of a mixture; other sources keep their order.
    """
    report = limit_note or DataReport()
    examples: list[Example] = []
    seen: dict[int, int] = {}
    for pair in load_pairs(section, report, seed):
        try:
            example = to_example(pair, renderer, section, report)
        except GoldimaskError as error:
            _bad(section, report, error)
            continue
        if example is None:
            continue
        count = seen.get(example.example_id, 0)
        seen[example.example_id] = count + 1
        if count:
            repeated = content_id(str(example.example_id), str(count))
            example = Example(example.ids, example.prompt_length, example.supervisable, repeated)
        examples.append(example)
    if not examples:
        raise GoldimaskError("data: every row was dropped or skipped: " + "; ".join(report.lines()))
    return examples, report


def split(
    examples: list[Example], validation: float, seed: int
) -> tuple[list[Example], list[Example]]:
    """(train, validation) by a permutation of the seed; a share below 1, else a number of
    examples.
    """
    count = int(len(examples) * validation) if validation < 1 else int(validation)
    if validation < 0 or count >= len(examples):
        raise GoldimaskError(
            f"data.validation: {validation:g} leaves no training examples out of {len(examples)}"
        )
    order = Keys(seed).rng(0, Stream.SPLIT).permutation(len(examples))
    held_out = set(order[:count].tolist())
    train = [e for i, e in enumerate(examples) if i not in held_out]
    return train, [e for i, e in enumerate(examples) if i in held_out]


def data_hash(examples: Iterable[Example]) -> str:
    """One fingerprint of everything that will be trained on."""
    return f"{content_id(*(','.join(map(str, (e.example_id, *e.ids))) for e in examples)):016x}"
