"""What a training step of a published model keeps, counted storage by storage, without memory.

The real architecture runs one step (probe with attention, training pass, backward) on fake tensors:
every operator runs for shapes alone. A storage counts from the operator that makes it until nothing
refers to it. Weights count as the recipe holds them, and AdamW's two moments are counted in.

    nf4        a stand-in for bitsandbytes' layer: packed weights of 0.516 bytes (64 weights share
               an 8-bit scale, 256 scales a float32 one), made bfloat16 again for each product
    processes  FSDP2 itself, over a process group that moves nothing; rank 0 of so many

    python tools/storage.py            the table of docs/hardware.md
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from goldimask.backbones.footprint import GIB, NF4


class Storage(TorchDispatchMode):
    """Bytes that are alive, and the most that ever were."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self.now = self.peak = 0

    def see(self, tensor: Tensor) -> None:
        tensor = getattr(tensor, "_local_tensor", tensor)
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.alive or tensor.is_meta:
            return
        self.alive[key] = size
        self.now += size
        weakref.finalize(storage, self.gone, key)

    def gone(self, key: int) -> None:
        self.now -= self.alive.pop(key)

    def __enter__(self) -> Any:
        """FSDP2 frees and takes back storages without an operator."""
        resize = torch.UntypedStorage.resize_

        def resized(storage: Any, size: int) -> None:
            resize(storage, size)
            if storage._cdata in self.alive:
                self.now += size - self.alive[storage._cdata]
                self.alive[storage._cdata] = size
                self.peak = max(self.peak, self.now)

        self.resize, torch.UntypedStorage.resize_ = resize, resized  # type: ignore[method-assign]
        return super().__enter__()

    def __exit__(self, *failure: Any) -> None:
        torch.UntypedStorage.resize_ = self.resize  # type: ignore[method-assign]
        super().__exit__(*failure)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for found in tree_iter(out):
            if isinstance(found, Tensor):
                self.see(found)
        self.peak = max(self.peak, self.now)
        return out


class Packed(torch.autograd.Function):
    """A product with a weight that exists in full only while it is used."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, packed: Tensor, shape: tuple[int, int]) -> Tensor:
        ctx.packed, ctx.shape = packed, shape
        return F.linear(x, packed.new_empty(shape, dtype=x.dtype))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return grad @ ctx.packed.new_empty(ctx.shape, dtype=grad.dtype), None, None


def quantised(layer: Any) -> None:
    """Give a layer packed weights and the product above."""
    shape = tuple(layer.weight.shape)
    layer.weight = nn.Parameter(
        torch.empty(int(shape[0] * shape[1] * NF4), dtype=torch.uint8, device="cpu"), False
    )

    def forward(x: Tensor) -> Any:
        x = x.to(torch.bfloat16)
        out = Packed.apply(x, layer.weight, shape)
        return out if layer.bias is None else out + layer.bias

    layer.forward = forward


def tracked(
    family: Any,
    sizes: dict[str, Any],
    *,
    lora: bool = True,
    checkpointed: bool = False,
    quant: str | None = None,
    processes: int = 1,
    length: int = 4096,
    batch: int = 1,
    rank: int = 128,
) -> dict[str, float]:
    """GiB at the peaks of the two passes, for a device of its own."""
    from peft import LoraConfig, get_peft_model

    from goldimask.backbones.attention import register_attention
    from goldimask.backbones.checkpoint import empty_model
    from goldimask.backbones.lora import TARGETS

    register_attention()
    config = family.config(**sizes)
    config._attn_implementation = "sdpa"
    model: Any = empty_model(config, family)
    if lora:
        with torch.device("meta"):
            adapter = LoraConfig(
                r=rank, lora_alpha=2 * rank, lora_dropout=0.05, target_modules=list(TARGETS)
            )
            model = get_peft_model(model, adapter)
    if checkpointed:
        model.gradient_checkpointing_enable()
        if lora:
            model.enable_input_require_grads()
    with group(processes), as_on_a_gpu(), FakeTensorMode(allow_non_fake_inputs=True):
        modules: list[Any] = list(model.modules())
        for module in modules:
            for name, p in list(module._parameters.items()):
                if p is not None:
                    kind = torch.float32 if p.requires_grad else torch.bfloat16
                    made = torch.empty(p.shape, dtype=kind, device="cpu")
                    module._parameters[name] = nn.Parameter(made, p.requires_grad)
            for name, b in list(module._buffers.items()):
                if b is not None:
                    module._buffers[name] = torch.empty(b.shape, dtype=b.dtype, device="cpu")
            if isinstance(module, nn.Dropout):  # as on a GPU: the CPU's keeps its mask in float32
                drop: Any = module
                drop.forward = lambda x, m=module: torch.native_dropout(x, m.p, m.training)[0]
            plain = type(module) is nn.Linear and not module.weight.requires_grad
            if quant and plain:
                quantised(module)
        if processes > 1:
            from goldimask.train.launch import shard

            shard(model, torch.device("cpu"), "bf16")
        return step(model, config, batch, length)


def step(model: Any, config: Any, b: int, t: int) -> dict[str, float]:
    counted = Storage()
    for p in model.parameters():
        counted.see(p.data)
    weights = counted.now
    local = (getattr(p, "_local_tensor", p) for p in model.parameters() if p.requires_grad)
    moments = 8 * sum(p.numel() for p in local)
    ids = torch.zeros(b, t, dtype=torch.long)
    flat = torch.zeros(b * t, dtype=torch.long)
    rows = torch.zeros(b, t, dtype=torch.long)
    last = config.num_hidden_layers - 1
    valid = None if b == 1 else torch.ones(b, t, dtype=torch.bool)
    words = {"input_ids": ids, "attention_mask": valid, "score_ids": ids, "score_mask": flat}
    with counted, torch.autocast("cpu", dtype=torch.bfloat16):
        model.eval()
        counted.peak = counted.now
        with torch.no_grad():
            seen = model(**words, tap_layer=last, tap_rows=rows)
        probe = counted.peak
        model.train()
        counted.peak = counted.now
        loss = model(**words).logp.sum()
        kept = counted.now
    with counted:
        loss.backward()
    del seen
    peaks = {"weights": weights, "probe": probe, "kept": kept, "train": counted.peak}
    return {k: (v + (k != "weights") * moments) / GIB for k, v in peaks.items()}


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """A fake device keeps float32 sums when asked; what a real one answered is forgotten twice."""
    from goldimask.backbones.head import keeps_sums

    keeps_sums.cache_clear()
    try:
        yield
    finally:
        keeps_sums.cache_clear()


@contextmanager
def group(processes: int) -> Iterator[None]:
    """A group of which this is rank 0 and in which nobody answers."""
    if processes == 1:
        yield
        return
    from importlib import import_module

    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=processes)
    engine: Any = import_module("torch.distributed.fsdp._fully_shard._fully_shard")
    mesh = init_device_mesh("cpu", (processes,))  # of real numbers, before the fake ones
    whole, engine._init_default_mesh = engine._init_default_mesh, lambda *_, **__: mesh
    try:
        yield
    finally:
        engine._init_default_mesh = whole
        dist.destroy_process_group()


def main() -> None:
    """The table of docs/hardware.md: estimate and count, GiB of one device."""
    import warnings

    from goldimask.backbones.checkpoint import FAMILIES, empty_model
    from goldimask.backbones.footprint import Use, footprint
    from goldimask.backbones.lora import TARGETS
    from goldimask.backbones.summary import adapter_use
    from goldimask.known import PUBLISHED

    warnings.filterwarnings("ignore")
    print("| model | trained | devices | plain | checkpointed | nf4 | nf4, checkpointed |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    kinds: list[dict[str, Any]] = [{}, {"checkpointed": True}, {"quant": "nf4"}]
    kinds.append({"quant": "nf4", "checkpointed": True})
    for name in ("llada-8b-instruct", "dream-7b-instruct"):
        row = next(r for r in PUBLISHED if r.name == name)
        family = FAMILIES[row.layout]
        model = empty_model(family.config(**row.sizes), family)
        for lora in (True, False):
            adapter = adapter_use(model, family, 128, TARGETS) if lora else {}
            for devices in (1, 8):
                cells = []
                for kind in kinds:
                    if "quant" in kind and (devices > 1 or not lora):
                        cells.append("-")
                        continue
                    plan = footprint(model, Use(4096, **adapter, shards=devices, **kind))["peak"]
                    found = tracked(family, dict(row.sizes), lora=lora, processes=devices, **kind)
                    cells.append(f"{plan:.1f} / {max(found.values()):.1f}")
                trained = "LoRA" if lora else "full"
                print(f"| {name} | {trained} | {devices} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
