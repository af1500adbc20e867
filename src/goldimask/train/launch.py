"""`goldimask train RECIPE --nproc N`: start the processes with torch's elastic launcher.

This is what `torchrun --standalone` does, with two additions: the settings of the packaged
accelerate configuration become the environment of the processes, and the first process that failed
reports its message and its exit code. (The launcher's own reports know neither the exit code nor an
order within a second, and there are none after a signal.) Signals reach every process, which save a
checkpoint before they end.

Sharded models (FSDP2): accelerate shards on accelerators only and, on CPUs, leaves a request for
FSDP2 without a word: the run would be DDP. The engine itself works there, so the request is put
where accelerate looks (`honour_request`). We shard ourselves (`shard`), in the same way everywhere:

    arithmetic in the lower precision; master weights, gradient sums, log p, attention and RoPE in
    float32: nothing that enters or leaves a block is cast (accelerate's policy rounds all of it)

The model waits in host memory, and a block at a time becomes float32 on the device and is cut up,
so that no card ever holds more than its share and one block.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from goldimask.errors import GoldimaskError, RunFailed
from goldimask.files import write_json
from goldimask.processes import check_devices, rank, sharded

Launch = Literal["ddp", "fsdp2"]
REPORTS = "GOLDIMASK_REPORTS"  # folder in which processes leave the reason of their end
GRACE = "GOLDIMASK_GRACE"  # seconds that a process has to save a checkpoint after a signal
GRACE_SECONDS = 30


def launch(words: Sequence[str], processes: int, kind: Launch = "ddp") -> None:
    """Run `goldimask WORDS` in several processes on this machine."""
    if processes < 1:
        raise GoldimaskError(f"--nproc: {processes} must be at least 1")
    check_devices(processes)
    with tempfile.TemporaryDirectory(prefix="goldimask-") as folder:
        try:
            run_elastic(words, processes, {**environment(kind), REPORTS: folder}, folder)
        finally:
            first = first_report(Path(folder))
            if first is not None:
                raise Ended(first) from None


class Ended(RunFailed):
    """The failure of a process, told by the one that started it."""

    def __init__(self, report: dict[str, Any]) -> None:
        several = f"process {report['rank']}: " if report["rank"] else ""
        super().__init__(f"{several}{report['message']}")
        self.exit_code = int(report["exit_code"])


def run_elastic(words: Sequence[str], processes: int, env: dict[str, str], folder: str) -> None:
    """torchrun's engine, without its log lines."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        shutdown_timeout=grace_seconds(),
        signals_to_handle="SIGTERM,SIGINT,SIGHUP,SIGUSR1,SIGUSR2,SIGQUIT",
        logs_specs=DefaultLogsSpecs(log_dir=folder),
    )
    os.environ.update({"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), **env})
    try:
        elastic_launch(config, sys.executable)("-P", "-m", "goldimask", *words)
    except SignalException as error:
        if first_report(Path(folder)) is None:
            raise KeyboardInterrupt from error
    except ChildFailedError as error:
        number, failure = error.get_first_failure()
        if first_report(Path(folder)) is None:  # killed from outside: it could not say why
            raise RunFailed(
                f"process {number} ended with code {failure.exitcode} without a message"
            ) from error


def grace_seconds() -> int:
    """How long processes may take to save and end after a signal or the failure of one."""
    text = os.environ.get(GRACE, str(GRACE_SECONDS))
    if not text.isdecimal() or int(text) < 1:
        raise GoldimaskError(f"{GRACE}: '{text}' must be a whole number of seconds, at least 1")
    return int(text)


def config_file(kind: str) -> Path:
    """A packaged accelerate configuration."""
    return Path(__file__).parents[1] / "launch" / f"{kind}.yaml"


def environment(kind: Launch) -> dict[str, str]:
    """What `accelerate launch` would put into the environment for a packaged configuration."""
    import yaml

    config = yaml.safe_load(config_file(kind).read_text(encoding="utf-8"))
    if "fsdp_config" not in config:
        return {}
    values = {
        key.upper(): str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in config["fsdp_config"].items()
    }
    return {"ACCELERATE_USE_FSDP": "true", **values}


def report_failure(error: BaseException) -> bool:
    """Leave the reason of this process's end for the launcher; False when there is none."""
    folder = os.environ.get(REPORTS)
    if not folder:
        return False
    known = isinstance(error, GoldimaskError)
    message = str(error) if known else f"{type(error).__name__}: {error}"
    code = error.exit_code if isinstance(error, GoldimaskError) else 1
    record = {"rank": rank(), "message": message, "exit_code": code, "time": time.time()}
    write_json(Path(folder) / f"rank-{rank()}.json", {**record, "known": known})
    return True


def launched() -> bool:
    """Was this process started by `launch`?"""
    return bool(os.environ.get(REPORTS))


def failed_elsewhere() -> bool:
    """Has a process of this job already reported its failure?"""
    folder = os.environ.get(REPORTS)
    return bool(folder) and any(Path(folder).glob("rank-*.json"))


def first_report(folder: Path) -> dict[str, Any] | None:
    """The earliest report; mistakes of the input come before what they caused elsewhere."""
    reports = [json.loads(f.read_text("utf-8")) for f in folder.glob("rank-*.json")]
    return min(reports, key=lambda r: (not r["known"], r["time"]), default=None)


# --- sharded models ------------------------------------------------------------------------------


def honour_request(accelerator: Any) -> bool:
    """Make FSDP2 the engine where it was asked for and accelerate would not; True if it was."""
    from accelerate import DistributedType, FullyShardedDataParallelPlugin, PartialState

    if not sharded() or accelerator.distributed_type != DistributedType.MULTI_CPU:
        return False
    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin()  # reads the environment
    accelerator.state.distributed_type = DistributedType.FSDP
    PartialState._shared_state["distributed_type"] = DistributedType.FSDP
    return True


def master_weights(model: Any) -> None:
    """What is trained, in float32."""
    for p in model.parameters():
        if p.requires_grad:
            p.data = p.data.float()


def hold_weights(model: Any, accelerator: Any, cut: bool) -> None:
    """What is trained becomes float32: on this device, or a block at a time where it is cut up."""
    from goldimask.train.arguments import check_precision  # brings transformers

    check_precision(model, accelerator.mixed_precision != "no")
    if not cut:
        master_weights(model)
    elif not hasattr(model, "reshard"):
        shard(model, accelerator.device, accelerator.mixed_precision)
        accelerator.state.fsdp_plugin.auto_wrap_policy = None  # or it looks for whole blocks


def shard(model: Any, device: Any, mixed: str) -> None:
    """FSDP2 in place: every block is a unit, the rest another; `mixed` is no, bf16 or fp16."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from transformers.modeling_layers import GradientCheckpointingLayer

    low = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}[mixed]
    sums = None if low is None else torch.float32
    policy = MixedPrecisionPolicy(low, sums, output_dtype=None, cast_forward_inputs=False)
    blocks = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    for module in (*blocks, model):
        for p in module.parameters():
            if p.requires_grad and not hasattr(p, "device_mesh"):
                p.data = p.data.to(device).float()
        fully_shard(module, mp_policy=policy)


def gather_parameters(model: Any, only_trainable: bool) -> None:
    """Replace shards by whole tensors on rank 0; nothing happens to a model that is not sharded.

    Every rank takes part. The model can be saved afterwards, but no longer trained.
    """
    import torch
    from torch.distributed.tensor import DTensor

    if hasattr(model, "reshard"):
        model.reshard()
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            if not isinstance(p, DTensor) or (only_trainable and not p.requires_grad):
                continue
            with torch.no_grad():
                whole = p.full_tensor()  # a collective
            if rank() == 0:
                module._parameters[name] = torch.nn.Parameter(whole.cpu(), p.requires_grad)
