"""The tutorial's own commands, outside of the clone, with nothing of it but the wheel."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "own-data.md"
SECONDS = 900  # on a machine that does something else; two minutes on two idle cores


def commands() -> list[str]:
    """The `bash` blocks of the page, as they stand there."""
    return re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.S | re.M)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder with `goldimask` and `python` that know the wheel and the dependencies."""
    dist, site, programs = (tmp_path / name for name in ("dist", "site", "bin"))
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(dist)]
    subprocess.run([*build, str(ROOT)], check=True, capture_output=True)
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site)]
    subprocess.run([*install, str(next(dist.glob("*.whl")))], check=True)
    programs.mkdir()
    # -S: no .pth file of this environment runs, so that no editable install is found
    path = f'export PYTHONPATH="{site}:{sysconfig.get_path("purelib")}"'
    for name, words in (("python", ""), ("goldimask", "-m goldimask ")):
        start = f'exec "{sys.executable}" -S {words}"$@"'
        (programs / name).write_text(f"#!/bin/sh\n{path}\n{start}\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    return programs


@pytest.mark.real
def test_the_tutorial_runs(installed: Path, tmp_path: Path) -> None:
    work = tmp_path / "elsewhere"
    work.mkdir()
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    env |= {"PATH": f"{installed}:{env['PATH']}", "HF_HUB_OFFLINE": "1", "COLUMNS": "80"}
    script = "set -e\n" + "\n".join(commands())
    began = time.monotonic()
    done = subprocess.run(
        ["bash", "-c", script], cwd=work, env=env, capture_output=True, text=True, timeout=SECONDS
    )
    took = time.monotonic() - began
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    where = subprocess.run(
        [installed / "python", "-c", "import goldimask; print(goldimask.__file__)"],
        cwd=work,
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(where.stdout.strip()).is_relative_to(tmp_path), "not the wheel"
    print(f"the tutorial took {took:.0f} s")
    assert (work / "my.yaml").is_file() and (work / "runs" / "my" / "adapter").is_dir()
    base, tuned = (
        json.loads((work / folder / "scores.json").read_text())["scores"][0]
        for folder in ("evals/tiny", "runs/my/eval")
    )
    assert base["task"] == tuned["task"] and base["n"] == tuned["n"] == 40
    assert tuned["accuracy"] > base["accuracy"]  # as the page says
    scored = re.search(r"│ correct\s+│\s+(\d+) │", done.stdout)
    assert scored and int(scored[1]) == tuned["correct"]  # decode and score, as eval
    assert re.search(r"step +\d+/\d+  loss", done.stderr) and "next:" in done.stderr


def test_the_page_has_every_step() -> None:
    """The quick half: what the page tells to type are verbs, options and keys that exist."""
    from goldimask.cli.app import VERBS, load
    from goldimask.config import load_recipe

    lines = [line for block in commands() for line in block.splitlines()]
    typed = [line.split("#")[0].split() for line in lines if line.startswith("goldimask ")]
    assert {"init", "train", "eval", "decode", "score"} <= {words[1] for words in typed}
    for words in typed:
        known = {o for p in load(words[1]).params for o in p.opts} | {"--quiet"}
        assert words[1] in VERBS
        assert {w for w in words if w.startswith("-")} <= known, words
    for block in re.findall(r"^goldimask train tiny (.*)$", PAGE.read_text(), re.M):
        keys = [w for w in block.split("#")[0].split() if "=" in w]
        assert load_recipe("tiny", keys)
