"""What a report is made of, as named on the command line.

    RUN         a folder of `goldimask train` or `goldimask eval`
    NAME=RUN    the same with a label of its own in tables
    CAMPAIGN    a folder of `goldimask compare`: the runs of its cells, named as it names them
    STUDY       a folder of `goldimask study`, one that holds such folders, or any JSON file

What a run is, its method, seed, backbone and corpus, is read from its recipe and never from its
name: runs of one method are its seeds; those whose method differs in a key are told apart by it.
An evaluation inside a run is refused when the run's weights are no longer those that answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.methods import merge
from goldimask.presets import PRESETS
from goldimask.records import (
    METRICS,
    RECIPE,
    RESULT,
    Decoding,
    Manifest,
    Metric,
    Outcome,
    Run,
    evaluated,
    open_run,
    read_evaluation,
    read_json,
    read_lines,
    read_manifest,
)
from goldimask.report.json_tables import flat
from goldimask.report.paper import VARIANTS

CAMPAIGN = "campaign.json"
BASE = "base"  # what a campaign calls its untuned backbones
Place = tuple[str, int, int, Decoding]  # of a trial


@dataclass(frozen=True)
class Source:
    """A run, or an evaluation of a model that was not trained here."""

    name: str  # of its row in tables: the label it was given, else its method
    label: str  # its own, in tables of runs
    folder: Path
    run: Run | None = None

    @property
    def method(self) -> str:
        return self.run.method if self.run else "–"

    @property
    def variant(self) -> dict[str, Any]:
        """The method's section of the recipe, flat."""
        found = self.run.recipe.get("method") if self.run else None
        return flat(listed(found)) if isinstance(found, Mapping) else {}

    @cached_property
    def exact(self) -> str:
        """The known row that its method is, however it was written; empty if it is none."""
        found = self.run.recipe.get("method") if self.run else None
        if not isinstance(found, Mapping) or self.method not in PRESETS.names():
            return ""
        mine = parts_of(found)
        return next((name for name, parts in known_rows() if parts == mine), "")

    @property
    def row(self) -> str:
        """The known row that it is, or its preset's name."""
        return self.exact or self.method

    @property
    def seed(self) -> int | None:
        return self.run.seed if self.run else None

    @property
    def backbone(self) -> str:
        """What was trained, or what was evaluated as it is."""
        if self.run is None:
            return self.evaluation[0].model if self.evaluation[0] else ""
        found = self.run.recipe.get("backbone")
        name = found.get("name") if isinstance(found, Mapping) else found
        return str(name or (self.run.manifest.model if self.run.manifest else ""))

    @property
    def corpus(self) -> str:
        """What it was trained on; nothing for an untuned model."""
        found = self.run.recipe.get("data") if self.run else None
        if not isinstance(found, Mapping):
            return ""
        named = [Path(str(found[k])).name for k in ("corpus", "path") if found.get(k)]
        return " ".join(named) or (
            "" if not found.get("mixture") else str(listed(found)["mixture"])
        )

    @property
    def panel(self) -> str:
        """Backbone and corpus: what runs must share to be compared."""
        return " / ".join(filter(None, (self.backbone, self.corpus)))

    @property
    def draw(self) -> str:
        """What tells runs of one row apart: the seed, or the weights of a foreign model."""
        if self.run:
            return f"seed {self.seed}"
        manifest = self.evaluation[0]
        return f"weights {manifest.weights}" if manifest else ""

    @property
    def baseline(self) -> bool:
        """Trained by another method than GoldiMask and the controls of its ablations."""
        own = ("goldimask", "random-", "static-")
        return self.run is not None and not self.method.startswith(own)

    @cached_property
    def evaluation(self) -> tuple[Manifest | None, list[Outcome]]:
        return read_evaluation(self.folder) if evaluated(self.folder) else (None, [])

    @property
    def outcomes(self) -> list[Outcome]:
        return self.evaluation[1]

    @cached_property
    def asked(self) -> dict[Place, set[tuple[str, str]]]:
        """Trial -> problems that were answered, with the hash of the prompt."""
        found: dict[Place, set[tuple[str, str]]] = {}
        for o in self.outcomes:
            found.setdefault(o.place, set()).add((o.item, o.prompt))
        return found

    @property
    def metrics(self) -> list[Metric]:
        return self.run.metrics if self.run else []

    @property
    def facts(self) -> dict[str, Any]:
        """What the training's manifest says of it."""
        return self.run.manifest.facts if self.run and self.run.manifest else {}

    @property
    def pages(self) -> list[Path]:
        return sorted([*self.folder.glob("*.html"), *self.folder.glob("*/*.html")])

    @property
    def torn(self) -> int:
        """Lines of metrics that a kill cut short."""
        path = self.folder / METRICS
        return read_lines(path, Metric)[1] if self.run and path.is_file() else 0


def read_sources(words: Sequence[str]) -> tuple[list[Source], dict[str, Any]]:
    """(runs, results of studies by name), in the order given."""
    given: list[tuple[str, Path]] = []
    studies: dict[str, Any] = {}
    for word in words:
        name, path = named(word)
        if path.suffix == ".json":
            if not path.is_file():
                raise GoldimaskError(f"{path}: no such file")
            studies[name or path.stem] = read_json(path)
        elif (path / RECIPE).is_file() or evaluated(path):
            given.append((name, path))
        elif (path / CAMPAIGN).is_file():
            given += campaign_runs(path)
        elif found := read_studies(path):
            studies |= {f"{path}/{k}" if k in studies else k: v for k, v in found.items()}
        else:
            raise GoldimaskError(
                f"{path}: not a run folder (no {RECIPE}) and no evaluation or study; give folders "
                "of `goldimask train`, `goldimask eval`, `goldimask compare` or `goldimask study`"
            )
    sources = told_apart(given)
    for source in sources:
        studies |= {f"{source.label}-{k}": v for k, v in read_studies(source.folder).items()}
    return sources, studies


def campaign_runs(folder: Path) -> list[tuple[str, Path]]:
    """(row, folder) of the cells of a campaign that are done."""
    cells = read_json(folder / CAMPAIGN).get("cells") or ()
    found = [(str(c["row"]), folder / str(c["folder"])) for c in cells if is_done(c)]
    return list(dict.fromkeys(found))


def is_done(cell: Mapping[str, Any]) -> bool:
    """Whether a campaign has nothing left to run of a cell."""
    return bool(cell.get("folder")) and bool(cell.get("done", cell.get("state") in (None, "done")))


def parts_of(section: Mapping[str, Any]) -> dict[str, Any]:
    """A method's section with all that its preset says."""
    preset = PRESETS.get(str(section.get("preset", "goldimask-d")), "method.preset")
    parts = {k: merge(getattr(preset, k), section.get(k)) for k in ("noise", "select", "weigh")}
    layer = section.get("attention_layer")
    layer = preset.options.get("attention_layer") if layer is None else layer
    rest = {k: section.get(k) for k in ("probe", "protocol")}
    rest["probe"] = None if rest["probe"] in (None, {}, {"mode": None}) else rest["probe"]
    return {
        **parts,
        **rest,
        "protocol": rest["protocol"] or "goldimask",
        "layer": "last" if layer is None else layer,
    }


@cache
def known_rows() -> list[tuple[str, dict[str, Any]]]:
    presets = [(name, parts_of({"preset": name})) for name in PRESETS.names()]
    return [*presets, *((name, parts_of(section)) for name, section in VARIANTS.items())]


def named(word: str) -> tuple[str, Path]:
    """`vanilla=runs/v42` -> (vanilla, runs/v42); a path may hold the sign itself."""
    name, sign, path = word.partition("=")
    return ("", Path(word)) if not sign or Path(word).exists() else (name, Path(path))


def told_apart(given: Sequence[tuple[str, Path]]) -> list[Source]:
    """Sources whose labels differ: folders of one name by path, runs of one name by folder."""
    folders = Counter(path.resolve().name for name, path in given if not name)
    sources = []
    for name, path in given:
        run = open_run(path) if (path / RECIPE).is_file() else None
        own = path.resolve().name if folders[path.resolve().name] == 1 else str(path)
        sources.append(Source(name or (run.method if run else own), name or own, path, run))
    names = Counter(s.label for s in sources)
    sources = [
        s if names[s.label] == 1 else replace(s, label=f"{s.label} ({s.folder.resolve().name})")
        for s in sources
    ]
    labels = Counter(s.label for s in sources)
    sources = [
        s if labels[s.label] == 1 else replace(s, label=f"{s.name} ({s.folder})") for s in sources
    ]
    return [
        s if name else variant_named(s, sources)
        for s, (name, _) in zip(sources, given, strict=True)
    ]


def variant_named(source: Source, sources: Sequence[Source]) -> Source:
    """By the known row that it is, as `goldimask-d-c5`; else by the keys in which it differs from
    other runs of its method, as `goldimask-d weigh.cap=7`.
    """
    if source.exact:
        return replace(source, name=source.exact)
    others = [s.variant for s in sources if s.run and s.method == source.method]
    keys = dict.fromkeys(k for v in others for k in v)
    apart = [k for k in keys if any(v.get(k) != source.variant.get(k) for v in others)]
    words = [f"{k}={source.variant.get(k, '–')}" for k in apart] if source.run else []
    return replace(source, name=" ".join([source.name, *words]))


def listed(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as text, so that they compare and print like other values."""
    return {
        k: listed(v) if isinstance(v, Mapping) else str(v) if isinstance(v, list | tuple) else v
        for k, v in recipe.items()
    }


def read_studies(folder: Path) -> dict[str, Any]:
    """Results of studies in a folder or in one of its folders, by the folder's name."""
    found = {}
    for file in sorted([*folder.glob(RESULT), *folder.glob(f"*/{RESULT}")]):
        manifest = read_manifest(file.parent)
        if manifest is not None and manifest.kind == "measure":
            found[file.resolve().parent.name] = read_json(file)
    return found
