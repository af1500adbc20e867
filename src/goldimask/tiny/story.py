"""Word problems: two people, a few days of buying, losing and giving, and a question.

    tom has 7 apples and ann has 9. monday tom buys 5. tuesday ann gives 3 to tom.
    how many has tom in the end?

Each line of the trace restates the event of a day and what both people have afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from goldimask.tiny.problem import Draft, Level, Sizes, Task, pick

NAMES = ("tom", "ann", "sam", "eva", "max", "zoe", "leo", "mia", "ben", "ida", "tim", "joy")
THINGS = ("apples", "books", "coins", "stones", "shells", "cards", "pears", "pens")
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
VERBS = ("buys", "loses", "gives")
SIZES = Sizes(easy=(1, 4), hard=(3, 5), shifted=(3, 4))
# lowest and highest start, largest change, most that one person can have
NARROW = (2, 12, 5, 19)  # small, so that every sum is seen often
WIDE = (3, 20, 9, 49)


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
    low, high, change, most = WIDE if level.wide else NARROW
    start = (int(rng.integers(low, high + 1)), int(rng.integers(low, high + 1)))
    have, events, lines = start, [], []
    for day in DAYS[:count]:
        event = draw_event(rng, have, change, most)
        have = happen(have, event)
        events.append(event)
        lines.append(line(day, event, names, have, level.response_style))
    question = ("one", "other", "total")[int(rng.integers(3))]
    answer = {"one": have[0], "other": have[1], "total": sum(have)}[question]
    lines.append(conclusion(question, names, have, level.response_style))
    content = " ".join([str(start), question, *(f"{e.who}{e.verb}{e.amount}" for e in events)])
    text = prompt(names, thing, start, events, question, level.prompt_style)
    return Draft(content, text, tuple(lines), str(answer))


def draw_event(rng: np.random.Generator, have: tuple[int, int], change: int, most: int) -> Event:
    """An event that leaves both people between 0 and `most`."""
    while True:
        who, verb = int(rng.integers(2)), VERBS[int(rng.integers(3))]
        event = Event(who, verb, int(rng.integers(1, change + 1)))
        if all(0 <= n <= most for n in happen(have, event)):
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
    if style == 0:
        return f"{day}: {deed(event, names)}, {names[0]} has {have[0]}, {names[1]} has {have[1]}"
    after = f"{names[0]} has {have[0]} and {names[1]} has {have[1]}"
    return f"after {day} {after}, as {deed(event, names)}."


def conclusion(question: str, names: tuple[str, ...], have: tuple[int, int], style: int) -> str:
    opening = "end:" if style == 0 else "in the end"
    close = "" if style == 0 else "."
    if question == "total":
        return f"{opening} {have[0]} + {have[1]} = {sum(have)}{close}"
    who = 0 if question == "one" else 1
    return f"{opening} {names[who]} has {have[who]}{close}"


def prompt(
    names: tuple[str, ...],
    thing: str,
    start: tuple[int, int],
    events: list[Event],
    question: str,
    style: int,
) -> str:
    days = ". ".join(f"{day} {deed(e, names)}" for day, e in zip(DAYS, events, strict=False))
    who = {"one": names[0], "other": names[1], "total": "both"}[question]
    if style == 0:
        return f"{names[0]} has {start[0]}. {names[1]} has {start[1]}. {days}. {who}?"
    return (
        f"{names[0]} has {start[0]} {thing} and {names[1]} has {start[1]}. "
        f"{days}. how many has {who} in the end?"
    )


TASK = Task(
    name="story",
    summary="A word problem about two people over 3-4 days.",
    draft=draft,
    words=(
        *(*NAMES, *THINGS, *DAYS, *VERBS),
        *("has", "to", "end", "after", "and", "as", "in", "the", "how", "many", "both"),
    ),
)
