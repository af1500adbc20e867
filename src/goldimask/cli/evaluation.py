"""`goldimask eval`: answers decoded and judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goldimask.cli.options import (
    AllowCode,
    AllowPlugins,
    BatchSize,
    Block,
    Device,
    Dtype,
    JsonFlag,
    Judge,
    ModelName,
    Nproc,
    Protocol,
    Sandbox,
    Steps,
    TestSets,
    numbers,
    out_option,
    words,
)
from goldimask.console import emit, percent, progress, say, suggest, table
from goldimask.errors import GoldimaskError
from goldimask.processes import rank, world

if TYPE_CHECKING:
    from rich.console import Group

    from goldimask.eval.results import EvalResult
    from goldimask.eval.trials import Planned
    from goldimask.stats import TaskResult

app = typer.Typer()


@app.command("eval")
def evaluate(
    run: ModelName,
    tasks: Annotated[
        str,
        typer.Option(help="Names, comma-separated (`goldimask list tasks`), or file:test.jsonl."),
    ] = "",
    judge: Judge = None,
    published: Annotated[
        str, typer.Option(help="Run the settings of a published score: TASK or SOURCE/TASK.")
    ] = "",
    lengths: Annotated[
        str, typer.Option(help="128,256,512, or per task gsm8k=256,math500=512; each task's own.")
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
    nproc: Nproc = None,
    shard: Annotated[
        str, typer.Option(help="i/n: every n-th problem from i (default: RANK and WORLD_SIZE).")
    ] = "",
    allow_code_execution: AllowCode = False,
    sandbox: Sandbox = "auto",
    export: Annotated[
        str,
        typer.Option(help="evalplus: also write {task_id, solution} rows for HumanEval+, MBPP+."),
    ] = "",
    device: Device = None,
    dtype: Dtype = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be decoded; load no model.")
    ] = False,
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """Decode benchmarks and score the answers.

    Every task is decoded as it is published unless `--decoder` says otherwise; which decoder that
    is gets printed. Stop it at any time, the same command goes on. Several thresholds are several
    evaluations in one folder, which `goldimask report` puts into one figure.

    Examples:

        goldimask eval runs/first --tasks tiny-chain,tiny-sort

        goldimask eval runs/mine --tasks file:test.jsonl --judge number --lengths 64

        goldimask eval runs/x --tasks gsm8k,math500,countdown,sudoku --lengths 128,256,512

        goldimask eval runs/x --tasks humaneval,mbpp --allow-code-execution --export evalplus

        goldimask eval runs/x --tasks gsm8k,math500,countdown,sudoku --decoder threshold \\
        --tau 0.7,0.8,0.9,0.95 --lengths gsm8k=256,math500=512,128

        goldimask eval llada-8b-instruct --published gsm8k --dry-run

        goldimask eval runs/x --tasks gsm8k,math500 --lengths 256,512 --nproc 8
    """
    from goldimask.eval.evalplus import check_export
    from goldimask.eval.evalplus import export as export_rows
    from goldimask.eval.published import beside, find_row, settings_of, sources
    from goldimask.eval.run import identify, manifest_of, only_writer, run_trials
    from goldimask.eval.spread import answering
    from goldimask.eval.trials import plan_trials
    from goldimask.jobs import same_job

    names = words(tasks)
    if bool(names) == bool(published):
        raise GoldimaskError(
            "--tasks: expected at least one name (see `goldimask list tasks`), "
            "or --published with the name of one in its place"
        )
    if export not in ("", "evalplus"):
        raise GoldimaskError(f"--export: unknown '{export}'; evalplus is the only one")
    part = parse_shard(shard)
    running = {"allow_code_execution": allow_code_execution, "sandbox": sandbox}
    chosen: dict[str, Any] = {
        "lengths": task_lengths(lengths),
        "decoder": decoder,
        "options": {"block": block, "steps": steps, "temperature": temperature},
        "protocol": protocol,
    }
    if published:
        given = (lengths, decoder, block, steps, temperature, tau, protocol != "fixed")
        if any(x not in ("", None, False) for x in given):
            raise GoldimaskError(
                "--published: the row says lengths, decoder and protocol; leave them"
            )
        row = find_row(run, published)
        names, chosen = [row.task], settings_of(row)
        say(f"published: {row.score} % ({sources()[row.source]})")
    protocol = chosen["protocol"]
    folder = out or default_out(run)
    with only_writer(None if dry_run else folder, part):
        trials = plan_trials(
            names,
            **chosen,
            seeds=numbers(seeds, "--seeds", int) or None,
            taus=numbers(tau, "--tau", float),
            limit=limit,
            task_options={"form": form, **running, **({"judge": judge} if judge else {})},
            data=data,
            say=say,
        )
        if export:
            check_export(trials, part)
        if dry_run:
            plan = planned(run, trials, folder)
            emit(plan, as_json, None if as_json else plan_table(plan))
            return
        say(f"answers: {folder}" + (f" (shard {part[0]} of {part[1]})" if part[1] > 1 else ""))
        model = identify(run, dtype, folder)
        same_job(folder, manifest_of(model))  # another model's folder is refused before loading
        total = sum(len(t.part(part)) for t in trials)
        where = {"device": device, "dtype": dtype, "say": say}
        decoded = answering(run, nproc, batch_size, **where)
        with decoded as answer, progress("decoding", total, lines=True) as advance:
            result = run_trials(trials, answer, folder, model, batch_size, part, advance)
    report = summary(result)
    report |= {"model": model.name, "out": str(folder), "shard": list(part), "protocol": protocol}
    found = beside(model.name, result.results)
    report |= {"published": [b.to_json() for b in found]} if found else {}
    if export:
        report["exported"] = [str(p) for p in export_rows(trials, result.outcomes, folder)]
        say(f"exported: {', '.join(report['exported'])}")
    emit(report, as_json, None if as_json else eval_tables(report, result))
    if not as_json:
        suggest(*after_evaluation(run, names, folder, part))


def after_evaluation(
    run: str, names: Sequence[str], folder: Path, part: tuple[int, int]
) -> list[str]:
    """Where the answers are, and what compares them."""
    read = f"less {folder}/samples-{part[0]}.jsonl   # every answer with its verdict"
    if (Path(run).expanduser() / "recipe.yaml").is_file():
        return [read, f"goldimask report {run} OTHER_RUN   # the same tasks for both"]
    return [read, f"goldimask eval RUN --tasks {','.join(names)}   # a run, to compare"]


def task_lengths(text: str) -> dict[str, tuple[int, ...]] | None:
    """`gsm8k=256,math500=512,128` -> lengths of two tasks, and of the others."""
    found: dict[str, tuple[int, ...]] = {}
    for word in words(text):
        task, _, number = word.rpartition("=")
        found[task] = (*found.get(task, ()), *numbers(number, "--lengths", int))
    return found or None


def planned(run: str, trials: Sequence[Planned], folder: Path) -> dict[str, Any]:
    """What would be decoded, as plain data."""
    groups: dict[Any, dict[str, Any]] = {}
    for t in trials:
        place = {"task": t.task.name, "length": t.length, "decoding": t.decoding.label}
        row = groups.setdefault(tuple(place.values()), {**place, "n": len(t.items), "seeds": []})
        row["seeds"].append(t.seed)
        row["protocol"] = t.task.protocol
    answers = sum(len(t.items) for t in trials)
    return {"model": run, "out": str(folder), "answers": answers, "trials": [*groups.values()]}


def plan_table(plan: dict[str, Any]) -> Any:
    title = f"{plan['model']}: {plan['answers']:,} answers into {plan['out']}"
    rows = [
        (t["task"], t["decoding"], t["length"], len(t["seeds"]), t["n"], t["protocol"])
        for t in plan["trials"]
    ]
    return table(title, ("task", "decoding", "length", "seeds", "n", "protocol"), rows, left=2)


def published_table(found: Sequence[dict[str, Any]]) -> Any:
    """The published figures beside the measured ones, and what differs."""
    rows = []
    for b in found:
        row = b["published"]
        where = "inside" if b["inside"] else "outside"
        measured = f"{percent(b['measured'])} ({percent(b['low'])}-{percent(b['high'])})"
        source = f"{row['source']}/{row['task']}"
        rows.append((source, row["score"], measured, where, "; ".join(b["differs"]) or "nothing"))
    columns = ("published", "%", "measured (95 %)", "", "differs")
    return table("Published scores", columns, rows, left=1)


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
    seeds = {(o.task, o.length, o.decoding, o.seed): None for o in result.outcomes}
    samples = Counter(place[:3] for place in seeds)
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
    labels = [r.decoding.label.split() for r in found]
    shared = [word for word in labels[0] if all(word in label for label in labels)]
    cells: dict[str, tuple[Callable[[TaskResult], object], bool]] = {  # what a column shows, and if
        "task": (lambda r: r.task, True),
        "decoding": (lambda r: own_words(r, shared), len({r.decoding for r in found}) > 1),
        "length": (lambda r: r.length, True),
        "seed": (lambda r: "all" if r.seed is None else r.seed, len({r.seed for r in found}) > 1),
        "n": (lambda r: r.n, True),
        "%": (lambda r: percent(r.accuracy), True),
        "95 %": (lambda r: f"{percent(r.low)}-{percent(r.high)}", True),
        "solved %": (lambda r: percent(r.solved), any(r.metric[:4] == "cell" for r in found)),
        "unread": (lambda r: r.unparsable, True),
        "steps": (lambda r: f"{r.steps:.1f}", True),
    }
    shown = [name for name, (_, useful) in cells.items() if useful]
    rows = [[cells[name][0](r) for name in shown] for r in found]
    metrics = ", ".join(dict.fromkeys(r.metric for r in found))
    title = f"{report['model']}: {metrics}, protocol {report['protocol']}, {' '.join(shared)}"
    parts = [table(title, shown, rows, left=2 if "decoding" in shown else 1)]
    for key in ("fixed_lengths", "best_over_lengths"):
        if key in report:
            section = dict(report[key])
            note = section.pop("note")
            lines = [(t, x["length"], percent(x["accuracy"])) for t, x in section.items()]
            parts.append(table(note, ("task", "length", "%"), lines))
    if "published" in report:
        parts.append(published_table(report["published"]))
    for key, section in report.get("pass_at", {}).items():
        parts.append(table(key, ("", "%"), [(k, percent(v)) for k, v in section.items()]))
    return Group(*parts)


def own_words(result: TaskResult, shared: Sequence[str]) -> str:
    """`tau=0.9`: what is not the same for every line of a table."""
    return " ".join(word for word in result.decoding.label.split() if word not in shared)


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
