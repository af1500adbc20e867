"""Rows become examples: an exact boundary between prompt and response, a stable id.

What the prompt and the response of a row are is said in `shapes.py`. Prompt (ending with the
assistant header) and response are rendered and tokenised separately and then concatenated, so the
boundary is exact by construction. Supervisable positions are response tokens that are not special;
`supervise_turn_end` adds the turn-end token, `supervise: all_after_prompt` everything (D1, D12,
D20, docs/decisions.md). A bad row is an error that names file and line; `skip_bad_rows` counts such
rows and goes on. An example is cut at `max_length` and at the positions of the backbone; what its
checkpoint was trained for only counts (a warning).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol

from goldimask.data.corpora import TokenClasses, named_rows
from goldimask.data.rows import Row
from goldimask.data.shapes import Message, Pair, Turns, to_pairs
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream, content_id
from goldimask.types import Example

SPECIAL_TEXT = re.compile(r"\s*(<\|[^|\s]*\|>\s*)+")
CHARACTERS = 64  # that a token stands for at most, over a whole text: beyond, a text is cut first
NAMED = 5  # bad rows that the report names
Overlength = Literal["truncate", "drop", "error"]
Supervise = Literal["response_no_pad", "all_after_prompt"]


class Renderer(Protocol):
    """The part of a backbone that turns text into ids."""

    @property
    def special_ids(self) -> frozenset[int]: ...
    @property
    def turn_end_id(self) -> int: ...
    @property
    def max_length(self) -> int: ...
    @property
    def usable_length(self) -> int: ...  # what the checkpoint was trained for
    def prompt_ids(self, messages: list[Message]) -> list[int]: ...
    def response_ids(self, text: str, turn_end: bool = True) -> list[int]: ...


class NoRoom(GoldimaskError):
    """A prompt that leaves no room for a response."""


@dataclass
class DataReport:
    """What happened to the rows, printed before training starts."""

    rows: int = 0
    bad: int = 0
    dropped: int = 0  # too long, with overlength: drop
    truncated: int = 0
    answer_lost: int = 0  # truncated by more than the turn-end token
    limit: int = 0  # tokens that an example may have: data.max_length, or the backbone's positions
    usable: int = 0  # tokens that the checkpoint was trained for
    beyond: int = 0  # kept although longer than that
    first_bad: list[str] = field(default_factory=list)
    several: int = 0  # rows with several assistant turns
    turns: Turns = "last"
    groups: list[int] = field(default_factory=list)  # the row of every example

    def lines(self) -> list[str]:
        counts = [f"{self.rows} rows"]
        if self.bad:
            more = f"; and {self.bad - NAMED} more" if self.bad > NAMED else ""
            counts.append(f"{self.bad} bad rows skipped ({'; '.join(self.first_bad)}{more})")
        if self.dropped:
            counts.append(f"{self.dropped} dropped as too long")
        if self.several:
            which = {"last": "the last is", "all": "each is"}[self.turns]
            counts.append(f"{self.several} with several assistant turns, of which {which} trained")
        if self.truncated:
            counts.append(
                f"{self.truncated} truncated to {self.limit:,} tokens, {self.answer_lost} of them "
                "lost their end"
            )
        return counts

    def warning(self) -> str | None:
        """How many examples are longer than what the checkpoint was trained for."""
        if not self.beyond:
            return None
        return (
            f"{self.beyond} of {self.rows} rows are longer than the {self.usable:,} tokens that "
            f"the checkpoint was trained for; they are kept, up to {self.limit:,}"
        )


# --- text as tokens ------------------------------------------------------------------------------


def to_example(
    pair: Pair,
    renderer: Renderer,
    *,
    max_length: int = 4096,
    overlength: Overlength = "truncate",
    supervise: Supervise = "response_no_pad",
    supervise_turn_end: bool = False,
    report: DataReport | None = None,
) -> Example | None:
    """Tokenise one pair; None when it is dropped as too long."""
    report = report or DataReport()
    limit = report.limit = min(max_length, renderer.max_length)
    report.usable = renderer.usable_length
    most = CHARACTERS * limit
    asked = sum(len(m["role"]) + len(m["content"]) for m in pair.prompt)
    prompt = renderer.prompt_ids(pair.prompt) if asked <= most else []
    if asked > most or len(prompt) >= limit:
        size = f"{len(prompt)} tokens" if prompt else f"{asked} characters"
        raise NoRoom(
            f"{pair.where}: the prompt has {size} and leaves no room for a "
            f"response within {limit}; shorten it or raise data.max_length (the backbone allows "
            f"{renderer.max_length})"
        )
    response = renderer.response_ids(pair.response[:most], turn_end=True)
    length = len(prompt) + len(response)
    if length > limit or len(pair.response) > most:
        if overlength == "error":
            size = f"{length} tokens" if length > limit else f"{len(pair.response)} characters"
            raise GoldimaskError(f"{pair.where}: {size} exceed data.max_length {limit}")
        if overlength == "drop":
            report.dropped += 1
            return None
        report.truncated += 1
        report.answer_lost += length - limit > 1 or len(pair.response) > most  # not the turn end
        response = response[: limit - len(prompt)]
    report.beyond += min(length, limit) > renderer.usable_length
    special = renderer.special_ids
    # such text is never read as a special token
    written = SPECIAL_TEXT.fullmatch(pair.response[:most])
    if written or all(i in special for i in response):
        raise GoldimaskError(
            f"{pair.where}: the response holds only special tokens; nothing to supervise"
        )
    extra = renderer.turn_end_id if supervise_turn_end else None
    everything = supervise == "all_after_prompt"
    flags = [everything or i not in special or i == extra for i in response]
    said = (f"{m['role']}\x00{m['content']}" for m in pair.prompt)
    return Example(
        ids=prompt + response,
        prompt_length=len(prompt),
        supervisable=[False] * len(prompt) + flags,
        example_id=content_id(*said, pair.response),
    )


def load_examples(
    rows: str | Path | Iterable[Row | Mapping[str, Any]],
    renderer: Renderer,
    *,
    limit: int | None = None,
    seed: int = 0,
    max_length: int = 4096,
    overlength: Overlength = "truncate",
    supervise: Supervise = "response_no_pad",
    supervise_turn_end: bool = False,
    skip_bad_rows: bool = False,
    turns: Turns = "last",
    classes: TokenClasses | None = None,
) -> tuple[list[Example], DataReport]:
    """Examples with unique stable ids (a repeated row gets an id of its own), and what happened.

    `rows` is the name of a corpus, a file, a folder, a Hub id, or rows; `seed` draws those of a
    generated corpus. With `classes`, every example knows the kind of each of its tokens.
    """
    report, examples = DataReport(turns=turns), []
    seen: dict[int, int] = {}
    how = {"max_length": max_length, "overlength": overlength, "supervise": supervise}
    for number, row in enumerate(_rows(rows, limit, seed)):
        report.rows += 1
        try:
            made = _of_row(row, renderer, report, supervise_turn_end=supervise_turn_end, **how)
        except GoldimaskError as error:
            told = str(error) if row.where in str(error) else f"{row.where}: {error}"
            if not skip_bad_rows:
                raise GoldimaskError(
                    f"{told} (or set data.skip_bad_rows=true to skip and count such rows)"
                ) from error
            report.bad += 1
            if len(report.first_bad) < NAMED:
                report.first_bad.append(told)
            continue
        for example in made:
            count = seen.get(example.example_id, 0)
            seen[example.example_id] = count + 1
            if count:
                repeated = content_id(str(example.example_id), str(count))
                example = replace(example, example_id=repeated)
            if classes is not None:
                kinds = classes.of(row.values, example, renderer).tolist()
                example = replace(example, classes=kinds)
            examples.append(example)
            report.groups.append(number)
    if not examples:
        raise GoldimaskError("data: no usable rows: " + "; ".join(report.lines()))
    return examples, report


def _of_row(row: Row, renderer: Renderer, report: DataReport, **how: Any) -> list[Example]:
    """The examples of a row; a later turn that has no room left counts as dropped."""
    pairs = to_pairs(row, report.turns)
    earlier = sum(m["role"] == "assistant" for m in pairs[-1].prompt)
    report.several += earlier > 0
    made = []
    for i, pair in enumerate(pairs):
        try:
            example = to_example(pair, renderer, report=report, **how)
        except NoRoom:
            if not i:
                raise
            report.dropped += 1
            continue
        made += [] if example is None else [example]
    return made


def _rows(
    rows: str | Path | Iterable[Row | Mapping[str, Any]], limit: int | None, seed: int
) -> Iterable[Row]:
    if isinstance(rows, str | Path):
        return named_rows(rows, limit, seed)
    given = (r if isinstance(r, Row) else Row(f"row {i}", r) for i, r in enumerate(rows))
    return islice(given, limit)


# --- sets of examples ----------------------------------------------------------------------------


def split(
    examples: list[Example], validation: float, seed: int, groups: Sequence[int] | None = None
) -> tuple[list[Example], list[Example]]:
    """(train, validation) by a permutation of the seed; a share below 1, else a number of
    examples.

    Examples of one group (the turns of a conversation) stay together; shares and numbers are then
    of groups.
    """
    groups = groups or range(len(examples))
    units = list(dict.fromkeys(groups))
    count = int(len(units) * validation) if validation < 1 else int(validation)
    if validation < 0 or count >= len(units):
        raise GoldimaskError(
            f"data.validation: {validation:g} leaves no training examples out of {len(units)}"
        )
    order = Keys(seed).rng(0, Stream.SPLIT).permutation(len(units))
    held_out = {units[i] for i in order[:count].tolist()}
    train = [e for e, g in zip(examples, groups, strict=True) if g not in held_out]
    return train, [e for e, g in zip(examples, groups, strict=True) if g in held_out]


def data_hash(examples: Iterable[Example]) -> str:
    """One fingerprint of everything that will be trained on."""
    return f"{content_id(*(','.join(map(str, (e.example_id, *e.ids))) for e in examples)):016x}"
