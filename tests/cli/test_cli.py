"""The command line as a user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ENV = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def goldimask(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "goldimask", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=ENV, timeout=300)


def test_help_imports_nothing_heavy() -> None:
    """`--help`, `import goldimask` and every verb's help leave torch and its kin alone."""
    code = (
        "import sys, goldimask\n"
        "from goldimask.cli import app, _register\n"
        "_register()\n"
        "from typer.testing import CliRunner\n"
        "run = CliRunner().invoke\n"
        "assert run(app, ['--help']).exit_code == 0\n"
        "for verb in ('train', 'demo', 'eval', 'list', 'bench'):\n"
        "    result = run(app, [verb, '--help'])\n"
        "    assert result.exit_code == 0, (verb, result.output)\n"
        "heavy = {'torch', 'transformers', 'numba', 'peft', 'datasets', 'scipy', 'matplotlib'}\n"
        "assert not heavy & set(sys.modules), sorted(heavy & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=ENV)
    assert done.returncode == 0, done.stderr


def test_help_names_every_verb() -> None:
    text = goldimask("--help").stdout
    for verb in ("train", "eval", "demo", "list", "bench", "decode", "merge", "score"):
        assert verb in text


def test_out_is_o_everywhere() -> None:
    from typer.main import get_command

    from goldimask.cli import _register, app

    _register()
    waiting, seen = [("goldimask", get_command(app))], 0
    while waiting:
        name, command = waiting.pop()
        waiting += [(f"{name} {n}", c) for n, c in getattr(command, "commands", {}).items()]
        for option in command.params:
            if "--out" in option.opts:
                seen += 1
                assert "-o" in option.opts, name
    assert seen >= 8


def recipe(tmp_path: Path, model: Path, **lines: str) -> Path:
    values = {
        "output": str(tmp_path / "run"),
        "backbone": f"{{path: {model}}}",
        "data": "{corpus: tiny-sft, limit: 40, validation: 8}",
        "trainer": "{max_steps: 2, eval_steps: 2, save_steps: 2, learning_rate: 1.0e-3}",
        **lines,
    }
    file = tmp_path / "recipe.yaml"
    file.write_text("".join(f"{k}: {v}\n" for k, v in values.items()))
    return file


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


BAD = {
    "missing recipe": ({}, "nothing.yaml", "no such file"),
    "malformed yaml": ({"method": "{preset: ["}, None, "not valid YAML"),
    "unknown method": ({"method": "{preset: goldymask-d}"}, None, "did you mean 'goldimask-d'"),
    "unknown key": ({"metod": "{}"}, None, "did you mean 'method'"),
    "unknown part": ({"method": "{weigh: {capp: 3}}"}, None, "method.weigh.capp"),
    "bad type": ({"global_batch_size": "many"}, None, "global_batch_size"),
    "missing data": ({"data": "{path: no.jsonl}"}, None, "no.jsonl' does not exist"),
    "empty data": ({"data": "{path: empty.jsonl}"}, None, "no usable rows"),
    "no response": ({"data": "{path: half.jsonl}"}, None, "half.jsonl:2"),
    "only special": ({"data": "{path: special.jsonl}"}, None, "only special tokens"),
    "long prompt": ({"data": "{path: long.jsonl}"}, None, "leaves no room"),
    "unknown corpus": ({"data": "{corpus: tiny-sfft}"}, None, "did you mean 'tiny-sft'"),
    "few examples": ({"global_batch_size": "64"}, None, "global_batch_size"),
    "bad layer": ({"method": "{attention_layer: 9}"}, None, "attention_layer"),
    "missing model": ({"backbone": "{path: ./no-model}"}, None, "no-model"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_line(tmp_path: Path, small_model: Path, case: str) -> None:
    """Non-zero exit, no traceback, the cause named, no run folder. In this process, to be quick."""
    lines, name, words = BAD[case]
    write(tmp_path / "empty.jsonl", "")
    write(tmp_path / "half.jsonl", '{"prompt": "a", "response": "b"}\n{"prompt": "a"}\n')
    write(tmp_path / "special.jsonl", '{"prompt": "a", "response": "<|eot_id|>"}\n')
    long = json.dumps({"prompt": "add " * 600, "response": "b"})
    write(tmp_path / "long.jsonl", long + "\n")
    file = tmp_path / name if name else recipe(tmp_path, small_model, **lines)
    code, out, err = in_process(["train", str(file)], tmp_path)
    assert code == 2, err
    assert err.splitlines()[-1].startswith("error: ") and words in err, err
    assert "Traceback" not in err and out == ""
    left = {p.name for p in tmp_path.iterdir()}
    assert not {n for n in left if n.startswith("run")}, left


def in_process(words: list[str], cwd: Path) -> tuple[int, str, str]:
    """Run `goldimask WORDS` in this interpreter."""
    import contextlib
    import io

    from goldimask.cli import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    before, argv = Path.cwd(), sys.argv
    os.chdir(cwd)
    sys.argv = ["goldimask", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        os.chdir(before)
        sys.argv = argv
    return code, out.getvalue(), err.getvalue()


def test_train_json_is_one_object_on_stdout(tmp_path: Path, small_model: Path) -> None:
    file = recipe(tmp_path, small_model)
    done = goldimask("train", str(file), "seed=3", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["steps"] == 2 and summary["seed"] == 3
    assert (tmp_path / "run" / "manifest.json").is_file()
    again = goldimask("train", str(file), cwd=tmp_path)
    assert again.returncode == 2 and "exists" in again.stderr
    debug = goldimask("train", str(file), "--debug", cwd=tmp_path)
    assert "Traceback" in debug.stderr


def test_non_finite_loss_exits_with_its_own_code(tmp_path: Path, small_model: Path) -> None:
    file = recipe(tmp_path, small_model)
    words = ["train", str(file), "trainer.learning_rate=1e30", "trainer.max_steps=4"]
    words += ["trainer.save_steps=4", "trainer.eval_steps=4", "method.preset=vanilla"]
    code, _, err = in_process(words, tmp_path)
    assert code == 3 and "non-finite loss" in err and "Traceback" not in err
    left = [p.name for p in tmp_path.iterdir() if p.name.startswith("run")]
    assert left == ["run.non_finite.json"] and left[0] in err


def test_dry_run_prints_the_resolved_recipe(tmp_path: Path, small_model: Path) -> None:
    file = recipe(tmp_path, small_model)
    code, out, err = in_process(["train", str(file), "--dry-run", "--json", "seed=9"], tmp_path)
    assert code == 0, err
    assert json.loads(out)["seed"] == 9
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("what", ["methods", "backbones", "tasks", "recipes"])
def test_list_as_json(what: str, tmp_path: Path) -> None:
    code, out, err = in_process(["list", what, "--json"], tmp_path)
    assert code == 0, err
    assert json.loads(out)
