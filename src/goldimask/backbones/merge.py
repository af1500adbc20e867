"""An adapter merged into its base, checked, and written in either layout (D21, docs/decisions.md).

    W' = W + (alpha / r) B A      in float32, then rounded once to the precision that is stored

The folder is named only after three checks: the merged logits equal the adapter's in float32;
every stored tensor, read back, equals the rounded merged one; nothing is missing from the folder.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from goldimask.backbones.base import Backbone
from goldimask.backbones.checkpoint import check_tensors, read_config, read_shapes, weight_files
from goldimask.backbones.loading import DTYPES, load_backbone
from goldimask.backbones.lookup import find_model
from goldimask.backbones.lora import load_adapter
from goldimask.backbones.modelling import read_modelling
from goldimask.backbones.saving import (
    SHARD_BYTES,
    Layout,
    config_dict,
    full_state,
    write_backbone,
)
from goldimask.errors import GoldimaskError, RunFailed, nearest
from goldimask.files import new_folder
from goldimask.keys import Stream, torch_seed

TOLERANCE = 1e-4  # of the largest logit
PROBE_LENGTH = 64
NAMES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


@dataclass(frozen=True)
class Merged:
    """What a merge did and how well it agrees."""

    folder: str
    layout: str
    dtype: str
    parameters: int
    merged: bool  # false: the run holds full weights, and only the layout changed
    difference: float  # largest |merged - adapter| logit in float32
    stored_difference: float  # the same after rounding to the stored precision
    agreement: float  # share of rows whose most likely token is the same after rounding
    code: tuple[str, ...] = ()  # modelling files copied beside it

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def merge_run(
    run: Path | str,
    to: Path | str,
    layout: Layout = "hub",
    dtype: str | None = None,
    force: bool = False,
    shard_bytes: int = SHARD_BYTES,
    with_code: Path | str | None = None,
) -> Merged:
    """Merge RUN's adapter (or copy its full weights) to a new folder; `dtype` as the base's.

    `with_code` is a download of the base, whose modelling files are copied and not run.
    """
    to = Path(to)
    if layout not in ("hub", "native"):
        raise GoldimaskError(f"--layout: unknown '{layout}'; {nearest(layout, ('hub', 'native'))}")
    if to.exists() and not force and (not to.is_dir() or any(to.iterdir())):
        raise GoldimaskError(f"{to}: already exists; choose another folder or pass --force")
    if with_code is not None and layout != "hub":
        raise GoldimaskError("--with-code: the published code reads --layout hub")
    code = read_modelling(Path(with_code)) if with_code is not None else None
    found = find_model(run)
    folder = found.folder()
    name = dtype or stored_dtype(folder)
    if name not in DTYPES:
        raise GoldimaskError(f"--dtype: unknown '{name}'; {nearest(name, DTYPES)}")
    settings = found.settings({})  # of the recipe; the folder that is written knows them itself
    backbone = load_backbone(folder, dtype=torch.float32, device="cpu", **settings)
    if code is not None:
        code.fits(config_dict(backbone, layout))
    merged, before = backbone, None
    if found.adapter is not None:
        with_adapter = load_adapter(backbone, found.adapter)
        before = probe_logits(with_adapter)
        merged = replace(backbone, model=with_adapter.model.merge_and_unload())  # type: ignore[operator]
    after = probe_logits(merged)
    difference = 0.0 if before is None else compare(before, after, str(to))
    cast_weights(merged.model, DTYPES[name])
    cast_weights(merged.model, torch.float32)  # rounded, but computed with as before
    rounded = probe_logits(merged)
    cast_weights(merged.model, DTYPES[name])
    with new_folder(to) as temporary:
        write_backbone(merged, temporary, layout, shard_bytes)
        if code is not None:
            code.write(temporary)
        verify_folder(temporary, full_state(merged, layout))
    return Merged(
        folder=str(to),
        layout=layout,
        dtype=name,
        parameters=sum(p.numel() for p in merged.model.parameters()),
        merged=found.adapter is not None,
        difference=difference,
        stored_difference=float((after - rounded).abs().max()),
        agreement=float((after.argmax(-1) == rounded.argmax(-1)).float().mean()),
        code=tuple(code.files) if code is not None else (),
    )


def stored_dtype(folder: Path) -> str:
    """The precision most tensors of a checkpoint are stored in."""
    _, counts = read_shapes(folder)
    most = max(counts, key=lambda k: counts[k])
    if most not in NAMES:
        raise GoldimaskError(f"{folder}: stored as {most}; pass --dtype float32 or bfloat16")
    return NAMES[most]


def cast_weights(model: nn.Module, dtype: torch.dtype) -> None:
    """Parameters in `dtype`; buffers (RoPE's frequencies) stay as they are."""
    for p in model.parameters():
        p.data = p.data.to(dtype)


@torch.no_grad()
def probe_logits(backbone: Backbone) -> Tensor:
    """Raw logits of a fixed half-masked sequence, so that both kinds of input are exercised."""
    generator = torch.Generator().manual_seed(torch_seed(0, Stream.STUDY))
    vocab: int = backbone.model.config.vocab_size  # type: ignore[union-attr, assignment]
    ids = torch.randint(vocab, (1, PROBE_LENGTH), generator=generator)
    ids[0, 1::2] = backbone.mask_id
    return backbone.model.eval()(ids).logits


def compare(before: Tensor, after: Tensor, where: str) -> float:
    """The largest difference, which must be rounding and nothing more."""
    difference = float((before - after).abs().max())
    limit = TOLERANCE * max(1.0, float(before.abs().max()))
    if not difference <= limit:  # also refuses NaN
        raise RunFailed(
            f"{where}: merged logits differ from the adapter's by {difference:.3g} "
            f"(limit {limit:.3g}); nothing was written"
        )
    return difference


def verify_folder(folder: Path, expected: dict[str, Tensor]) -> None:
    """Read the folder back: complete for its config, bit for bit what was to be stored."""
    config, family = read_config(folder)
    check_tensors(folder, config, family)
    for path in weight_files(folder):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (not a dict)
                if not torch.equal(file.get_tensor(name), expected[name].cpu()):
                    raise RunFailed(f"{path}: {name} was not stored as merged; nothing was kept")
