"""The whole job once, small: a campaign of the embedded backbone, and a page about it.

    base -> Vanilla, GoldiMask-D, GoldiMask-D above a floor     same start, examples and noise
    each evaluated: accuracy per task, mean decoding steps, held-out denoising loss, and what was
    gained over the base on the same problems, of what is taught and of what is kept

Cells are keyed by their settings and weights, so that a part that has not changed is reused and
another seed shows its own results. What the table shows is what was measured, whichever way it
points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldimask.bootstrap import paired
from goldimask.campaign.grid import Finished, Place, finished
from goldimask.campaign.reading import load_campaign
from goldimask.campaign.run import Tell, make_plan, run_campaign
from goldimask.campaign.settings import BASE, Campaign
from goldimask.errors import RunFailed
from goldimask.files import write_json
from goldimask.stats import aggregate
from goldimask.tiny.skills import ROLES


@dataclass(frozen=True)
class Shown:
    """A model of the demo: where it is, and what it scored."""

    row: str
    place: Place
    cell: Finished


def demo(
    folder: Path,
    words: Sequence[str] = (),
    tell: Tell = lambda ended, done, total: None,
    say: Callable[[str], None] = lambda line: None,
    **how: Any,  # of `run_campaign`
) -> dict[str, Any]:
    """Train, evaluate, write the pages; returns the figures and where the pages are."""
    campaign = load_campaign("skills", "demo", words)
    plan = make_plan([campaign], folder)
    reused = len(plan.done)
    if reused:
        say(f"reusing {reused} of {len(campaign.rows)} models in {folder}")
    progress = run_campaign([campaign], folder, tell=tell, plan=plan, retry=True, **how)
    if progress.failed:
        name, error = next(iter(progress.failed.items()))
        raise RunFailed(f"{name}: {error}")
    models = [
        Shown(place.cell.row, place, cell) for place in plan.places if (cell := finished(place))
    ]
    results = {model.row: result_of(model, models) for model in models}
    write_json(folder / "results.json", {"settings": settings_of(campaign), "results": results})
    from goldimask.campaign.demo_page import write_demo_page, write_demo_report

    page = write_demo_page(folder / "demo.html", folder, models, results, campaign)
    report = write_demo_report(folder / "report.html", folder, models, page)
    paths = {"page": str(page), "report": str(report), "folder": str(folder)}
    return {"results": results, **paths}


def settings_of(campaign: Campaign) -> dict[str, Any]:
    """What decides the demo's numbers, in a few words."""
    judging = campaign.judging
    assert judging is not None
    return {
        "recipe": campaign.recipe,
        "seed": campaign.seeds[0],
        "problems": judging.problems,
        "tau": judging.main_tau,
        "block": judging.block,
    }


def result_of(model: Shown, models: Sequence[Shown]) -> dict[str, Any]:
    """Accuracy and steps per task and on average, with the held-out denoising loss."""
    found = aggregate(model.cell.outcomes)
    tasks = {result.task.removeprefix("tiny-"): result.to_json() for result in found}
    return {
        "tasks": tasks,
        "accuracy": sum(t["accuracy"] for t in tasks.values()) / len(tasks),
        "steps": sum(t["steps"] for t in tasks.values()) / len(tasks),
        "heldout": heldout(model, models),
        "roles": roles_of(tasks),
        "gains": {} if model is models[0] else gains(models[0], model),
    }


def roles_of(tasks: Mapping[str, Any]) -> dict[str, float]:
    """Mean accuracy of the tasks of a role, of the roles that have some."""
    found = {role: [tasks[n]["accuracy"] for n in of if n in tasks] for role, of in ROLES.items()}
    return {role: sum(some) / len(some) for role, some in found.items() if some}


def gains(base: Shown, model: Shown) -> dict[str, list[float]]:
    """Points over the base on the same problems, with a 95 % interval over them, by role."""
    out = {}
    for role, names in ROLES.items():
        sides = [
            [o for o in m.cell.outcomes if o.task.removeprefix("tiny-") in names]
            for m in (base, model)
        ]
        if all(sides):
            found = paired([sides[0]], [sides[1]]).average
            out[role] = [found.value, found.low, found.high]
    return out


def heldout(model: Shown, models: Sequence[Shown]) -> float:
    """From the run's own validation; of the base, what a training began with."""
    if model.row != BASE:
        return model.cell.facts["eval_loss_last"]
    return next(m for m in models if m.row != BASE).cell.facts["eval_loss_first"]
