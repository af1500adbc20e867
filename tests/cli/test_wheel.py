"""The wheel is complete: built, installed in a fresh environment, run without the source tree."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(out.glob("*.whl"))


def test_wheel_holds_every_module_and_asset(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    wanted = {
        str(p.relative_to(source))
        for p in (source / "goldimask").rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert wanted <= names, sorted(wanted - names)
    assert "goldimask/assets/tiny/model/model.safetensors" in names
    assert "goldimask/assets/tiny/model/tokenizer.json" in names
    assert sum(n.endswith(".safetensors") for n in names) == 1  # the other models stay in a clone
    assert wheel.stat().st_size < 6e6
    assert "goldimask/recipes/tiny.yaml" in names
    assert any(n.startswith("goldimask/report/templates/") for n in names)
    assert "goldimask/py.typed" in names
    assert any(n.endswith("licenses/LICENSE") for n in names)


def test_installed_wheel_runs_without_the_source(wheel: Path, tmp_path: Path) -> None:
    """The dependencies come from this environment by path; goldimask itself only from the wheel."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    site = next((tmp_path / "env" / "lib").glob("python*")) / "site-packages"
    here = sysconfig.get_path("purelib")
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "install",
            "-q",
            "--no-deps",
            "--target",
            str(site),
            str(wheel),
        ],
        check=True,
    )
    (site / "zz_dependencies.pth").write_text(f"{here}\n")  # a path only: no editable hooks run
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    env |= {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [python, *words], capture_output=True, text=True, cwd=tmp_path, env=env, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = run("-c", "import goldimask; print(goldimask.__file__)").strip()
    assert Path(where).is_relative_to(site)
    assert "goldimask" in run("-m", "goldimask", "--help")
    words = ["trainer.max_steps=2", "trainer.eval_steps=2", "trainer.save_steps=2"]
    words += ["data.limit=30", "data.validation=6", "global_batch_size=8", "output=run"]
    run("-m", "goldimask", "train", "tiny", *words)
    assert (tmp_path / "run" / "adapter" / "adapter_model.safetensors").is_file()
    missing = [python, "-m", "goldimask", "model", "tiny-b"]
    done = subprocess.run(missing, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert done.returncode != 0 and "ships with the repository" in done.stderr
