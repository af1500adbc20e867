"""Loading: what is accepted, what is refused and why, and how text becomes tokens."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from huggingface_hub.errors import GatedRepoError, LocalEntryNotFoundError, RepositoryNotFoundError
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerFast

import goldimask.backbones.lookup as folders_module
from builders import LLADA_TEMPLATE, WRITERS, write_dream, write_llada, write_llada_tokenizer
from goldimask.backbones import (
    BACKBONES,
    FAMILIES,
    Backbone,
    load_backbone,
    new_backbone,
    save_backbone,
)
from goldimask.backbones.liger import fused_loss
from goldimask.backbones.lookup import Source
from goldimask.errors import GoldimaskError
from goldimask.registry import Registry
from restated import read, restated_logits

IDS = torch.arange(24).view(2, 12)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """A checkpoint that a test may damage."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def edit(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Change the tensors of the first shard and its entries in the index."""
    shard = sorted(folder.glob("*.safetensors"))[0]
    state = load_file(shard)
    change(state)
    save_file(state, shard, {"format": "pt"})


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def refused(folder: Path | str, *words: str, **options: object) -> None:
    with pytest.raises(GoldimaskError) as caught:
        load_backbone(folder, **options)  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


def test_missing_tensor(copy: Path) -> None:
    edit(copy, lambda s: s.pop(next(k for k in s if "q_proj.weight" in k)))
    refused(copy, "1 missing", "self_attn.q_proj.weight")


def test_unexpected_tensor(copy: Path) -> None:
    edit(copy, lambda s: s.update(extra=torch.zeros(2)))
    refused(copy, "1 unexpected", "extra")


def test_wrong_shape(copy: Path) -> None:
    def shrink(state: dict[str, torch.Tensor]) -> None:
        name = next(k for k in state if "v_proj.weight" in k)
        state[name] = state[name][:-1].clone()

    edit(copy, shrink)
    refused(copy, "1 wrongly shaped", "v_proj", "expected")


def test_every_problem_at_once(copy: Path) -> None:
    def spoil(state: dict[str, torch.Tensor]) -> None:
        for name in list(state):
            state[name + "_x"] = state.pop(name)

    edit(copy, spoil)
    refused(copy, "missing", "unexpected", "more")


def test_missing_shard_and_broken_files(copy: Path) -> None:
    shard = sorted(copy.glob("*.safetensors"))[1]
    data = shard.read_bytes()
    shard.unlink()
    refused(copy, shard.name, "not there")
    shard.write_bytes(data[:50])
    refused(copy, shard.name, "not a readable safetensors")
    (copy / "model.safetensors.index.json").write_text("{")
    refused(copy, "model.safetensors.index.json", "not valid JSON")


def test_pickles_are_refused(copy: Path) -> None:
    for file in copy.glob("*.safetensors*"):
        file.unlink()
    refused(copy, "nothing to load")
    (copy / "pytorch_model.bin").write_bytes(b"")
    refused(copy, "pickle", "pytorch_model.bin", "safetensors")


def test_other_models_are_named(copy: Path, tmp_path: Path) -> None:
    edit_config(copy, model_type="gpt2")
    refused(copy, "gpt2", "llada", "Dream")
    (copy / "config.json").write_text("{")
    refused(copy, "config.json", "JSON")
    refused(tmp_path, "no config.json")


def test_another_architecture_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folders["llada"], tmp_path / "copy"))
    edit_config(copy, alibi=True)
    refused(copy, "alibi=True", "config.json")


def test_mask_token_must_be_a_row(copy: Path) -> None:
    edit_config(copy, mask_token_id=384)
    refused(copy, "mask_token_id", "384")


def test_a_tokenizer_with_a_setting_of_the_wrong_kind(copy: Path) -> None:
    path = copy / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "model_max_length": "long"}))
    refused(copy, "the tokenizer does not load", str(copy))


def test_unknown_names_and_options(folder: Path) -> None:
    refused("lada-1.5", "did you mean 'llada-1.5'")
    refused(folder, "backbone.attn", attn="spda")
    refused(folder, "backbone.dtype", "bfloat16", dtype="bf16")
    refused(folder, "backbone.kernel", kernel="tritn")
    refused(folder, "backbone.attention_rows", "predictor", attention_rows="predict")
    refused(folder, "backbone.quant", "nf4", quant="int3")
    refused(folder, "backbone.attn", "installed", attn="flash_attention_2")


def test_extras_say_how_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goldimask.backbones.loading.find_spec", lambda name: None)
    refused(folder, "goldimask[quant]", quant="nf4")
    monkeypatch.setitem(sys.modules, "liger_kernel.transformers", None)
    fused_loss.cache_clear()
    refused(folder, "goldimask[liger]", kernel="liger")


class _Response:
    status_code, headers, request = 404, {}, None


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (LocalEntryNotFoundError("x"), ("cannot be reached", "folder")),
        (GatedRepoError("x", response=_Response()), ("gated", "folder")),
        (RepositoryNotFoundError("x", response=_Response()), ("does not exist", "folder")),
        (ConnectionError("x"), ("could not be fetched", "folder")),
    ],
    ids=lambda x: type(x).__name__,
)
def test_hub_failures_are_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: tuple[str, ...]
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(folders_module, "snapshot_download", fail)
    refused("some/where", "some/where", *words)
    refused("llada-8b-instruct", "GSAI-ML/LLaDA-8B-Instruct", *words)


def test_hub_download_takes_no_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}
    monkeypatch.setattr(
        folders_module, "snapshot_download", lambda repo, **o: asked.update(o) or str(folder)
    )
    assert load_backbone("some/where").name == "some/where"
    patterns = asked["allow_patterns"]
    assert "*.safetensors" in patterns and not {"*.py", "*.bin", "*"} & set(patterns)


def test_registered_names() -> None:
    tiny = ["tiny", "tiny-b", "tiny-dream"]
    paper = {"llada-8b-instruct", "llada-1.5", "dream-7b-instruct"}
    assert BACKBONES.names()[:3] == tiny and paper < set(BACKBONES.names())
    for name in tiny:
        asset = BACKBONES.get(name).folder()
        room = "assets" if name == "tiny" else "models"
        assert asset is not None and asset.parts[-3:] == (room, name, "model")


def test_a_model_of_the_clone_is_missed_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """From an installed wheel the name leads to a message, not to the Hub."""
    elsewhere = Source(clone="models/nowhere/model")
    monkeypatch.setattr(Registry, "get", lambda self, name, where="": elsewhere)
    with pytest.raises(GoldimaskError, match=r"'tiny-b' ships with the repository"):
        load_backbone("tiny-b")


def test_record(backbone: Backbone, family: str) -> None:
    names = {"llada": ("<|mdm_mask|>", "<|eot_id|>"), "dream": ("<|mask|>", "<|im_end|>")}[family]
    token = backbone.tokenizer.convert_ids_to_tokens
    assert (token(backbone.mask_id), token(backbone.turn_end_id)) == names
    assert token(backbone.pad_id) == "<|endoftext|>"
    assert backbone.family.name == family and backbone.layers == 3
    assert backbone.shift is (family == "dream")
    assert backbone.max_length == {"llada": 256, "dream": 131072}[family]
    assert not backbone.model.training
    assert {backbone.mask_id, backbone.pad_id, backbone.turn_end_id} <= backbone.special_ids


def test_prompts_and_responses(backbone: Backbone, family: str) -> None:
    ids = backbone.prompt_ids("How many?")
    if family == "llada":
        bos = backbone.tokenizer.bos_token_id
        assert ids[0] == bos and ids.count(bos) == 1
    header = {"llada": "assistant<|end_header_id|>\n\n", "dream": "<|im_start|>assistant\n"}[family]
    text = backbone.render("How many?")
    assert text.endswith(header)
    assert backbone.tokenizer.decode(ids) == text
    turns = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]
    assert backbone.render(turns).count("assistant") == 2 + (family == "dream")  # system message
    assert backbone.render([{"role": "user", "content": "How many?"}]) == text
    response = backbone.response_ids("7 are left.")
    assert response[-1] == backbone.turn_end_id
    assert backbone.response_ids("7 are left.", turn_end=False) == response[:-1]
    assert backbone.decode(response) == "7 are left."
    assert backbone.decode([*ids, backbone.mask_id]).count("<|") == 0


def test_special_text_in_a_response_stays_text(backbone: Backbone) -> None:
    mask = backbone.tokenizer.convert_ids_to_tokens(backbone.mask_id)
    text = f"Write {mask} here"
    before = backbone.prompt_ids("hi")
    ids = backbone.response_ids(text, turn_end=False)
    assert not backbone.special_ids & set(ids)
    assert backbone.decode(ids) == text
    assert backbone.prompt_ids("hi") == before  # the tokenizer keeps no memory of the option


def test_bad_conversations(backbone: Backbone) -> None:
    with pytest.raises(GoldimaskError, match="at least one"):
        backbone.prompt_ids([])
    with pytest.raises(GoldimaskError, match="response_ids"):
        backbone.prompt_ids([{"role": "assistant", "content": "x"}])


def test_missing_template_is_said_when_needed(tmp_path: Path) -> None:
    folder = write_llada(tmp_path / "m")
    write_llada_tokenizer(folder, template=False)
    backbone = load_backbone(folder)
    with pytest.raises(GoldimaskError, match=r"chat_template\.jinja"):
        backbone.prompt_ids("hi")
    (folder / "chat_template.jinja").write_text(LLADA_TEMPLATE)
    assert load_backbone(folder).prompt_ids("hi")


@pytest.mark.parametrize("family", WRITERS, indirect=True, scope="session")
@pytest.mark.parametrize("layout", ["hub", "native"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_saved_folders_load_again(folder: Path, tmp_path: Path, layout: str, dtype: str) -> None:
    backbone = load_backbone(folder, dtype=dtype)
    saved = save_backbone(backbone, tmp_path / "out", layout, shard_bytes=40_000)  # type: ignore[arg-type]
    again = load_backbone(saved, dtype=dtype)
    with torch.no_grad():
        assert torch.equal(backbone.model(IDS).logits, again.model(IDS).logits)
    assert again.prompt_ids("How many?") == backbone.prompt_ids("How many?")
    assert (again.mask_id, again.pad_id, again.turn_end_id, again.special_ids) == (
        *(backbone.mask_id, backbone.pad_id, backbone.turn_end_id, backbone.special_ids),
    )
    config, state = read(saved)
    assert "auto_map" not in config and len(list(saved.glob("model-*.safetensors"))) > 1
    original, tensors = read(folder)
    if layout == "hub":  # what the published code reads
        tied = {"lm_head.weight"} if original.get("tie_word_embeddings") else set()  # stored once
        assert state.keys() == tensors.keys() - tied
        same = original.keys() - {"auto_map", "torch_dtype", "transformers_version", "use_cache"}
        if "num_experts" in original:  # its nulls have become what they mean
            same = {k for k in same if original[k] is not None}
        assert {k: config[k] for k in same} == {k: original[k] for k in same}
        if dtype == "float32":
            expected = restated_logits(folder, IDS)
            torch.testing.assert_close(restated_logits(saved, IDS), expected, rtol=0, atol=0)
    assert not [p for p in tmp_path.iterdir() if p.name.startswith(".")]


def test_a_failed_save_leaves_nothing(
    backbone: Backbone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(type(backbone.tokenizer), "save_pretrained", fail)
    with pytest.raises(OSError, match="disk full"):
        save_backbone(backbone, tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_from_scratch(tmp_path: Path) -> None:
    ids = write_llada_tokenizer(tmp_path)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    config = {"d_model": 32, "n_heads": 4, "n_layers": 2, "mlp_hidden_size": 64}
    config |= {"embedding_size": 384, "max_sequence_length": 64, "rope_theta": 1e4}
    config |= {"mask_token_id": ids["<|mdm_mask|>"], "weight_tying": True}
    state = torch.get_rng_state()
    models = [new_backbone(FAMILIES["llada"], config, tokenizer, seed) for seed in (1, 1, 2)]
    assert torch.equal(state, torch.get_rng_state())
    first, second, third = (m.model.state_dict() for m in models)
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert not torch.equal(first["lm_head.weight"], third["lm_head.weight"])
    saved = save_backbone(models[0], tmp_path / "out")
    assert not any("transformer.ff_out" in k for k in read(saved)[1])  # tied, stored once
    again = load_backbone(saved)
    with torch.no_grad():
        assert torch.equal(again.model(IDS).logits, models[0].model.eval()(IDS).logits)
    assert again.model.lm_head.weight is again.model.model.embed_tokens.weight


def test_loading_is_silent(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_backbone(folder)
    assert capfd.readouterr() == ("", "")


def test_builders_look_like_downloads(tmp_path: Path) -> None:
    for name, files in {
        "llada": {"tokenizer.json"},
        "dream": {"vocab.json", "merges.txt", "added_tokens.json"},
    }.items():
        folder = WRITERS[name](tmp_path / name)
        present = {p.name for p in folder.iterdir()}
        assert files | {"config.json", "model.safetensors.index.json"} <= present
        assert "auto_map" in json.loads((folder / "config.json").read_text())
    assert not (tmp_path / "dream" / "tokenizer.json").exists()
    assert write_dream(tmp_path / "again", seed=1)
