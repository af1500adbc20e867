"""The command line as a user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from goldimask import __version__ as goldimask_version
from goldimask.cli.app import VERBS, app, load

ENV = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "80"}


def goldimask(*words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "goldimask", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=ENV, timeout=300)


def imported(*words: str) -> tuple[set[str], subprocess.CompletedProcess[str]]:
    """Modules that `goldimask WORDS` imports."""
    command = [sys.executable, "-X", "importtime", "-m", "goldimask", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=ENV, timeout=300)
    lines = [x for x in done.stderr.splitlines() if x.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}, done


HEAVY = {"torch", "transformers", "numpy", "numba", "peft", "datasets", "scipy", "matplotlib"}
DOOR = {"goldimask.cli", "goldimask.cli.app"}


def test_the_list_of_verbs_is_instant() -> None:
    """It imports no family and nothing heavy; a line of every verb is whole on 80 columns."""
    before = os.times()
    found, done = imported("--help")
    after = os.times()
    assert done.returncode == 0, done.stderr
    assert {m for m in found if m.startswith("goldimask.cli")} == DOOR
    assert not HEAVY & found
    spent = after.children_user + after.children_system
    assert spent - before.children_user - before.children_system < 1.0  # 0.3 on an idle machine
    for verb, (_, line) in VERBS.items():
        assert any(verb in x.split() and line in x for x in done.stdout.splitlines()), verb


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_imports_its_family_alone(verb: str) -> None:
    found, done = imported(verb, "--help")
    assert done.returncode == 0, done.stderr
    family = {"goldimask.cli.options", f"goldimask.cli.{VERBS[verb][0]}"}
    family |= {"goldimask.cli.measuring"} if verb == "study" else set()
    assert {m for m in found if m.startswith("goldimask.cli")} == DOOR | family
    assert not HEAVY & found


def test_the_verbs_are_these() -> None:
    wanted = "demo init train eval score decode chat inspect model merge report compare study list "
    assert list(VERBS) == [*wanted.split(), "selftest", "bench"]
    for name in ("pretrain", "sweep", "compare-runs", "inspect-model"):
        done = CliRunner().invoke(app, [name])
        assert done.exit_code == 2 and "No such command" in done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_the_list_says_what_the_verb_says(verb: str) -> None:
    first = (load(verb).help or "").strip().splitlines()[0]
    assert first == VERBS[verb][1]


def test_out_is_o_everywhere() -> None:
    waiting = [(verb, load(verb)) for verb in VERBS]
    seen = 0
    while waiting:
        name, command = waiting.pop()
        waiting += [(f"{name} {n}", c) for n, c in getattr(command, "commands", {}).items()]
        for option in command.params:
            if "--out" in option.opts:
                seen += 1
                assert "-o" in option.opts, name
    assert seen >= 8


def test_version() -> None:
    assert goldimask("--version").stdout == f"goldimask {goldimask_version}\n"


def test_a_verb_with_a_typing_error_gets_a_hint() -> None:
    done = CliRunner().invoke(app, ["trian"])
    assert done.exit_code == 2 and "train" in done.stderr


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


KINDS = ("methods", "tasks", "decoders", "corpora", "backbones", "recipes")


@pytest.mark.parametrize("kind", KINDS)
def test_list_is_a_line_each_on_80_columns(kind: str, tmp_path: Path) -> None:
    code, out, err = in_process(["list", kind, "--json"], tmp_path)
    assert code == 0, err
    names = [row["name"] for row in json.loads(out)[kind]]
    code, out, err = in_process(["list", kind], tmp_path)
    assert code == 0, err
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == names
    assert max(map(len, lines)) <= 80 and not any(line.endswith("…") for line in lines)
