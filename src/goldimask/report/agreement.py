"""What may stand in one table: evaluations of the same rules, on the same problems, all of them.

    protocol    one for the whole table               items    one set per task, over all lengths
    version     one per task                          seeds    one run per (row, panel, seed)
    name        one method per label                  answers  of every trial, task and sample, and
                                                               where the best length counts, of
                                                               every length that any row tried

The runs (seeds) of a row may divide the problems of a trial among them: answers to different
problems that together are all of them count as one complete trial. A task is missing where a run
has others of its family (`families`) in that way of decoding, and other runs of its panel have it.

Everything that is not so is listed in one error. With `allow_incomplete` missing answers are let
through, and the cells they concern are marked; the others never are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.eval.tasks import own_samples
from goldimask.records import Trial, digest, unfinished
from goldimask.report.sources import Place, Source
from goldimask.stats import by_decoding

FAMILIES = {"code": ("humaneval", "mbpp"), "aime": ("aime24", "aime25")}  # the others: main
Cells = set[tuple[str, str, str]]  # (label of the run, way of decoding, task)


def family(task: str) -> str:
    """Whose table a task belongs to."""
    name = task.removesuffix("-standard")
    return next((f for f, tasks in FAMILIES.items() if name in tasks), "main")


def agree(sources: Sequence[Source], allow_incomplete: bool = False, best: bool = False) -> None:
    """Refuse sources that cannot stand in one table.

    `best`: the table shows the best of several lengths, so all must have tried the same ones.
    """
    problems = [*same_names(sources), *same_rules(sources)]
    _, missing = incomplete(sources, best)
    if not allow_incomplete:
        problems += missing
    if problems:
        hint = "; --allow-incomplete shows what is unfinished, marked" if missing else ""
        raise GoldimaskError(
            "these evaluations cannot stand in one table:\n  "
            + "\n  ".join(problems)
            + f"\nevaluate them alike, or leave some out{hint}"
        )


def same_names(sources: Sequence[Source]) -> list[str]:
    """Labels that stand for several methods, and runs that are there twice."""
    found = []
    for name in dict.fromkeys(s.name for s in sources):
        mine = [s for s in sources if s.name == name]
        methods = by_value((s.label, s.exact or digest(s.variant), s.method) for s in mine)
        if len(methods) > 1:
            kinds = "; ".join(f"{method}: {', '.join(who)}" for method, who in methods.values())
            found.append(f"name '{name}' stands for several methods or settings: {kinds}")
        runs = by_value((s.label, (s.panel, s.draw), "") for s in mine)
        for (panel, draw), (_, who) in runs.items():
            if len(who) > 1:
                found.append(f"duplicate: {name}, {draw[:24]}, {panel}: {', '.join(who)}")
    return found


def same_rules(sources: Sequence[Source]) -> list[str]:
    """Protocols, versions of tasks and sets of problems that differ, per way of decoding."""
    protocols: dict[tuple[str, str], list[tuple[str, Hashable, str]]] = {}
    versions: dict[tuple[str, str], list[tuple[str, Hashable, str]]] = {}
    items: dict[tuple[str, str], list[tuple[str, Hashable, str]]] = {}
    for source in sources:
        for way, task, version, protocol in dict.fromkeys(
            (o.decoding.label, o.task, o.version, o.protocol) for o in source.outcomes
        ):
            protocols.setdefault((family(task), way), []).append((source.label, protocol, protocol))
            versions.setdefault((task, way), []).append((source.label, version, version))
    for (task, _, _, decoding), many in trials(sources).items():
        for parts in many:
            both = set().union(*parts.values()) if divided(parts) else None
            for label, asked in parts.items() if both is None else [(", ".join(parts), both)]:
                one = (label, digest(sorted(asked)), f"n = {len({i for i, _ in asked}):,}")
                items.setdefault((task, decoding.label), []).append(one)
    found = [told("protocol", way, x) for (_, way), x in protocols.items()]
    found += [told(f"version of {task}", way, x) for (task, way), x in versions.items()]
    found += [told(f"problems of {task}", way, x) for (task, way), x in items.items()]
    return [line for line in found if line]


def trials(sources: Sequence[Source]) -> dict[Place, list[dict[str, set[tuple[str, str]]]]]:
    """Trial -> what the runs of each row and panel were asked; without what is unfinished."""
    open_ = {(label, trial.place) for label, trial, _ in unfinished_trials(sources)}
    found: dict[Place, dict[tuple[str, str], dict[str, set[tuple[str, str]]]]] = {}
    for s in sources:
        for place, asked in s.asked.items():
            if (s.label, place) not in open_:
                found.setdefault(place, {}).setdefault((s.name, s.panel), {})[s.label] = asked
    return {place: list(rows.values()) for place, rows in found.items()}


def divided(parts: Mapping[str, set[Any]]) -> bool:
    """Whether no problem was given to two of several runs."""
    return len(parts) > 1 and len(set().union(*parts.values())) == sum(map(len, parts.values()))


def unfinished_trials(sources: Sequence[Source]) -> list[tuple[str, Trial, int]]:
    """(label, trial, answers) that lack answers, also together with the other runs of the row."""
    rows: dict[tuple[str, str], list[Source]] = {}
    for s in sources:
        rows.setdefault((s.name, s.panel), []).append(s)
    out = []
    for s in sources:
        manifest, outcomes = s.evaluation
        for trial, done in unfinished(manifest, outcomes) if manifest else ():
            row = rows[s.name, s.panel]
            parts = {x.label: x.asked.get(trial.place, set()) for x in row}
            if not (divided(parts) and sum(map(len, parts.values())) == trial.items):
                out.append((s.label, trial, done))
    return out


def incomplete(sources: Sequence[Source], best: bool = False) -> tuple[Cells, list[str]]:
    """Cells whose answers are not all there, and what is missing."""
    cells: Cells = set()
    found = []
    for label, trial, done in unfinished_trials(sources):
        cells.add((label, trial.decoding.label, trial.task))
        found.append(f"incomplete: {said(label, trial, done)}")
    lone = not any(s.run for s in sources)  # nothing but untuned models
    wanted: dict[tuple[str, str, str], dict[str, set[int]]] = {}  # -> task -> lengths tried
    for s in sources:
        for task, length, _, decoding in s.asked if s.run or lone else ():
            place = (s.panel if s.run else "", decoding.label, family(task))
            wanted.setdefault(place, {}).setdefault(task, set()).add(length)
    one = len({panel for panel, _, _ in wanted}) == 1
    for s in sources:
        for way, answers in by_decoding(s.outcomes).items():
            mine = {family(o.task) for o in answers}
            for (panel, at, kind), tasks in wanted.items():
                same = panel == s.panel if s.run else one or panel.split(" / ")[0] == s.backbone
                if (at, same) != (way, True) or kind not in mine:
                    continue
                for task, tried in tasks.items():
                    seeds = {(o.length, o.seed) for o in answers if o.task == task}
                    if best and seeds and (untried := sorted(tried - {n for n, _ in seeds})):
                        cells.add((s.label, way, task))
                        words = ", ".join(map(str, untried))
                        found.append(
                            f"incomplete: {s.label}: {task}, {way}: length {words}, which others "
                            "tried, would count for the best one"
                        )
                    samples = own_samples(task)
                    fewest = min((sum(n == x for n, _ in seeds) for x, _ in seeds), default=0)
                    if fewest < samples and (s.label, way, task) not in cells:
                        cells.add((s.label, way, task))
                        what = f"{fewest} of {samples} samples" if fewest else "not evaluated"
                        found.append(f"incomplete: {s.label}: {task}, {way}: {what}")
    return cells, found


def said(label: str, trial: Trial, done: int) -> str:
    place = f"{trial.task}, length {trial.length}, seed {trial.seed}, {trial.decoding.label}"
    return f"{label}: {place}: {done} of {trial.items} answers"


def by_value(triples: Iterable[tuple[str, Any, str]]) -> dict[Any, tuple[str, list[str]]]:
    """(who, value, shown) -> value: (shown, everyone who has it)."""
    out: dict[Any, tuple[str, list[str]]] = {}
    for who, value, shown in triples:
        names = out.setdefault(value, (shown, []))[1]
        if who not in names:
            names.append(who)
    return out


def told(what: str, way: str, triples: Iterable[tuple[str, Hashable, str]]) -> str:
    """`protocol (low-confidence block=32): fixed: a, b; lift: c`; nothing where all agree."""
    found = by_value(triples)
    if len(found) < 2:
        return ""
    return f"{what} ({way}): " + "; ".join(f"{x}: {', '.join(who)}" for x, who in found.values())
