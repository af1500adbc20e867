"""Word problems: two people, a few days of buying, losing and giving, and a question.

    tom has 7 apples and ann has 9. monday tom buys 5. tuesday ann gives 3 to tom.
    how many has tom in the end?

Each line of the trace restates the event of a day and says what both people have afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from goldimask.tiny.arithmetic import LARGEST, LIMIT
from goldimask.tiny.problem import Draft, Level, ProblemFamily, Sizes, pick

NAMES = ("tom", "ann", "sam", "eva", "max", "zoe", "leo", "mia", "ben", "ida", "tim", "joy")
THINGS = ("apples", "books", "coins", "stones", "shells", "cards", "pears", "pens")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
VERBS = ("buys", "loses", "gives")
SIZES = Sizes(easy=(1, 4), hard=(3, 6), shifted=(6, 6))
LOW, HIGH = 2, 12  # what a person has at first


@dataclass(frozen=True)
class Event:
    """`who` (0 or 1) does something with `amount` things; giving goes to the other person."""

    who: int
    verb: str
    amount: int


def draft(rng: np.random.Generator, level: Level) -> Draft:
    count = pick(rng, SIZES, level)
    names = tuple(NAMES[i] for i in rng.choice(len(NAMES), 2, replace=False))
    thing = THINGS[int(rng.integers(len(THINGS)))]
    start = (int(rng.integers(LOW, HIGH + 1)), int(rng.integers(LOW, HIGH + 1)))
    have, events, lines = start, [], []
    for day in DAYS[:count]:
        event = draw_event(rng, have)
        have = happen(have, event)
        events.append(event)
        lines.append(line(day, event, names, have, level.response_style))
    asked = int(rng.integers(2))
    lines.append(conclusion(names[asked], have[asked], level.response_style))
    content = " ".join([str(start), str(asked), *(f"{e.who}{e.verb}{e.amount}" for e in events)])
    text = prompt(names, thing, start, events, asked, level.prompt_style)
    return Draft(content, text, tuple(lines), str(have[asked]))


def draw_event(rng: np.random.Generator, have: tuple[int, int]) -> Event:
    """An event that leaves both people within the limits."""
    while True:
        who, verb = int(rng.integers(2)), VERBS[int(rng.integers(3))]
        event = Event(who, verb, int(rng.integers(1, LARGEST + 1)))
        if all(0 <= n < LIMIT for n in happen(have, event)):
            return event


def happen(have: tuple[int, int], event: Event) -> tuple[int, int]:
    after = list(have)
    after[event.who] += event.amount if event.verb == "buys" else -event.amount
    if event.verb == "gives":
        after[1 - event.who] += event.amount
    return after[0], after[1]


def deed(event: Event, names: tuple[str, ...]) -> str:
    target = f" to {names[1 - event.who]}" if event.verb == "gives" else ""
    return f"{names[event.who]} {event.verb} {event.amount}{target}"


def line(day: str, event: Event, names: tuple[str, ...], have: tuple[int, int], style: int) -> str:
    """What happened, and what both have afterwards, in the order of the prompt."""
    if style == 0:
        return f"{day} {deed(event, names)}: {have[0]} {have[1]}"
    return f"after {day}, as {deed(event, names)}, {have[0]} and {have[1]}."


def conclusion(name: str, have: int, style: int) -> str:
    return f"end: {name} has {have}" if style == 0 else f"in the end {name} has {have}."


def prompt(
    names: tuple[str, ...],
    thing: str,
    start: tuple[int, int],
    events: list[Event],
    asked: int,
    style: int,
) -> str:
    days = ". ".join(f"{day} {deed(e, names)}" for day, e in zip(DAYS, events, strict=False))
    who = names[asked]
    if style == 0:
        return f"{names[0]} has {start[0]}. {names[1]} has {start[1]}. {days}. {who}?"
    return (
        f"{names[0]} has {start[0]} {thing} and {names[1]} has {start[1]}. "
        f"{days}. how many has {who} in the end?"
    )


FAMILY = ProblemFamily(
    name="story",
    summary="A word problem about two people over six days.",
    draft=draft,
    words=(
        *(*NAMES, *THINGS, *DAYS, *VERBS),
        *("has", "to", "end", "after", "and", "as", "in", "the", "how", "many"),
    ),
)
