"""`goldimask eval RUN --tasks ...`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goldimask.cli.app import JsonFlag, app, numbers
from goldimask.console import emit, progress, say, table

if TYPE_CHECKING:
    from rich.console import Group

    from goldimask.eval.results import EvalResult
    from goldimask.stats import TaskResult


@app.command("eval")
def eval_command(
    run: Annotated[str, typer.Argument(help="A run folder, a model folder, or a backbone's name.")],
    tasks: Annotated[str, typer.Option(help="Names, comma-separated (`goldimask list tasks`).")],
    lengths: Annotated[
        str, typer.Option(help="Response lengths, such as 128,256,512; default: each task's own.")
    ] = "",
    decoder: Annotated[
        str | None, typer.Option(help="Decoding rule (`goldimask list decoders`); each task's own.")
    ] = None,
    block: Annotated[int | None, typer.Option(help="Block length.")] = None,
    tau: Annotated[
        str, typer.Option(help="Thresholds of the decoder, such as 0.9 or 0.7,0.8,0.9,0.95.")
    ] = "",
    steps: Annotated[
        int | None, typer.Option(help="Steps per response (default: half its length).")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy.")] = None,
    seeds: Annotated[
        str, typer.Option(help="Sampling seeds; several give pass@k. AIME: 16 by default.")
    ] = "",
    protocol: Annotated[
        str, typer.Option(help="fixed (corrected parsers) or lift (as released).")
    ] = "fixed",
    form: Annotated[
        str, typer.Option(help="Prompt of the code tasks: published or standard.")
    ] = "published",
    limit: Annotated[int | None, typer.Option(help="Only the first problems of each task.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="File or folder of test sets (else GOLDIMASK_DATA, the Hub)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder of the samples; resumes there.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Prompts decoded together.")] = 16,
    shard: Annotated[
        str, typer.Option(help="i/n: every n-th problem from i (default: RANK and WORLD_SIZE).")
    ] = "",
    allow_code_execution: Annotated[
        bool, typer.Option("--allow-code-execution", help="Run generated programs in the sandbox.")
    ] = False,
    sandbox: Annotated[str, typer.Option(help="auto, bubblewrap or limits.")] = "auto",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, ...")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Decode benchmarks and score them; stop it at any time, the same command goes on.

    Examples:

        goldimask eval runs/first --tasks tiny-chain,tiny-sort

        goldimask eval runs/x --tasks gsm8k,math500,countdown,sudoku --lengths 128,256,512

        goldimask eval runs/x --tasks humaneval,mbpp --allow-code-execution

        goldimask eval runs/x --tasks gsm8k --decoder threshold --tau 0.7,0.8,0.9,0.95

        torchrun --nproc_per_node 4 -m goldimask eval runs/x --tasks gsm8k
    """
    from goldimask.backbones import load_backbone
    from goldimask.errors import GoldimaskError
    from goldimask.eval.run import backbone_answer, identify, manifest_of, run_trials
    from goldimask.eval.trials import plan_trials
    from goldimask.jobs import same_job

    names = [t for t in tasks.split(",") if t]
    if not names:
        raise GoldimaskError("--tasks: expected at least one name; see `goldimask list tasks`")
    part = parse_shard(shard)
    trials = plan_trials(
        names,
        lengths=numbers(lengths, "--lengths", int) or None,
        seeds=numbers(seeds, "--seeds", int) or None,
        decoder=decoder,
        options={"block": block, "steps": steps, "temperature": temperature},
        taus=numbers(tau, "--tau", float),
        limit=limit,
        protocol=protocol,
        task_options={
            "form": form,
            "sandbox": sandbox,
            "allow_code_execution": allow_code_execution,
        },
        data=data,
        say=say,
    )
    folder = out or default_out(run)
    say(f"answers: {folder}" + (f" (shard {part[0]} of {part[1]})" if part[1] > 1 else ""))
    model = identify(run, dtype, folder)
    same_job(folder, manifest_of(model))  # refuses another model's folder before loading this one
    backbone = load_backbone(run, device=device or device_of(part), dtype=dtype)
    with progress("decoding", sum(len(t.part(part)) for t in trials)) as advance:
        result = run_trials(
            trials,
            backbone_answer(backbone, batch_size),
            folder,
            model,
            batch_size,
            part,
            advance,
        )
    report = summary(result)
    report |= {"model": model.name, "out": str(folder), "shard": list(part), "protocol": protocol}
    emit(report, as_json, None if as_json else human(report, result))


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


def human(report: dict[str, Any], result: EvalResult) -> Group:
    """Tables for a person."""
    from rich.console import Group

    found = result.results
    percent = lambda x: f"{100 * x:.1f}"  # noqa: E731
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
            parts.append(table(f"{note}", ("task", "length", "%"), lines))
    for key, section in report.get("pass_at", {}).items():
        parts.append(table(key, ("", "%"), [(k, percent(v)) for k, v in section.items()]))
    return Group(*parts)


def parse_shard(text: str) -> tuple[int, int]:
    """`1/4`, or what a launcher put into the environment."""
    import os

    from goldimask.errors import GoldimaskError

    if not text:
        text = f"{os.environ.get('RANK', '0')}/{os.environ.get('WORLD_SIZE', '1')}"
    first, _, second = text.partition("/")
    if not (first.isdigit() and second.isdigit() and int(first) < int(second)):
        raise GoldimaskError(f"--shard: expected i/n with 0 <= i < n, such as 0/4; got '{text}'")
    return int(first), int(second)


def device_of(part: tuple[int, int]) -> str | None:
    """Under a launcher, the process's own GPU."""
    import os

    local = os.environ.get("LOCAL_RANK")
    if part[1] == 1 or local is None:
        return None
    import torch

    return f"cuda:{local}" if torch.cuda.is_available() else None


def default_out(run: str) -> Path:
    """`eval` inside a run folder, else a folder named after the model."""
    folder = Path(run).expanduser()
    if (folder / "recipe.yaml").is_file():
        return folder / "eval"
    return Path("evals") / folder.name
