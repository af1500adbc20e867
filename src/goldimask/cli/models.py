"""`goldimask model`, `merge`: what a model folder is, and one model made of base and adapter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from goldimask.cli.options import JsonFlag
from goldimask.console import emit, say, suggest, table

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from goldimask.backbones.saving import Layout

BOUNDARY = "┃"
app = typer.Typer()


@app.command()
def model(
    path: Annotated[str, typer.Argument(help="A folder, a known name or a Hub id.")],
    length: Annotated[
        int | None, typer.Option(min=1, help="Length for the memory estimate, 1024 if it fits.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Batch size for the estimate.")] = 1,
    lora_r: Annotated[int, typer.Option(min=1, help="Adapter rank for the estimate.")] = 128,
    shards: Annotated[
        int, typer.Option(min=2, help="Devices that share the model (FSDP2) in the estimate.")
    ] = 8,
    as_json: JsonFlag = False,
) -> None:
    """Show what a model folder is, without loading it.

    Family, sizes, special tokens, chat rendering and memory; a broken checkpoint is an error.
    """
    from goldimask.backbones.summary import inspect_model

    found = inspect_model(path, length, batch, lora_r, shards=shards)
    emit(found, as_json, None if as_json else page(found))


def page(found: dict[str, Any]) -> Group:
    """The result for a terminal."""
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    chat = found["chat"]
    if "error" in chat:
        shown = Panel(Text(chat["error"]), title="No chat rendering", title_align="left")
    else:
        text = Text(chat["prompt"])
        text.append(BOUNDARY, style="bold reverse")
        text.append(chat["response"], style="bold")
        counts = f"{chat['prompt_tokens']} prompt tokens {BOUNDARY} {chat['response_tokens']}"
        shown = Panel(text, title=f"Two turns: {counts} response tokens", title_align="left")
    return Group(table(found["name"], ("", "found"), facts(found)), shown, memory_table(found))


def facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    """One row per fact."""
    names = {"key_value_heads": "key-value heads", "feed_forward": "feed-forward width"}
    sizes = [
        (str(names.get(k, k)), f"{v:,}" if not isinstance(v, bool) else ("yes" if v else "no"))
        for k, v in found["sizes"].items()
    ]
    stored = ", ".join(f"{n} x {kind}" for kind, n in found["stored_as"].items())
    special = [
        (f"{name.replace('_', ' ')} token", f"{t['id']}  {t['text']}")
        for name, t in found["tokens"].items()
        if isinstance(t, dict)
    ]
    counts = {"special": "special tokens", "tokenizer": "tokenizer entries"}
    known = [(v, f"{found['tokens'][k]:,}") for k, v in counts.items() if k in found["tokens"]]
    sparse = found["active_parameters"] < found["parameters"]
    return [
        ("family", found["family"]),
        ("parameters", f"{found['parameters']:,}"),
        *[("of them for one token", f"{found['active_parameters']:,}")] * sparse,
        ("tensors", f"{found['tensors']} ({stored})" if stored else found["tensors"]),
        *sizes,
        ("positions", f"{found['max_length']:,}"),
        ("usable length", f"{found['usable_length']:,}"),
        ("alignment", found["alignment"]),
        ("RoPE applied in", found["rope"]),
        *special,
        *known,
    ]


def memory_table(found: dict[str, Any]) -> Table:
    memory = found["memory"]
    names = {
        "inference": "inference",
        "lora": f"LoRA ({memory['adapter_parameters']:,} parameters)",
        "lora_checkpointed": "LoRA, gradient checkpointing",
        "lora_nf4": "LoRA, nf4",
        "lora_nf4_checkpointed": "LoRA, nf4, gradient checkpointing",
        "full": "full tuning",
        "full_checkpointed": "full tuning, gradient checkpointing",
    }
    shared = memory["gib_sharded"]
    rows = [
        (names[k], f"{v:.3g}", f"{shared[k]:.3g}" if k in shared else "-")
        for k, v in memory["gib"].items()
    ]
    title = f"Estimated memory at length {memory['length']:,}, batch {memory['batch']}"
    return table(title, ("GiB", "one device", f"each of {memory['shards']}"), rows)


@app.command()
def merge(
    run: Annotated[Path, typer.Argument(help="Folder written by `goldimask train`.")],
    to: Annotated[Path, typer.Option("--to", help="New folder for the merged model.")],
    layout: Annotated[
        str,
        typer.Option(help="hub: the published names and config; native: those of transformers."),
    ] = "hub",
    dtype: Annotated[
        str | None, typer.Option(help="Stored precision; default: that of the base.")
    ] = None,
    with_code: Annotated[
        Path | None,
        typer.Option(help="Your download of the base: its auto_map and *.py are copied, not run."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing folder.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Fold the adapter of a run into its base.

    Merges in float32, compares the logits with the adapter's, then writes the model. Programs
    that run the code of a model folder (d1, LIFT, LLaDA's evaluation) also need `--with-code`.
    """
    from goldimask.backbones.merge import merge_run
    from goldimask.files import write_text
    from goldimask.records import MANIFEST
    from goldimask.train.card import CARD, card_text

    card = card_text(run, merged=True) if (run / MANIFEST).is_file() else None
    done = merge_run(run, to, cast("Layout", layout), dtype, force, with_code=with_code)
    rows = [
        ("folder", done.folder),
        ("layout", done.layout),
        ("stored as", done.dtype),
        ("parameters", f"{done.parameters:,}"),
        ("largest logit difference, merged - adapter", f"{done.difference:.2e}"),
        ("largest logit difference after rounding", f"{done.stored_difference:.2e}"),
        ("same most likely token after rounding", f"{done.agreement:.1%}"),
        *[("code copied, not run", ", ".join(done.code))] * bool(done.code),
    ]
    title = "Merged" if done.merged else "Copied (the run has full weights, no adapter)"
    if card is not None:
        write_text(to / CARD, card)
        say(f"model card: {to / CARD}; look at it before you publish")
    emit(done.as_dict(), as_json, table(title, ("", "value"), rows))
    if not as_json:
        suggest(
            f"goldimask eval {done.folder} --tasks TASK",
            f'goldimask decode {done.folder} "..."',
            f"hf upload USER/NAME {done.folder}",
        )
