"""The golden record: what the library decides, on fixed inputs. See README.md beside this file.

    python tests/golden/record.py --write                 renew record.json
    python tests/golden/record.py --out FILE              record elsewhere
    python tests/golden/record.py --sections steps,loops  some sections only

A section is a function from a scratch folder to `{case: {what: value}}`. Values that must be equal
are strings, whole numbers, truth values or lists of them; floats are compared with a tolerance
(`compare.py`). Sets and orders are stored as hashes beside their sizes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
if __name__ == "__main__":  # a script records the tree it stands in, whatever is installed
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    os.environ["PYTHONPATH"] = str(ROOT / "src")
for _name, _value in (
    ("OMP_NUM_THREADS", "1"),
    ("TOKENIZERS_PARALLELISM", "false"),
    ("HF_HUB_OFFLINE", "1"),
):
    os.environ.setdefault(_name, _value)

import numpy as np  # noqa: E402  the settings above come first

from golden import library  # noqa: E402
from golden.verbs import json_keys  # noqa: E402

FIXTURES = HERE / "fixtures"
RECORD = HERE / "record.json"
MODELS = ("tiny", "tiny-dream")  # the two layouts: LLaDA, and Dream with its shifted head
LOSSES = 10
Cases = dict[str, Any]


def digest(value: Any) -> str:
    """A short name for a nested list of whole numbers, or for a text."""
    text = json.dumps(value, separators=(",", ":"), default=int)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def figures(values: Iterable[float]) -> list[float]:
    """Numbers with the digits that a comparison looks at."""
    return [float(f"{float(x):.8g}") for x in values]


def examples(model: str) -> list[dict[str, Any]]:
    """Stored token ids, so that no corpus, tokenizer or chat template takes part."""
    return json.loads((FIXTURES / "examples.json").read_text())[model]


# ---------------------------------------------------------------- steps

VISITS = (  # epoch, examples: padded; all of one length; hardly anything to supervise; a return
    (0, (0, 2, 3, 4)),
    (0, (7, 2)),
    (0, (11, 10, 1)),
    (1, (0, 2, 3, 4)),
)
VARIANTS: dict[str, dict[str, Any]] = {
    "lift-2 as released": {"preset": "lift-2", "protocol": "lift"},
    "lift-3 as released": {"preset": "lift-3", "protocol": "lift"},
    "goldimask-d as LIFT": {"preset": "goldimask-d", "protocol": "lift"},
    "goldimask-d first block": {"preset": "goldimask-d", "attention_layer": 0},
    "goldimask-d half depth": {"preset": "goldimask-d", "attention_layer": 0.5},
    "goldimask-p half depth": {"preset": "goldimask-p", "attention_layer": 0.5},
    "agdo first block": {"preset": "agdo", "attention_layer": 0},
}


def steps(_: Path) -> Cases:
    """Every preset on every batch, both layouts: one step each, with its gradient."""
    methods = {name: {"preset": name} for name in library.preset_names()} | VARIANTS
    found: Cases = {}
    for model in MODELS:
        rows = examples(model)
        visits = VISITS if model == "tiny" else VISITS[::3]
        for name, options in methods.items():
            made = library.steps(model, rows, visits, seed=7, **options)
            for (epoch, numbers), (out, gradient) in zip(visits, made, strict=True):
                where = f"epoch {epoch} examples {','.join(map(str, numbers))}"
                found[f"{model} / {name} / {where}"] = step_facts(out, gradient)
    return found


def step_facts(out: Any, gradient: float) -> dict[str, Any]:
    """One step: decisions as hashes and counts, what is measured as numbers."""
    weights, c = out.weights, out.corruption
    revealed = positions(out.reveal.mask)
    return {
        "candidates": digest(positions(c.candidates)),
        "order": digest([list(x) for x in out.reveal.order] if out.reveal.order else revealed),
        "supervised": digest(positions(out.supervised)),
        "counts": [
            [int(n) for n in x.sum(1)] for x in (c.candidates, out.reveal.mask, out.supervised)
        ],
        "keep": [int(k) for k in c.keep],
        "t": figures(c.t),
        "rho": figures(c.rho),
        "losses": figures((out.loss.detach(), *out.per_example)),
        "weight_sums": figures(weights.value.double().sum(1)),
        "weight_norms": figures(weights.value.double().norm(dim=1)),
        "scales": figures(weights.scale),
        "gradient_norm": figures([gradient]),
    }


def positions(mask: Any) -> list[list[int]]:
    return [row.nonzero().flatten().tolist() for row in mask]


# ---------------------------------------------------------------- selectors

SUPPORTS = {
    "saturating": {"kind": "saturating", "s0": 0.05},
    "linear": {"kind": "linear"},
}
SIZES = ((1, 1), (7, 3), (40, 13), (130, 70), (300, 110))  # candidates, budget
SMALL = 40  # up to here every engine and both local searches; beyond, the default engine


def selectors(_: Path) -> Cases:
    """Sets in the order of choice, of every maximiser and engine."""
    found: Cases = {}
    for size, budget in SIZES:
        attention, priority = instance(size)
        for selector in library.selector_names():
            for name, options in selector_options(selector, size):
                rng = np.random.default_rng([3, size])
                made = library.selections(attention, priority, budget, selector, rng=rng, **options)
                found[f"{selector} / {size} choose {budget} / {name}"] = selection_facts(made)
    attention, priority = (
        np.stack(x) for x in zip(*(instance(24, k) for k in range(3)), strict=True)
    )
    active = np.random.default_rng(11).random((3, 24)) < 0.7
    for selector in library.selector_names():
        rng = [np.random.default_rng([5, k]) for k in range(3)]
        made = library.selections(attention, priority, [4, 0, 9], selector, rng=rng, active=active)
        found[f"{selector} / padded batch of 3"] = selection_facts(made)
    return found


def instance(size: int, number: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Peaked attention rows that sum to less than one, and priorities p(1-p)^3."""
    rng = np.random.default_rng([17, size, number])
    attention = rng.random((size, size), dtype=np.float32) ** 4
    attention *= 0.8 / attention.sum(1, keepdims=True)
    p = rng.random(size)
    return attention, p * (1 - p) ** 3


def selector_options(selector: str, size: int) -> Iterable[tuple[str, dict[str, Any]]]:
    for name, support in SUPPORTS.items():
        engines = library.ENGINES if size <= SMALL else library.ENGINES[:1]
        for engine in engines:
            if engine == "device" and selector not in ("greedy", "randomized"):
                continue
            yield f"{name} / {engine}", {"support": support, "engine": engine}
    if selector == "practical" and size <= SMALL:
        yield "decoupled swaps", {"swap": "decoupled"}
        yield "two swaps", {"swaps": 2}


def selection_facts(made: Sequence[tuple[list[int], float]]) -> dict[str, Any]:
    return {
        "order": digest([order for order, _ in made]),
        "sizes": [len(order) for order, _ in made],
        "values": figures(value for _, value in made),
    }


# ---------------------------------------------------------------- decoders

PROMPTS = (0, 2, 3, 4)  # four prompts of different lengths, three of them decoded together
DECODING: dict[str, tuple[dict[str, Any], ...]] = {
    "threshold": (
        {"tau": 0.5},
        {"tau": 0.7, "cache": "prefix"},
        {"tau": 0.7, "cache": "dual"},
        {"cfg": 0.5},
        {"temperature": 0.7, "seed": 3},
        {"eos_stop": True, "length": 112},
        {"padding_side": "left"},
        {"max_steps": 5},
        {"allow_mask": True},
    ),
    "entropy": ({"tau": 0.1}, {"tau": 1.0}),
    "factor": ({"factor": 2.0}, {"factor": 0.5, "cache": "dual"}),
    "low-confidence": ({"steps": 12}, {"cache": "prefix"}, {"temperature": 0.5, "top_p": 0.9}),
    "random": ({"seed": 1},),
    "dream-maskgit-plus": ({"steps": 12, "alg_temp": 0.3}, {"temperature": 0.4, "top_k": 5}),
    "dream-topk-margin": ({"block": 16},),
    "dream-entropy": ({"steps": 20, "temperature": 0.2, "top_p": 0.95},),
    "dream-origin": ({"steps": 10, "seed": 4},),
}


def decoders(_: Path) -> Cases:
    """Tokens and model calls of every decoder, both layouts, through the model's own forward."""
    found: Cases = {}
    for model in MODELS:
        rows = examples(model)
        prompts = [rows[i]["ids"][: rows[i]["prompt_length"]] for i in PROMPTS]
        for name in library.decoder_names():
            base: dict[str, Any] = {} if name.startswith("dream") else {"block": 16}
            for options in ({}, *DECODING.get(name, ())):
                given = {"length": 32, "batch_size": 3} | base | options
                made = library.decoded(model, prompts, name, **given)
                words = " ".join(f"{k}={v}" for k, v in options.items()) or "defaults"
                found[f"{model} / {name} / {words}"] = {
                    "tokens": [digest(d.tokens) for d in made],
                    "steps": [d.steps for d in made],
                    "steps_to_end": [d.steps_to_eos for d in made],
                    "complete": [d.complete for d in made],
                    "trace": digest([[c.positions for c in d.trace] for d in made]),
                }
    return found


# ---------------------------------------------------------------- losses of training


def loops(folder: Path) -> Cases:
    """Ten losses through the Trainer, a plain loop and an Accelerate loop."""
    found: Cases = {}
    for preset in ("vanilla", "goldimask-d"):
        for loop in ("plain_loop", "accelerate_loop"):
            found[f"{loop} / {preset}"] = {"losses": library.loop_losses(loop, preset, LOSSES)}
    low_rank = {"r": 4, "alpha": 8.0, "dropout": 0.0}  # dropout draws by the shapes of the pass
    for preset, sections in (
        ("vanilla", {}),
        ("goldimask-d", {}),
        ("goldimask-a", {}),
        ("goldimask-d", {"lora": low_rank}),
    ):
        name = " / ".join(("trainer", preset, *sections))
        recipe = library.train_recipe(preset, folder / digest(name), LOSSES, **sections)
        found[name] = library.train(recipe)
    return found


# ---------------------------------------------------------------- verdicts


def scores(_: Path) -> Cases:
    """What `score` says of stored generations, per task and protocol."""
    return {
        f"{file.stem} / {protocol} / {number}": facts
        for file in sorted((FIXTURES / "generations").glob("*.json"))
        for protocol in ("fixed", "lift")
        for number, facts in enumerate(library.verdicts(file, file.stem, protocol))
    }


# ---------------------------------------------------------------- the record

SECTIONS: dict[str, Callable[[Path], Cases]] = {
    "steps": steps,
    "selectors": selectors,
    "decoders": decoders,
    "loops": loops,
    "scores": scores,
    "keys": json_keys,
}


def record(names: Iterable[str] = SECTIONS, threads: int = 1) -> dict[str, Cases]:
    """The sections asked for, computed anew."""
    import torch

    torch.set_num_threads(threads)
    found = {}
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = SECTIONS[name](Path(folder))
    return found


def write(found: dict[str, Cases], path: Path) -> None:
    """One line per case: a change of the record reads well in a diff."""
    sections = []
    for name, cases in found.items():
        lines = [f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in cases.items()]
        sections.append(f" {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n }")
    path.write_text("{\n" + ",\n".join(sections) + "\n}\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="renew record.json")
    parser.add_argument("--out", type=Path, help="write the record to this file instead")
    parser.add_argument("--sections", default=",".join(SECTIONS), help="by commas; default all")
    parser.add_argument("--threads", type=int, default=1, help="torch's threads")
    given = parser.parse_args()
    if not (given.write or given.out):
        parser.error("say --write to renew record.json, or --out FILE")
    target = given.out or RECORD
    known = json.loads(target.read_text()) if target.exists() else {}
    made = record(given.sections.split(","), given.threads)
    write({name: x for name in SECTIONS if (x := made.get(name, known.get(name)))}, target)
    print(f"{target}: " + ", ".join(f"{len(v)} {k}" for k, v in made.items()))


if __name__ == "__main__":
    main()
