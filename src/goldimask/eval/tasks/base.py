"""What an evaluation task is: load, prompt, extract, judge.

    items     = task.load(source)                 # Item(id, prompt, gold, meta)
    text      = decode(prompt(item) + prefill)
    extracted = task.extract(text)                # None when nothing can be read out of the text
    verdict   = task.check(item, extracted)

A task is a frozen record of functions. `TASKS` holds one factory per task; the factory's keyword
arguments are the task's options. Every factory of a benchmark takes `protocol`: `fixed` is the
project's corrected reading of an answer, `lift` the as-released one (D15, docs/decisions.md). A
task names the decoder and the number of samples it is published with. Judging is done on lists, so
that a task may spread it over processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from goldimask.records import Decoding
from goldimask.registry import Registry

if TYPE_CHECKING:
    from goldimask.eval.sandbox import Program

Protocol = Literal["fixed", "lift"]
Prompt = str | list[dict[str, str]]  # a user turn, or messages
PUBLISHED = Decoding(decoder="low-confidence", options={"block": 32})  # two tokens a step


@dataclass(frozen=True)
class Item:
    """One problem of a test set. `prompt` is the user turn, or all turns before the answer."""

    id: str
    prompt: Prompt
    gold: Any
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What a check says. Partial credit (Sudoku's cells) is `hits` out of `of`."""

    correct: bool
    detail: str = ""  # why not, in a word or two: 'wrong value', 'timeout', 'unparsable'
    hits: float = 0.0
    of: float = 0.0  # zero when the task gives no partial credit


Judge = Callable[[Sequence[Item], Sequence[str | None]], list[Verdict]]


@dataclass(frozen=True)
class Task:
    """A benchmark in the form the runner needs."""

    name: str
    version: str  # changes whenever prompt, extraction or check change
    load: Callable[[Path | str | None], list[Item]]
    extract: Callable[[str], str | None]
    judge: Judge
    length: int  # of the fixed-length table
    lengths: tuple[int, ...] = ()  # among which the published tables choose the best
    prefill: str = ""  # text put at the start of the response
    protocol: Protocol = "fixed"
    metric: str = "accuracy"  # name of the headline figure
    prepare: Callable[[], str] | None = None  # what must work before any decoding; says what is set
    raw: bool = False  # judge the text with its special tokens, as the published protocol does
    decoding: Decoding = PUBLISHED  # used unless the caller names another
    samples: int = 1  # per problem, with seeds 0, 1, ...: published as pass@k
    credits: Callable[[Item], float] | None = None  # partial credits an item holds (Sudoku's cells)
    program: Callable[[Item, str], Program | str] | None = None  # what is run; or why nothing is
    row: Callable[[Mapping[str, Any], int], Item] | None = None  # a row of the test set -> Item
    at_hand: bool = False  # its problems come with it: there is no test set to look for
    # stored generations of another harness: (row as read, position) -> Item, None if not its kind
    stored: Callable[[Mapping[str, Any], int], Item | None] | None = None

    def prompt(self, item: Item) -> Prompt:
        """What is asked."""
        return item.prompt

    def check(self, item: Item, extracted: str | None) -> Verdict:
        """Judge one answer."""
        return self.judge_all([item], [extracted])[0]

    def judge_all(self, items: Sequence[Item], extracted: Sequence[str | None]) -> list[Verdict]:
        """Judge many; an unparsable answer earns none of the credits its item holds."""
        verdicts = self.judge(items, extracted)
        if self.credits is None:
            return verdicts
        return [
            v if v.of else replace(v, of=self.credits(item))
            for item, v in zip(items, verdicts, strict=True)
        ]


TASKS: Registry[Callable[..., Task]] = Registry("task")


def each(check: Callable[[Item, str], Verdict | bool]) -> Judge:
    """A judge that looks at one answer at a time; an answer that was not found is wrong."""

    def judge(items: Sequence[Item], extracted: Sequence[str | None]) -> list[Verdict]:
        verdicts = []
        for item, answer in zip(items, extracted, strict=True):
            verdict = Verdict(False, "unparsable") if answer is None else check(item, answer)
            if isinstance(verdict, bool):
                verdict = Verdict(verdict, "" if verdict else "wrong")
            verdicts.append(verdict)
        return verdicts

    return judge


def reasoned(
    name: str,
    length: int,
    protocol: Protocol,
    rows: Callable[[Path | str | None], list[Mapping[str, Any]]],
    item_of: Callable[[Mapping[str, Any], int], Item],
    extract: Callable[[str], str | None],
    check: Callable[[Item, str], Verdict | bool],
    stored: Callable[[Mapping[str, Any], int], Item | None],
) -> Task:
    """A test set answered after `<reasoning>`, one answer judged at a time."""
    return Task(
        name=name,
        version="1",
        load=lambda source: [item_of(row, i) for i, row in enumerate(rows(source))],
        extract=extract,
        judge=each(check),
        length=length,
        lengths=(128, 256, 512),
        prefill="<reasoning>",
        protocol=protocol,
        raw=True,
        row=item_of,
        stored=stored,
    )
