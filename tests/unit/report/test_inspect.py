"""Inspecting: the noise level is pinned and nothing else; the terminal shows the same record."""

import io
import json

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from goldimask.cli.app import app
from goldimask.config import MethodSection
from goldimask.data.batches import make_batch
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.methods import method
from goldimask.report.inspect import (
    LEVELS,
    PinnedKeys,
    chosen_methods,
    drawn_level,
    first_telling,
    levels_around,
)
from goldimask.report.step_page import step_record
from goldimask.report.terminal import states, step_view
from unit.report.support import HOSTILE, Tokenizer, embedded, examples, step


def test_only_the_level_is_pinned():
    free, pinned = Keys(5, 2).rng(9, Stream.NOISE), PinnedKeys(5, 2, 0.3).rng(9, Stream.NOISE)
    assert pinned.random() == pytest.approx((0.3 - 1e-3) / (1 - 1e-3))
    free.random()
    assert pinned.random() == free.random()
    assert np.array_equal(pinned.random(7), free.random(7))
    same = PinnedKeys(5, 2, 0.3).rng(9, Stream.SELECT).random(3)
    assert np.array_equal(same, Keys(5, 2).rng(9, Stream.SELECT).random(3))


def test_a_larger_level_masks_a_superset():
    batch = make_batch(examples(), 0)
    masks = [step("vanilla", batch, t=t)[0].corruption.candidates for t in (0.2, 0.5, 0.9)]
    assert (masks[0] <= masks[1]).all() and (masks[1] <= masks[2]).all()
    assert masks[0].sum() < masks[2].sum()


def test_the_drawn_level_is_the_one_training_draws():
    example, batch = examples()[0], make_batch(examples(), 0)
    out = method("vanilla").noise(batch, Keys(11, 1))
    assert drawn_level(example, 11, 1) == pytest.approx(float(out.t[0]))
    again = method("goldimask-d").noise(batch, PinnedKeys(11, 1, float(out.t[0])))  # type: ignore
    assert (
        again.candidates[0] == method("goldimask-d").noise(batch, Keys(11, 1)).candidates[0]
    ).all()


def test_without_a_number_the_example_shows_a_reveal():
    made, keys = examples([(6, 1), (6, 1), (6, 50), (6, 60)]), Keys(3)
    first = first_telling(made, method("goldimask-d"), keys)
    assert first >= 2  # one token leaves K = 0
    drawn = method("goldimask-d").noise(make_batch(made[first : first + 1], 0), keys)
    assert int(drawn.candidates.sum()) > int(drawn.keep[0]) > 0
    assert first_telling(made, method("vanilla"), keys) == 0  # nothing ever is revealed


def test_an_empty_reveal_is_said_in_words():
    batch = make_batch(examples([(6, 60)]), 0)
    out, _, chosen = step("vanilla", batch, t=0.5)
    record = step_record(out, batch, 0, Tokenizer(), chosen)
    text = io.StringIO()
    Console(file=text, width=120).print(step_view([record]))
    assert "vanilla revealed nothing" in text.getvalue()


def test_levels_begin_with_the_one_asked_for():
    found = levels_around(0.41)
    assert found[0] == 0.41 and 0.4 not in found and len(found) == len(LEVELS)


def test_methods_share_what_the_recipe_says():
    section = MethodSection(preset="goldimask-d", weigh={"cap": 4.0}, attention_layer=1)
    found = {m.name: m for m in chosen_methods(section, ["vanilla", "goldimask-d", "goldimask-r"])}
    assert list(found) == ["goldimask-d", "vanilla", "goldimask-r"]
    assert found["goldimask-r"].weigh.cap == 4.0 and found["goldimask-r"].attention_layer == 1
    assert not found["vanilla"].needs
    with pytest.raises(GoldimaskError, match="did you mean 'vanilla'"):
        chosen_methods(section, ["vanila"])


def test_the_terminal_shows_states_and_takes_no_markup():
    out, batch, made = step("goldimask-d", make_batch(examples([(4, 60)]), 0))
    record = step_record(out, batch, 0, Tokenizer(), made)
    found = states(record)
    assert found.count("target") == len(record["targets"])
    assert found.count("revealed") == len(record["order"])
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(step_view([record]))
    text = console.export_text()
    assert "[red]bold[/red]" in text and HOSTILE[0] in text and "\u202e" not in text


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """A recipe on a random model of the tiny family."""
    from goldimask.backbones import FAMILIES, new_backbone, save_backbone
    from pretraining.tokenizer import build_tokenizer

    folder = tmp_path_factory.mktemp("inspect")
    tokenizer = build_tokenizer()
    ids = {"mask_token_id": tokenizer.mask_token_id, "pad_token_id": tokenizer.pad_token_id}
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 512}
    config = {**ids, **sizes, **heads, "vocab_size": len(tokenizer)}
    config["eos_token_id"] = tokenizer.eos_token_id
    save_backbone(new_backbone(FAMILIES["llada"], config, tokenizer, 0), folder / "model")
    file = folder / "recipe.yaml"
    file.write_text(
        f"backbone: {{path: {folder / 'model'}}}\n"
        "data: {corpus: tiny-sft, limit: 12, validation: 2}\n"
        "method: {preset: goldimask-d, weigh: {cap: 4}}\n"
    )
    return file


def test_the_verb(recipe, tmp_path):
    page = tmp_path / "step.html"
    words = ["inspect", str(recipe), "--example", "3", "--methods", "vanilla,lift-2,goldimask-t"]
    done = CliRunner().invoke(app, [*words, "--t", "0.5", "--html", str(page), "--json"])
    assert done.exit_code == 0, done.output
    records = json.loads(done.stdout)["records"]
    assert len(records) == 4 * len(LEVELS)
    assert records[0]["method"] == "goldimask-d" and records[0]["t"] == 0.5
    assert records[0]["cap"] == 4.0
    assert records[0]["masked"] == records[2]["masked"]  # lift-2 over-masks the same tokens
    assert set(records[1]["masked"]) <= set(records[0]["masked"])
    assert records[2]["objective"] is not None  # through goldimask-d's attention
    group = embedded(page.read_text("utf-8"))["sections"][0]["data"]["groups"][0]
    assert len(group["records"]) == len(records) and page.stat().st_size < 500_000


def test_the_terminal_verb_and_bad_arguments(recipe):
    done = CliRunner().invoke(app, ["inspect", str(recipe), "--methods", "vanilla"])
    assert done.exit_code == 0 and "Every method at t" in done.stdout
    for words, message in (
        (["--example", "99"], "use 0 to 9"),
        (["--t", "1.5"], "not a noise level"),
        (["--methods", "goldimask-x"], "unknown method"),
        (["method.attention_layer=probe"], "settled by training"),
    ):
        done = CliRunner().invoke(app, ["inspect", str(recipe), *words])
        assert isinstance(done.exception, GoldimaskError) and message in str(done.exception)
