"""The studies on a random model: what must hold whatever the model knows."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from goldimask.backbones import Backbone, load_backbone
from goldimask.data.batches import make_batch
from goldimask.errors import GoldimaskError, RunFailed
from goldimask.keys import Keys
from goldimask.methods import method
from goldimask.noise import overmask
from goldimask.studies.budget import study_budget
from goldimask.studies.heldout import held_out
from goldimask.studies.quality import study_quality
from goldimask.studies.response import measure, study_response
from goldimask.studies.schedule import Tuning
from goldimask.studies.support import attention_of, draw_sets, observe, study_support
from goldimask.studies.tuning import study_examples, tune


@pytest.fixture
def load(small_model: Path):
    return partial(load_backbone, small_model, dtype="float32", device="cpu")


@pytest.fixture
def backbone(load) -> Backbone:
    return load()


def test_tuning_repeats_and_methods_share_their_draws(load) -> None:
    examples = study_examples(load(), "tiny-sft", 12)
    tuning = Tuning(steps=4, batch_size=4, warmup=1)
    first, second = (tune(load(), examples, method("vanilla"), tuning, 7) for _ in range(2))
    assert first.losses == second.losses and len(first.losses) == 4 and first.cpu_seconds > 0
    other = tune(load(), examples, method("vanilla"), tuning, 8)
    assert other.losses != first.losses
    greedy, random = (
        tune(load(), examples, method(m), tuning, 7) for m in ("goldimask-d", "random-uniform")
    )
    for name in ("candidates", "supervised"):  # same C and K, whatever is revealed
        assert greedy.metrics[name] == random.metrics[name]


def test_tuning_is_the_training_of_a_plain_loop(load) -> None:
    """One step by hand: the same order, keys, clipping and rate."""
    from goldimask.data.batches import EpochSampler
    from goldimask.step import MaskedStep

    backbone, tuning = load(), Tuning(steps=1, batch_size=4, warmup=0, weight_decay=0.0)
    examples = study_examples(backbone, "tiny-sft", 8)
    tuned = load()
    tune(tuned, examples, method("vanilla"), tuning, 3)
    order = EpochSampler([len(e) for e in examples], 4, 3).order(0)[:4]
    batch = make_batch([examples[i] for i in order], backbone.pad_id, 8)
    optimiser = torch.optim.AdamW(backbone.model.parameters(), lr=3e-4, weight_decay=0.0)
    backbone.model.train()
    MaskedStep(method("vanilla"), backbone.scorer)(backbone.model, batch, Keys(3)).loss.backward()
    torch.nn.utils.clip_grad_norm_(backbone.model.parameters(), 1.0)
    optimiser.step()
    for a, b in zip(backbone.model.parameters(), tuned.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_bad_tuning_is_refused_and_a_broken_model_is_named(backbone: Backbone) -> None:
    with pytest.raises(GoldimaskError, match="steps"):
        Tuning(steps=-1)
    with torch.no_grad():
        next(iter(backbone.model.parameters())).fill_(float("nan"))
    examples = study_examples(backbone, "tiny-sft", 4)
    with pytest.raises(RunFailed, match="step 1 of vanilla"):
        tune(backbone, examples, method("vanilla"), Tuning(steps=1, batch_size=4), 0)
    with pytest.raises(GoldimaskError, match="were asked for"):
        study_examples(backbone, "tiny-sft", 10**6)


def test_held_out_does_not_depend_on_the_batch(backbone: Backbone) -> None:
    examples = study_examples(backbone, "tiny-sft", 9)
    one, many = (held_out(backbone, examples, batch_size=b) for b in (2, 9))

    def ordered(x):
        return x.logp[np.lexsort((x.level, x.example))]

    assert len(one.logp) == len(many.logp) and one.nll == pytest.approx(many.nll, rel=1e-6)
    np.testing.assert_allclose(np.sort(one.logp), np.sort(many.logp), atol=1e-5)
    assert set(one.level) == {0.25, 0.5, 0.75} and set(one.example) == set(range(9))
    share = len(one.logp) / sum(sum(e.supervisable) for e in examples)
    assert 1.2 < share < 1.8  # t sums to 1.5
    assert 0 <= one.lost <= 1 and ordered(one).shape == ordered(many).shape


def test_response_targets_are_masked_in_both_passes(backbone: Backbone) -> None:
    examples = study_examples(backbone, "tiny-sft", 8)
    found = measure(backbone, examples, 2, 0)
    assert len(found.before) == len(found.after) == len(found.example) > 0
    assert ((found.before > 0) & (found.before < 1)).all()
    assert not np.array_equal(found.before, found.after)  # context was added


def test_reveal_sets_have_one_size_and_spare_the_targets(backbone: Backbone) -> None:
    examples = study_examples(backbone, "tiny-sft", 6)
    batch = make_batch(examples, backbone.pad_id)
    c = overmask()(batch, Keys(0))
    targets, reveals = draw_sets(c, batch, Keys(0), 3)
    assert len(reveals) == 3 and len({tuple(r.sum(1).tolist()) for r in reveals}) == 1
    assert not torch.equal(reveals[0], reveals[1])
    for r in reveals:
        assert not (r & targets).any() and not (r & ~c.candidates).any()
    used = targets.any(1)
    assert torch.equal(targets.sum(1)[used], c.keep[used])


def test_support_is_the_attention_on_revealed_tokens(backbone: Backbone) -> None:
    """Against the model's own attention weights, before and after the reveal."""
    examples = study_examples(backbone, "tiny-sft", 2)
    found = observe(backbone, examples, 2, 0, batch_size=1)
    order = sorted(range(2), key=lambda i: (len(examples[i]), i))
    offset = 0
    for number in order:
        batch = make_batch([examples[number]], backbone.pad_id, 8)
        c = overmask()(batch, Keys(0))
        targets, reveals = draw_sets(c, batch, Keys(0), 2)
        n = int(targets.sum())
        for when, hidden in (("before", c.candidates), ("after", c.candidates & ~reveals[1])):
            rows, logp = attention_of(backbone, batch, hidden, 1)
            mass = [float(rows[0, i, reveals[1][0]].sum()) for i in targets[0].nonzero()[:, 0]]
            np.testing.assert_allclose(
                found.mass["1", when][1, offset : offset + n], mass, atol=1e-5
            )
            sums = rows[0][hidden[0]].sum(-1)
            torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-4, rtol=0)
        np.testing.assert_allclose(
            found.y[1, offset : offset + n], logp[targets].detach().numpy(), atol=1e-5
        )
        offset += n
    assert offset == found.y.shape[1]


def test_studies_return_plain_data(load) -> None:
    made = [
        study_budget(
            load, examples=8, heldout=4, seeds=(0, 1), k=4, rules=("uniform", "p(1-p)^3"),
            tuning=Tuning(steps=2, batch_size=4, warmup=1),
        ),
        study_response(load, examples=8, draws=1, seeds=(0,)),
        study_support(load, examples=24, sets=2),
        study_quality(load, examples=8),
    ]  # fmt: skip
    from goldimask.stats import finite
    from goldimask.studies.output import study_tables

    for result in made:
        plain = finite(result)
        json.dumps(plain, allow_nan=False)
        for table in study_tables([plain]):
            assert table.rows and all(len(row) == len(table.columns) for row in table.rows)
    support, quality = made[2], made[3]
    places = {(r["measured"], r["when"]) for r in support["rows"]}
    assert ("0", "before") in places and ("1", "after") in places and ("distance", "-") in places
    rows = {(r["layer"], r["selector"]): r for r in quality["rows"]}
    assert len(rows) == 2 * 6
    for layer in (0, 1):
        random, greedy = rows[layer, "random"], rows[layer, "greedy (D)"]
        assert greedy["value"] > random["value"] and greedy["kept"] == random["kept"] == 1
        assert random["gain_over_random"] == [0, 0, 0] and rows[layer, "twin (T)"]["kept"] >= 1
    assert rows[0, "random"]["gain"] == rows[1, "random"]["gain"]
    with pytest.raises(GoldimaskError, match="unknown 'x'"):
        study_budget(load, rules=("x",))
    with pytest.raises(GoldimaskError, match="more examples"):
        study_support(load, examples=3, sets=2)
    with pytest.raises(GoldimaskError, match="at least 2"):
        study_support(load, sets=1)


def test_command_line_writes_data_tables_and_figure(small_model: Path, tmp_path: Path) -> None:
    from goldimask.cli import app

    words = ["study", "response", str(small_model), "--examples", "8", "--seeds", "1"]
    done = CliRunner().invoke(app, [*words, "--draws", "1", "-o", str(tmp_path), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["results"][0]["study"] == "response"
    made = json.loads((tmp_path / "response.json").read_text())
    assert made["results"] == result["results"] and "git" in made["made"]
    assert (tmp_path / "response.pdf").is_file() and (tmp_path / "response-0.md").is_file()
    twice = CliRunner().invoke(app, ["study", "quality", str(small_model), str(small_model)])
    assert isinstance(twice.exception, GoldimaskError)


def test_figures_of_every_study(tmp_path: Path, load) -> None:
    from goldimask.figures import write
    from goldimask.stats import finite
    from goldimask.studies.output import study_figure

    for result in (study_support(load, examples=24, sets=2), study_quality(load, examples=8)):
        paths = write(study_figure([finite(result)] * 2), tmp_path)
        assert [p.suffix for p in paths] == [".pdf", ".png"] and paths[0].stat().st_size > 1000
    rules = {r: {f"delta_{x}": {"mean": 0.1, "sd": 0.0, "seeds": [0.1]} for x in ("nll", "p")}
             for r in ("uniform", "1-p")}  # fmt: skip
    budget = {"study": "budget", "backbone": "x", "rules": rules}
    assert write(study_figure([budget]), tmp_path)


def test_layers_of_the_study_follow_the_backbone(load) -> None:
    backbone = load()
    assert study_quality(lambda: replace(backbone, name="n"), examples=8)["layers"] == 2
