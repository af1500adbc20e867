"""Questions of one's own: the task `file:test.jsonl`.

A row asks as a training row does (`data/shapes.py`), with its system turn if it has one. Its right
answer is the column `answer` (`gold`, `target`, `ground_truth`), else its response. A judge
decides; `--judge` names one for the file, a column `judge` one for the row:

    exact    the same text, spacing and a final full stop aside; of a list, one of them
    number   the last number, equal as a number
    choice   the letter of an option, such as B
    regex    the answer is a regular expression that is found in the response

The first three read what stands in the last <answer> block, else in the last \\boxed{}, else the
whole response. Without a word the judge is `number` where every answer is a number, `choice` where
every one is a letter, else `exact`. A judge of one's own is a function `(response, answer, row) ->
bool` that its module registers in `JUDGES`; it is named `module:function` and needs
`--allow-plugins`. A row may only name the four above: data runs no code.

The task's name and version hold a hash of the rows, so that answers to two states of a file never
mix; its version also says how it was judged, so that another judge judges again.
"""

from __future__ import annotations

import inspect
import json
import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from goldimask.data.rows import Row, read_rows
from goldimask.data.shapes import ASKED, asked, conversation
from goldimask.errors import GoldimaskError, short
from goldimask.eval import answers
from goldimask.eval.tasks.base import Item, Protocol, Task, Verdict
from goldimask.records import Decoding, text_hash
from goldimask.registry import Registry, is_plugin

PREFIX = "file:"
GOLDS = ("answer", "gold", "target", "ground_truth")
SECONDS = 2.0  # of a pattern
DECODING = Decoding(decoder="threshold", options={"block": 32, "tau": 0.9})
Judged = Callable[[str, Any, Mapping[str, Any]], bool]  # response, answer, row
JUDGES: Registry[Judged] = Registry("judge")


def own_task(place: str, protocol: Protocol = "fixed", judge: str | None = None) -> Task:
    """The questions of a file, judged as it, its rows or `judge` say."""
    path = place.removeprefix(PREFIX)
    rows = list(read_rows(path, key="--tasks file:"))
    if not rows:
        raise GoldimaskError(f"--tasks {place}: '{path}' holds no rows")
    content = text_hash(json.dumps([row.values for row in rows], sort_keys=True, default=str))
    read = [(row, asked(row), gold_of(row)) for row in rows]
    usual = judge or inferred([gold for _, _, gold in read])
    stem = re.sub(r"[^\w.-]+", "-", Path(path.rstrip("/")).name.partition(".")[0]) or "own"
    ids = [str(row.values.get("id", "")) for row in rows]
    numbered = not all(ids) or len(set(ids)) < len(ids)
    items, judges = [], set[str]()
    for i, (row, prompt, gold) in enumerate(read):
        name = judge_of(row, usual)
        check_gold(name, gold, row.where)
        judges.add(name)
        meta = {"judge": name, "row": row.values}
        items.append(Item(f"{stem}/{i}" if numbered else ids[i], prompt, gold, meta))
    how = ", ".join(sorted(judges))
    return Task(
        name=f"{stem}-{content[:6]}",
        version=f"{content}/{'+'.join(map(fingerprint, sorted(judges)))}",
        load=lambda source: items,
        extract=lambda text: answers.strip_tokens(text) or None,
        judge=judge_all,
        length=128,
        protocol=protocol,
        prepare=lambda: f"{len(items)} questions of {path}, judged by {how}",
        decoding=DECODING,
        at_hand=True,
    )


def gold_of(row: Row) -> Any:
    """The right answer of a row."""
    values = row.values
    names = [*GOLDS, *(name for answers in ASKED.values() for name in answers)]
    for name in names:
        if values.get(name) not in (None, ""):
            return values[name]
    turns = conversation(values, row.where) or []
    if turns and turns[-1]["role"] == "assistant":
        return turns[-1]["content"]
    raise GoldimaskError(f"{row.where}: no right answer; add a column 'answer'")


def judge_of(row: Row, usual: str) -> str:
    """The judge of a row: its own, or that of the file."""
    name = row.values.get("judge", usual)
    if name != usual and is_plugin(name):
        raise GoldimaskError(f"{row.where}: judge: a row names no code; use --judge {short(name)}")
    try:
        JUDGES.get(name, "--judge" if name == usual else "judge")
    except GoldimaskError as error:
        raise GoldimaskError(f"{row.where}: {error}" if name != usual else str(error)) from error
    return name


def inferred(golds: Sequence[Any]) -> str:
    texts = [str(gold).strip() for gold in golds]
    if all(re.fullmatch(r"[A-Z]", text) for text in texts):
        return "choice"
    whole = (answers.numbers(answers.plain(text)) for text in texts)
    same = all(
        len(found) == 1 and found[0] == answers.plain(text).replace(",", "")
        for found, text in zip(whole, texts, strict=True)
    )
    return "number" if same else "exact"


def check_gold(judge: str, gold: Any, where: str) -> None:
    """A right answer that its judge cannot read is a mistake of the file."""
    if judge == "number" and not answers.numbers(answers.plain(str(gold))):
        raise GoldimaskError(f"{where}: judge 'number': no number in the answer '{short(gold)}'")
    if judge == "choice" and not re.fullmatch(r"\s*\(?[A-Za-z]\)?\.?\s*", str(gold)):
        raise GoldimaskError(f"{where}: judge 'choice': '{short(gold)}' is not a letter")
    if judge == "regex":
        try:
            re.compile(str(gold))
        except re.error as error:
            raise GoldimaskError(
                f"{where}: judge 'regex': '{short(gold)}' is no regular expression ({error})"
            ) from error


def fingerprint(judge: str) -> str:
    """The name of a judge; of somebody's function, with a hash of its text."""
    if not is_plugin(judge):
        return judge
    try:
        return f"{judge}#{text_hash(inspect.getsource(JUDGES.get(judge)))[:8]}"
    except (OSError, TypeError):  # no text: its name has to do
        return judge


def judge_all(items: Sequence[Item], extracted: Sequence[str | None]) -> list[Verdict]:
    return [verdict(item, answer) for item, answer in zip(items, extracted, strict=True)]


def verdict(item: Item, response: str | None) -> Verdict:
    if response is None:
        return Verdict(False, "unparsable")
    name = item.meta["judge"]
    try:
        right = bool(JUDGES.get(name)(response, item.gold, item.meta["row"]))
    except TimeoutError:
        return Verdict(False, "timeout")
    except Exception as error:  # somebody else's code
        raise GoldimaskError(
            f"judge '{name}' failed on {item.id}: {type(error).__name__}: {short(str(error))}"
        ) from error
    return Verdict(right, "" if right else "wrong")


# --- judges --------------------------------------------------------------------------------------


def answer_part(response: str) -> str:
    """What stands in the last answer block, in the last box, or everywhere."""
    for found in (answers.answer_block(response, closed=False), answers.last_box(response)):
        if found:
            return found
    return response.strip()


@JUDGES.register("exact")
def exact(response: str, gold: Any, row: Mapping[str, Any]) -> bool:
    """The same text, spacing and a final full stop aside."""
    golds = gold if isinstance(gold, list) else [gold]
    return squeezed(answer_part(response)) in {squeezed(str(x)) for x in golds}


def squeezed(text: str) -> str:
    return " ".join(text.split()).removesuffix(".")


@JUDGES.register("number")
def number(response: str, gold: Any, row: Mapping[str, Any]) -> bool:
    """The last number, equal as a number."""
    found = answers.numbers(answers.plain(answer_part(response)))
    wanted = answers.numbers(answers.plain(str(gold)))
    return bool(found) and Decimal(found[-1]) == Decimal(wanted[-1])


@JUDGES.register("choice")
def choice(response: str, gold: Any, row: Mapping[str, Any]) -> bool:
    """The letter of an option."""
    part = answer_part(response)
    for pattern in (
        r"(?:answer|option|choice)(?:\s+is)?\s*:?\s*\(?([A-Za-z])\)?(?![\w'])",  # the answer is B
        r"\(([A-Za-z])\)",  # (B)
        r"^\s*([A-Za-z])(?:[.):,]|\s*$)",  # B. because
        r"(?<![\w'])([A-Z])(?![\w'])",  # any capital that stands alone
    ):
        if found := re.findall(pattern, part):
            return found[-1].upper() == str(gold).strip(" ().").upper()
    return False


@JUDGES.register("regex")
def regex(response: str, gold: Any, row: Mapping[str, Any]) -> bool:
    """The answer is a regular expression that is found in the response."""
    with within(SECONDS):
        return re.search(str(gold), response) is not None


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """End a pattern that goes back for ever; signals reach the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def expired(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, expired)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
