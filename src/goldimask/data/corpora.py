"""Named corpora and their formatting (LIFT's public protocol; baselines 1.5).

    user        FORMAT + two newlines + question         (the instruction sits in the user turn)
    assistant   <reasoning>trace</reasoning>
                <answer>answer</answer>                  (no newlines just inside the tags)

    corpus        trace                              answer
    s1k           thinking_trajectories[0]           attempt
    s1k-1.1       deepseek_thinking_trajectory       deepseek_attempt
    gsm8k         answer before ####                 answer after ####
    lift-sft-12k  thinking_trajectories[0] or none   sol; element 0 where it is a list
    kodcode       first gpt turn, think tags renamed r1_solution or solution

A corpus is fetched from the Hub with `datasets`, or read from `data.path`: a file or folder with
the same columns. A generated corpus is a function; its signature says which options it takes.

Deviations from the released code: a list-valued `sol` gives its first element instead of its
brackets; everything is a plain function of one row, so a bad row is named and can be counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from goldimask.data.rows import Row, read_rows
from goldimask.data.shapes import renaming
from goldimask.errors import GoldimaskError, short
from goldimask.keys import Keys, Stream
from goldimask.registry import Registry, import_target
from goldimask.settings import check, parameters

if TYPE_CHECKING:
    from goldimask.data.examples import Renderer
    from goldimask.types import Example

Columns = Mapping[str, Any]

FORMAT = (
    "\nRespond in the following format:\n"
    "<reasoning>\nYour reasoning here\n</reasoning>\n"
    "<answer>\n...\n</answer>\n"
)


@dataclass(frozen=True)
class Corpus:
    """Where the rows are, and how one becomes a prompt and a response."""

    hub: str
    format: Callable[[Columns], dict[str, Any]]
    subset: str | None = None
    split: str = "train"


@dataclass(frozen=True)
class TokenClasses:
    """Kinds of tokens that a corpus can tell apart, such as its wrong numbers.

    A corpus registered with `classes="module:attribute"` of such an object has the supervision of
    each kind logged by training.
    """

    names: tuple[str, ...]
    of: Callable[[Columns, Example, Renderer], np.ndarray]  # index into `names` of every token


CORPORA: Registry[Corpus | Callable[..., Iterable[Columns]]] = Registry("corpus")


def open_rows(
    corpus: str | None = None,
    path: str | None = None,
    *,
    split: str | None = None,
    subset: str | None = None,
    options: Mapping[str, Any] | None = None,
    columns: Mapping[str, str] | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> Iterator[Row]:
    """Rows of a named corpus, of a file, folder or Hub id, or of these in a corpus's format.

    `columns` says what the columns of a file are called (`shapes.py`).
    A generated corpus is drawn with `seed` and gives `limit` rows; `options` are those of its
    function, `seed` among them. Other corpora give their first `limit` rows.
    """
    if corpus is None and path is None:
        raise GoldimaskError(
            "data: give data.path (a file, a folder or a Hub id), data.corpus (a name) or "
            "data.mixture"
        )
    if columns and corpus is not None:
        raise GoldimaskError(f"data.columns: corpus '{corpus}' has its own; set data.corpus=null")
    found = None if corpus is None else CORPORA.get(corpus, "data.corpus")
    if callable(found):
        if path is not None:
            raise GoldimaskError(
                f"data.path: corpus '{corpus}' is generated and reads no file; set "
                "data.corpus=null to train on the file"
            )
        rows = _generated(str(corpus), found, options or {}, limit, seed)
    else:
        if options:
            raise GoldimaskError(
                f"data.options: only a generated corpus takes options, not '{corpus or path}'"
            )
        rows = _read(corpus, found, path, split, subset)
        if columns:
            renamed = renaming(columns)
            rows = (replace(row, format=renamed) for row in rows)
    return islice(rows, limit)


def named_rows(name: str | Path, limit: int | None = None, seed: int = 0) -> Iterator[Row]:
    """Rows of a corpus if there is one of the name, else of a file, folder or Hub id."""
    if str(name) in CORPORA:
        return open_rows(str(name), limit=limit, seed=seed)
    return open_rows(path=str(name), limit=limit)


def _generated(
    name: str,
    function: Callable[..., Iterable[Columns]],
    options: Mapping[str, Any],
    limit: int | None,
    seed: int,
) -> Iterator[Row]:
    given = {"seed": seed, **({"n": limit} if limit is not None else {})}
    known = {k: v for k, v in given.items() if k in parameters(function)}
    made = function(**{**known, **check(function, options, "data.options")})
    return (Row(f"corpus {name}: row {i}", row) for i, row in enumerate(made))


def _read(
    name: str | None, corpus: Corpus | None, path: str | None, split: str | None, subset: str | None
) -> Iterator[Row]:
    if corpus is None:
        return read_rows(str(path), split, subset)

    def formatted(row: Any) -> dict[str, Any]:
        if not isinstance(row, Mapping):
            raise GoldimaskError(f"a row of corpus '{name}' is an object")
        try:
            return corpus.format(row)
        except GoldimaskError as error:
            raise GoldimaskError(f"corpus '{name}': {error}") from error
        except (AttributeError, TypeError, ValueError, KeyError) as error:
            reason = f"a column is not what the corpus has there ({short(str(error))})"
            raise GoldimaskError(f"corpus '{name}': {reason}") from error

    subset = subset or (corpus.subset if path is None else None)
    rows = read_rows(path or corpus.hub, split or corpus.split, subset)
    return (replace(row, format=formatted) for row in rows)


def token_classes(corpus: str | None) -> TokenClasses | None:
    """The kinds of tokens that a named corpus tells apart, if it does."""
    target = None if corpus is None else CORPORA.entry(corpus, "data.corpus").info.get("classes")
    return import_target(target) if isinstance(target, str) else target


def mix(
    parts: Sequence[Iterable[Row]], weights: Sequence[float], size: int | None, seed: int
) -> list[Row]:
    """n_i = round(N w_i / sum w) rows of part i, in an order drawn from the seed.

    N is `size`, or the largest number that repeats no row.
    """
    total = sum(weights)
    if not total > 0 or min(weights) < 0:
        raise GoldimaskError(f"data.mixture: weights {list(weights)} must be positive")
    shares = [w / total for w in weights]
    read = [list(part) for part in parts]
    if size is None:
        size = int(min(len(p) / s for p, s in zip(read, shares, strict=True) if s > 0))
    chosen: list[Row] = []
    for number, (part, share) in enumerate(zip(read, shares, strict=True)):
        rng = Keys(seed).rng(number, Stream.SPLIT)
        wanted, order = round(size * share), []
        while len(order) < wanted and part:  # a small part is repeated, in a new order
            order += rng.permutation(len(part)).tolist()
        chosen += [part[i] for i in order[:wanted]]
    rng = Keys(seed).rng(len(parts), Stream.SPLIT)
    return [chosen[i] for i in rng.permutation(len(chosen))]


# --- formatting ----------------------------------------------------------------------------------


def tagged(question: str, trace: str, answer: str) -> dict[str, Any]:
    """A row in the tags' format."""
    return {
        "prompt": f"{FORMAT}\n\n{question}",
        "response": f"<reasoning>{trace}</reasoning>\n<answer>{answer}</answer>",
    }


def column(row: Columns, name: str) -> Any:
    """A column that must be there."""
    if row.get(name) is None:
        raise GoldimaskError(
            f"column '{name}' is missing; found: {', '.join(sorted(map(str, row)))}"
        )
    return row[name]


def text(row: Columns, name: str) -> str:
    """A column as text; of a list, its first element."""
    return str(first(column(row, name), name))


def first(value: Any, name: str) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        if not value:
            raise GoldimaskError(f"column '{name}' is an empty list")
        return value[0]
    return value


def s1k(row: Columns) -> dict[str, Any]:
    return tagged(text(row, "question"), text(row, "thinking_trajectories"), text(row, "attempt"))


def s1k_11(row: Columns) -> dict[str, Any]:
    trace = text(row, "deepseek_thinking_trajectory")
    return tagged(text(row, "question"), trace, text(row, "deepseek_attempt"))


def gsm8k(row: Columns) -> dict[str, Any]:
    trace, sign, answer = text(row, "answer").partition("####")
    if not sign:
        raise GoldimaskError("column 'answer' has no '####' before the final number")
    return tagged(text(row, "question"), trace.strip(), answer.strip())


def lift_12k(row: Columns) -> dict[str, Any]:
    traces = row.get("thinking_trajectories")
    trace = str(first(traces, "thinking_trajectories")) if traces else ""
    return tagged(text(row, "question"), trace, text(row, "sol"))


def kodcode(row: Columns) -> dict[str, Any]:
    """A conversation whose answer is a program."""
    turns = row.get("conversations") or []
    said = {"human": "", "gpt": ""}
    for turn in turns:
        speaker = turn.get("from")
        if speaker in said and not said[speaker]:
            said[speaker] = str(turn.get("value") or "").strip()
    question = said["human"] or text(row, "question").strip()
    response = said["gpt"].replace("<think>", "<reasoning>").replace("</think>", "</reasoning>")
    if _has(response, "reasoning") and _has(response, "answer"):
        return {"prompt": f"{FORMAT}\n\n{question}", "response": response}
    solution = str(row.get("r1_solution") or row.get("solution") or "").strip()
    if not solution:
        raise GoldimaskError("neither 'r1_solution' nor 'solution' holds an answer")
    if _has(response, "reasoning"):
        closed = f"{response}\n<answer>{solution}</answer>"
        return {"prompt": f"{FORMAT}\n\n{question}", "response": closed}
    return tagged(question, response, solution)


def _has(response: str, tag: str) -> bool:
    return f"<{tag}>" in response and f"</{tag}>" in response


CORPORA.add("s1k", Corpus("simplescaling/s1K", s1k), summary="s1K, 1,000 reasoning traces")
CORPORA.add("s1k-1.1", Corpus("simplescaling/s1K-1.1", s1k_11), summary="s1K-1.1, DeepSeek traces")
CORPORA.add(
    "lift-sft-12k", Corpus("divelab/LIFT-SFT-12K", lift_12k), summary="LIFT-SFT-12K, mathematics"
)
CORPORA.add(
    "gsm8k", Corpus("openai/gsm8k", gsm8k, subset="main"), summary="GSM8K, grade-school mathematics"
)
CORPORA.add(
    "kodcode", Corpus("KodCode/KodCode-Light-RL-10K", kodcode), summary="KodCode-Light-RL-10K, code"
)
