"""One block of the 8B model with random weights and an adapter: kernels, speed, memory, hours.

4,096 tokens of width 4,096 on a GPU; elsewhere 256 of width 256, marked as such: it shows that the
path works, and nothing about speed. FLOP (`train/cards.py`) over seconds of forward and backward.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from goldimask.backbones.checkpoint import empty_model
from goldimask.backbones.footprint import GIB, Use, footprint
from goldimask.backbones.llada import LLADA
from goldimask.selftest import GPUS, Line, check, skipped
from goldimask.train.cards import work

RANK, ROUNDS, WITHIN = 128, 3, 0.25


def sizes(device: torch.device) -> tuple[dict[str, Any], int]:
    """The block, and how many tokens; the vocabulary is left small: its cost is not the block's."""
    d = 4096 if device.type in GPUS else 256
    shape = {"d_model": d, "n_heads": d // 128, "n_kv_heads": d // 128, "mlp_hidden_size": 3 * d}
    rest = {"n_layers": 1, "vocab_size": 256, "embedding_size": 256, "mask_token_id": 255}
    return {**shape, **rest, "max_sequence_length": d}, d


def run(device: torch.device) -> Iterator[Line]:
    fields, length = sizes(device)
    small = length < 4096
    if small:
        yield Line("smaller than the 8B block", f"width {fields['d_model']}, {length} tokens")
    for masked in (False, True):
        title = f"SDPA kernel, {'with' if masked else 'without'} a mask"
        yield Line(title, kernel(device, fields, length, masked))
    model = adapted(device, fields)
    use = Use(length, 1, adapter=1, rank=RANK, inputs=3 * fields["d_model"])
    seconds, peak, before = timed(model, device, length, fields["vocab_size"])
    flop = work(model.get_base_model(), length, 1, frozen=True, checkpointed=False).total * length
    rate = flop / seconds
    yield Line("forward and backward", f"{rate / 1e12:.3g} TFLOP/s", value=rate)
    if peak:
        plan = footprint(model.get_base_model(), use)
        expected = (plan["begin of backward"] - plan["weights"]) * GIB
        apart = (peak - before) / expected - 1
        if small:
            yield Line("peak memory against the estimate", f"{apart:+.0%}", value=apart)
        else:
            yield check("peak memory against the estimate", abs(apart), WITHIN)
    else:
        yield skipped("peak memory", f"not counted on a {device.type}")
    if small:
        yield skipped("hours of the paper's run", "not from a block of this size")
    else:
        yield Line("the paper's run at this speed", f"{paper_hours(rate):.3g} h on one such device")


def kernel(device: torch.device, fields: dict[str, Any], length: int, masked: bool) -> str:
    """Which kernel torch chooses for these shapes in bfloat16."""
    d, heads = fields["d_model"], fields["n_heads"]
    q = torch.zeros(1, heads, length, d // heads, dtype=torch.bfloat16, device=device)
    mask = torch.ones(1, 1, length, length, dtype=torch.bool, device=device) if masked else None
    try:
        chosen = torch._fused_sdp_choice(q, q, q, mask)  # pyright: ignore[reportPrivateImportUsage]
        return SDPBackend(chosen).name.lower()
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return f"unknown ({str(error).splitlines()[0][:60]})"


def adapted(device: torch.device, fields: dict[str, Any]) -> Any:
    """The block with small constant weights; their values do not matter, their speed does."""
    from peft import LoraConfig, get_peft_model

    from goldimask.backbones.attention import register_attention
    from goldimask.backbones.lora import TARGETS

    register_attention()
    bare: Any = empty_model(LLADA.config(**fields), LLADA)
    bare = bare.to_empty(device=device).to(torch.bfloat16)
    bare.model.rotary_emb = type(bare.model.rotary_emb)(bare.config).to(device)
    for p in bare.parameters():
        p.data.fill_(0.01)
    config = LoraConfig(r=RANK, lora_dropout=0.05, target_modules=list(TARGETS))
    model = get_peft_model(bare, config).to(device)
    for p in model.parameters():
        p.data = p.data.float() if p.requires_grad else p.data
    return model.train()


def timed(model: Any, device: torch.device, length: int, vocabulary: int) -> tuple[float, int, int]:
    """Seconds of the fastest round, peak bytes (0 where nobody counts), bytes before it."""
    ids = (torch.arange(length) % vocabulary)[None].to(device)
    flat = torch.arange(length, device=device)
    module = torch.get_device_module(device)
    count = getattr(module, "max_memory_allocated", lambda: 0)
    if (reset := getattr(module, "reset_peak_memory_stats", None)) is None:
        count = lambda: 0  # noqa: E731  the peak would be that of earlier parts
    else:
        reset()
    times, before = [], getattr(module, "memory_allocated", lambda: 0)()
    for _ in range(ROUNDS):
        wait(device)
        start = time.perf_counter()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            logp: Tensor = model(input_ids=ids, score_ids=ids, score_mask=flat).logp
        logp.sum().backward()
        wait(device)
        times.append(time.perf_counter() - start)
        for p in model.parameters():
            p.grad = None
    return min(times), count(), before


def wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def paper_hours(rate: float) -> float:
    """LLaDA-8B, GoldiMask-D on s1K: FLOP of the plan over the rate of the block."""
    from goldimask.config import load_recipe
    from goldimask.train.estimate import estimate

    return estimate(load_recipe("llada8b"))["exaflop"] * 1e18 / rate / 3600
