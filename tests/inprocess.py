"""Jobs of a campaign in this process: the same commands, without the seconds that a start takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from goldimask.campaign.executors import Ended, Job, log_of, settle
from goldimask.cli import app
from goldimask.errors import GoldimaskError


def here(
    jobs: Sequence[Job],
    slots: Any,
    logs: Path,
    words: Callable[[Job], Sequence[str]],
    is_done: Callable[[Job], bool],
) -> Generator[Ended]:
    """What `execute` does, one job after another; needs stand before those that have them."""
    failed: set[str] = set()
    logs.mkdir(parents=True, exist_ok=True)
    for job in jobs:
        if failed & set(job.needs):
            failed.add(job.name)
            yield Ended(job, "not run", ran=False)
            continue
        if is_done(job):
            yield Ended(job, ran=False)
            continue
        began = time.monotonic()
        found = CliRunner().invoke(app, list(words(job)))
        code, said = found.exit_code, found.output
        if isinstance(found.exception, GoldimaskError):
            code, said = found.exception.exit_code, f"{said}\nerror: {found.exception}\n"
        elif found.exception is not None and not isinstance(found.exception, SystemExit):
            said += f"\n{type(found.exception).__name__}: {found.exception}\n"
        with log_of(logs, job.name).open("a", encoding="utf-8") as log:
            log.write(said)
        error = settle(job, code, logs)
        if error:
            failed.add(job.name)
        yield Ended(job, error, time.monotonic() - began)
