"""`goldimask decode`, `chat`: prompts answered one by one, from a file, or in a conversation."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, cast

import typer

from goldimask.cli.options import (
    AllowPlugins,
    BatchSize,
    Block,
    Decoder,
    Device,
    Dtype,
    JsonFlag,
    Length,
    ModelName,
    Nproc,
    Seed,
    Steps,
    Tau,
    Temperature,
    out_option,
)
from goldimask.console import emit, progress, say, visible
from goldimask.errors import GoldimaskError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from goldimask.backbones import Backbone
    from goldimask.decoding import Commit, Decoded, Settings
    from goldimask.decoding.engine import Watch
    from goldimask.decoding.prompts import Prompt
    from goldimask.decoding.show import Tokenizer

    class Answer(Protocol):
        """`decode_with` bound to its settings."""

        def __call__(
            self, backbone: Backbone, prompts: Sequence[Prompt], *, watch: Watch | None = None
        ) -> list[Decoded]: ...


Message = dict[str, str]
app = typer.Typer()


@app.command()
def decode(
    run: ModelName,
    prompt: Annotated[str | None, typer.Argument(help="One user turn.")] = None,
    decoder: Decoder = "threshold",
    tau: Tau = None,
    length: Length = 128,
    block: Block = None,
    factor: Annotated[float | None, typer.Option(help="f of the factor decoder. [1]")] = None,
    steps: Steps = None,
    temperature: Temperature = 0.0,
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
    seed: Seed = 0,
    prefill: Annotated[str, typer.Option(help="Text the response begins with.")] = "",
    show: Annotated[
        bool, typer.Option("--show", help="Watch it fill in, coloured by step.")
    ] = False,
    file: Annotated[Path | None, typer.Option(help="A file of prompts.")] = None,
    out: Annotated[Path | None, out_option("Answers of --file; resumed if there.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the replay of the prompt here.")] = None,
    against: Annotated[
        list[str] | None, typer.Option(help="With --html: another RUN beside it; repeatable.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Put the trace into the JSON.")] = False,
    batch_size: BatchSize = 16,
    nproc: Nproc = None,
    device: Device = None,
    dtype: Dtype = None,
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """Fill in a response with a parallel decoder.

    Steps are model calls.

    Examples:

        goldimask decode tiny "How many ..." --tau 0.9 --show

        goldimask decode runs/a "How many ..." --against runs/b --html replay.html

        goldimask decode runs/a --file prompts.jsonl -o answers.jsonl --nproc 8
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
    if nproc is not None and file is None:
        raise GoldimaskError("decode: --nproc is for --file, whose prompts the processes share")
    from goldimask.backbones import load_backbone
    from goldimask.backbones.identity import weights_hash
    from goldimask.decoding import decode_with, make_settings
    from goldimask.decoding.prompt_file import answering, decode_rows, read_prompts
    from goldimask.decoding.types import Cache
    from goldimask.jobs import locked

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
        cache=cast(Cache, cache),
        eos_stop=eos_stop,
        allow_mask=allow_mask,
        seed=seed,
    )
    with nullcontext() if out is None else locked(out):
        rows = [] if file is None else read_prompts(file)
        load = partial(load_backbone, dtype=dtype, device=device)
        if cache != "none":
            say(f"cache '{cache}' is approximate: scores within a block use stale keys and values")
        if out is not None:
            where = {"dtype": dtype, "device": device, "say": say}
            how = {"batch_size": batch_size, "prefill": prefill, "trace": trace}
            decoded = answering(run, settings, nproc, **where, **how)
            with decoded as answer, progress("decode", len(rows), lines=True) as advance:
                made_by = {"model": weights_hash(run), "prefill": prefill}
                done = decode_rows(answer, rows, out, settings, **made_by, advance=advance)
            line = f"{done.decoded} decoded, {done.found} already there, mean steps "
            emit(vars(done), as_json, f"{line}{done.steps_mean:.1f} → {done.out}")
            return
        backbone = load(run)
        answer = partial(decode_with, settings=settings, batch_size=batch_size, prefill=prefill)
        prompts = [prompt or ""] * samples
        if html is not None:
            models = [(run, backbone), *((other, load(other)) for other in against or ())]
            write_replay(html, models, prompts, answer, trace, as_json)
        elif show:
            watch_one(backbone, prompts[0], answer, settings)
        else:
            print_all(backbone, prompts, answer, trace, as_json)


def print_all(
    backbone: Backbone, prompts: list[str], answer: Answer, trace: bool, as_json: bool
) -> None:
    from rich.text import Text

    found = answer(backbone, prompts)
    result = {"prompt": prompts[0], "responses": [made.record(trace) for made in found]}
    lines = [f"{made.text}\n[{described(made)}]" for made in found]
    emit(result, as_json, Text(visible("\n\n".join(lines))))


def write_replay(
    path: Path,
    models: list[tuple[str, Backbone]],
    prompts: list[str],
    answer: Answer,
    trace: bool,
    as_json: bool,
) -> None:
    """Decode the prompt with every model and write the page that replays them side by side."""

    from goldimask.report.decode_page import decode_page, decode_record

    records, rows = [], []
    for label, (run, backbone) in zip(labels([r for r, _ in models]), models, strict=True):
        special = sorted(backbone.special_ids)
        for i, made in enumerate(answer(backbone, prompts), start=1):
            name = label if len(prompts) == 1 else f"{label}, sample {i}"
            records.append(decode_record(made, backbone.tokenizer, name, special=special))
            rows.append({"run": run, "label": name, **made.record(trace)})
            say(f"{name}: {described(made)}")
    page = decode_page(path, records)
    result = {"prompt": prompts[0], "responses": rows, "page": str(page)}
    emit(result, as_json, f"page: {page} ({page.stat().st_size / 1000:.0f} KB)")


def labels(runs: list[str]) -> list[str]:
    """Last names, whole paths where two are alike, numbers where those are alike too."""
    from goldimask.backbones import find_model

    names = [find_model(r).name for r in runs]
    names = [n if names.count(n) == 1 else r for n, r in zip(names, runs, strict=True)]
    return [n if names.count(n) == 1 else f"{n} ({i + 1})" for i, n in enumerate(names)]


def described(made: Decoded) -> str:
    notes = [f"{made.steps} steps for {len(made.tokens)} tokens"]
    if made.steps_to_eos is not None:
        notes.append(f"{made.steps_to_eos} to the end token")
    if not made.complete:
        notes.append("incomplete")
    if not made.exact:
        notes.append("approximate cache")
    return ", ".join(notes)


def watch_one(backbone: Backbone, prompt: str, answer: Answer, settings: Settings) -> None:
    """Redraw after every step on a terminal; the last state elsewhere."""
    from rich.console import Console
    from rich.live import Live

    from goldimask.decoding.show import canvas, legend

    console = Console()
    commits: list[Commit] = []
    length = settings.length

    def picture(steps: int) -> Text:
        return canvas(cast("Tokenizer", backbone.tokenizer), commits, length, steps)

    live = Live(console=console, auto_refresh=False) if console.is_terminal else None
    with live or nullcontext():

        def watch(_: int, commit: Commit) -> None:
            commits.append(commit)
            if live is not None:
                live.update(picture(max(length // 2, commit.step)), refresh=True)

        (made,) = answer(backbone, [prompt], watch=watch)
        if live is not None:
            live.update(picture(made.steps), refresh=True)
    if live is None:
        console.print(picture(made.steps))
    console.print(legend(made.steps))
    say(described(made))


@app.command()
def chat(
    run: ModelName,
    decoder: Decoder = "threshold",
    tau: Tau = None,
    length: Length = 128,
    block: Block = None,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    device: Device = None,
    dtype: Dtype = None,
    allow_plugins: AllowPlugins = False,
) -> None:
    """Talk to a model and watch its answers fill in.

    `/reset` forgets the conversation, `/quit` or end of input leaves.
    """
    from goldimask.backbones import load_backbone
    from goldimask.decoding import decode_with, make_settings

    settings = make_settings(
        decoder,
        tau=tau,
        length=length,
        block=block,
        temperature=temperature,
        seed=seed,
        eos_stop=True,
    )
    backbone = load_backbone(run, dtype, device)
    answer = partial(decode_with, settings=settings)
    say(f"{backbone.name}; /reset forgets, /quit leaves")
    messages: list[Message] = []
    while (text := ask()) is not None:
        if text == "/reset":
            messages.clear()
        elif text:
            messages.append({"role": "user", "content": text})
            said = reply(backbone, fitted(backbone, messages, length), answer)
            messages.append({"role": "assistant", "content": said})


def ask() -> str | None:
    """A line from the user; None to leave."""
    if sys.stdin.isatty():
        sys.stderr.write("> ")
        sys.stderr.flush()
    line = sys.stdin.readline()
    return None if not line or line.strip() == "/quit" else line.strip()


def fitted(backbone: Backbone, messages: list[Message], length: int) -> list[Message]:
    """The latest turns that leave room for the answer; the oldest are forgotten aloud."""
    dropped = 0
    while len(messages) > 1 and len(backbone.prompt_ids(messages)) + length > backbone.max_length:
        del messages[: min(2, len(messages) - 1)]
        dropped += 1
    if dropped:
        say(f"the conversation is too long; forgot the {dropped} oldest exchange(s)")
    return messages


def reply(backbone: Backbone, messages: list[Message], answer: Answer) -> str:
    """Decode and print the part of the answer that is settled from its beginning."""
    tokens: dict[int, int] = {}
    ends = {backbone.pad_id, backbone.turn_end_id}
    shown = ""

    def settled() -> str:
        out: list[int] = []
        while (token := tokens.get(len(out))) is not None and token not in ends:
            out.append(token)
        return backbone.decode(out)

    def watch(_: int, commit: Commit) -> None:
        nonlocal shown
        tokens.update(zip(commit.positions, commit.tokens, strict=True))
        text = settled()
        # the last characters may change with the next token (an incomplete UTF-8 sequence)
        if text.startswith(shown) and not text.endswith("�"):
            sys.stdout.write(visible(text[len(shown) :]))
            sys.stdout.flush()
            shown = text

    (made,) = answer(backbone, [messages], watch=watch)
    rest = made.text[len(shown) :] if made.text.startswith(shown) else "\n" + made.text
    sys.stdout.write(visible(rest) + "\n")
    sys.stdout.flush()
    say(f"({made.steps} steps)")
    return made.text
