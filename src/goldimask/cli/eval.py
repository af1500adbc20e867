"""`goldimask eval RUN --tasks ...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit, progress, say, table


@app.command("eval")
def eval_command(
    run: Annotated[str, typer.Argument(help="A run folder, a model folder, or a backbone's name.")],
    tasks: Annotated[str, typer.Option(help="Names, comma-separated (`goldimask list tasks`).")],
    lengths: Annotated[
        str, typer.Option(help="Response lengths, such as 128,256,512; default: each task's own.")
    ] = "",
    decoder: Annotated[
        str, typer.Option(help="Decoding rule; the published protocol by default.")
    ] = "low-confidence",
    block: Annotated[int | None, typer.Option(help="Block length.")] = None,
    tau: Annotated[float | None, typer.Option(help="Threshold of the decoder.")] = None,
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

        torchrun --nproc_per_node 4 -m goldimask eval runs/x --tasks gsm8k
    """
    from dataclasses import replace

    from goldimask.errors import GoldimaskError
    from goldimask.eval.run import evaluate, make_plan
    from goldimask.runs import find_run, load_run

    names = [t for t in tasks.split(",") if t]
    if not names:
        raise GoldimaskError("--tasks: expected at least one name; see `goldimask list tasks`")
    given = {"block": block, "tau": tau, "steps": steps, "temperature": temperature}
    options = {k: v for k, v in given.items() if v is not None}
    code = {"form": form, "sandbox": sandbox, "allow_code_execution": allow_code_execution}
    wanted = {"lengths": numbers(lengths, "--lengths"), "seeds": numbers(seeds, "--seeds")}
    part = parse_shard(shard)
    plans = [
        make_plan(name, protocol, limit, code, options, wanted["seeds"], wanted["lengths"])
        for name in names
    ]
    for plan in plans:  # refuse what cannot work before the model is loaded
        if plan.task.prepare:
            say(f"{plan.task.name}: {plan.task.prepare()}")
    items = [plan.task.load(data) for plan in plans]
    total = sum(p.samples(limit, len(x)) for p, x in zip(plans, items, strict=True)) // part[1]
    ready = [
        replace(p.task, load=lambda source, rows=x: rows) for p, x in zip(plans, items, strict=True)
    ]
    folder = out or default_out(run)
    say(f"samples: {folder}" + (f" (shard {part[0]} of {part[1]})" if part[1] > 1 else ""))
    backbone = load_run(run, device=device or device_of(part), dtype=dtype)
    with progress("decoding", total) as advance:
        result = evaluate(
            backbone,
            ready,
            lengths=wanted["lengths"],
            seeds=wanted["seeds"],
            decoder=decoder,
            options=options,
            limit=limit,
            out=folder,
            batch_size=batch_size,
            shard=part,
            model_name=find_run(run).name,
            progress=advance,
        )
    report = summary(result)
    report |= {"model": find_run(run).name, "decoder": decoder, "options": options}
    report |= {"out": str(folder), "shard": list(part), "protocol": protocol}
    emit(report, as_json, None if as_json else human(report, result))


def summary(result: Any) -> dict[str, Any]:
    """What the command reports, as plain data."""
    from goldimask.eval.tasks import own_length
    from goldimask.stats import FIXED, SELECTED, best_lengths, fixed_lengths

    report: dict[str, Any] = {"results": result.to_json()}
    several = {
        r.task
        for r in result.results
        if len({x.length for x in result.results if x.task == r.task}) > 1
    }
    if several:
        shown = [r for r in result.results if r.task in several]
        report["best_over_lengths"] = {
            "note": SELECTED,
            **{t: {"length": n, "accuracy": a} for t, (n, a) in best_lengths(shown).items()},
        }
        report["fixed_lengths"] = {
            "note": FIXED,
            **{
                t: {"length": n, "accuracy": a}
                for t, (n, a) in fixed_lengths(shown, own_length).items()
            },
        }
    passes: dict[str, dict[str, float]] = {}
    for task in dict.fromkeys(r.task for r in result.results):
        for length in dict.fromkeys(r.length for r in result.results if r.task == task):
            n = sum(r.task == task and r.length == length for r in result.results)
            if n > 1:
                key = f"{task}@{length}"
                ks = sorted({1, n} | {k for k in (2, 4, 8, 16, 32) if k < n})
                passes[key] = {f"pass@{k}": result.pass_at(task, k, length) for k in ks}
    return report | ({"pass_at": passes} if passes else {})


def human(report: dict[str, Any], result: Any) -> Any:
    """Tables for a person."""
    from rich.console import Group

    percent = lambda x: f"{100 * x:.1f}"  # noqa: E731
    cells = {  # column: what it shows, and whether it says anything here
        "task": (lambda r: r.task, True),
        "length": (lambda r: r.length, True),
        "seed": (lambda r: r.seed, len({r.seed for r in result.results}) > 1),
        "n": (lambda r: r.n, True),
        "%": (lambda r: percent(r.accuracy), True),
        "95 %": (lambda r: f"{percent(r.low)}-{percent(r.high)}", True),
        "solved %": (
            lambda r: percent(r.solved),
            any(r.metric.startswith("cell") for r in result.results),
        ),
        "unparsable": (lambda r: r.unparsable, True),
        "steps": (lambda r: f"{r.steps:.1f}", True),
    }
    shown = [name for name, (_, useful) in cells.items() if useful]
    rows = [[cells[name][0](r) for name in shown] for r in result.results]
    metrics = ", ".join(dict.fromkeys(r.metric for r in result.results))
    title = f"{report['model']}: {metrics}, protocol {report['protocol']}, {report['decoder']}"
    parts = [table(title, shown, rows)]
    for key in ("fixed_lengths", "best_over_lengths"):
        if key in report:
            section = dict(report[key])
            note = section.pop("note")
            cells = [(t, x["length"], percent(x["accuracy"])) for t, x in section.items()]
            parts.append(table(f"{note}", ("task", "length", "%"), cells))
    for key, section in report.get("pass_at", {}).items():
        parts.append(table(key, ("", "%"), [(k, percent(v)) for k, v in section.items()]))
    return Group(*parts)


def numbers(text: str, where: str) -> tuple[int, ...] | None:
    """`128,256` -> (128, 256); nothing -> None."""
    from goldimask.errors import GoldimaskError

    try:
        return tuple(int(x) for x in text.split(",") if x.strip()) or None
    except ValueError:
        raise GoldimaskError(
            f"{where}: expected whole numbers such as 128,256; got '{text}'"
        ) from None


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
