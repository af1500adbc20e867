"""Rows become examples: an exact boundary between prompt and response, a stable id.

Columns of a row, in this order of precedence:

    messages                         the last assistant turn is the response, the rest the prompt
    prompt + completion | response   each a string, or a list of messages
    question + answer

Prompt (ending with the assistant header) and response are rendered and tokenised separately and
then concatenated, so the boundary is exact by construction. Supervisable positions are response
tokens that are not special; `supervise_turn_end` adds the turn-end token, `supervise:
all_after_prompt` everything (D1, D12, D20, docs/decisions.md). A bad row is an error that names
file and line; `skip_bad_rows` counts such rows and goes on. An example is cut at `max_length` and
at the positions of the backbone; what its checkpoint was trained for only counts (a warning).
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
from goldimask.errors import GoldimaskError, short
from goldimask.files import encodable
from goldimask.keys import Keys, Stream, content_id
from goldimask.types import Example

SPECIAL_TEXT = re.compile(r"\s*(<\|[^|\s]*\|>\s*)+")
CHARACTERS = 64  # that a token stands for at most, over a whole text: beyond, a text is cut first
NAMED = 5  # bad rows that the report names
COLUMNS = "messages; prompt + completion; prompt + response; question + answer"
Message = dict[str, str]
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


@dataclass(frozen=True)
class Pair:
    """One example as text, with the place it came from."""

    prompt: list[Message]
    response: str
    where: str


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

    def lines(self) -> list[str]:
        counts = [f"{self.rows} rows"]
        if self.bad:
            more = f"; and {self.bad - NAMED} more" if self.bad > NAMED else ""
            counts.append(f"{self.bad} bad rows skipped ({'; '.join(self.first_bad)}{more})")
        if self.dropped:
            counts.append(f"{self.dropped} dropped as too long")
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


# --- a row as text -------------------------------------------------------------------------------


def to_pair(row: Row) -> Pair:
    """Find prompt and response in a row."""
    values, where = row.values, row.where
    if row.format is not None:
        try:
            values = row.format(values)
        except GoldimaskError as error:
            raise GoldimaskError(f"{where}: {error}") from error
    if not isinstance(values, Mapping):
        raise GoldimaskError(f"{where}: a row is an object with columns {COLUMNS}")
    if values.get("messages") is not None:
        messages = _messages(values["messages"], f"{where}: messages")
        if not messages or messages[-1]["role"] != "assistant":
            raise GoldimaskError(f"{where}: messages must end with an assistant turn, the response")
        return _checked(messages[:-1], messages[-1]["content"], where)
    for asked, answers in (("prompt", ("completion", "response")), ("question", ("answer",))):
        if values.get(asked) is None:
            continue
        for key in answers:
            if values.get(key) is not None:
                prompt, response = _turns(values[asked], where), _text(values[key], where, key)
                return _checked(prompt, response, where)
        wanted = " or ".join(f"'{k}'" for k in answers)
        raise GoldimaskError(f"{where}: the row has '{asked}' but no response; add {wanted}")
    raise GoldimaskError(
        f"{where}: no known columns in {short(sorted(map(str, values)))}; use one of: {COLUMNS}"
    )


def _turns(value: Any, where: str) -> list[Message]:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return _messages(value, f"{where}: prompt")


def _text(value: Any, where: str, key: str) -> str:
    if isinstance(value, str):
        return value
    messages = _messages(value, f"{where}: {key}")
    if len(messages) != 1:
        raise GoldimaskError(f"{where}: {key} must be a string or a single message")
    return messages[0]["content"]


def _messages(value: Any, where: str) -> list[Message]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise GoldimaskError(f"{where}: must be a list of {{role, content}} objects")
    for i, message in enumerate(value):
        good = isinstance(message, Mapping) and isinstance(message.get("role"), str)
        if not good or not isinstance(message.get("content"), str):
            raise GoldimaskError(
                f"{where}[{i}]: must be an object with string 'role' and 'content'"
            )
    return [{"role": m["role"], "content": m["content"]} for m in value]


def _checked(prompt: list[Message], response: str, where: str) -> Pair:
    if not prompt:
        raise GoldimaskError(f"{where}: the prompt is empty")
    if not response.strip():
        raise GoldimaskError(f"{where}: the response is empty; nothing could be supervised")
    if not all(map(encodable, (response, *(m[k] for m in prompt for k in ("role", "content"))))):
        raise GoldimaskError(f"{where}: a text holds half a character (a lone surrogate)")
    return Pair(prompt, response, where)


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
        raise GoldimaskError(
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
    classes: TokenClasses | None = None,
) -> tuple[list[Example], DataReport]:
    """Examples with unique stable ids (a repeated row gets an id of its own), and what happened.

    `rows` is the name of a corpus, a file, a folder, a Hub id, or rows; `seed` draws those of a
    generated corpus. With `classes`, every example knows the kind of each of its tokens.
    """
    report, examples = DataReport(), []
    seen: dict[int, int] = {}
    for row in _rows(rows, limit, seed):
        report.rows += 1
        try:
            example = to_example(
                to_pair(row),
                renderer,
                max_length=max_length,
                overlength=overlength,
                supervise=supervise,
                supervise_turn_end=supervise_turn_end,
                report=report,
            )
        except GoldimaskError as error:
            if not skip_bad_rows:
                raise GoldimaskError(
                    f"{error} (or set data.skip_bad_rows=true to skip and count such rows)"
                ) from error
            report.bad += 1
            if len(report.first_bad) < NAMED:
                report.first_bad.append(str(error))
            continue
        if example is None:
            continue
        count = seen.get(example.example_id, 0)
        seen[example.example_id] = count + 1
        if count:
            repeated = content_id(str(example.example_id), str(count))
            example = replace(example, example_id=repeated)
        if classes is not None:
            example = replace(example, classes=classes.of(row.values, example, renderer).tolist())
        examples.append(example)
    if not examples:
        raise GoldimaskError("data: no usable rows: " + "; ".join(report.lines()))
    return examples, report


def _rows(
    rows: str | Path | Iterable[Row | Mapping[str, Any]], limit: int | None, seed: int
) -> Iterable[Row]:
    if isinstance(rows, str | Path):
        return named_rows(rows, limit, seed)
    given = (r if isinstance(r, Row) else Row(f"row {i}", r) for i, r in enumerate(rows))
    return islice(given, limit)


# --- sets of examples ----------------------------------------------------------------------------


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
