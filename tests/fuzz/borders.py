"""The borders of the library: each takes hostile input and may only return or raise GoldimaskError.

A border is a class with `case(rng)`, which makes one input, and `attempt(case)`, which hands it to
the library; `attempt` returns how many units it tried (rows of a file). `guided(data)` makes a case
of the bytes of a coverage-guided fuzzer.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import yaml

from fuzz.mutations import TEXTS, VALUES, as_json, changed, damaged, text
from goldimask.errors import GoldimaskError

ROWS = [
    {"prompt": "begin with 4, first + 3. what is left?", "response": "<answer> 7 </answer>"},
    {"question": "1+1", "answer": "2 #### 2"},
    {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    {
        "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
        "completion": "x",
    },
    {
        "conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}],
        "solution": "s",
    },
    {"question": "q", "thinking_trajectories": ["t"], "attempt": "a", "sol": ["1"]},
]


@cache
def tiny() -> Any:
    from goldimask.backbones.loading import empty_backbone

    return empty_backbone("tiny")


class Rows:
    """Data files of every kind, whole or damaged, with and without a corpus's format."""

    name, unit = "rows", "rows"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempt((".jsonl", as_json(ROWS[0]), False, None))  # imports are not on the clock

    def case(self, rng: Random) -> Any:
        rows = [rng.choice(ROWS) for _ in range(rng.randrange(1, 25))]
        rows = [changed(r, rng) if rng.random() < 0.4 else r for r in rows]
        suffix = rng.choice((".jsonl", ".jsonl", ".json", ".csv", ".jsonl.gz", ".parquet"))
        if suffix == ".json":
            data = as_json(rows)
        elif suffix == ".csv":
            out = io.StringIO()
            writer = csv.writer(out)
            for row in ({"prompt": "p", "response": "r"}, *rows):
                cells = row.values() if isinstance(row, dict) else [row]
                writer.writerow([str(x).replace("\ud800", "?") for x in cells])
            data = b"prompt,response\n" + out.getvalue().encode()
        elif suffix == ".parquet":
            data = parquet()
        else:
            data = b"\n".join(map(as_json, rows))
        if suffix.endswith(".gz"):
            data = gzip.compress(data, 1)
        if rng.random() < 0.5 or suffix == ".parquet":
            data = damaged(data, rng)
        corpus = rng.choice((None, None, "gsm8k", "kodcode", "lift-sft-12k", "s1k"))
        return suffix, data, rng.random() < 0.7, corpus

    def guided(self, data: bytes) -> Any:
        return ".jsonl", data, True, None

    def attempt(self, case: Any) -> int:
        from goldimask.data.corpora import open_rows
        from goldimask.data.examples import load_examples
        from goldimask.records import digest

        suffix, data, skip, corpus = case
        file = self.folder / f"rows{suffix}"
        file.write_bytes(data)
        read = list(open_rows(corpus, str(file)))
        digest(
            [str(r.content) if isinstance(r.content, GoldimaskError) else r.content for r in read]
        )
        try:
            load_examples(read, tiny(), skip_bad_rows=skip, max_length=200)
        except GoldimaskError as error:
            assert str(file) in str(error) or "no usable rows" in str(error), error
        return len(read)


@cache
def parquet() -> bytes:
    import pyarrow
    from pyarrow import parquet as files

    out = io.BytesIO()
    files.write_table(pyarrow.Table.from_pylist(ROWS[:1] * 20), out)
    return out.getvalue()


class Recipes:
    """Recipes and overrides, as text and as values."""

    name, unit = "recipes", "recipes"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.attempt((b"seed: 1", []))

    def case(self, rng: Random) -> Any:
        from goldimask.config import packaged_recipes

        file = rng.choice([f for n, f in packaged_recipes().items() if n in ("tiny", "llada8b")])
        values = yaml.safe_load(file.read_text())
        values["method"] = {
            "preset": "goldimask-d",
            "select": {"kind": "greedy"},
            "weigh": {"cap": 5},
        }
        values["data"] = {**values.get("data", {}), "mixture": [{"path": "x", "weight": 1.0}]}
        for _ in range(rng.randrange(4)):
            values = changed(values, rng) if isinstance(values, dict) else values
        data = as_json(values) if rng.random() < 0.5 else safe_yaml(values)
        if rng.random() < 0.4:
            data = damaged(data, rng)
        words = []
        for _ in range(rng.randrange(3)):
            key = rng.choice(("seed", "method.select.kind", "data.limit", "a.b.c", "", *TEXTS))
            words.append(f"{key}{rng.choice(('=', '=', ''))}{rng.choice(VALUES)}")
        return data, words

    def guided(self, data: bytes) -> Any:
        return data, []

    def attempt(self, case: Any) -> int:
        from goldimask.config import load_recipe, recipe_dict, recipe_yaml
        from goldimask.train.arguments import check_trainer
        from goldimask.train.prepare import make_method

        data, words = case
        file = self.folder / "recipe.yaml"
        file.write_bytes(data)
        recipe = load_recipe(file, words)
        json.dumps(recipe_dict(recipe), allow_nan=False).encode()
        file.write_text(recipe_yaml(recipe))
        assert recipe_dict(load_recipe(file)) == recipe_dict(recipe)
        check_trainer(recipe.trainer)
        make_method(recipe.method)
        return 1


def safe_yaml(values: Any) -> bytes:
    try:
        return yaml.safe_dump(values).encode()
    except (yaml.YAMLError, ValueError):
        return b"{}"


class Folders:
    """Model folders of both families with a damaged file or two; loaded, and a prompt made."""

    name, unit = "model folders", "folders"

    def __init__(self, folder: Path) -> None:
        from builders import WRITERS

        self.sources = [write(folder / name) for name, write in WRITERS.items()]
        self.folder = folder / "copy"

    def case(self, rng: Random) -> Any:
        source = rng.choice(self.sources)
        changes = {}
        for _ in range(rng.choice((1, 1, 2))):
            file = rng.choice(sorted(f for f in source.iterdir() if f.is_file()))
            data = file.read_bytes()
            if file.suffix == ".json" and rng.random() < 0.6:
                changes[file.name] = as_json(changed(json.loads(data), rng))
            elif file.suffix == ".safetensors" and rng.random() < 0.6:  # aim at the header
                length = 8 + int.from_bytes(data[:8], "little")
                changes[file.name] = damaged(data[:length], rng) + data[length:]
            else:
                changes[file.name] = damaged(data, rng)
        return source, changes

    def guided(self, data: bytes) -> Any:
        return self.sources[0], {"config.json": data}

    def attempt(self, case: Any) -> int:
        from goldimask.backbones import load_backbone
        from goldimask.backbones.identity import weights_hash

        source, changes = case
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(source, self.folder)
        for name, data in changes.items():
            (self.folder / name).write_bytes(data)
        weights_hash(self.folder)
        backbone = load_backbone(self.folder, device="cpu")
        backbone.prompt_ids("How many apples?")
        return 1


class Runs:
    """Run folders: manifest, metrics, answers, recipe and seal, damaged."""

    name, unit = "run folders", "folders"

    def __init__(self, folder: Path) -> None:
        from goldimask.jobs import seal
        from unit.outcomes import outcome

        self.source, self.folder = folder / "run", folder / "copy"
        (self.source / "eval").mkdir(parents=True)
        (self.source / "recipe.yaml").write_text("seed: 1\nbackbone: {name: tiny}\n")
        manifest = {
            "kind": "train",
            "key": "k",
            "model": "tiny",
            "weights": "w",
            "facts": {"steps": 3},
        }
        (self.source / "manifest.json").write_text(json.dumps(manifest))
        (self.source / "metrics.jsonl").write_text(
            '{"step": 1, "loss": 2.0}\n{"step": 2, "loss": 1.0}\n'
        )
        line = json.dumps(outcome(0).model_dump())
        (self.source / "eval" / "samples-0.jsonl").write_text(f"{line}\n{line}\n")
        (self.source / "eval" / "manifest.json").write_text(
            json.dumps({**manifest, "kind": "evaluate"})
        )
        seal(self.source)

    def case(self, rng: Random) -> Any:
        files = sorted(f for f in self.source.rglob("*") if f.is_file())
        file = rng.choice(files)
        data = file.read_bytes()
        if file.suffix == ".json" and rng.random() < 0.5:
            return file.relative_to(self.source), as_json(changed(json.loads(data), rng))
        return file.relative_to(self.source), damaged(data, rng)

    def guided(self, data: bytes) -> Any:
        return Path("manifest.json"), data

    def attempt(self, case: Any) -> int:
        from goldimask.backbones.lookup import find_model
        from goldimask.jobs import SEAL, damage
        from goldimask.records import open_run, read_evaluation, read_outcomes

        name, data = case
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.source, self.folder)
        (self.folder / name).write_bytes(data)
        if damage(self.folder) is None:  # the same bytes, or a seal that says the same
            whole = (self.source / name).read_bytes()
            assert data == whole or (name.name == SEAL and json.loads(data) == json.loads(whole))
        run = open_run(self.folder)
        looks = (
            lambda: run.manifest,
            lambda: run.metrics,
            lambda: (run.recipe, run.method, run.seed),
            lambda: read_outcomes(self.folder / "eval"),
            lambda: read_evaluation(self.folder),
            lambda: find_model(self.folder),
        )
        for look in looks:
            try:
                look()
            except GoldimaskError as error:
                assert str(self.folder) in str(error), error
        return 1


class Generations:
    """Generated texts in the text judges of a task; programs are found and built, but not run."""

    unit = "generations"

    def __init__(self, folder: Path, task: str = "tiny-chain", protocol: str = "fixed") -> None:
        from goldimask.eval.tasks import get_task

        self.name = f"{task} ({protocol})"
        self.task = get_task(task, protocol=protocol)
        golds = {"countdown": [[1, 2, 3], 6], "sudoku": "1234341221434321"}
        golds |= {"humaneval": "def check(f):\n    assert f(1) == 2", "mbpp": "assert f(1) == 2"}
        gold = golds.get(task, "42")
        row = {"question": "1 2 3 and 0234341221434321", "ground_truth": gold}
        found = self.task.stored(row, 0) if self.task.stored else None
        self.item = found or self.task.load(None)[0]

    def case(self, rng: Random) -> Any:
        made = [text(rng) for _ in range(20)]
        if self.task.program:
            heads = (
                "",
                "```python\n",
                "```python\ndef f",
                "<answer>\n```py\ndef f(x):\n    return",
            )
            made = [rng.choice(heads) + x + rng.choice(("", "```", "\n```\n")) for x in made]
        return made

    def guided(self, data: bytes) -> Any:
        return [data.decode("utf-8", "surrogateescape")]

    def attempt(self, case: Any) -> int:
        answers = [self.task.extract(x) for x in case]
        if self.task.program:  # hostile programs have tests of their own
            return len([a and self.task.program(self.item, a) for a in answers])
        verdicts = self.task.judge_all([self.item] * len(case), answers)
        assert len(verdicts) == len(case)
        return len(case)


class Tables:
    """Anything as a table, in every form, and on a page."""

    name, unit = "tables and pages", "tables"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def case(self, rng: Random) -> Any:
        cells = [v for v in VALUES if v is None or isinstance(v, str | int | float)]
        return [[rng.choice(cells) for _ in range(3)] for _ in range(rng.randrange(5))]

    def guided(self, data: bytes) -> Any:
        return [[data.decode("utf-8", "surrogateescape"), 1, None]]

    def attempt(self, case: Any) -> int:
        from goldimask.report.page import page_html, section
        from goldimask.tables import WRITERS, Table

        table = Table("x", "x", ("a", "b", "c"), tuple(map(tuple, case)))
        made = {form: writer(table) for form, (_, writer) in WRITERS.items()}
        for line in csv.reader(io.StringIO(made["csv"].replace("\0", ""))):
            assert not any(c.startswith(("=", "@")) for c in line), line
        assert "](" not in made["markdown"] and "<" not in made["markdown"]
        data = {"caption": "", "columns": ["a", "b", "c"], "rows": case}
        page = page_html("x", [section("table", "x", data)])
        page.encode()
        return 1


class Templates:
    """Chat templates that would like all of the time and memory."""

    name, unit = "chat templates", "templates"
    PIECES = (
        "{{ 'x' * 3000000000 }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}",
        "{% endfor %}",
        "{% set ns = namespace(x='ab') %}",
        "{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}",
        "{{ ns.x }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ 'x'.center(3000000000) }}",
        "{{ '%3000000000d' % 1 }}",
        "{{ '{:>3000000000}'.format(1) }}",
        "{{ 'x' | indent(3000000000) }}",
        "{{ lipsum(99999) }}",
        "{{ ns.x == ns.x }}",
        "{{ messages | tojson }}",
        "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
        "{{ messages[0].content }}",
        "{% if",
        "{{ ''.__class__.__mro__ }}",
        "{{ 'x'.replace('', 'y' * 9999).replace('', 'z' * 9999) }}",
        "{{ cycler }}",
        "{% for m in messages %}{{ m.role | trim }}{% endfor %}",
        "{{ range(99999) | list | string }}",
    )

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def case(self, rng: Random) -> Any:
        return "".join(rng.choice(self.PIECES) for _ in range(rng.randrange(1, 6)))

    def guided(self, data: bytes) -> Any:
        return data.decode("utf-8", "replace")

    def attempt(self, case: Any) -> int:
        from goldimask.backbones.template import MOST, render

        made = render(case, messages=[{"role": "user", "content": "hi"}])
        assert len(made) <= MOST
        return 1


BORDERS = (Rows, Recipes, Folders, Runs, Tables, Templates)
TASKS = ("gsm8k", "math500", "countdown", "sudoku", "aime24", "humaneval", "mbpp")
TINY = ("tiny-chain", "tiny-story", "tiny-sort", "tiny-program", "tiny-sudoku")
