"""`goldimask decode`: one prompt or a file of prompts."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit, progress, say
from goldimask.errors import GoldimaskError

if TYPE_CHECKING:
    from goldimask.decoding.types import Cache, Settings

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="A run folder, a model folder, or a backbone's name.")
]
Tau = Annotated[
    float | None, typer.Option(help="Threshold: a confidence, or nats for `entropy`. [0.9 | 0.5]")
]
Length = Annotated[int, typer.Option(help="Response positions to fill.")]
BlockSize = Annotated[int | None, typer.Option(help="Positions per block. [32; Dream's: all]")]


@app.command("decode")
def decode_command(
    run: RunArgument,
    prompt: Annotated[str | None, typer.Argument(help="One user turn.")] = None,
    decoder: Annotated[
        str, typer.Option(help="See `goldimask list decoders`: threshold, entropy, factor, ...")
    ] = "threshold",
    tau: Tau = None,
    length: Length = 128,
    block: BlockSize = None,
    factor: Annotated[float | None, typer.Option(help="f of the factor decoder. [1]")] = None,
    steps: Annotated[int | None, typer.Option(help="Model calls, for step quotas.")] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_p: Annotated[float, typer.Option(help="Draw from this share of the mass.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw from this many tokens; 0 is all.")] = 0,
    alg_temp: Annotated[
        float | None, typer.Option(help="Step quotas: draw the positions too. [0]")
    ] = None,
    cfg: Annotated[float, typer.Option(help="Classifier-free guidance; 0 is off.")] = 0.0,
    cache: Annotated[str, typer.Option(help="none, or prefix | dual (approximate).")] = "none",
    eos_stop: Annotated[bool, typer.Option("--eos-stop", help="Stop at the end token.")] = False,
    allow_mask: Annotated[
        bool, typer.Option("--allow-mask", help="As released: the mask may be predicted.")
    ] = False,
    samples: Annotated[int, typer.Option(min=1, help="Responses of the prompt.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    prefill: Annotated[str, typer.Option(help="Text the response begins with.")] = "",
    show: Annotated[
        bool, typer.Option("--show", help="Watch it fill in, coloured by step.")
    ] = False,
    file: Annotated[Path | None, typer.Option(help="A .jsonl of prompts.")] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Answers of --file; resumed if there.")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the replay of the prompt here.")] = None,
    against: Annotated[
        list[str] | None, typer.Option(help="With --html: another RUN beside it; repeatable.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Put the trace into the JSON.")] = False,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per model call.")] = 16,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, ...")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Fill in a response with a parallel decoder; steps are model calls.

    `goldimask decode tiny "How many ..." --tau 0.9 --show`

    `goldimask decode runs/a "How many ..." --against runs/b --html replay.html`
    """
    if (prompt is None) == (file is None):
        raise GoldimaskError("decode: give a prompt or --file, and not both")
    if (file is None) != (out is None):
        raise GoldimaskError("decode: --file needs --out, and --out needs --file")
    if show and (file is not None or as_json):
        raise GoldimaskError("decode: --show is for one prompt, without --json")
    if html is not None and (file is not None or show):
        raise GoldimaskError("decode: --html is for one prompt, without --show")
    if against and html is None:
        raise GoldimaskError("decode: --against needs --html, the page that shows both")
    from goldimask.decoding import make_settings
    from goldimask.decoding.prompt_file import read_prompts

    settings = make_settings(  # mistakes are found before a model is loaded
        decoder,
        tau=tau,
        length=length,
        block=block,
        factor=factor,
        steps=steps,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        alg_temp=alg_temp,
        cfg=cfg,
        cache=cast("Cache", cache),
        eos_stop=eos_stop,
        allow_mask=allow_mask,
        seed=seed,
    )
    batch: dict[str, Any] = {"prefill": prefill, "batch_size": batch_size}
    rows = [] if file is None else read_prompts(file)
    from goldimask.backbones import load_backbone

    backbone = load_backbone(run, dtype, device)
    if cache != "none":
        say(f"cache '{cache}' is approximate: scores within a block use stale keys and values")
    if file is not None:
        decode_file(backbone, rows, out, run, settings, batch, trace, as_json)
    elif html is not None:
        models = [(run, backbone), *((r, load_backbone(r, dtype, device)) for r in against or ())]
        write_replay(html, models, prompt, samples, settings, batch, trace, as_json)
    elif show:
        show_one(backbone, prompt, settings, batch)
    else:
        print_all(backbone, prompt, samples, settings, batch, trace, as_json)


def decode_file(
    backbone: Any,
    rows: Any,
    out: Any,
    run: str,
    settings: Settings,
    batch: dict[str, Any],
    trace: bool,
    as_json: bool,
) -> None:
    from dataclasses import asdict

    from goldimask.decoding.prompt_file import decode_rows

    with progress("decode", len(rows)) as advance:
        report = decode_rows(
            backbone, rows, out, settings, model=run, trace=trace, advance=advance, **batch
        )
    line = f"{report.decoded} decoded, {report.found} already there, mean steps "
    emit(asdict(report), as_json, f"{line}{report.steps_mean:.1f} → {report.out}")


def print_all(
    backbone: Any,
    prompt: str | None,
    samples: int,
    settings: Settings,
    batch: dict[str, Any],
    trace: bool,
    as_json: bool,
) -> None:
    from rich.text import Text

    from goldimask.decoding import decode_with

    found = decode_with(backbone, [prompt or ""] * samples, settings, **batch)
    result = {"prompt": prompt, "responses": [d.record(trace) for d in found]}
    lines = [f"{d.text}\n[{described(d)}]" for d in found]
    emit(result, as_json, Text("\n\n".join(lines)))


def write_replay(
    path: Path,
    models: list[tuple[str, Any]],
    prompt: str | None,
    samples: int,
    settings: Settings,
    batch: dict[str, Any],
    trace: bool,
    as_json: bool,
) -> None:
    """Decode the prompt with every model and write the page that replays them side by side."""
    from rich.markup import escape

    from goldimask.decoding import decode_with
    from goldimask.report.decode_page import decode_page, decode_record

    records, rows = [], []
    for label, (run, backbone) in zip(labels([r for r, _ in models]), models, strict=True):
        special = sorted(backbone.special_ids)
        for i, made in enumerate(
            decode_with(backbone, [prompt or ""] * samples, settings, **batch)
        ):
            name = label if samples == 1 else f"{label}, sample {i + 1}"
            records.append(decode_record(made, backbone.tokenizer, name, special=special))
            rows.append({"run": run, "label": name, **made.record(trace)})
            if not as_json:
                say(escape(f"{name}: {described(made)}"))
    page = decode_page(path, records)
    result = {"prompt": prompt, "responses": rows, "page": str(page)}
    emit(result, as_json, f"page: {page} ({page.stat().st_size / 1000:.0f} KB)")


def labels(runs: list[str]) -> list[str]:
    """Last names, whole paths where two are alike, numbers where those are alike too."""
    from goldimask.backbones import find_model

    names = [find_model(r).name for r in runs]
    names = [n if names.count(n) == 1 else r for n, r in zip(names, runs, strict=True)]
    return [n if names.count(n) == 1 else f"{n} ({i + 1})" for i, n in enumerate(names)]


def described(d: Any) -> str:
    notes = [f"{d.steps} steps for {len(d.tokens)} tokens"]
    if d.steps_to_eos is not None:
        notes.append(f"{d.steps_to_eos} to the end token")
    if not d.complete:
        notes.append("incomplete")
    if not d.exact:
        notes.append("approximate cache")
    return ", ".join(notes)


def show_one(backbone: Any, prompt: str | None, settings: Settings, batch: dict[str, Any]) -> None:
    """Redraw after every step on a terminal; the last state elsewhere."""
    from rich.console import Console
    from rich.live import Live

    from goldimask.decoding import decode_with
    from goldimask.decoding.show import canvas, legend

    console = Console()
    commits: list[Any] = []
    length = settings.length

    def picture(steps: int) -> Any:
        return canvas(backbone.tokenizer, commits, length, steps)

    live = Live(console=console, auto_refresh=False) if console.is_terminal else None
    with live or nullcontext():

        def watch(_: int, commit: Any) -> None:
            commits.append(commit)
            if live is not None:
                live.update(picture(max(length // 2, commit.step)), refresh=True)

        (made,) = decode_with(backbone, [prompt or ""], settings, watch=watch, **batch)
        if live is not None:
            live.update(picture(made.steps), refresh=True)
    if live is None:
        console.print(picture(made.steps))
    console.print(legend(made.steps))
    say(described(made))
