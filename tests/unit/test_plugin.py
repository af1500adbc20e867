"""Plug-ins: what registers itself, imported only where that is allowed, and nothing else."""

from __future__ import annotations

import importlib.metadata
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from goldimask import allow_plugins, registry
from goldimask.campaign.grid import jobs_of, places
from goldimask.campaign.reading import load_campaign
from goldimask.cli import app
from goldimask.config import load_recipe
from goldimask.data.corpora import CORPORA
from goldimask.decoding.rules import DECODERS
from goldimask.errors import GoldimaskError
from goldimask.eval.tasks import TASKS
from goldimask.keys import Keys
from goldimask.methods import method
from goldimask.presets import PRESETS
from goldimask.select.base import SELECTORS
from goldimask.step import MaskedStep
from goldimask.train.prepare import make_method
from goldimask.weighting import WEIGHERS
from unit.fakes import FakeScorer, TableModel, make_batch

EXAMPLES = Path(__file__).parents[2] / "examples"
TABLES = (PRESETS, SELECTORS, WEIGHERS, TASKS, CORPORA, DECODERS)


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """The examples on the path, and nothing of them imported or registered before or after."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    saved = [{entry.name: entry for entry in t} for t in TABLES]
    yield
    sys.modules.pop("plugin_method", None)
    for t, entries in zip(TABLES, saved, strict=True):
        t._entries.clear()
        t._entries.update(entries)


def check(m) -> None:
    batch = make_batch()
    out = MaskedStep(m, FakeScorer())(TableModel(), batch, Keys(1))
    before = out.signals.logp
    for b in range(batch.size):
        c, r = out.corruption.candidates[b], out.reveal.mask[b]
        if r.any() and out.supervised[b].any():
            assert before[b][r].min() >= before[b][c & ~r].max()
            w = out.weights.value[b][out.supervised[b]]
            assert w.mean().item() == pytest.approx(1.0, rel=1e-5)
    assert m.passes == 2


def test_by_module_and_attribute(capsys):
    with allow_plugins():
        check(
            method(
                select={"kind": "plugin_method:easy_first"},
                weigh={"kind": "plugin_method:one_minus_p", "floor": 0.1},
            )
        )
        check(method("plugin_method:EASY_FIRST"))
    named = "plug-in: importing 'plugin_method' for method.select.kind\n"
    assert capsys.readouterr().err == named
    check(method("easy-first"))


def test_a_module_that_was_imported_already_needs_no_leave():
    import plugin_method  # noqa: F401

    check(method("plugin_method:EASY_FIRST"))


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.kind)
def test_nothing_is_imported_unless_allowed(table, tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("open('sprung', 'w').close()\nthing = print\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GoldimaskError, match=r"key: 'trap' is a plug-in's module.*--allow-plugins"):
        table.get("trap:thing", "key")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["subprocess:getoutput", "os:system", "builtins:print"])
def test_only_what_registers_itself_can_be_called(name, tmp_path):
    """A recipe once ran any command; here with the option, which must not help."""
    recipe = tmp_path / "r.yaml"
    made = tmp_path / "made"
    recipe.write_text(json.dumps({"method": {"weigh": {"kind": name, "cmd": f"touch {made}"}}}))
    with allow_plugins(), pytest.raises(GoldimaskError, match=f"'{name}' is not a weigher"):
        make_method(load_recipe(recipe).method)
    assert not made.exists()


def test_a_part_of_one_kind_is_not_one_of_another():
    with allow_plugins(), pytest.raises(GoldimaskError, match="is not a method"):
        method("plugin_method:easy_first")


def test_options_of_a_plugin_are_checked_like_ours():
    with allow_plugins():
        with pytest.raises(
            GoldimaskError, match=r"method.weigh.flor: unknown key; did you mean 'floor'"
        ):
            method(weigh={"kind": "plugin_method:one_minus_p", "flor": 1})
        with pytest.raises(GoldimaskError, match=r"method.select.kind: cannot import 'nowhere'"):
            method(select={"kind": "nowhere:thing"})
        with pytest.raises(GoldimaskError, match=r"'plugin_method:thing' is not a selector"):
            method(select={"kind": "plugin_method:thing"})


def test_a_dry_run_executes_nothing(tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("open('sprung', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    words = ["train", "tiny", "method.weigh.kind=trap:thing", "--dry-run", "--allow-plugins"]
    done = CliRunner().invoke(app, [*words, "data.corpus=trap:rows", "--json"])
    assert done.exit_code == 0, done.exception
    assert not (tmp_path / "sprung").exists() and "trap" not in sys.modules
    plan = json.loads(done.stdout)["plan"]
    assert plan["passes"] == 2 and "plug-in" in plan["tokens_from"]
    assert not registry.passed_on()  # the leave ends with the command


def test_both_ways_to_start_find_a_module_of_the_working_directory(tmp_path):
    (tmp_path / "mine.py").write_text((EXAMPLES / "plugin_method.py").read_text())
    script = "from goldimask.cli import main; main()"  # what the console script does
    words = ["inspect", "tiny", "--methods", "mine:EASY_FIRST", "--json"]
    for program in (["-P", "-c", script], ["-m", "goldimask"]):
        done = subprocess.run(
            [sys.executable, *program, *words, "--allow-plugins"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert "plug-in: importing 'mine'" in done.stderr


def test_cells_of_a_campaign_are_given_the_leave(tmp_path):
    campaign = load_campaign("lab", "smoke")
    place = places([campaign], tmp_path)[1]
    assert all("--allow-plugins" not in job.words for job in jobs_of(place))
    with allow_plugins():
        jobs = jobs_of(place)
    assert len(jobs) > 1 and all("--allow-plugins" in job.words for job in jobs)


def test_entry_point_adds_names(monkeypatch):
    point = importlib.metadata.EntryPoint("easy-first", "plugin_method", "goldimask.plugins")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    monkeypatch.setattr(registry, "_plugins_loaded", False)
    assert "easy-first" in PRESETS.names()
    check(method("easy-first"))


def test_a_broken_entry_point_is_named(monkeypatch):
    point = importlib.metadata.EntryPoint("broken", "nowhere:thing", "goldimask.plugins")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    monkeypatch.setattr(registry, "_plugins_loaded", False)
    with pytest.raises(GoldimaskError, match=r"installed plug-in 'broken' \(nowhere:thing\)"):
        PRESETS.names()


def test_the_example_runs(capsys):
    import plugin_method

    losses = plugin_method.main(steps=4)
    assert len(losses) == 4 and all(math.isfinite(x) and x > 0 for x in losses)
    assert "targets" in capsys.readouterr().out
