"""The typer application: which verb is in which file, and how it gets there.

A family of verbs is a file that is imported when one of its verbs is called: `goldimask --help`
imports none of them, `goldimask VERB --help` one. Verbs import torch and transformers inside their
functions, so that both stay instant.

Results go to stdout, everything else (logs, bars, warnings) to stderr; with `--json` stdout holds
exactly one JSON object. A `GoldimaskError` becomes one line on stderr and a non-zero exit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

if TYPE_CHECKING:
    from typer._click import Command, Context

VERBS = {  # verb -> (its file, the first line of its help)
    "demo": ("campaigns", "Teach the embedded model a skill in three ways, and compare."),
    "init": ("starting", "Look at your rows and write a recipe for them."),
    "train": ("training", "Fine-tune a backbone as a recipe says."),
    "eval": ("evaluation", "Decode benchmarks and score the answers."),
    "score": ("scoring", "Score generations that any harness has stored."),
    "decode": ("decoding", "Fill in a response with a parallel decoder."),
    "chat": ("decoding", "Talk to a model and watch its answers fill in."),
    "inspect": ("training", "Show one training step: what is masked, revealed, weighted."),
    "model": ("models", "Show what a model folder is, without loading it."),
    "merge": ("models", "Fold the adapter of a run into its base."),
    "report": ("reports", "Compare runs in tables, paired tests, figures and a page."),
    "compare": ("campaigns", "Train and compare every method on every backbone, corpus and seed."),
    "study": ("studies", "Measure what models and methods do."),
    "list": ("listing", "Name what recipes and commands can name."),
    "selftest": ("selftesting", "Check this machine: arithmetic, speed, memory, resuming."),
    "bench": ("training", "Time a training step of every method against Vanilla."),
}
QUIET = "--quiet"
EVERYWHERE = "`--quiet`: results and errors, nothing else. `--debug`: a traceback of any error."


class Door(TyperGroup):
    """Knows every verb by a line and imports the one that is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: dict[str, Command] = {  # pyright: ignore[reportIncompatibleVariableOverride]
            verb: TyperCommand(verb, help=line) for verb, (_, line) in VERBS.items()
        }

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        if QUIET in args:
            from goldimask.console import hush

            args = [word for word in args if word != QUIET]
            ctx.with_resource(hush())
        if args and args[0] in VERBS:
            self.commands[args[0]] = load(args[0])
        return super().resolve_command(ctx, args)


def load(verb: str) -> Command:
    """A verb of a family is a command of its `app`; one with verbs of its own is `VERB_app`."""
    # `-X importtime` sees this one, and not importlib.import_module
    family = __import__(f"goldimask.cli.{VERBS[verb][0]}", fromlist=["app"])
    own: typer.Typer | None = getattr(family, f"{verb}_app", None)
    found = own or family.app
    found.rich_markup_mode = app.rich_markup_mode
    group = get_group(found)
    asked = group if own else group.commands[verb]
    for command in group.commands.values() if own else (asked,):
        command.epilog = EVERYWHERE
    return asked


app = typer.Typer(
    name="goldimask",
    cls=Door,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"{EVERYWHERE} Start with `goldimask demo`, or with your own rows: `goldimask init`.",
)


def say_version(asked: bool) -> None:
    if asked:
        from goldimask import __version__

        typer.echo(f"goldimask {__version__}")
        raise typer.Exit


@app.callback()
def goldimask(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=say_version, help="Say which this is."),
    ] = False,
) -> None:
    """Fine-tune masked diffusion language models: choose what to reveal, weigh what remains."""
