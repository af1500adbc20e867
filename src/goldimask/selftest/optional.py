"""What not everybody has: 4-bit weights, fused scoring, the sandbox, the math checker."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import torch

from goldimask.backbones.liger import verify_liger
from goldimask.errors import GoldimaskError
from goldimask.eval.sandbox import Program, open_sandbox
from goldimask.selftest import Line, check, skipped


def run(device: torch.device) -> Iterator[Line]:
    yield nf4(device)
    yield liger(device)
    yield sandbox()
    yield math()


def nf4(device: torch.device) -> Line:
    """A product with 4-bit weights against one with the weights that they stand for."""
    if find_spec("bitsandbytes") is None:
        return skipped("nf4", "bitsandbytes is not installed: pip install 'goldimask[quant]'")
    if device.type != "cuda":
        return skipped("nf4", f"checked on CUDA; this is {device.type}")
    import bitsandbytes  # pyright: ignore[reportMissingImports]

    layer = bitsandbytes.nn.Linear4bit(256, 256, bias=False, quant_type="nf4")
    weight = torch.sin(torch.arange(256 * 256.0)).reshape(256, 256)
    layer.load_state_dict({"weight": weight})
    layer = layer.to(device)
    rows = torch.cos(torch.arange(16 * 256.0)).reshape(16, 256).to(device, torch.bfloat16)
    exact = rows.float() @ weight.to(device).t()
    return check("nf4, relative error", float((layer(rows) - exact).norm() / exact.norm()), 0.15)


def liger(device: torch.device) -> Line:
    if find_spec("liger_kernel") is None:
        return skipped("Liger", "not installed: pip install 'goldimask[liger]'")
    try:
        return check("Liger, largest difference", verify_liger(device), 1e-4)
    except GoldimaskError as error:
        return Line("Liger", str(error), "skipped" if device.type == "cpu" else "failed")


def sandbox() -> Line:
    """One program that is right, and one that wants a socket."""
    try:
        box = open_sandbox(True)
    except GoldimaskError as error:
        return skipped("sandbox", str(error))
    right = box.run(Program("def f(x):\n    return x + 1", "assert f(1) == 2"))
    wrong = box.run(Program("import socket\nsocket.socket().connect(('127.0.0.1', 9))", "pass"))
    good = right.passed and not wrong.passed
    return Line("sandbox", box.describe().removeprefix("sandbox: "), "ok" if good else "failed")


def math() -> Line:
    """An equality that needs algebra, and one that does not hold."""
    if find_spec("math_verify") is None:
        return skipped("math checker", "not installed: pip install 'goldimask[eval]'")
    from goldimask.eval.mathpool import close_pool, equivalent  # needs the extra

    found = equivalent([("\\frac{1}{2}", "0.5"), ("2", "3")])
    close_pool()
    good = len(found) == 2 and found[0] != found[1]
    return Line("math checker", ", ".join(found), "ok" if good else "failed")
