"""The process whose forks are commands (`goldimask.campaign.warm` talks to it).

    stdin     a line per job: {"words": [...], "log": FILE, "env": {...}}
    stdout    {"pid": ...} when it runs, {"pid": ..., "code": ...} when it has ended

The end of stdin is the end of it, and of what still runs.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
from typing import Any

from goldimask.cli import main

ROOMS = (  # what a training or an evaluation of a tiny backbone imports, much of it late
    "goldimask.cli.training",
    "goldimask.cli.evaluation",
    "goldimask.train.run",
    "goldimask.eval.run",
    "goldimask.eval.tasks",
    "goldimask.decoding.engine",
    "goldimask.backbones.lora",
    "goldimask.select.engine",
    "goldimask.select.swaps",
    "goldimask.tiny.corpora",
    "goldimask.tiny.evaluation",
    "goldimask.train.trainer",
)
EVERY = 0.05  # seconds between two looks at the children


def serve(out: int) -> dict[str, Any] | None:
    """Fork at every line; returns the job in a child, and None at the end of stdin."""
    running: set[int] = set()
    rest = b""
    while True:
        if select.select([0], [], [], EVERY)[0]:
            data = os.read(0, 65536)
            if not data:
                for pid in running:
                    os.kill(pid, signal.SIGTERM)
                return None
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                pid = os.fork()
                if not pid:
                    return json.loads(line)
                running.add(pid)
                os.write(out, json.dumps({"pid": pid}).encode() + b"\n")
        for pid in list(running):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                running.remove(pid)
                code = os.waitstatus_to_exitcode(status)
                os.write(out, json.dumps({"pid": pid, "code": code}).encode() + b"\n")


def become(job: dict[str, Any], out: int) -> None:
    """A fresh process, as far as a command can tell."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # sent when the parent dies
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.close(out)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(job["env"])
    sys.argv = ["goldimask", *job["words"]]


def start() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the children
    out = os.dup(1)
    os.dup2(2, 1)  # what an import prints
    for room in ROOMS:
        importlib.import_module(room)
    job = serve(out)
    if job is not None:
        become(job, out)
        main()


if __name__ == "__main__":
    start()
