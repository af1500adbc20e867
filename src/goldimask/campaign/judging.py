"""What a cell is asked, as calls of `goldimask eval`, and whether it has answered.

A section becomes one call per shard, and one more for thresholds that take fewer problems. A call
that ended well leaves a receipt in the evaluation's folder, `done-REQUEST.json`; the request is a
hash of everything that the answers depend on beside the model, the versions of the tasks among it.
Without a receipt the answers are counted, so that a call typed by hand counts as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from goldimask.campaign.settings import Campaign, Cell, JudgingSection
from goldimask.files import write_json
from goldimask.records import Outcome, Trial, digest, read_manifest, read_outcomes

if TYPE_CHECKING:
    from goldimask.eval.tasks import Task

Wanted = tuple[str, int, int, float | None]  # task, length, sampling seed, threshold


@dataclass(frozen=True)
class Evaluation:
    """One call: thresholds with the same number of problems, one shard of them."""

    judging: JudgingSection
    tasks: tuple[str, ...]
    taus: tuple[float, ...]
    problems: int | None
    first: int  # problems first, first + every, ...
    every: int

    @property
    def name(self) -> str:
        """What tells the calls of a cell apart, for people."""
        taus = [f"{tau:g}" for tau in self.taus]
        some = "+".join(self.tasks) if len(self.tasks) < 3 else str(len(self.tasks))
        shard = [f"{self.first}of{self.every}"] if self.every > 1 else []
        return "-".join(["eval", some, *taus, *shard])

    @property
    def decoder(self) -> str | None:
        return self.judging.decoder or ("threshold" if self.taus else None)

    def words(self, model: str, out: Path) -> list[str]:
        """As one would type them after `goldimask`."""
        j = self.judging
        words = ["eval", model, "--tasks", ",".join(self.tasks)]
        lengths = [f"{task}={n}" if task else str(n) for task, ns in j.lengths.items() for n in ns]
        options = {
            "--lengths": ",".join(lengths),
            "--decoder": self.decoder,
            "--tau": ",".join(f"{tau:g}" for tau in self.taus),
            "--block": j.block,
            "--temperature": j.temperature,
            "--seeds": ",".join(map(str, range(j.samples))) if j.samples else None,
            "--protocol": None if j.protocol == "fixed" else j.protocol,
            "--limit": self.problems,
            "--data": j.data,
            "--batch-size": j.batch_size,
            "--out": out,
            "--shard": f"{self.first}/{self.every}" if self.every > 1 else None,
        }
        for option, value in options.items():
            words += [option, str(value)] if value not in (None, "") else []
        return words

    @property
    def runs_code(self) -> bool:
        from goldimask.eval.tasks import accepted

        return any(accepted(task, {"allow_code_execution": True}) for task in self.tasks)

    @property
    def request(self) -> str:
        j = self.judging
        rules = [(name, task_of(name, j.protocol).version, j.protocol) for name in self.tasks]
        ways = [
            self.decoder,
            self.taus,
            j.block,
            j.temperature,
            j.samples,
            sorted(j.lengths.items()),
        ]
        return digest([rules, ways, j.data, self.problems, self.first, self.every])

    def receipt(self, folder: Path) -> Path:
        return folder / f"done-{self.request}.json"

    def sign(self, folder: Path) -> None:
        """Leave the receipt of a call that ended well."""
        write_json(self.receipt(folder), {"call": self.name, "answers": self.answers(folder)[0]})

    def done(self, folder: Path) -> bool:
        """Whether every problem of the share has its answer."""
        if read_manifest(folder) is None:
            return False
        if self.receipt(folder).is_file():
            return True
        found, wanted = self.answers(folder)
        return bool(wanted) and found == wanted

    def answers(self, folder: Path) -> tuple[int, int | None]:
        """(how many are there, how many there should be); None where nobody can tell.

        Fewer problems on disk than asked for may be all there are: the command knows, not we.
        """
        manifest = read_manifest(folder)
        trials = {} if manifest is None else {t.place: t for t in manifest.trials}
        sizes = {
            (t.task, t.length, t.seed, tau(t)): t.items for t in trials.values() if self.way(t)
        }
        places = list(self.places())
        if any(sizes.get(place, -1) < (self.problems or 0) for place in places):
            return 0, None
        counts = Counter(
            (o.task, o.length, o.seed, tau(o)) for o in self.own(folder) if self.judged(o)
        )
        wanted = {p: len(range(self.first, self.problems or sizes[p], self.every)) for p in places}
        return sum(min(counts[p], n) for p, n in wanted.items()), sum(wanted.values())

    def own(self, folder: Path) -> Iterator[Outcome]:
        """Answers in a folder that this call asked for."""
        places = set(self.places())
        for o in read_outcomes(folder).values():
            mine = o.index % self.every == self.first
            within = self.problems is None or o.index < self.problems
            if mine and within and self.way(o) and (o.task, o.length, o.seed, tau(o)) in places:
                yield o

    def way(self, found: Outcome | Trial) -> bool:
        """Whether an answer or a trial is of a task of this call, decoded as it says."""
        decoding, j = found.decoding, self.judging
        if found.task not in self.tasks:
            return False
        if decoding.decoder != (self.decoder or task_of(found.task, j.protocol).decoding.decoder):
            return False
        given = {"block": j.block, "temperature": j.temperature}
        return all(decoding.options.get(k) == v for k, v in given.items() if v is not None)

    def judged(self, outcome: Outcome) -> bool:
        rule = task_of(outcome.task, self.judging.protocol)
        return (outcome.version, outcome.protocol) == (rule.version, rule.protocol)

    def places(self) -> Iterator[Wanted]:
        """Every task, length, sampling seed and threshold."""
        for name in self.tasks:
            task = task_of(name, self.judging.protocol)
            lengths = self.judging.lengths
            sizes = lengths.get(name) or lengths.get("") or (task.length,)
            for length in sizes:
                for seed in range(self.judging.samples or task.samples):
                    for threshold in self.taus or (None,):
                        yield name, length, seed, threshold


def tau(found: Outcome | Trial) -> float | None:
    """The threshold of an answer or a trial."""
    value = found.decoding.options.get("tau")
    return float(value) if isinstance(value, int | float) else None


@cache
def task_of(name: str, protocol: str) -> Task:
    from goldimask.eval.tasks import accepted, get_task

    return get_task(name, **accepted(name, {"protocol": protocol}))


def evaluations(campaign: Campaign, cell: Cell) -> list[Evaluation]:
    """The calls of a cell: the main threshold, others where they take fewer problems, by shard."""
    judging = campaign.judging
    if judging is None:
        return []
    groups: dict[int | None, list[float]] = {}
    for threshold in sorted(judging.taus):
        groups.setdefault(problems_at(judging, threshold), []).append(threshold)
    groups = groups or {judging.problems: []}
    first, every = (
        (campaign.seeds.index(cell.seed), len(campaign.seeds)) if judging.spread else (0, 1)
    )
    return [
        Evaluation(
            judging, tasks_of(judging), tuple(taus), n, first + every * i, every * judging.shards
        )
        for n, taus in groups.items()
        for i in range(judging.shards)
    ]


def tasks_of(judging: JudgingSection) -> tuple[str, ...]:
    """Evaluation tasks by name."""
    if judging.tasks:
        return judging.tasks
    from goldimask.tiny.families import PROBLEM_FAMILIES

    return tuple(f"tiny-{name}" for name in PROBLEM_FAMILIES)


def problems_at(judging: JudgingSection, threshold: float) -> int | None:
    """Test problems per task at a threshold; None is all."""
    few = judging.sweep_problems
    if few is None or threshold == judging.main_tau:
        return judging.problems
    return few if judging.problems is None else min(few, judging.problems)
