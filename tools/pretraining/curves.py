"""The picture of a pretraining run, from its log: loss on the left, accuracy on the right."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.files import write_bytes

COLOURS = ("#1b6ca8", "#d1495b", "#3c8d53", "#b8860b", "#7a4ea3", "#4a4a4a")


def read_log(path: Path | str) -> list[dict[str, Any]]:
    """Records of a `log.jsonl` or `log.jsonl.gz`."""
    path = Path(path)
    if not path.is_file():
        raise GoldimaskError(f"{path}: no such log; give the log.jsonl of a pretraining run")
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def draw_curves(records: list[dict[str, Any]], target: Path | str) -> Path:
    """Write a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    train = [r for r in records if "loss" in r]
    seen = [r for r in records if "heldout_loss" in r]
    steps = [r["step"] for r in seen]
    left.plot([r["step"] for r in train], [r["loss"] for r in train], color="#bbbbbb", lw=0.8)
    left.plot(steps, [r["heldout_loss"] for r in seen], color="black", lw=1.5)
    names = list(seen[-1]["test_loss"]) if seen else []
    handles = []
    for name, colour in zip(names, COLOURS, strict=False):
        (handle,) = left.plot(steps, [r["test_loss"][name] for r in seen], color=colour, lw=1.2)
        handles.append(handle)
        decoded = [r for r in seen if "test" in r]
        right.plot(
            [r["step"] for r in decoded],
            [100 * r["test"][name]["accuracy"] for r in decoded],
            color=colour,
            lw=1.2,
        )
    left.set(xlabel="step", ylabel="denoising loss (nats per token)", yscale="log")
    left.set_title("grey: training, black: held-out, coloured: test problems", fontsize=9)
    right.set(xlabel="step", ylabel="test accuracy (%)", ylim=(-2, 102))
    right.set_title("threshold decoding of test problems", fontsize=9)
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    if handles:
        right.legend(handles, names, frameon=False, fontsize=9, loc="upper left")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130, metadata={"Software": None})
    return write_bytes(target, buffer.getvalue())
