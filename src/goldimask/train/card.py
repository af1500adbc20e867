"""A model card from a run folder: what a stranger needs to know before using the weights.

    run folder -> README.md beside the adapter, or in a merged model

It says the base and its licence, the method, the data and its hash, the held-out loss, the scores
with their intervals if the run was evaluated, and how to load it. Everything is read from the
folder; nothing is fetched. Paths of this machine are not told: of a file its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from goldimask.backbones.lookup import BACKBONES, find_model
from goldimask.errors import GoldimaskError
from goldimask.files import read_object, write_text
from goldimask.records import MANIFEST, Manifest, Run, answerer, open_run

CARD = "README.md"
OWN_LICENCE = "apache-2.0"  # of the models that ship with goldimask
UNKNOWN = "not stated in the files of the base: look it up before you publish"


def write_card(run: Path) -> None:
    """Write the card of a run beside its weights; again after an evaluation, for the scores."""
    for part in ("adapter", "model"):
        if (run / part).is_dir() and (run / MANIFEST).is_file():
            write_text(run / part / CARD, card_text(run))


def card_text(folder: Path, merged: bool = False) -> str:
    """Front matter for the Hub, then Markdown."""
    from huggingface_hub import ModelCard, ModelCardData

    run = open_run(folder, folder.resolve().name.removesuffix(".partial"))
    if run.manifest is None:
        raise GoldimaskError(f"{folder}: has no manifest.json; the run has not finished")
    base, licence = base_of(folder)
    tuned_all = run.recipe.get("lora") is None
    data = ModelCardData(
        base_model=base if "/" in base else None,
        license=licence,
        library_name="transformers" if merged or tuned_all else "peft",
        pipeline_tag="text-generation",
        tags=["goldimask", "masked-diffusion", run.method],
    )
    parts = [
        f"# {run.name}",
        f"`{base}` as a masked diffusion language model, fine-tuned with `{run.method}`.",
        "## Training",
        facts(run, run.manifest),
        "## Scores",
        scores(folder),
        "## Use",
        usage(base, merged or tuned_all),
        "## Made again",
        "`goldimask train recipe.yaml` with",
        f"```yaml\n{yaml.safe_dump(told(run.recipe), sort_keys=False, allow_unicode=True)}```",
        "## Licence",
        f"Of the base: {licence or UNKNOWN}. The terms of the training data apply as well.",
    ]
    return str(ModelCard(f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(parts) + "\n"))


def base_of(run: Path) -> tuple[str, str | None]:
    """(Hub id or name of the base, its licence if its files say it)."""
    section = open_run(run).recipe.get("backbone") or {}
    name = str(section.get("path") or section.get("name"))
    if name in BACKBONES:
        source = BACKBONES.get(name)
        name = source.hub or name
        return name, None if source.hub else OWN_LICENCE
    if Path(name).is_dir():
        return Path(name).name, licence_of(Path(find_model(name).base))
    return name, None


def licence_of(folder: Path) -> str | None:
    """What the front matter of the base's own card says."""
    from huggingface_hub import ModelCard

    try:
        found = ModelCard.load(folder / CARD, ignore_metadata_errors=True).data.to_dict()
    except (OSError, ValueError):
        return None
    licence = found.get("license")
    return licence if isinstance(licence, str) else None


def facts(run: Run, manifest: Manifest) -> str:
    """What was done, in a table."""
    recipe, found = run.recipe, manifest.facts
    lora, data, trainer = (recipe.get(k) or {} for k in ("lora", "data", "trainer"))
    loss = found.get("eval_loss_best")
    error = found.get("eval_loss_best_se")
    rows = {
        "method": changed(recipe.get("method") or {}),
        "trained": f"LoRA, rank {lora.get('r')}" if lora else "all weights",
        "data": ", ".join(sources(data)) or "-",
        "hash of the data": found.get("data_hash"),
        "examples": f"{found.get('examples')} and {found.get('validation_examples')} held out",
        "steps": f"{found.get('steps')} of {recipe.get('global_batch_size')} examples",
        "learning rate": trainer.get("learning_rate", "the default"),
        "seed": found.get("seed"),
        "held-out loss": None
        if loss is None
        else f"{loss:.4f}" + (f" ± {error:.4f}" if error else ""),
        "weights it started from": manifest.weights[:16],
        "goldimask": manifest.versions.get("goldimask"),
    }
    lines = [f"| {name} | {value} |" for name, value in rows.items() if value is not None]
    return "\n".join(["| | |", "|---|---|", *lines])


def changed(method: Mapping[str, Any]) -> str:
    """The preset and what differs from it."""
    inner = {k: v for k, v in method.items() if k in ("noise", "select", "weigh") and v}
    more = " ".join(
        f"{part}.{key}={value}" for part, keys in inner.items() for key, value in keys.items()
    )
    return f"{method.get('preset')} {more}".strip()


def sources(data: Mapping[str, Any]) -> list[str]:
    parts = data.get("mixture") or [data]
    return [name(part.get("path")) or str(part.get("corpus")) for part in parts]


def scores(folder: Path) -> str:
    """Finished scores of the weights that the run holds now."""
    evaluation = folder / "eval"
    if not (evaluation / "scores.json").is_file():
        return "Not evaluated."
    answerer(evaluation)  # refuses answers of other weights
    found = [s for s in read_object(evaluation / "scores.json")["scores"] if s.get("complete")]
    if not found:
        return "The evaluation is not finished."
    rows = [
        "| task | score, 95 % interval | n | length | decoding | protocol |",
        "|---|---|---|---|---|---|",
    ]
    for s in found:
        options = " ".join(f"{k}={v}" for k, v in sorted(s["decoding"]["options"].items()))
        figure = f"{100 * s['accuracy']:.1f} [{100 * s['low']:.1f}, {100 * s['high']:.1f}]"
        decoding = f"{s['decoding']['decoder']} {options}".strip()
        rows.append(
            f"| {s['task']} | {figure} {s['metric']} | {s['n']} | {s['length']} | {decoding} "
            f"| {s['protocol']} |"
        )
    return "\n".join(rows)


def usage(base: str, whole: bool) -> str:
    """How to load it; an adapter needs its base."""
    load = (
        'backbone = goldimask.load_backbone("FOLDER")'
        if whole
        else f'backbone = load_adapter(goldimask.load_backbone("{base}"), "FOLDER")'
    )
    more = "" if whole else "from goldimask.backbones.lora import load_adapter\n"
    return (
        f"```python\nimport goldimask\n{more}\n{load}\n"
        '(answer,) = goldimask.decode(backbone, ["..."], tau=0.9)\nprint(answer.text)\n```'
    )


def told(value: Any, key: str = "") -> Any:
    """A recipe without the paths of this machine."""
    if isinstance(value, Mapping):
        return {k: told(v, k) for k, v in value.items() if k != "output"}
    if isinstance(value, list | tuple):
        return [told(v, key) for v in value]
    return name(value) if key in ("path", "file", "name") else value


def name(path: Any) -> Any:
    """Of something on this disk its name; of a Hub id the whole."""
    text = str(path or "")
    here = text.startswith((".", "/", "~")) or text.count("/") > 1 or Path(text).exists()
    return Path(text).name if text and here else path
