"""Published checkpoints: counted from their config texts, recognised, and refused where in doubt.

The texts in tests/published follow public copies of the configs, as far as fields matter here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from builders import WRITERS, write_llada, write_stock
from goldimask.backbones import FAMILIES, Backbone, load_backbone, save_backbone, weights_hash
from goldimask.backbones.checkpoint import empty_model, read_config
from goldimask.backbones.lora import add_lora, save_adapter
from goldimask.backbones.merge import merge_run
from goldimask.backbones.saving import Layout
from goldimask.cli import app
from goldimask.decoding import decode
from goldimask.errors import GoldimaskError
from goldimask.known import PUBLISHED
from restated import restated_logits

TEXTS = Path(__file__).parents[2] / "published"
IDS = torch.arange(24).view(2, 12)
# repository -> parameters, family, shift, mask token, usable length
FACTS = {
    "LLaDA-8B-Base": (8_015_581_184, "llada", False, 126336, 4096),
    "Dream-v0-Base-7B": (7_615_616_512, "dream", True, 151666, 2048),
    "Dream-Coder-v0-Instruct-7B": (7_615_616_512, "dream", True, 151666, 32768),
    "DiffuCoder-7B-Instruct": (7_615_616_512, "dream", True, 151666, 131072),
    "Qwen3-0.6B-diffusion-mdlm-v0.1": (596_049_920, "qwen3", False, None, 40960),
    "Qwen2.5-Coder-0.5B-Instruct-diffusion-mdlm-v0.1": (494_032_768, "qwen2", False, None, 32768),
    "open-dcoder-0.5B": (494_032_768, "qwen2", True, None, 32768),
    "CoDA-v0-Instruct": (2_031_739_904, "qwen3", True, 151669, 40960),
    "diffullama": (6_738_415_616, "diffullama", True, 811, 4096),
    "LLaDA-MoE-7B-A1B-Instruct": (7_356_880_896, "qwen3_moe", False, 156895, 8192),
}


def download(root: Path, name: str) -> Path:
    folder = root / name
    folder.mkdir()
    shutil.copy(TEXTS / f"{name}.json", folder / "config.json")
    return folder


@pytest.mark.parametrize("name", FACTS)
def test_published_configs(name: str, tmp_path: Path) -> None:
    """The count is the published one, from a folder that holds the config alone."""
    folder = download(tmp_path, name)
    done = CliRunner().invoke(app, ["model", str(folder), "--json"])
    assert done.exit_code == 0, done.exception
    found = json.loads(done.stdout)
    parameters, family, shift, mask, usable = FACTS[name]
    assert (found["parameters"], found["family"]) == (parameters, family)
    assert found["usable_length"] == usable
    assert ("i + 1" in found["alignment"]) is shift
    config, _ = read_config(folder)
    assert (config.logit_shift, config.mask_token_id) == (shift, mask)
    row = next(row for row in PUBLISHED if row.hub.endswith(f"/{name}"))
    made = empty_model(FAMILIES[row.layout].config(**row.sizes), FAMILIES[row.layout])
    assert sum(p.numel() for p in made.parameters()) == parameters
    assert row.shift == shift


def test_active_parameters_of_experts(tmp_path: Path) -> None:
    folder = download(tmp_path, "LLaDA-MoE-7B-A1B-Instruct")
    found = json.loads(CliRunner().invoke(app, ["model", str(folder), "--json"]).stdout)
    experts = 16 * 64 * 3 * 1024 * 2048
    assert found["active_parameters"] == found["parameters"] - experts * 56 // 64
    shown = CliRunner().invoke(app, ["model", str(folder)])
    assert shown.exit_code == 0 and "for one token" in shown.stdout
    assert "no tokenizer files" in shown.stdout


def test_a_table_without_doubles() -> None:
    assert len({row.name for row in PUBLISHED}) == len({row.hub for row in PUBLISHED}) == 18
    assert {row.layout for row in PUBLISHED} <= FAMILIES.keys()


def test_the_usable_length_is_the_checkpoints(folders: dict[str, Path], tmp_path: Path) -> None:
    """2,048 is said of Dream-v0 alone; a copy that we save still knows it."""
    assert load_backbone(folders["dream"]).usable_length == 131072  # whatever it is, not Dream-v0
    folder = Path(shutil.copytree(folders["dream"], tmp_path / "Dream-v0-Instruct-7B"))
    backbone = load_backbone(folder)
    assert (backbone.usable_length, backbone.max_length) == (2048, 131072)
    for layout in ("hub", "native"):
        saved = save_backbone(backbone, tmp_path / layout, layout)  # type: ignore[arg-type]
        assert load_backbone(saved).usable_length == 2048


def refused(folder: Path, *words: str, **given: object) -> str:
    with pytest.raises(GoldimaskError) as caught:
        load_backbone(folder, **given)  # type: ignore[arg-type]
    message = str(caught.value)
    assert all(word in message for word in words), message
    return message


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_an_unknown_alignment_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    """`model_type: qwen2` may be anything: by its folder's name, a setting, or the config."""
    assert load_backbone(folders["open-dcoder-0.5B"]).shift
    folder = Path(shutil.copytree(folders["open-dcoder-0.5B"], tmp_path / "mine"))
    refused(folder, "qwen2", "backbone.shift", "logit_shift")
    assert load_backbone(folder, shift=False).shift is False
    edit_config(folder, logit_shift=True)
    assert load_backbone(folder).shift is True
    edit_config(folder, model_type="my-qwen", architectures=["MyQwen"])
    refused(folder, "my-qwen", "backbone.layout")
    refused(folder, "qwen9", layout="qwen9")
    assert load_backbone(folder, layout="qwen2").family.name == "qwen2"
    edit_config(folder, block_size=32)
    refused(folder, "block_size=32", "full attention", layout="qwen2")


def test_block_models_are_refused_by_name(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(folders["qwen3"], tmp_path / "Qwen3-0.6B-diffusion-bd3lm-v0.1")
    refused(Path(folder), "BD3LM", "-mdlm-")


def test_sliding_windows_are_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["qwen3"], tmp_path / "copy"))
    edit_config(folder, use_sliding_window=True)
    refused(folder, "config.json", "use_sliding_window")


def test_an_unknown_mask_token_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["qwen3"], tmp_path / "copy"))
    path = folder / "tokenizer_config.json"
    declared = json.loads(path.read_text())
    mask = load_backbone(folder).mask_id
    declared.pop("mask_token")
    path.write_text(json.dumps(declared))
    refused(folder, "mask_token_id", "backbone.mask_id")
    given = load_backbone(folder, mask_id=mask)
    assert given.mask_id == mask
    assert load_backbone(save_backbone(given, tmp_path / "saved")).mask_id == mask  # stored


def test_llada_moe_calls_itself_llada(folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(GoldimaskError, match="num_experts=6: LLaDA-MoE"):
        FAMILIES["llada"].config(num_experts=6)  # what AutoConfig would take it for
    folder = Path(shutil.copytree(folders["llada-moe"], tmp_path / "copy"))
    for field, value in (
        ("qk_layernorm", False),
        ("shared_expert_intermediate_size", 64),
        ("score_function", "sigmoid"),
        ("moe_layer_freq", [0, 1, 1]),
    ):
        edit_config(folder, **{field: value})
        refused(folder, "config.json", field)
        edit_config(
            folder,
            **{field: json.loads((folders["llada-moe"] / "config.json").read_text()).get(field)},
        )


def test_a_head_that_is_not_the_embedding(folders: dict[str, Path], tmp_path: Path) -> None:
    """A tied model may store its head; another head under the same config would be lost."""
    folder = Path(shutil.copytree(folders["qwen3"], tmp_path / "copy"))
    for file in folder.glob("*.safetensors"):
        state = load_file(file)
        if "lm_head.weight" in state:
            state["lm_head.weight"] += 1
            save_file(state, file, {"format": "pt"})
    refused(folder, "tie_word_embeddings", "lm_head.weight")


def test_template_tokens_must_be_tokens(tmp_path: Path) -> None:
    """LLaDA-8B-Base: a template of tokens that its tokenizer does not have, and the remedy."""
    folder = write_llada(tmp_path / "base")
    whole = load_backbone(folder)
    expected = whole.prompt_ids("How many?")
    path = folder / "tokenizer.json"
    text = json.loads(path.read_text())
    lost = [t for t in text["added_tokens"] if t["content"].endswith(("header_id|>", "eot_id|>"))]
    ids = {t["content"]: t["id"] for t in lost}
    keep = [t for t in text["added_tokens"] if t not in lost]
    for t in keep:
        t["id"] -= 3 * (t["id"] > min(ids.values()))  # contiguous, as the library numbers them
    path.write_text(json.dumps({**text, "added_tokens": keep}))
    config = folder / "tokenizer_config.json"
    declared = json.loads(config.read_text())
    decoder = declared.pop("added_tokens_decoder")
    config.write_text(json.dumps(declared))
    edit_config(folder, mask_token_id=keep[-1]["id"])
    broken = load_backbone(folder)  # a base still loads: only the chat is broken
    with pytest.raises(GoldimaskError) as caught:
        broken.prompt_ids("How many?")
    for word in (
        "126346 <|start_header_id|>",
        "126347",
        "126348 <|eot_id|>",
        "added_tokens_decoder",
    ):
        assert word in str(caught.value)
    again = {str(keep[-1]["id"] + 1 + n): decoder[str(i)] for n, i in enumerate(ids.values())}
    config.write_text(json.dumps({**declared, "added_tokens_decoder": again}))
    mended = load_backbone(folder)
    assert len(mended.prompt_ids("How many?")) == len(expected)
    assert mended.tokenizer.convert_ids_to_tokens(mended.turn_end_id) == "<|eot_id|>"


def test_thinking_is_switched_off(folders: dict[str, Path]) -> None:
    assert load_backbone(folders["qwen3"]).render("hi").endswith("<think>\n\n</think>\n\n")


every_family = pytest.mark.parametrize("family", WRITERS, indirect=True, scope="session")


@every_family
@pytest.mark.parametrize("shift", [False, True])
def test_both_alignments(backbone: Backbone, folder: Path, shift: bool) -> None:
    """Row i predicts token i or token i + 1, as the setting says, by the restatement's logits."""
    model = load_backbone(folder, shift=shift)
    hidden = torch.zeros_like(IDS, dtype=torch.bool)
    hidden[:, 3::2] = True
    with torch.no_grad():
        rows = model.model(IDS, logits_mask=hidden).logits
    raw = restated_logits(folder, IDS)
    expected = raw[:, 2:-1:2] if shift else raw[:, 3::2]
    torch.testing.assert_close(rows, expected.flatten(0, 1), rtol=1e-5, atol=1e-5)


@every_family
def test_decoding_in_any_batch(backbone: Backbone) -> None:
    """Padding on either side and company change nothing; a cache of single tokens is exact."""
    prompts = ["How many apples are left?", "a", "def add(a, b):"]
    options: dict = {"length": 8, "block": 4, "tau": 0.05}
    alone = [decode(backbone, [p], **options)[0] for p in prompts]
    for side in ("left", "right"):
        got = decode(backbone, prompts, **options, padding_side=side)
        assert [(d.tokens, d.steps) for d in got] == [(d.tokens, d.steps) for d in alone]
    exact, cached = (
        decode(backbone, prompts[:1], length=6, block=1, tau=0.9, **more)[0].tokens
        for more in ({}, {"cache": "prefix"})
    )
    assert exact == cached


def test_settings_of_a_run(folders: dict[str, Path], tmp_path: Path) -> None:
    """A recipe's `shift: false` is kept: false is a value."""
    folder = write_stock(tmp_path / "open-dcoder-0.5B")
    run = tmp_path / "run"
    run.mkdir()
    save_adapter(add_lora(load_backbone(folder), 0, r=2), run / "adapter")
    hashes = []
    for settings in ({}, {"shift": False}, {"mask_id": 7, "layout": "qwen2"}):
        section = {"backbone": {"path": str(folder), **settings}}
        (run / "recipe.yaml").write_text(yaml.safe_dump(section))
        loaded = load_backbone(run)
        assert loaded.shift is settings.get("shift", True)
        assert loaded.mask_id == settings.get("mask_id", loaded.tokenizer.mask_token_id)
        hashes.append(weights_hash(run))
    assert len(set(hashes)) == 3


@pytest.mark.parametrize("layout", ["hub", "native"])
def test_merging_keeps_the_settings(
    folders: dict[str, Path], tmp_path: Path, layout: Layout
) -> None:
    """A model that nobody knows, told by its recipe; what is merged needs no telling."""
    folder = Path(shutil.copytree(folders["open-dcoder-0.5B"], tmp_path / "mine"))
    edit_config(folder, model_type="mine", architectures=["Mine"])
    told = {"layout": "qwen2", "shift": False, "mask_id": 7}
    backbone = load_backbone(folder, **told)
    run = tmp_path / "run"
    run.mkdir()
    save_adapter(add_lora(backbone, 0, r=2), run / "adapter")
    section = {"backbone": {"path": str(folder), **told}}
    (run / "recipe.yaml").write_text(yaml.safe_dump(section))
    merge_run(run, tmp_path / "merged", layout)
    again = load_backbone(tmp_path / "merged")
    assert (again.family.name, again.shift, again.mask_id) == ("qwen2", False, 7)
    hidden = IDS > 20
    with torch.no_grad():
        logits = [x.model(IDS, logits_mask=hidden).logits for x in (backbone, again)]
    assert torch.equal(*logits)
    edit_config(tmp_path / "merged", logit_shift="no")
    refused(tmp_path / "merged", "config.json", "logit_shift: no is not true or false")
