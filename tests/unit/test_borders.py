"""Hostile input at every border: a clear error, quickly, and nothing that acts."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from builders import WRITERS
from goldimask.backbones import load_backbone
from goldimask.backbones.loading import empty_backbone
from goldimask.backbones.template import render
from goldimask.config import apply_overrides, load_recipe
from goldimask.data.examples import SPECIAL_TEXT, load_examples
from goldimask.data.rows import read_rows
from goldimask.errors import GoldimaskError
from goldimask.jobs import SEAL, damage
from goldimask.tables import Table, csv, markdown
from goldimask.tiny.families import problem_family

GOOD = {"prompt": "begin with 4, first + 3. what is left?", "response": "<answer> 7 </answer>"}
MESSAGES = [{"role": "user", "content": "a <b> 'c'"}]


@pytest.fixture(scope="module")
def tiny():
    return empty_backbone("tiny")


# --- generations ---------------------------------------------------------------------------------


def test_answers_of_the_tiny_tasks_are_found_in_linear_time() -> None:
    family = problem_family("chain")
    began = time.process_time()
    assert family.extract("<answer>" * 40_000) is None
    assert family.extract("<answer>" * 40_000 + " 7 \n 8 </answer>") is not None
    assert time.process_time() - began < 2.0
    assert family.extract("x <answer>\n 7  8\n</answer> <answer> 9 </answer>") == "7 8"
    assert family.extract("<answer>  </answer>") is None


# --- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"[" * 100_000, "nested too deeply"),
        (b'{"prompt": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"prompt": "\xff"}', "not UTF-8 at byte 13"),
        (b'{"prompt": "a", "response": "\\ud800"}', "half a character"),
        (b'{"a": ' * 200 + b"1" + b"}" * 200, "nested too deeply"),
    ],
)
def test_a_bad_line_is_named_and_can_be_skipped(line, words, tmp_path, tiny) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes(b"\n".join([json.dumps(GOOD).encode(), line, json.dumps(GOOD).encode()]))
    with pytest.raises(GoldimaskError, match=rf"rows\.jsonl:2: .*{words}"):
        load_examples(file, tiny)
    examples, report = load_examples(file, tiny, skip_bad_rows=True)
    assert len(examples) == 2 and report.bad == 1
    assert "rows.jsonl:2" in report.lines()[1] and words in report.lines()[1]


def test_files_that_cannot_be_read_are_named(tmp_path, tiny) -> None:
    packed = bytearray(gzip.compress(json.dumps(GOOD).encode() * 50))
    packed[20] ^= 0xFF
    (tmp_path / "a.jsonl.gz").write_bytes(packed)
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing PAR1")
    (tmp_path / "a.csv").write_text("prompt,response\n" + "x" * 200_000 + ",y\n")
    (tmp_path / "b.csv").write_text("prompt,response\na,b,c\n")
    for name in ("a.jsonl.gz", "a.parquet", "a.csv", "b.csv"):
        with pytest.raises(GoldimaskError, match=name):
            [row.values for row in read_rows(tmp_path / name)]


def test_a_row_of_ten_megabytes_is_cut_or_refused_at_once(tiny) -> None:
    long = "seven + 3 " * 1_000_000
    began = time.process_time()
    examples, report = load_examples([{**GOOD, "response": long}], tiny)
    assert len(examples[0].ids) == tiny.max_length and report.answer_lost == 1
    with pytest.raises(GoldimaskError, match=r"row 0: the prompt has \d+ characters"):
        load_examples([{**GOOD, "prompt": long}], tiny)
    with pytest.raises(GoldimaskError, match=r"exceed data\.max_length"):
        load_examples([{**GOOD, "response": long}], tiny, overlength="error")
    assert time.process_time() - began < 8.0


def test_special_text_is_recognised_without_backtracking() -> None:
    began = time.process_time()
    assert SPECIAL_TEXT.fullmatch("<|a|>    " * 40 + "x") is None
    assert SPECIAL_TEXT.fullmatch("  <|a|> <|b|>\n") is not None
    assert time.process_time() - began < 1.0


# --- recipes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("seed: " + "9" * 5000, "not valid YAML"),
        ("[" * 2000, "nested too deeply"),
        ("a: &a [1]\nb: [*a, *a]", "an alias"),
        ("seed: .nan", "seed: nan is not a finite number"),
        ('lora: {dropout: "1e999"}', "lora.dropout: .*finite number"),
        ('data: {? "' + "x" * 5000 + '" : 1}', "data.x+... .5000 characters.: unknown key"),
        ("output: 2024-01-01", "output: .* is a date"),
        ("seed: !!timestamp x", "not valid YAML"),
        ("1: 2", "the key 1 is not a text"),
        ('output: "\\0"', "output: .*NUL"),
        ("x" * 300_000, "more than 200000 are refused"),
    ],
)
def test_odd_recipes(text, words, tmp_path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(text)
    with pytest.raises(GoldimaskError, match=words) as error:
        load_recipe(file)
    assert str(file) in str(error.value) and len(str(error.value)) < 1000


@pytest.mark.parametrize("word", ["seed=" + "9" * 5000, "a=*b", "seed=.inf", "x=" + "[" * 3000])
def test_odd_overrides(word) -> None:
    with pytest.raises(GoldimaskError, match="override") as error:
        apply_overrides({}, [word])
    assert len(str(error.value)) < 1000


def test_a_text_is_no_way_to_an_infinite_number() -> None:
    from goldimask.methods import method
    from goldimask.train.arguments import check_trainer

    with pytest.raises(GoldimaskError, match=r"method\.weigh\.cap: .*finite number"):
        method(weigh={"kind": "waterfill", "cap": "inf"})
    with pytest.raises(GoldimaskError, match=r"trainer\.learning_rate: .*finite number"):
        check_trainer({"learning_rate": "1e999"})


@pytest.mark.parametrize("key", ["push_to_hub", "hub_model_id", "hub_strategy"])
def test_a_recipe_publishes_nothing(key) -> None:
    from goldimask.train.arguments import check_trainer

    with pytest.raises(GoldimaskError, match=rf"trainer\.{key}: a recipe publishes nothing"):
        check_trainer({key: True})


@pytest.mark.parametrize("kind", [7, ["a"], {"b": 1}, None])
def test_a_kind_that_is_no_text(kind) -> None:
    from goldimask.methods import method

    with pytest.raises(GoldimaskError, match=r"method\.weigh\.kind: the name of a weigher"):
        method(weigh={"kind": kind})


# --- model folders -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return WRITERS["dream"](tmp_path_factory.mktemp("hub") / "dream")


@pytest.fixture
def copy(model, tmp_path) -> Path:
    return shutil.copytree(model, tmp_path / "copy")


def edit(file: Path, **changes) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 10**5}, "num_hidden_layers: 100000 is not 1 to 1000"),
        ({"num_hidden_layers": 900}, "it has 900 layers, the stored tensors are of"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps: nan is not a finite number"),
        ({"hidden_size": "many"}, "config.json"),
        ({"num_attention_heads": 0}, "num_attention_heads: 0 is not a size"),
        ({"model_type": "x" * 5000}, "model_type 'x{200}... .5000 characters.'"),
    ],
)
def test_configs_are_checked_before_a_model_is_made(changes, words, copy) -> None:
    edit(copy / "config.json", **changes)
    began = time.process_time()
    with pytest.raises(GoldimaskError, match=words) as error:
        load_backbone(copy)
    assert time.process_time() - began < 5.0 and len(str(error.value)) < 2000


def weights(folder: Path) -> Path:
    return sorted(folder.glob("*.safetensors"))[0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(bad, copy) -> None:
    file = weights(copy)
    state = load_file(file)
    name = next(k for k, v in state.items() if v.is_floating_point())
    state[name].view(-1)[0] = bad
    save_file(state, file, metadata={"format": "pt"})
    with pytest.raises(GoldimaskError, match=r"holds NaN or infinite weights"):
        load_backbone(copy)


def test_weights_of_another_type_are_refused(copy) -> None:
    file = weights(copy)
    state = {k: v.to(torch.int64) for k, v in load_file(file).items()}
    save_file(state, file, metadata={"format": "pt"})
    with pytest.raises(GoldimaskError, match="weights of type I64 are not supported"):
        load_backbone(copy)


def test_headers_are_checked_against_the_file(copy) -> None:
    file = weights(copy)
    data = file.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    first, second = [k for k in header if k != "__metadata__"][:2]
    header[second]["data_offsets"] = header[first]["data_offsets"]  # one over the other
    text = json.dumps(header).encode()
    for damaged in (
        len(text).to_bytes(8, "little") + text + data[8 + length :],
        (1 << 60).to_bytes(8, "little") + data[8:],
        data[:-7],
    ):
        file.write_bytes(damaged)
        with pytest.raises(GoldimaskError, match=f"{file.name}: not a readable safetensors file"):
            load_backbone(copy)


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/etc/x.safetensors", 7, "9" * 5000 + ".safetensors"]
)
def test_an_index_names_files_of_its_folder(name, copy) -> None:
    shutil.copy(weights(copy), copy.parent / "outside.safetensors")
    index = {"weight_map": {"model.norm.weight": name}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(GoldimaskError, match=r"index\.json: not a safetensors index"):
        load_backbone(copy)


# --- templates -----------------------------------------------------------------------------------

LOOP = "{% for a in range(90000) %}"
DOUBLING = "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = BODY %}{% endfor %}"


@pytest.mark.parametrize(
    "template",
    [
        "{{ 'x' * 3000000000 }}",
        LOOP * 4 + "{% endfor %}" * 4,
        DOUBLING.replace("BODY", "n.x ~ n.x"),
        DOUBLING.replace("BODY", "n.x + n.x"),
        DOUBLING.replace("BODY", "[n.x, n.x]") + "{{ n.x }}",
        "{{ 9 ** 9 ** 9 }}",
        "{{ 'x'.center(3000000000) }}{{ 'x' | center(3000000000) }}",
        "{{ '{:>3000000000}'.format(1) }}",
        "{{ '%3000000000d' | format(1) }}",
        "{{ ('y' * 9999).replace('y', 'z' * 9999) }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        LOOP + "{{ 'y' * 4000 }}{% endfor %}",
        "{{ messages[9].content.x }}",
        "{% if",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    ],
)
def test_templates_cannot_take_all_time_or_memory(template, monkeypatch) -> None:
    monkeypatch.setattr("goldimask.backbones.template.SECONDS", 0.5)
    began = time.process_time()
    with pytest.raises(GoldimaskError, match="the chat template"):
        render(template, messages=MESSAGES)
    assert time.process_time() - began < 5.0


@pytest.mark.parametrize("family", ["llada", "dream"])
def test_templates_render_as_transformers_does(family, tmp_path) -> None:
    tokenizer = empty_backbone(WRITERS[family](tmp_path / family)).tokenizer
    talk = [{"role": "system", "content": "s"}, {"role": "user", "content": " a\n<b> 'c' é "}]
    extra = (
        "{%- set ns = namespace(n=0) -%}\n{% for m in messages[::-1] %}\n  {% if loop.first %}x"
        "{% continue %}{% endif %}{% set ns.n = ns.n + 1 %}{{ m | tojson }}"
        "{{ m.content.split('a')[-1] | trim ~ '-' * 3 }}{% endfor %}"
        "{% generation %}{{ ns.n }}{{ {'a': [1, 2]}['a'][1] }}"
        "{% endgeneration %}{{ bos_token }}{% if not tools %}{{ 'none' }}{% endif %}"
    )
    for template in (tokenizer.get_chat_template(), extra):
        expected = tokenizer.apply_chat_template(
            talk, chat_template=template, tokenize=False, add_generation_prompt=True
        )
        given = {"messages": talk, "tools": None, "add_generation_prompt": True}
        assert render(template, **given, **tokenizer.special_tokens_map) == expected


# --- run folders, tables, output -----------------------------------------------------------------


@pytest.mark.parametrize(
    "seal", ["{}", '{"files": {}}', '{"files": []}', '{"files": 3}', "[" * 5000]
)
def test_an_odd_seal_is_not_sound(seal, tmp_path) -> None:
    (tmp_path / SEAL).write_text(seal)
    assert damage(tmp_path) is not None


def test_tables_hold_neither_formulas_nor_links() -> None:
    cells = ("=HYPERLINK(1)", "@x", "[x](javascript:alert(1))", "a\\|b")
    table = Table("x", "x", tuple("abcd"), (cells,))
    assert "'=HYPERLINK(1),'@x," in csv(table)
    assert r"[x]\(javascript:alert(1))" in markdown(table)
    assert r"a\\\|b" in markdown(table)
    assert csv(Table("x", "x", ("a",), ((-1.5,),))) == "a\n-1.5\n"


def test_the_terminal_shows_names_and_texts_as_they_are(capsys) -> None:
    from goldimask import console

    odd = "a[/b] [link=x]y[/link] :smile: \x1b]0;title\x07\x9b2J"
    console.say(odd)
    console.emit({}, False, odd)
    console.emit({}, False, console.table(odd, ["a"], [[odd]]))
    out, err = capsys.readouterr()
    for said in (out, err):
        assert "[link=x]y[/link] :smile:" in said and "\\x1b]0;title" in said
        assert not {"\x1b", "\x07", "\x9b"} & set(said)


def test_half_a_character_on_stdout_is_json_still(monkeypatch) -> None:
    from goldimask import cli, console

    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "argv", ["goldimask"])
    monkeypatch.setattr(cli, "app", lambda: console.emit({"text": "\ud800"}, True))
    cli.main()
    assert json.loads(out.buffer.getvalue()) == {"text": "\ud800"}


def test_an_output_that_cannot_be_written_is_one_line(tmp_path, monkeypatch, capsys) -> None:
    from goldimask.cli import main

    (tmp_path / "file").write_text("")
    words = ["goldimask", "train", "tiny", f"output={tmp_path}/file/run"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and "file" in said and said.count("\n") == 1
