"""A folder in the real config of a published checkpoint, with random weights: for rehearsals.

    python tools/random_weights.py qwen3-0.6b-diffusion /tmp/qwen3        2.4 GB

Names, shapes and config are those of the download, so that time and memory are too. The tokenizer
is the tiny model's (the real one cannot be made here), and what the model says means nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from goldimask.console import say
from goldimask.errors import GoldimaskError, nearest


def main(
    name: Annotated[str, typer.Argument(help="A published checkpoint, see `list backbones`.")],
    folder: Annotated[Path, typer.Argument(help="New folder.")],
    seed: Annotated[int, typer.Option(help="Of the weights.")] = 0,
) -> None:
    """Write the folder."""
    from goldimask.backbones import FAMILIES, new_backbone, save_backbone
    from goldimask.known import PUBLISHED
    from pretraining.tokenizer import build_tokenizer

    rows = {row.name: row for row in PUBLISHED}
    if name not in rows:
        raise GoldimaskError(f"'{name}' is not a published checkpoint; {nearest(name, rows)}")
    row, tokenizer = rows[name], build_tokenizer()
    settings = {"mask_token_id": tokenizer.mask_token_id, "logit_shift": row.shift}
    say(f"drawing {name}")
    made = new_backbone(FAMILIES[row.layout], {**row.sizes, **settings}, tokenizer, seed, name)
    count = sum(p.numel() for p in made.model.parameters())
    say(f"writing {count:,} parameters to {save_backbone(made, folder)}")


if __name__ == "__main__":
    typer.run(main)
