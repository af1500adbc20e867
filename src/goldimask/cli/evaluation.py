"""`goldimask eval`, `score`: answers decoded and judged, or judged as another harness left them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goldimask.cli.options import (
    AllowCode,
    BatchSize,
    Block,
    Device,
    Dtype,
    JsonFlag,
    ModelName,
    Protocol,
    Sandbox,
    Steps,
    TestSets,
    numbers,
    out_option,
    words,
)
from goldimask.console import emit, progress, say, table
from goldimask.errors import GoldimaskError, nearest
from goldimask.processes import own_device, rank, world

if TYPE_CHECKING:
    from rich.console import Group

    from goldimask.eval.results import EvalResult
    from goldimask.stats import TaskResult

app = typer.Typer()


@app.command("eval")
def evaluate(
    run: ModelName,
    tasks: Annotated[str, typer.Option(help="Names, comma-separated (`goldimask list tasks`).")],
    lengths: Annotated[
        str, typer.Option(help="Response lengths, such as 128,256,512; default: each task's own.")
    ] = "",
    decoder: Annotated[
        str | None, typer.Option(help="Decoding rule (`goldimask list decoders`); each task's own.")
    ] = None,
    block: Block = None,
    tau: Annotated[
        str, typer.Option(help="Thresholds of the decoder, such as 0.9 or 0.7,0.8,0.9,0.95.")
    ] = "",
    steps: Steps = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    seeds: Annotated[
        str, typer.Option(help="Sampling seeds; several give pass@k. AIME: 16 by default.")
    ] = "",
    protocol: Protocol = "fixed",
    form: Annotated[
        str, typer.Option(help="Prompt of the code tasks: published or standard.")
    ] = "published",
    limit: Annotated[int | None, typer.Option(help="Only the first problems of each task.")] = None,
    data: TestSets = None,
    out: Annotated[Path | None, out_option("Folder of the samples; resumes there.")] = None,
    batch_size: BatchSize = 16,
    shard: Annotated[
        str, typer.Option(help="i/n: every n-th problem from i (default: RANK and WORLD_SIZE).")
    ] = "",
    allow_code_execution: AllowCode = False,
    sandbox: Sandbox = "auto",
    device: Device = None,
    dtype: Dtype = None,
    as_json: JsonFlag = False,
) -> None:
    """Decode benchmarks and score the answers.

    Every task is decoded as it is published unless `--decoder` says otherwise; which decoder that
    is gets printed. Stop it at any time, the same command goes on. Several thresholds are several
    evaluations in one folder, which `goldimask report` puts into one figure.

    Examples:

        goldimask eval runs/first --tasks tiny-chain,tiny-sort

        goldimask eval runs/x --tasks gsm8k,math500,countdown,sudoku --lengths 128,256,512

        goldimask eval runs/x --tasks humaneval,mbpp --allow-code-execution

        goldimask eval runs/x --tasks gsm8k --decoder threshold --tau 0.7,0.8,0.9,0.95

        torchrun --nproc_per_node 4 -m goldimask eval runs/x --tasks gsm8k
    """
    from goldimask.backbones import load_backbone
    from goldimask.eval.run import backbone_answer, identify, manifest_of, run_trials
    from goldimask.eval.trials import plan_trials
    from goldimask.jobs import same_job

    names = words(tasks)
    if not names:
        raise GoldimaskError("--tasks: expected at least one name; see `goldimask list tasks`")
    part = parse_shard(shard)
    running = {"allow_code_execution": allow_code_execution, "sandbox": sandbox}
    trials = plan_trials(
        names,
        lengths=numbers(lengths, "--lengths", int) or None,
        seeds=numbers(seeds, "--seeds", int) or None,
        decoder=decoder,
        options={"block": block, "steps": steps, "temperature": temperature},
        taus=numbers(tau, "--tau", float),
        limit=limit,
        protocol=protocol,
        task_options={"form": form, **running},
        data=data,
        say=say,
    )
    folder = out or default_out(run)
    say(f"answers: {folder}" + (f" (shard {part[0]} of {part[1]})" if part[1] > 1 else ""))
    model = identify(run, dtype, folder)
    same_job(folder, manifest_of(model))  # refuses another model's folder before loading this one
    backbone = load_backbone(run, device=device or own_device(), dtype=dtype)
    with progress("decoding", sum(len(t.part(part)) for t in trials)) as advance:
        answer = backbone_answer(backbone, batch_size)
        result = run_trials(trials, answer, folder, model, batch_size, part, advance)
    report = summary(result)
    report |= {"model": model.name, "out": str(folder), "shard": list(part), "protocol": protocol}
    emit(report, as_json, None if as_json else eval_tables(report, result))


def summary(result: EvalResult) -> dict[str, Any]:
    """What the command reports, as plain data."""
    from goldimask.eval.tasks import own_length
    from goldimask.stats import FIXED, SELECTED, best_lengths, fixed_lengths

    report: dict[str, Any] = {"results": result.to_json()}
    lengths: dict[str, set[int]] = {}
    for r in result.results:
        lengths.setdefault(r.task, set()).add(r.length)
    if shown := [r for r in result.results if len(lengths[r.task]) > 1]:
        for key, note, chosen in (
            ("best_over_lengths", SELECTED, best_lengths(shown)),
            ("fixed_lengths", FIXED, fixed_lengths(shown, own_length)),
        ):
            rows = {t: {"length": n, "accuracy": a} for t, (n, a) in chosen.items()}
            report[key] = {"note": note, **rows}
    passes = pass_rates(result)
    return report | ({"pass_at": passes} if passes else {})


def pass_rates(result: EvalResult) -> dict[str, dict[str, float]]:
    """pass@k of every task, length and decoding that was sampled several times."""
    from goldimask.stats import shown_names

    names = shown_names(result.results)
    samples = Counter((r.task, r.length, r.decoding) for r in result.results)
    passes = {}
    for (task, length, way), n in samples.items():
        if n > 1:
            ks = sorted({1, n} | {k for k in (2, 4, 8, 16, 32) if k < n})
            rates = {f"pass@{k}": result.pass_at(task, k, length, way) for k in ks}
            passes[f"{names[task, way]}@{length}"] = rates
    return passes


def eval_tables(report: dict[str, Any], result: EvalResult) -> Group:
    """Tables for a person."""
    from rich.console import Group

    found = result.results
    cells: dict[str, tuple[Callable[[TaskResult], object], bool]] = {  # what a column shows, and if
        "task": (lambda r: r.task, True),
        "decoding": (lambda r: r.decoding.label, True),
        "length": (lambda r: r.length, True),
        "seed": (lambda r: r.seed, len({r.seed for r in found}) > 1),
        "n": (lambda r: r.n, True),
        "%": (lambda r: percent(r.accuracy), True),
        "95 %": (lambda r: f"{percent(r.low)}-{percent(r.high)}", True),
        "solved %": (lambda r: percent(r.solved), any(r.metric[:4] == "cell" for r in found)),
        "unparsable": (lambda r: r.unparsable, True),
        "steps": (lambda r: f"{r.steps:.1f}", True),
    }
    shown = [name for name, (_, useful) in cells.items() if useful]
    rows = [[cells[name][0](r) for name in shown] for r in found]
    metrics = ", ".join(dict.fromkeys(r.metric for r in found))
    title = f"{report['model']}: {metrics}, protocol {report['protocol']}"
    parts = [table(title, shown, rows, left=2)]
    for key in ("fixed_lengths", "best_over_lengths"):
        if key in report:
            section = dict(report[key])
            note = section.pop("note")
            lines = [(t, x["length"], percent(x["accuracy"])) for t, x in section.items()]
            parts.append(table(note, ("task", "length", "%"), lines))
    for key, section in report.get("pass_at", {}).items():
        parts.append(table(key, ("", "%"), [(k, percent(v)) for k, v in section.items()]))
    return Group(*parts)


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}"


def parse_shard(text: str) -> tuple[int, int]:
    """`1/4`, or what a launcher says about this process."""
    text = text or f"{rank()}/{world()}"
    first, _, second = text.partition("/")
    if not (first.isdigit() and second.isdigit() and int(first) < int(second)):
        raise GoldimaskError(f"--shard: expected i/n with 0 <= i < n, such as 0/4; got '{text}'")
    return int(first), int(second)


def default_out(run: str) -> Path:
    """`eval` inside a run folder, else a folder named after the model."""
    folder = Path(run).expanduser()
    if (folder / "recipe.yaml").is_file():
        return folder / "eval"
    return Path("evals") / folder.name


@app.command()
def score(
    files: Annotated[
        list[Path], typer.Argument(help="Stored generations; several files are pooled.")
    ],
    task: Annotated[str, typer.Option(help="A task (`goldimask list tasks`).")],
    protocol: Protocol = "fixed",
    diff: Annotated[
        bool, typer.Option("--diff", help="Show the samples on which the protocols disagree.")
    ] = False,
    data: TestSets = None,
    allow_code_execution: AllowCode = False,
    sandbox: Sandbox = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Score generations that any harness has stored.

    Reads the files of d1, LIFT, lm-eval and `goldimask eval`.

    Examples:

        goldimask score gsm8k_*_generations.json --task gsm8k

        goldimask score out.json --task math500 --protocol lift --diff
    """
    from goldimask.eval.score import disagreements, read_stored, score_stored
    from goldimask.eval.tasks import accepted, get_task

    if protocol not in ("fixed", "lift"):
        raise GoldimaskError(f"--protocol: '{protocol}'; {nearest(protocol, ('fixed', 'lift'))}")
    given = accepted(task, {"allow_code_execution": allow_code_execution, "sandbox": sandbox})
    chosen = get_task(task, protocol=protocol, **given)
    if chosen.prepare:
        say(chosen.prepare())
    stored = read_stored(files, chosen, data)
    result = score_stored(stored, chosen, len(files))
    report = result.to_json()
    if missing := report["details"].get("no gold"):
        say(f"[yellow]note:[/yellow] {missing} rows carry no gold answer; give the set with --data")
    if diff:
        other = "lift" if protocol == "fixed" else "fixed"
        second = score_stored(stored, get_task(task, protocol=other, **given), len(files))
        report |= {"diff": disagreements(stored, result, second), "other": second.to_json()}
    emit(report, as_json, None if as_json else score_tables(report))


def score_tables(report: dict[str, Any]) -> Group:
    """Tables for a person."""
    from rich.console import Group
    from rich.markup import escape

    figure = lambda x: f"{percent(x, 2)} %"  # noqa: E731
    rows = [
        ("protocol", report["protocol"]),
        ("generations", f"{report['n']} in {report['files']} file(s)"),
        ("correct", str(report["correct"])),
        (report["metric"], figure(report["accuracy"])),
        ("95 % (Wilson)", f"{figure(report['low'])} to {figure(report['high'])}"),
        ("unparsable", str(report["unparsable"])),
        *(
            (k.replace("_", " "), f"{report[k]:.4g}")
            for k in ("cells", "cells_correct", "solved")
            if k in report
        ),
        *((f"failed: {k}", str(v)) for k, v in sorted(report["details"].items())),
        *((trial_name(t), figure(t["accuracy"])) for t in report.get("trials", ())),
    ]
    parts = [table(report["task"], ("", ""), rows)]
    if "other" in report:
        other = report["other"]
        cells = [
            (
                x["where"],
                escape(short(x["gold"])),
                *(mark(x[p]) for p in (report["protocol"], other["protocol"])),
            )
            for x in report["diff"]
        ]
        title = f"{len(cells)} disagreements; {other['protocol']}: {figure(other['accuracy'])}"
        columns = ("where", "gold", report["protocol"], other["protocol"])
        parts.append(table(title, columns, cells, left=4))
    return Group(*parts)


def trial_name(trial: dict[str, Any]) -> str:
    options = " ".join(f"{k}={v}" for k, v in sorted(trial["decoding"]["options"].items()))
    where = f"length {trial['length']}, seed {trial['seed']}"
    return f"{trial['decoding']['decoder']} {options}, {where}"


def mark(side: dict[str, Any]) -> str:
    from rich.markup import escape

    return ("right: " if side["correct"] else "wrong: ") + escape(short(side["extracted"]))


def short(value: object, length: int = 60) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= length else text[: length - 3] + "..."
