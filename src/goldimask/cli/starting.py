"""`goldimask init`: from a file of rows to a recipe."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goldimask.cli.options import JsonFlag, out_option, words
from goldimask.console import emit, say, suggest, visible
from goldimask.errors import GoldimaskError

if TYPE_CHECKING:
    from goldimask.train.first_recipe import Look

app = typer.Typer()
SHARE = 0.02  # of unknown tokens, from which on the model is the wrong one


@app.command()
def init(
    path: Annotated[str, typer.Argument(help="A .jsonl, .json, .csv, .parquet, folder or Hub id.")],
    model: Annotated[
        str, typer.Option(help="A backbone's name, a folder or a Hub id; `tiny` runs anywhere.")
    ] = "tiny",
    columns: Annotated[
        str, typer.Option(help="Your names, such as prompt=title,response=body; also system.")
    ] = "",
    out: Annotated[Path | None, out_option("The recipe. [the file's name].yaml")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing recipe.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Look at your rows and write a recipe for them.

    Says what was found in every row, how long the rows are, what would be cut and what cannot be
    used, and writes a commented recipe of ordinary values with an estimate.

    Examples:

        goldimask init my.jsonl

        goldimask init table.csv --columns prompt=title,response=body --model llada-8b-instruct
    """
    from goldimask.files import write_text
    from goldimask.train.estimate import estimate, shape
    from goldimask.train.first_recipe import as_recipe, header, look_at, recipe_text, stem, usable

    file = out or Path(f"{stem(path)}.yaml")
    if file.suffix not in (".yaml", ".yml"):
        raise GoldimaskError(f"--out: '{file}' must end in .yaml")
    if file.exists() and not force:
        raise GoldimaskError(f"'{file}' exists; choose another with -o, or replace it with --force")
    named = column_names(columns)
    skeleton, _ = shape(as_recipe(f"backbone: {{name: {model}}}", "--model"))
    found = look_at(path, skeleton, named)
    text = recipe_text(found, model, skeleton, named)
    plan = estimate(as_recipe(text, str(file)))
    write_text(file, header(found, model, plan) + text)
    shown = described(found, usable(skeleton), model)
    kept = ("steps", "epochs", "examples", "memory_gib", "hours_here", "hours", "hours_at")
    report = facts(found, usable(skeleton))
    report |= {"recipe": str(file), "plan": {key: plan[key] for key in kept}}
    if as_json:
        emit(report, True)
        return
    typer.echo(visible("\n".join(shown)))
    say(f"wrote {file}: {plan['steps']} steps, {plan['memory_gib']:.2g} GiB estimated")
    recipe = shlex.quote(str(file))
    suggest(
        f"goldimask train {recipe} --dry-run",
        f"goldimask train {recipe}",
        f"goldimask eval runs/{stem(path)} --tasks file:QUESTIONS.jsonl "
        f"--lengths {room(found.response)}",
    )


def column_names(text: str) -> dict[str, str]:
    """`prompt=title,response=body` -> a mapping."""
    pairs = [word.partition("=") for word in words(text)]
    if any(not sign or not name for _, sign, name in pairs):
        raise GoldimaskError(f"--columns: write prompt=NAME,response=NAME; got '{text}'")
    return {key.strip(): name.strip() for key, _, name in pairs}


def room(responses: list[int]) -> int:
    """Positions that hold nearly every response, in whole blocks."""
    longest = sorted(responses)[int(0.95 * (len(responses) - 1))]
    block = 32 if longest > 32 else 8
    return -(-longest // block) * block


def facts(found: Look, most: int) -> dict[str, Any]:
    """The look as plain data."""
    from goldimask.train.preview import quantiles

    counted = {"prompt": found.prompt, "response": found.response, "total": found.total}
    return {
        "path": found.path,
        "rows": found.rows,
        "shapes": dict(found.shapes),
        "columns": dict(found.columns),
        "bad": found.bad,
        "first_bad": found.first_bad,
        "several_turns": found.several,
        "repeated": found.repeated,
        "unknown": found.unknown_share,
        "tokens_measured": found.measured,
        "tokens": {name: quantiles(values) for name, values in counted.items()},
        "cut": {str(n): count for n, count in found.cut(most).items()},
        "most": most,
    }


def described(found: Look, most: int, model: str) -> list[str]:
    """The look for a person, within 80 columns."""
    from goldimask.train.preview import quantile_lines

    shapes = ", ".join(f"{name} ({count})" for name, count in found.shapes.items())
    lines = [f"rows      {found.rows}: {shapes}", f"columns   {', '.join(found.columns)}"]
    counted = {"prompt": found.prompt, "response": found.response, "total": found.total}
    lines += quantile_lines(counted)
    if not found.measured:
        lines.append(f"          estimated by characters: {model}'s tokenizer is not downloaded")
    cuts = ", ".join(f"{count} at {n}" for n, count in found.cut(most).items() if count)
    lines.append(f"cut       {cuts or 'nothing'}; {model} takes {most:,} tokens")
    if found.several:
        lines.append(
            f"turns     {found.several} rows have several assistant turns; all are trained"
        )
    if found.repeated:
        lines.append(f"copies    {found.repeated} rows repeat another one")
    if found.bad:
        lines.append(f"bad       {found.bad} rows, which the recipe skips:")
        lines += [f"          {line}" for line in found.first_bad]
    if found.unknown_share > SHARE:
        lines.append(
            f"warning   {found.unknown_share:.0%} of the tokens are words that {model} does"
        )
        lines.append("          not know: good for a try, not for a result (list backbones)")
    return lines
