"""What may stand in one table: evaluations of the same rules, on the same problems, all of them.

    protocol    one for the whole table               items    one set per task, over all lengths
    version     one per task                          seeds    one run per (row, panel, seed)
    name        one method per label                  answers  of every trial, task and sample, and
                                                               where the best length counts, of
                                                               every length that any row tried

Everything that is not so is listed in one error. With `allow_incomplete` missing answers are let
through, and the cells they concern are marked; the others never are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.eval.tasks import own_samples
from goldimask.records import Outcome, digest, unfinished
from goldimask.report.sources import Source
from goldimask.stats import by_decoding

Cells = set[tuple[str, str, str]]  # (label of the run, way of decoding, task)


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
        methods = by_value((s.label, digest(s.variant), s.method) for s in mine)
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
    protocols: dict[str, list[tuple[str, Hashable, str]]] = {}
    versions: dict[tuple[str, str], list[tuple[str, Hashable, str]]] = {}
    items: dict[tuple[str, str], list[tuple[str, Hashable, str]]] = {}
    for source in sources:
        manifest, outcomes = source.evaluation
        open_ = {t.place for t, _ in unfinished(manifest, outcomes)} if manifest else set()
        for way, answers in by_decoding(outcomes).items():
            trials: dict[Hashable, list[Outcome]] = {}
            for o in answers:
                protocols.setdefault(way, []).append((source.label, o.protocol, o.protocol))
                one = (source.label, o.version, o.version)
                versions.setdefault((way, o.task), []).append(one)
                if o.place not in open_:
                    trials.setdefault(o.place, []).append(o)
            for group in trials.values():
                asked = digest(sorted({(o.item, o.prompt) for o in group}))
                one = (source.label, asked, f"n = {len({o.item for o in group}):,}")
                items.setdefault((way, group[0].task), []).append(one)
    found = [told("protocol", way, x) for way, x in protocols.items()]
    found += [told(f"version of {task}", way, x) for (way, task), x in versions.items()]
    found += [told(f"problems of {task}", way, x) for (way, task), x in items.items()]
    return [line for line in found if line]


def incomplete(sources: Sequence[Source], best: bool = False) -> tuple[Cells, list[str]]:
    """Cells whose answers are not all there, and what is missing."""
    cells: Cells = set()
    found = []
    ways: dict[str, dict[str, set[int]]] = {}  # way -> task -> lengths that any row tried
    for source in sources:
        for o in source.outcomes:
            ways.setdefault(o.decoding.label, {}).setdefault(o.task, set()).add(o.length)
    for source in sources:
        manifest, outcomes = source.evaluation
        for trial, done in unfinished(manifest, outcomes) if manifest else ():
            way = trial.decoding.label
            cells.add((source.label, way, trial.task))
            where = f"{trial.task}, length {trial.length}, seed {trial.seed}, {way}"
            found.append(f"incomplete: {source.label}: {where}: {done} of {trial.items} answers")
        for way, answers in by_decoding(outcomes).items():
            for task, tried in ways[way].items():
                seeds = {(o.length, o.seed) for o in answers if o.task == task}
                if best and seeds and (untried := sorted(tried - {n for n, _ in seeds})):
                    cells.add((source.label, way, task))
                    words = ", ".join(map(str, untried))
                    found.append(
                        f"incomplete: {source.label}: {task}, {way}: length {words}, which others "
                        "tried, would count for the best one"
                    )
                wanted = own_samples(task)
                fewest = min((sum(n == x for n, _ in seeds) for x, _ in seeds), default=0)
                if fewest < wanted:
                    cells.add((source.label, way, task))
                    what = f"{fewest} of {wanted} samples" if fewest else "not evaluated"
                    found.append(f"incomplete: {source.label}: {task}, {way}: {what}")
    return cells, found


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
