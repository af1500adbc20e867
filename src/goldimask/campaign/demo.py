"""The whole job once, small: fine-tune the embedded backbone two ways and compare.

    base -> Vanilla, base -> GoldiMask-D     same start, same examples, same noise (paired by keys)
    each evaluated: accuracy per task, mean decoding steps, held-out denoising loss

Everything lands in one folder. A part whose settings have not changed is reused when the demo is
run again. What the table shows is what was measured, whichever way it points.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from goldimask.config import Recipe, load_recipe, recipe_dict
from goldimask.files import write_json
from goldimask.keys import content_id
from goldimask.records import open_run, read_manifest

METHODS = ("vanilla", "goldimask-d")


@dataclass(frozen=True)
class DemoSettings:
    """What decides the demo's numbers."""

    recipe: str = "tiny"
    seed: int = 42
    problems: int = 40  # test problems per task
    length: int = 128
    tau: float = 0.9
    block: int = 32
    overrides: tuple[str, ...] = ()


def demo(
    folder: Path, settings: DemoSettings, say: Callable[[str], None], bars: bool = True
) -> dict[str, Any]:
    """Train, evaluate, write the page; returns the figures and the path of the page."""
    from goldimask.backbones import load_backbone

    runs = {"base": "tiny"}
    for name in METHODS:
        runs[name] = str(trained(folder / name, name, settings, say))
    results: dict[str, Any] = {}
    for name, where in runs.items():
        results[name] = scored(
            folder, name, where, settings, lambda w=where: load_backbone(w), say, bars
        )
    attach_losses(results, folder)
    write_json(folder / "results.json", {"settings": asdict(settings), "results": results})
    from goldimask.campaign.demo_page import write_demo_page, write_demo_report

    page = write_demo_page(folder / "demo.html", folder, runs, results, settings)
    report = write_demo_report(folder / "report.html", folder, page)
    paths = {"page": str(page), "report": str(report), "folder": str(folder)}
    return {"results": results, **paths}


def trained(run: Path, preset: str, settings: DemoSettings, say: Callable[[str], None]) -> Path:
    """The run folder of one method, trained now unless the same run is already there."""
    recipe = recipe_for(run, preset, settings)
    made = read_manifest(run)
    if made is not None:
        if made.facts["recipe"] == recipe_dict(recipe):
            say(f"[dim]{preset}: reusing {run}[/dim]")
            return run
        say(f"{preset}: settings changed, training again")
        shutil.rmtree(run)
    shutil.rmtree(run.with_name(run.name + ".partial"), ignore_errors=True)
    from goldimask.train.run import train

    say(f"[bold]{preset}[/bold]: fine-tuning the embedded backbone")
    train(recipe, say=lambda line: say(f"  {line}"))
    return run


def recipe_for(run: Path, preset: str, settings: DemoSettings) -> Recipe:
    words = [f"method.preset={preset}", f"output={run}", f"seed={settings.seed}"]
    return load_recipe(settings.recipe, [*words, *settings.overrides])


def scored(
    folder: Path,
    name: str,
    where: str,
    settings: DemoSettings,
    load: Callable[[], Any],
    say: Callable[[str], None],
    bars: bool,
) -> dict[str, Any]:
    """Accuracy and steps of one model on every tiny task, from the cache when nothing changed."""
    from goldimask.console import progress
    from goldimask.eval.run import evaluate
    from goldimask.tiny.families import PROBLEM_FAMILIES

    tasks = [f"tiny-{family}" for family in PROBLEM_FAMILIES]
    file = folder / "eval" / f"{name}.json"
    key = fingerprint(where, settings)
    if file.is_file():
        cached = json.loads(file.read_text())
        if cached["key"] == key:
            say(f"[dim]{name}: reusing its evaluation[/dim]")
            return cached["result"]
    backbone = load()
    kept = Path(where) / "eval" if Path(where).is_dir() else None  # samples for the report
    if kept is not None:
        shutil.rmtree(kept, ignore_errors=True)  # those of other settings
    with progress(f"{name}: decoding", len(tasks) * settings.problems) as advance:
        result = evaluate(
            backbone,
            tasks,
            lengths=(settings.length,),
            options={"tau": settings.tau, "block": settings.block},
            limit=settings.problems,
            batch_size=20,
            out=kept,
            model=where if kept is not None else None,
            progress=advance if bars else None,
        )
    rows = {r.task.removeprefix("tiny-"): asdict(r) for r in result.results}
    found = {
        "tasks": rows,
        "accuracy": sum(r["accuracy"] for r in rows.values()) / len(rows),
        "steps": sum(r["steps"] for r in rows.values()) / len(rows),
    }
    write_json(file, {"key": key, "result": found})
    return found


def fingerprint(where: str, settings: DemoSettings) -> str:
    """Changes when the weights or the way of decoding change."""
    import goldimask

    weights = sorted(Path(where).glob("model/*.safetensors")) if Path(where).is_dir() else []
    parts = [p.read_bytes() for p in weights]
    decoding = (settings.problems, settings.length, settings.tau, settings.block)
    return f"{content_id(goldimask.__version__, where, str(decoding), *parts):016x}"


def attach_losses(results: Mapping[str, Any], folder: Path) -> None:
    """Held-out denoising loss of each model, from the runs' own validation."""
    manifests = {m: open_run(folder / m).manifest.facts for m in METHODS}  # type: ignore[union-attr]
    results["base"]["heldout"] = manifests[METHODS[0]]["eval_loss_first"]
    for name in METHODS:
        best = manifests[name]["recipe"]["trainer"].get("load_best_model_at_end", True)
        results[name]["heldout"] = manifests[name]["eval_loss_best" if best else "eval_loss_last"]
        results[name]["heldout_last"] = manifests[name]["eval_loss_last"]
