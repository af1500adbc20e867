"""A study as a job: measured once, kept in a folder, read back when the same is asked for again.

    OUT/STUDY-MODEL/   manifest.json   kind "measure"; its key is made of weights, settings, data
                       result.json     what was found
                       STUDY.csv|md|tex, STUDY.pdf|png   the same as tables and a figure
                       complete.json   the seal

A folder of another key is refused with both names; nothing is mixed or overwritten. A study that
is measured in shards has their parts beside it (`shards.py`); the last one writes the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from goldimask import figures, tables
from goldimask.backbones import find_model
from goldimask.backbones.identity import weights_hash
from goldimask.errors import GoldimaskError
from goldimask.files import write_json
from goldimask.jobs import damage, job_key, locked, make_manifest, same_job, unfinished_folder
from goldimask.records import RESULT, Manifest, digest, read_json, write_manifest
from goldimask.stats import finite
from goldimask.studies.output import Result, study_figure, study_tables
from goldimask.studies.shards import Gather, everything, sharded
from goldimask.tabulated import Kind, write_table

Say = Callable[[str], None]


def labels(sources: Sequence[str]) -> dict[str, str]:
    """What each model is called -> where it is; models of one name are called by their place."""
    if len(set(sources)) < len(sources):
        raise GoldimaskError("RUN: the same model is given twice")
    names = [find_model(source).name for source in sources]
    return {
        name if names.count(name) == 1 else source: source
        for name, source in zip(names, sources, strict=True)
    }


def study_manifest(
    study: str, models: Mapping[str, str], settings: Mapping[str, Any], data: Sequence[Any]
) -> Manifest:
    """Which measurement this is: of which weights, with which settings, on which text."""
    hashes = [weights_hash(source) for source in models.values()]
    weights = hashes[0] if len(hashes) == 1 else digest(hashes)
    # several models are told apart by what the result calls them
    named = {"study": study, "models": list(models) if len(models) > 1 else None, **settings}
    key = job_key("measure", weights=weights, settings=named, data=data)
    facts = {"study": study, "settings": dict(settings)}
    return make_manifest("measure", key, ", ".join(models), weights, **facts)


def run_study(
    folder: Path,
    manifest: Manifest,
    measure: Callable[[Gather], Result],
    say: Say = lambda _: None,
    shard: tuple[int, int] = (0, 1),
) -> Result:
    """The result of a study's folder; measured and written there if it holds none.

    Of several shards all but the last one to finish raise `Waiting` when they are done.
    """
    result = None
    if shard[1] > 1 and not same_job(folder, manifest):
        result = finite(measure(sharded(folder, manifest, shard)))
    with locked(folder, wait=60.0 if shard[1] > 1 else 0.0):
        if same_job(folder, manifest):
            if problem := damage(folder):
                raise GoldimaskError(f"'{folder}': {problem}; remove it, and it is measured again")
            say(f"'{folder}' holds this very measurement; it is shown as it was")
            return read_json(folder / RESULT)
        if folder.exists():
            raise GoldimaskError(
                f"'{folder}' exists and is no study's folder; choose another --out"
            )
        with unfinished_folder(folder) as partial:
            result = result or finite(measure(everything))
            write_json(partial / RESULT, result)
            for table in study_tables(result):
                tables.write(table, partial)
            figures.write(study_figure(result), partial)
            write_manifest(partial, manifest)
    say(f"written: {folder}")
    return result


def save_table(file: Path, result: Result, models: Mapping[str, str], data: Sequence[Any]) -> None:
    """The measured curve of a study as a file that recipes can name."""
    kind: Kind = "priority" if result["study"] == "response" else "support"
    found = result["table"]
    if found is None:
        raise GoldimaskError(
            f"--table: there is no {kind} to write: on this model and text nothing responds to "
            "what is revealed; use more examples, another corpus or another block"
        )
    (name, source), *_ = models.items()
    facts = {k: v for k, v in found.items() if k not in ("x", "y")}
    facts |= {"study": result["study"], "model": name, "weights": weights_hash(source)}
    facts |= {"corpus": result["corpus"], "examples": result["examples"], "data": digest(data)}
    write_table(file, kind, found["x"], found["y"], **facts)
