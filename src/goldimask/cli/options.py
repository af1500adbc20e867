"""Options that several verbs share, each described once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from goldimask.errors import GoldimaskError

N = TypeVar("N", int, float)

# what to work on
ModelName = Annotated[
    str, typer.Argument(metavar="RUN", help="A run folder, a model folder, or a backbone's name.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY=VALUE]...", help="Overrides, such as `seed=2 method.weigh.cap=5`."
    ),
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16, ...")]
Nproc = Annotated[int | None, typer.Option(min=1, help="Processes on this machine.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Prompts decoded together.")]


def allow(ctx: typer.Context, asked: bool) -> bool:
    """Let names such as `module:attribute` be imported while the command runs."""
    if asked:
        from goldimask.registry import allow_plugins

        ctx.with_resource(allow_plugins())
    return asked


AllowPlugins = Annotated[
    bool,
    typer.Option(
        "--allow-plugins",
        callback=allow,
        help="Import modules that are named `module:attribute`: this runs their code.",
    ),
]
JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")
]

# how to decode
Decoder = Annotated[str, typer.Option(help="Decoding rule (`goldimask list decoders`).")]
Tau = Annotated[
    float | None, typer.Option(help="Threshold: a confidence, or nats for `entropy`. [0.9 | 0.5]")
]
Length = Annotated[int, typer.Option(help="Response positions to fill.")]
Block = Annotated[int | None, typer.Option(help="Positions per block. [32; Dream's: all]")]
Steps = Annotated[int | None, typer.Option(help="Model calls per response, for step quotas.")]
Temperature = Annotated[float, typer.Option(help="0 is greedy.")]
Seed = Annotated[int, typer.Option(help="Seed of the draws.")]

# how to judge
Protocol = Annotated[str, typer.Option(help="fixed (corrected parsers) or lift (as released).")]
TestSets = Annotated[
    Path | None, typer.Option(help="File or folder of test sets (else GOLDIMASK_DATA, the Hub).")
]
Judge = Annotated[
    str | None,
    typer.Option(help="Of file:...: exact, number, choice, regex, or module:function (plug-in)."),
]
AllowCode = Annotated[
    bool, typer.Option("--allow-code-execution", help="Run generated programs in the sandbox.")
]
Sandbox = Annotated[str, typer.Option(help="auto, bubblewrap or limits.")]


def out_option(what: str) -> Any:
    """`-o`, `--out`: where results go, the same letter everywhere."""
    return typer.Option("-o", "--out", help=what)


def words(text: str) -> list[str]:
    """`a,b` -> [a, b]."""
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str, option: str, kind: Callable[[str], N]) -> tuple[N, ...]:
    """`128,256` -> (128, 256)."""
    try:
        return tuple(kind(word) for word in words(text))
    except ValueError:
        raise GoldimaskError(
            f"{option}: expected numbers such as 1,2 with commas between them, got '{text}'"
        ) from None
