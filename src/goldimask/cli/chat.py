"""`goldimask chat`: a conversation, printed while the blocks fill in."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goldimask.cli.app import app
from goldimask.cli.decode import BlockSize, Length, RunArgument, Tau
from goldimask.console import say

if TYPE_CHECKING:
    from goldimask.decoding.types import Settings


@app.command()
def chat(
    run: RunArgument,
    decoder: Annotated[str, typer.Option(help="The decoder.")] = "threshold",
    tau: Tau = None,
    length: Length = 128,
    block: BlockSize = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed of the draws.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16, ...")] = None,
) -> None:
    """Talk to a model; `/reset` forgets the conversation, `/quit` or end of input leaves."""
    from goldimask.backbones import load_backbone
    from goldimask.decoding import make_settings

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
    say(f"{backbone.name}; /reset forgets, /quit leaves")
    messages: list[dict[str, str]] = []
    while (text := ask()) is not None:
        if text == "/reset":
            messages.clear()
        elif text:
            messages.append({"role": "user", "content": text})
            answer = reply(backbone, fitted(backbone, messages, length), settings)
            messages.append({"role": "assistant", "content": answer})


def ask() -> str | None:
    """A line from the user; None to leave."""
    if sys.stdin.isatty():
        sys.stderr.write("> ")
        sys.stderr.flush()
    line = sys.stdin.readline()
    return None if not line or line.strip() == "/quit" else line.strip()


def fitted(backbone: Any, messages: list[dict[str, str]], length: int) -> list[dict[str, str]]:
    """The latest turns that leave room for the answer; the oldest are forgotten aloud."""
    dropped = 0
    while len(messages) > 1 and len(backbone.prompt_ids(messages)) + length > backbone.max_length:
        del messages[: min(2, len(messages) - 1)]
        dropped += 1
    if dropped:
        say(f"the conversation is too long; forgot the {dropped} oldest exchange(s)")
    return messages


def reply(backbone: Any, messages: list[dict[str, str]], settings: Settings) -> str:
    """Decode and print the part of the answer that is settled from its beginning."""
    from goldimask.decoding import decode_with

    tokens: dict[int, int] = {}
    ends = {backbone.pad_id, backbone.turn_end_id}
    shown = ""

    def settled() -> str:
        out: list[int] = []
        while (token := tokens.get(len(out))) is not None and token not in ends:
            out.append(token)
        return backbone.decode(out)

    def watch(_: int, commit: Any) -> None:
        nonlocal shown
        tokens.update(zip(commit.positions, commit.tokens, strict=True))
        text = settled()
        # the last characters may change with the next token (an incomplete UTF-8 sequence)
        if text.startswith(shown) and not text.endswith("�"):
            sys.stdout.write(text[len(shown) :])
            sys.stdout.flush()
            shown = text

    (made,) = decode_with(backbone, [messages], settings, watch=watch)
    rest = made.text[len(shown) :] if made.text.startswith(shown) else "\n" + made.text
    sys.stdout.write(rest + "\n")
    sys.stdout.flush()
    say(f"[dim]({made.steps} steps)[/dim]")
    return made.text
