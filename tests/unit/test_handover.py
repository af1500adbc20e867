"""Other programs open what we write: llama.cpp's converter and EvalPlus, as published.

`make tools` puts both into build/others, beside the environment and not into it. The problems and
the checkpoints are ours and tiny; nothing is fetched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from builders import WRITERS
from goldimask.backbones import load_backbone
from goldimask.backbones.lora import adapter_parameters, add_lora, save_adapter
from goldimask.backbones.merge import merge_run
from goldimask.eval.evalplus import export
from goldimask.eval.run import Model, Response, plan_trials, run_trials
from needs import need

OTHERS = Path(__file__).parents[2] / "build" / "others"
pytestmark = pytest.mark.real

# The converter knows the tokenizers of published models by a hash; ours are not among them.
CONVERT = """
import sys
import numpy as np
import conversion.base, convert_hf_to_gguf, gguf
conversion.base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
for folder in sys.argv[1:]:
    file = folder + ".gguf"
    sys.argv = ["convert", folder, "--outfile", file, "--outtype", "f32"]
    convert_hf_to_gguf.main()
    read = gguf.GGUFReader(file)
    facts = {"fact:" + k: str(f.contents()) for k, f in read.fields.items() if "tokens" not in k}
    np.savez(file + ".npz", **facts, **{t.name: t.data for t in read.tensors})
"""
LAYERS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k": "self_attn.k_proj",
    "attn_k_norm": "self_attn.k_norm",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_gate_inp": "mlp.gate",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def start(*words: str, **more: str) -> None:
    need("EvalPlus and llama.cpp's converter", OTHERS.is_dir(), "make tools")
    env = {**os.environ, "PYTHONPATH": str(OTHERS), "HF_HUB_OFFLINE": "1", **more}
    done = subprocess.run([sys.executable, *words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def merged(root: Path, name: str) -> Path:
    """A trained adapter, merged into a tiny checkpoint in the published layout."""
    folder = WRITERS[name](root / "downloads" / name)
    backbone = add_lora(load_backbone(folder), 0, r=4, alpha=8.0, dropout=0.0)
    with torch.no_grad():
        for p in adapter_parameters(backbone.model).values():
            p.add_(0.1)
    run = root / f"run-{name}"
    run.mkdir()
    save_adapter(backbone, run / "adapter")
    (run / "recipe.yaml").write_text(yaml.safe_dump({"backbone": {"path": str(folder)}}))
    merge_run(run, root / name)
    return root / name


def native_name(name: str) -> str:
    """llama.cpp's name of a tensor -> transformers'."""
    path, _, kind = name.rpartition(".")
    if not path.startswith("blk."):
        return f"{TOP[path]}.{kind}"
    _, block, part = path.split(".")
    return f"model.layers.{block}.{LAYERS[part]}.{kind}"


def paired(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of a head as llama.cpp turns them: neighbours, where LLaDA turns the two halves."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(weight.shape)


def test_llama_cpp_converts_a_merged_folder(tmp_path: Path) -> None:
    folders = [merged(tmp_path, name) for name in ("llada", "dream", "llada-moe")]
    start("-c", CONVERT, *map(str, folders))
    for folder in folders:
        model = load_backbone(folder)
        ours = model.model.state_dict()
        read = np.load(f"{folder}.gguf.npz")
        facts = {k[5:]: str(read[k]) for k in read.files if k.startswith("fact:")}
        kind = facts["general.architecture"]
        assert kind == folder.name
        assert facts[f"{kind}.attention.causal"] == "False"
        assert facts.get("diffusion.shift_logits", "True") == str(model.shift)
        assert facts["tokenizer.ggml.mask_token_id"] == str(model.mask_id)
        names = [name for name in read.files if not name.startswith("fact:")]
        seen = set()
        for name in names:
            stored = torch.from_numpy(read[name])
            if "_exps" in name:
                block, part = name.split(".")[1], name.split("_")[1]
                at = f"model.layers.{block}.mlp.experts."
                fused = ours[at + ("down_proj" if part == "down" else "gate_up_proj")]
                parts = {"gate": 0, "up": 1, "down": 0}
                expected = fused.chunk(1 if part == "down" else 2, dim=1)[parts[part]]
                seen.add(at)
            else:
                expected = ours[native_name(name)]
                seen.add(native_name(name))
                if kind == "llada" and ("attn_q." in name or "attn_k." in name):
                    expected = paired(expected, 4)
            assert torch.equal(stored, expected), name
        assert seen == {k.rsplit(".", 1)[0] + "." if ".experts." in k else k for k in ours}


HUMANEVAL = [
    {
        "task_id": f"HumanEval/{i}",
        "prompt": f'def twice{i}(x):\n    """ Double it. """\n',
        "entry_point": f"twice{i}",
        "canonical_solution": "    return 2 * x\n",
        "test": "def check(candidate):\n    assert candidate(2) == 4\n",
    }
    for i in range(4)
]
MBPP = {
    "task_id": 11,
    "prompt": "Write a function to multiply.",
    "code": "def times(a, b):\n    return a * b\n",
    "test_imports": [],
    "test_list": ["assert times(2, 3) == 6"],
}
SAID = ("def double(x):\n    return x + x", "def twice1(x):\n    return 4", "y = 1", None)


def answer(prompts, *, prefill, length, seed, raw, decoding):
    for i, prompt in enumerate(prompts):
        code = MBPP["code"] if "multiply" in prompt else SAID[i]
        yield Response(i, f"<answer>\n```python\n{code}\n```\n</answer>" if code else "No.", 1)


def test_evalplus_scores_the_export(tmp_path: Path) -> None:
    """A function of another name, one that only its base tests pass, no function, no program."""
    inputs = {"base_input": [[2]], "plus_input": [[3]], "atol": 0, "contract": ""}
    theirs = {
        "humaneval": [{**row, **inputs} for row in HUMANEVAL],
        "mbpp": [
            {
                **inputs,
                "task_id": "Mbpp/11",
                "prompt": "",
                "entry_point": "times",
                "canonical_solution": MBPP["code"],
                "base_input": [[2, 3]],
                "plus_input": [[4, 5]],
            }
        ],
    }
    for name, rows in (("humaneval", HUMANEVAL), ("mbpp", [MBPP])):
        lines = "".join(json.dumps(r) + "\n" for r in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines)
        lines = "".join(json.dumps(r) + "\n" for r in theirs[name])
        (tmp_path / f"{name}-plus.jsonl").write_text(lines)
    options = {"allow_code_execution": True, "sandbox": "limits"}
    trials = plan_trials(["humaneval", "mbpp"], task_options=options, data=tmp_path)
    result = run_trials(trials, answer, tmp_path / "out", Model("toy", "0" * 16))
    found = {}
    for file, name in zip(export(trials, result.outcomes, tmp_path), theirs, strict=True):
        place = {f"{name.upper()}_OVERRIDE_PATH": str(tmp_path / f"{name}-plus.jsonl")}
        words = ("--dataset", name, "--samples", str(file), "--parallel", "1")
        start("-m", "evalplus.evaluate", *words, XDG_CACHE_HOME=str(tmp_path / "cache"), **place)
        scored = json.loads(file.with_name(f"{file.stem}_eval_results.json").read_text())["eval"]
        found |= {k: (v[0]["base_status"], v[0]["plus_status"]) for k, v in scored.items()}
    assert found == {
        "HumanEval/0": ("pass", "pass"),
        "HumanEval/1": ("pass", "fail"),
        "HumanEval/2": ("fail", "fail"),
        "HumanEval/3": ("fail", "fail"),
        "Mbpp/11": ("pass", "pass"),
    }
    judged = {o.item: o.correct for o in result.outcomes}  # ours has the base tests alone
    assert judged == {k.removeprefix("Mbpp/"): base == "pass" for k, (base, _) in found.items()}
