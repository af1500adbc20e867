"""The keys of what each verb prints with `--json`, on the smallest runs that fill them.

A list counts by the keys of its elements: `{"a": [{"b": 1}, {"c": 2}]}` has the paths `a`, `a[].b`
and `a[].c`. The words of the verbs stand here, in the order in which they need each other: the two
runs are trained first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from golden import library

GENERATIONS = Path(__file__).parent / "fixtures" / "generations"
LAB = (
    "change.data.limit=40 change.data.validation=8 change.trainer.max_steps=2 "
    "change.trainer.eval_steps=2 judging.problems=2 judging.taus=[0.9]"
)
PRETRAINING = (
    "output=base batch_size=2 model.width=32 model.layers=1 model.heads=2 model.mlp=32 "
    "watch.heldout=2 watch.problems=1 watch.length=16 watch.block=16 watch.every=2"
)
QUICK = ("list methods", "list backbones", "list tasks", "list decoders", "model", "score")
VERBS = {  # name -> words; capitals stand for paths
    "list methods": "list methods",
    "list backbones": "list backbones",
    "list tasks": "list tasks",
    "list decoders": "list decoders",
    "list recipes": "list recipes",
    "model": "model tiny",
    "score": "score FILES/gsm8k.json --task gsm8k --diff",
    "score sudoku": "score FILES/sudoku.json --task sudoku",
    "train --dry-run": "train RECIPE --dry-run",
    "train": "train RECIPE output=RUN",
    "train other": "train RECIPE output=OTHER method.preset=vanilla lora.r=4 lora.alpha=8.0",
    "inspect": "inspect RECIPE --methods vanilla,goldimask-d",
    "decode": "decode tiny hello --length 16 --trace",
    "decode --file": "decode tiny --file prompts.jsonl --out answers.jsonl --length 16",
    "decode --html": "decode tiny hello --length 16 --html replay.html",
    "eval": "eval RUN --tasks tiny-chain --limit 2 --out RUN/eval --lengths 32",
    "eval seeds": "eval RUN --tasks tiny-chain --limit 2 --seeds 0,1 --temperature 0.5 --out seeds",
    "eval other": "eval OTHER --tasks tiny-chain --limit 2 --out OTHER/eval --lengths 32",
    "eval sweep": "eval RUN --tasks tiny-chain --limit 2 --tau 0.7,0.9 --out sweep",
    "report": "report a=RUN b=OTHER --baselines b --out report.html",
    "merge": "merge OTHER --to merged",
    "demo": "demo --out demo --problems 2 --steps 2",
    "compare --plan": f"compare lab --preset smoke --plan --out grid {LAB}",
    "compare": f"compare lab --preset smoke --out grid {LAB}",
    "study budget": "study budget tiny --examples 8 --heldout 4 --steps 1 --batch-size 2 --seeds 2",
    "study response": "study response tiny --examples 8 --draws 1 --seeds 1",
    "study support": "study support tiny --examples 8 --sets 2 --seeds 1",
    "study quality": "study quality tiny --examples 8 --seeds 1",
    "study benefit": "study benefit tiny --examples 8 --reveals 4 --seeds 1",
    "study eligibility": "study eligibility RUN OTHER --limit 2 --states 1 --tau 0.9",
    "bench": "bench tiny global_batch_size=2 --methods vanilla,goldimask-d --rounds 1",
}
SCRIPTS = {  # of a clone, called by their path
    "tools/pretrain.py": f"CLONE/tools/tiny-base.yaml --until 2 {PRETRAINING}",
    "benchmarks/train.py": "--rounds 1 --steps 1",
    "benchmarks/decode.py": "--prompts 2 --length 16 --block 8 --batches 1 --repeats 1",
    "benchmarks/memory.py": "--vocab 256 --length 32",
    "benchmarks/selection.py": "--sizes 16 --shares 0.5 --rounds 1",
}


def json_keys(folder: Path, only: tuple[str, ...] = (*VERBS, *SCRIPTS)) -> dict[str, Any]:
    """`{verb: {"keys": sorted paths}}`; a verb that fails says so in their place."""
    recipe = library.train_recipe("goldimask-d", folder / "unused", 2)
    (folder / "recipe.yaml").write_text(json.dumps(recipe))  # JSON is YAML
    (folder / "prompts.jsonl").write_text('{"prompt": "begin with 4"}\n')
    places = {
        "RECIPE": folder / "recipe.yaml",
        "RUN": folder / "run",
        "OTHER": folder / "other",
        "FILES": GENERATIONS,
        "CLONE": library.ROOT,
    }
    found = {}
    for name in only:
        words = VERBS[name] if name in VERBS else f"{name} {SCRIPTS[name]}"
        for word, path in places.items():
            words = words.replace(word, str(path))
        code, out, error = library.verb([*words.split(), "--json"], folder)
        try:
            keys = sorted(set(paths(json.loads(out))))
        except json.JSONDecodeError:
            keys = [f"failed with {code}: {error}"]
        found[name] = {"keys": keys}
    return found


def paths(value: Any, prefix: str = "") -> Iterator[str]:
    """Every key of a nested object, with the keys on the way to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{prefix}.{key}" if prefix else str(key)
            yield path
            yield from paths(inner, path)
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, f"{prefix}[]")
