"""`goldimask train RECIPE --nproc N`: start the processes with torch's elastic launcher.

This is what `torchrun --standalone` does, with two additions: the settings of the packaged
accelerate configuration become the environment of the processes, and the first process that failed
reports its message and its exit code. (The launcher's own reports know neither the exit code nor an
order within a second, and there are none after a signal.) Signals reach every process, which save a
checkpoint before they end.

Sharded models (FSDP2): accelerate shards on accelerators only and, on CPUs, leaves a request for
FSDP2 without a word: the run would be DDP. The engine itself works there, so the request is put
where accelerate looks (`honour_request`).
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
from goldimask.processes import rank

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
        logs_specs=DefaultLogsSpecs(log_dir=folder),
    )
    os.environ.update({"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"), **env})
    try:
        elastic_launch(config, sys.executable)("-m", "goldimask", *words)
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


def check_devices(processes: int) -> None:
    """More processes than accelerators would share a card silently."""
    import torch

    if torch.accelerator.is_available() and processes > torch.accelerator.device_count():
        raise GoldimaskError(
            f"--nproc: {processes} processes for {torch.accelerator.device_count()} device(s)"
        )


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

    asked = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if not asked or accelerator.distributed_type != DistributedType.MULTI_CPU:
        return False
    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin()  # reads the environment
    accelerator.state.distributed_type = DistributedType.FSDP
    PartialState._shared_state["distributed_type"] = DistributedType.FSDP
    return True


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
