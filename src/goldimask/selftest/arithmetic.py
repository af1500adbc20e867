"""The embedded model on the device against the CPU: one step of GoldiMask-D, and every decoder.

The reference is the CPU in float32 with eager attention; the device takes the fused kernels that a
run takes. bfloat16 is held against the same float32, so its limits are the price of the precision,
about three times what a CPU's bfloat16 shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from goldimask.backbones import Backbone, load_backbone
from goldimask.backbones.lora import add_lora
from goldimask.data.batches import make_batch
from goldimask.decoding import DECODERS, decode
from goldimask.keys import Keys
from goldimask.methods import method
from goldimask.selftest import Line, check
from goldimask.step import MaskedStep
from goldimask.types import Batch, Example

PROMPTS = ("What is 2+3?", "Compute 17 + 5 please.")
ANSWERS = ("2 + 3 = 5, so the answer is 5.", "17 + 5 = 22. First 17 + 3 = 20, then 20 + 2 = 22.")
# largest differences (gradients: relative); of sets the smallest share in common
LIMITS = {
    "float32": {"log p": 1e-3, "attention": 1e-4, "gradients": 1e-3, "weights": 1e-2, "sets": 1.0},
    "bfloat16": {"log p": 1.2, "attention": 0.02, "gradients": 0.1, "weights": 0.2, "sets": 0.7},
}


def run(device: torch.device) -> Iterator[Line]:
    reference = load_backbone("tiny", dtype="float32", device="cpu", attn="eager")
    tested = load_backbone("tiny", dtype="float32", device=device)
    for name in DECODERS.names():
        yield same_tokens(name, reference, tested)
    expected = one_step(reference)
    for dtype, limits in LIMITS.items():
        subject = tested if dtype == "float32" else load_backbone("tiny", dtype, device)
        found = one_step(subject, autocast=dtype == "bfloat16")
        for name, limit in limits.items():
            value = difference(name, expected[name], found[name])
            title = "sets in common" if name == "sets" else f"{name}, largest difference"
            yield check(f"{dtype}: {title}", value, limit, least=name == "sets")


def same_tokens(decoder: str, reference: Backbone, tested: Backbone) -> Line:
    """Greedy decoding in float32 leaves no room for another token."""
    expected, found = (
        [d.tokens for d in decode(b, PROMPTS, decoder, length=8)] for b in (reference, tested)
    )
    equal = [
        a == b for x, y in zip(expected, found, strict=True) for a, b in zip(x, y, strict=True)
    ]
    return check(f"{decoder}: tokens in common", sum(equal) / len(equal), 1.0, least=True)


def one_step(backbone: Backbone, autocast: bool = False) -> dict[str, Tensor]:
    """What the step measured, chose and weighed, and the gradients of an adapter, on the host."""
    tuned = add_lora(backbone, 0, r=4, alpha=8, dropout=0.0)
    model, place = tuned.model, next(backbone.model.parameters()).device
    model.train()
    batch = examples(tuned).to(place)
    rounding = torch.autocast(place.type, dtype=torch.bfloat16) if autocast else nullcontext()
    with rounding:
        step = MaskedStep(method("goldimask-d", select={"engine": "host"}), tuned.scorer)
        out = step(model, batch, Keys(0))
    out.loss.backward()
    grads = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    found: dict[str, Any] = {
        "log p": out.signals.logp,
        "attention": out.signals.attention,
        "gradients": torch.cat(grads),
        "weights": out.weights.value,
        "sets": out.reveal.mask,
    }
    model.unload()  # type: ignore[operator]
    return {name: value.detach().cpu() for name, value in found.items()}


def examples(backbone: Backbone) -> Batch:
    made = []
    for number, (prompt, answer) in enumerate(3 * list(zip(PROMPTS, ANSWERS, strict=True))):
        before, after = backbone.prompt_ids(prompt), backbone.response_ids(answer)
        mask = [False] * len(before) + [True] * len(after)
        made.append(Example([*before, *after], len(before), mask, number))
    return make_batch(made, backbone.pad_id, 8)


def difference(name: str, expected: Tensor, found: Tensor) -> float:
    """Largest difference (of gradients: relative to the norm); of sets, the share in common."""
    if name == "sets":
        union = int((expected | found).sum())
        return int((expected & found).sum()) / union if union else 0.0  # nothing was compared
    expected, found = expected.double(), found.double()
    if name == "gradients":
        return float((expected - found).norm() / expected.norm())
    return float((expected - found).abs().max())
