"""Tiny random checkpoints in the published layouts: what a Hub download looks like.

The config fields, tensor names, shards, tokenizer files and chat templates follow the published
repositories; the sizes, weights, vocabularies and wording of the templates are ours.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

LLADA_SPECIALS = [
    "<|startoftext|>",
    "<|endoftext|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|mdm_mask|>",
]
DREAM_SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|beginoftext|>", "<|mask|>"]

# Like the published one: BOS first, and an assistant header at the end whatever was asked for.
LLADA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n"
    "{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
)
# ChatML with a default system message and a proper generation prompt.
DREAM_TEMPLATE = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant."
    "<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}"
    "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = [
    "How many apples are left? There were 12 apples and 5 were eaten, so 12 - 5 = 7 are left.",
    "system user assistant You are a helpful assistant. The answer is 42.",
    "def add(a, b):\n    return a + b\n",
]


def llada_config(**changes: Any) -> dict[str, Any]:
    """config.json as published, with tiny sizes."""
    return {
        "activation_type": "silu",
        "alibi": False,
        "alibi_bias_max": 8.0,
        "architectures": ["LLaDAModelLM"],
        "attention_dropout": 0.0,
        "attention_layer_norm": False,
        "attention_layer_norm_with_affine": True,
        "auto_map": {
            "AutoConfig": "configuration_llada.LLaDAConfig",
            "AutoModel": "modeling_llada.LLaDAModelLM",
            "AutoModelForCausalLM": "modeling_llada.LLaDAModelLM",
        },
        "bias_for_layer_norm": False,
        "block_group_size": 1,
        "block_type": "llama",
        "d_model": 32,
        "embedding_dropout": 0.0,
        "embedding_size": 384,
        "eos_token_id": None,
        "flash_attention": False,
        "include_bias": False,
        "include_qkv_bias": False,
        "init_cutoff_factor": None,
        "init_device": "meta",
        "init_fn": "mitchell",
        "init_std": 0.02,
        "input_emb_norm": False,
        "layer_norm_type": "rms",
        "layer_norm_with_affine": True,
        "mask_token_id": None,
        "max_sequence_length": 256,
        "mlp_hidden_size": 96,
        "mlp_ratio": 4,
        "model_type": "llada",
        "multi_query_attention": None,
        "n_heads": 4,
        "n_kv_heads": 4,
        "n_layers": 3,
        "pad_token_id": None,
        "precision": "amp_bf16",
        "residual_dropout": 0.0,
        "rms_norm_eps": 1e-05,
        "rope": True,
        "rope_full_precision": True,
        "rope_theta": 500000.0,
        "scale_logits": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.46.3",
        "use_cache": False,
        "vocab_size": 384,
        "weight_tying": False,
        **changes,
    }


def dream_config(**changes: Any) -> dict[str, Any]:
    """config.json as published, with tiny sizes."""
    return {
        "architectures": ["DreamModel"],
        "attention_dropout": 0.0,
        "auto_map": {
            "AutoConfig": "configuration_dream.DreamConfig",
            "AutoModel": "modeling_dream.DreamModel",
        },
        "bos_token_id": None,
        "eos_token_id": None,
        "hidden_act": "silu",
        "hidden_size": 32,
        "initializer_range": 0.02,
        "intermediate_size": 80,
        "mask_token_id": None,
        "max_position_embeddings": 131072,
        "max_window_layers": 28,
        "model_type": "Dream",
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "pad_token_id": None,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.46.2",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": 384,
        **changes,
    }


def llada_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Published tensor names and their shapes."""
    d, f, v = config["d_model"], config["mlp_hidden_size"], config["embedding_size"]
    kv = d * config["n_kv_heads"] // config["n_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.transformer.wte.weight": (v, d)}
    for n in range(config["n_layers"]):
        block = f"model.transformer.blocks.{n}."
        parts = {
            "attn_norm": (d,),
            "q_proj": (d, d),
            "k_proj": (kv, d),
            "v_proj": (kv, d),
            "attn_out": (d, d),
            "ff_norm": (d,),
            "ff_proj": (f, d),
            "up_proj": (f, d),
            "ff_out": (d, f),
        }
        shapes |= {f"{block}{name}.weight": shape for name, shape in parts.items()}
    shapes["model.transformer.ln_f.weight"] = (d,)
    if not config["weight_tying"]:
        shapes["model.transformer.ff_out.weight"] = (v, d)
    return shapes


def stock_shapes(config: dict[str, Any], bias: bool = False) -> dict[str, tuple[int, ...]]:
    """Published tensor names and their shapes: Llama's, Qwen2's (`bias`), Qwen3's, with experts."""
    d, f, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads = config["num_attention_heads"]
    head = config.get("head_dim") or d // heads
    q, kv = head * heads, head * config["num_key_value_heads"]
    normed = "head_dim" in config or "qk_layernorm" in config  # Qwen3
    experts = config.get("num_experts", 0)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (v, d)}
    for n in range(config["num_hidden_layers"]):
        block = f"model.layers.{n}."
        attention = {"q_proj": (q, d), "k_proj": (kv, d), "v_proj": (kv, d), "o_proj": (d, q)}
        shapes[f"{block}input_layernorm.weight"] = (d,)
        for k, s in attention.items():
            shapes[f"{block}self_attn.{k}.weight"] = s
            if bias and k != "o_proj":
                shapes[f"{block}self_attn.{k}.bias"] = s[:1]
        if normed:
            shapes |= {f"{block}self_attn.{k}_norm.weight": (head,) for k in "qk"}
        width = config["expert_intermediate_size"] if experts else f
        mlp = {"gate_proj": (width, d), "up_proj": (width, d), "down_proj": (d, width)}
        places = [f"mlp.experts.{e}." for e in range(experts)] or ["mlp."]
        shapes |= {f"{block}{at}{k}.weight": s for at in places for k, s in mlp.items()}
        if experts:
            shapes[f"{block}mlp.gate.weight"] = (experts, d)
        shapes[f"{block}post_attention_layernorm.weight"] = (d,)
    return shapes | {"model.norm.weight": (d,), "lm_head.weight": (v, d)}


def random_state(
    shapes: dict[str, tuple[int, ...]], seed: int = 0, std: float = 0.15
) -> dict[str, torch.Tensor]:
    """Weights large enough that positions and attention matter; norms near one."""
    generator = torch.Generator().manual_seed(seed)
    state = {k: torch.randn(s, generator=generator) * std for k, s in shapes.items()}
    return {k: 1.0 + v if "norm" in k or "ln_f" in k else v for k, v in state.items()}


def write_shards(state: dict[str, torch.Tensor], folder: Path, shards: int = 2) -> None:
    """Sharded safetensors with an index, as published."""
    names = list(state)
    where = {}
    for i in range(shards):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        part = {k: state[k].contiguous() for k in names[i::shards]}
        save_file(part, folder / file, {"format": "pt"})
        where |= dict.fromkeys(part, file)
    total = sum(t.nbytes for t in state.values())
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def byte_tokenizer(specials: list[str], vocab_size: int = 320) -> Tokenizer:
    """A small byte-level BPE, trained on a few sentences; the specials come last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(specials)
    return tokenizer


def write_llada_tokenizer(folder: Path, template: bool = True) -> dict[str, int]:
    """tokenizer.json and tokenizer_config.json; as published, no mask token is declared."""
    tokenizer = byte_tokenizer(LLADA_SPECIALS)
    tokenizer.save(str(folder / "tokenizer.json"))
    ids = {token: tokenizer.token_to_id(token) for token in LLADA_SPECIALS}
    config = {
        "added_tokens_decoder": {
            str(i): {
                "content": token,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for token, i in ids.items()
        },
        "add_bos_token": False,
        "add_eos_token": False,
        "bos_token": "<|startoftext|>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|endoftext|>",
        "fast_tokenizer": True,
        "model_max_length": 1000000000000000019884624838656,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "trust_remote_code": True,
    }
    if template:
        config["chat_template"] = LLADA_TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return ids


def write_dream_tokenizer(folder: Path) -> dict[str, int]:
    """vocab.json, merges.txt, added_tokens.json and a tokenizer_config.json with an auto_map."""
    tokenizer = byte_tokenizer([])
    tokenizer.model.save(str(folder))
    size = tokenizer.get_vocab_size()
    ids = {token: size + i for i, token in enumerate(DREAM_SPECIALS)}
    (folder / "added_tokens.json").write_text(json.dumps(ids))
    config = {
        "added_tokens_decoder": {
            str(i): {
                "content": token,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for token, i in ids.items()
        },
        "add_bos_token": False,
        "add_prefix_space": False,
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
        "bos_token": "<|beginoftext|>",
        "chat_template": DREAM_TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|endoftext|>",
        "errors": "replace",
        "mask_token": "<|mask|>",
        "model_max_length": 131072,
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "DreamTokenizer",
        "unk_token": None,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return ids


def write_llada(folder: Path | str, seed: int = 0, shards: int = 2, **changes: Any) -> Path:
    """A LLaDA folder as downloaded; `changes` are config fields."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ids = write_llada_tokenizer(folder)
    tokens = {
        "mask_token_id": ids["<|mdm_mask|>"],
        "eos_token_id": ids["<|endoftext|>"],
        "pad_token_id": ids["<|endoftext|>"],
    }
    config = llada_config(**{**tokens, **changes})
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    write_shards(random_state(llada_shapes(config), seed), folder, shards)
    generation = {"bos_token_id": ids["<|startoftext|>"], "eos_token_id": ids["<|endoftext|>"]}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def write_dream(folder: Path | str, seed: int = 0, shards: int = 2, **changes: Any) -> Path:
    """A Dream folder as downloaded; `changes` are config fields."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ids = write_dream_tokenizer(folder)
    tokens = {
        "mask_token_id": ids["<|mask|>"],
        "bos_token_id": ids["<|endoftext|>"],
        "eos_token_id": ids["<|endoftext|>"],
        "pad_token_id": ids["<|endoftext|>"],
    }
    config = dream_config(**{**tokens, **changes})
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    write_shards(random_state(stock_shapes(config, bias=True), seed), folder, shards)
    generation = {"alg": "origin", "eps": 0.001, "mask_token_id": None, "steps": 512}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


# Qwen3's: thinking is switched off with an empty block.
QWEN3_TEMPLATE = DREAM_TEMPLATE.replace(
    "assistant\n' }}{% endif %}",
    "assistant\n' }}{% if enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\n\n</think>\n\n' }}{% endif %}{% endif %}",
)
ROLE_TEMPLATE = (
    "{% for m in messages %}<role>{{ m['role'] | upper }}</role>{{ m['content'] }}<|role_end|>"
    "{% endfor %}<role>ASSISTANT</role>"
)
# name -> fields of the published config that tell it apart, special tokens, template
STOCK: dict[str, tuple[dict[str, Any], list[str], str]] = {
    "llama": (
        {"architectures": ["A2DLlamaLMHeadModel"], "model_type": "a2d-llama", "rope_theta": 5e5},
        LLADA_SPECIALS,
        LLADA_TEMPLATE,
    ),
    "diffullama": (
        {"architectures": ["DiscreteDiffusionModel"], "model_type": "llama", "rms_norm_eps": 1e-5},
        LLADA_SPECIALS,
        LLADA_TEMPLATE,
    ),
    "open-dcoder-0.5B": (
        {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tie_word_embeddings": True},
        [*DREAM_SPECIALS[:4], "<M>"],
        DREAM_TEMPLATE,
    ),
    "qwen3": (
        {
            "architectures": ["A2DQwen3LMHeadModel"],
            "model_type": "a2d-qwen3",
            "tie_word_embeddings": True,
            "head_dim": 16,
        },
        DREAM_SPECIALS,
        QWEN3_TEMPLATE,
    ),
    "coda": (
        {"architectures": ["CoDALanguageModel"], "model_type": "CoDA", "head_dim": 16},
        DREAM_SPECIALS,
        QWEN3_TEMPLATE,
    ),
    "llada-moe": (
        {
            "architectures": ["LLaDAMoEModelLM"],
            "model_type": "llada",
            "num_experts": 6,
            "num_experts_per_tok": 2,
            "norm_topk_prob": None,
            "expert_intermediate_size": 24,
            "intermediate_size": None,
            "moe_layer_freq": [1, 1, 1],
            "qk_layernorm": True,
            "num_key_value_heads": 4,
            "rope_theta": 50000,
            "shared_expert_intermediate_size": None,
        },
        ["<|startoftext|>", "<|endoftext|>", "<|role_end|>", "<|mask|>"],
        ROLE_TEMPLATE,
    ),
}


def stock_config(name: str, **changes: Any) -> dict[str, Any]:
    """config.json of a model under transformers' own names, with tiny sizes."""
    module = {"AutoConfig": f"configuration_{name}.Config", "AutoModel": f"modeling_{name}.Model"}
    return {
        "attention_dropout": 0.0,
        "auto_map": module,
        "hidden_act": "silu",
        "hidden_size": 32,
        "initializer_range": 0.02,
        "intermediate_size": 80,
        "max_position_embeddings": 512,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 1000000.0,
        "torch_dtype": "bfloat16",
        "vocab_size": 384,
        **STOCK[name][0],
        **changes,
    }


def write_stock(folder: Path | str, seed: int = 0, shards: int = 2, **changes: Any) -> Path:
    """A download of a model under transformers' names; the folder's name says which."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _, specials, template = STOCK[folder.name]
    tokenizer = byte_tokenizer(specials)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.model.save(str(folder))
    pad = tokenizer.token_to_id("<|endoftext|>")
    declared = {"pad_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    if folder.name in ("open-dcoder-0.5B", "qwen3"):
        declared["mask_token"] = specials[-1]
    else:  # elsewhere it stands in the config, or in a table of ours
        changes = {"mask_token_id": tokenizer.token_to_id(specials[-1]), **changes}
    kind = "Qwen2Tokenizer" if "<|im_end|>" in specials else "PreTrainedTokenizerFast"
    written = {"tokenizer_class": kind, "chat_template": template, **declared}
    (folder / "tokenizer_config.json").write_text(json.dumps(written))
    config = stock_config(folder.name, **{"pad_token_id": pad, "eos_token_id": pad, **changes})
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    state = random_state(stock_shapes(config, bias=folder.name.startswith("open-dcoder")), seed)
    if config.get("tie_word_embeddings"):
        state["lm_head.weight"] = state["model.embed_tokens.weight"].clone()  # tied, yet stored
    if folder.name == "diffullama":
        state = {
            k.replace("model.embed_tokens", "embed_tokens").replace("model.", "denoise_model."): v
            for k, v in state.items()
        }
    write_shards(state, folder, shards)
    return folder


WRITERS = {"llada": write_llada, "dream": write_dream, **dict.fromkeys(STOCK, write_stock)}
