"""Pages in a real browser. Needs chromium and playwright-core (`make tools`)."""

import json
from pathlib import Path

import pytest

from browser.tools import need_chromium, node
from goldimask.campaign.demo_page import results_section
from goldimask.data.batches import make_batch
from goldimask.report.campaign_report import write_campaign
from goldimask.report.decode_page import decode_page, decode_record
from goldimask.report.page import write_page
from goldimask.report.step_page import step_record, steps_section
from goldimask.report.text import plain, runs
from unit.report.campaigns import ROWS, write_campaign_folder
from unit.report.support import HOSTILE, Tokenizer, examples, step
from unit.report.test_decode_page import decoded
from unit.report.test_step_page import long_record

METHODS = ("goldimask-d", "vanilla", "lift-2", "gift")


@pytest.fixture(autouse=True, scope="module")
def browser():
    need_chromium()


def check(page: Path, script: str) -> dict:
    """Run a script of check.mjs on a page; every page must be silent, offline and unharmed."""
    ran = node("check.mjs", str(page), script)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["problems"] == [] and found["requests"] == [] and found["hit"] is None
    return found


@pytest.fixture(scope="module")
def records():
    batch = make_batch(examples([(6, 60)]), 0)
    made = []
    for t in (0.45, 0.2, 0.8):
        for name in METHODS:
            out, _, method = step(name, batch, t=t)
            made.append(step_record(out, batch, 0, Tokenizer(), method))
    return made


@pytest.fixture(scope="module")
def page(records, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "step.html"
    return write_page(path, HOSTILE[0], [steps_section(records, HOSTILE[1], HOSTILE[2])])


def test_hostile_tokens_are_text(page, records):
    found = check(page, "open")
    vocab, index = records[0]["tokens"]["vocab"], records[0]["tokens"]["index"]
    assert found["words"] == [plain(vocab[v]["runs"]) for v in index]
    assert plain(runs(HOSTILE[0])) in found["words"]
    assert found["title"] == HOSTILE[0]


def shown(x) -> float:
    return float(str(x).replace("−", "-"))


def test_numbers_on_the_page_are_those_of_the_step(page, records):
    found, first, vanilla = check(page, "step"), records[0], records[1]
    facts = found["first"]
    assert shown(facts["t"]) == first["t"] and shown(facts["masked |C|"]) == len(first["masked"])
    assert shown(facts["loss"]) == pytest.approx(first["loss"], rel=1e-3)
    assert shown(facts["F(R)"]) == pytest.approx(first["objective"]["value"], rel=1e-3)
    assert found["counts"]["target"] == len(first["targets"])
    assert found["counts"]["revealed"] == len(first["order"])

    i = found["target"]
    j = first["targets"].index(i)
    hovered = found["hovered"]
    assert shown(hovered["p after"]) == first["after"][j]
    assert shown(hovered["p before"]) == first["before"][first["masked"].index(i)]
    assert shown(hovered["weight"]) == first["weight"][j]
    assert shown(hovered["support S"]) == first["support"][j]
    line = first["supporters"][j]
    assert sorted(p for p, _ in found["lit"]) == sorted(line[::2])
    assert len(found["listed"]) == len(line) // 2

    r = found["revealed"]
    expected = {
        target
        for target, line in zip(first["targets"], first["supporters"], strict=True)
        if r in line[::2]
    }
    assert set(found["supports"]) == expected
    choice = first["order"].index(r)
    assert shown(found["revealedFacts"]["choice"]) == choice + 1
    assert shown(found["revealedFacts"]["gain of F"]) == first["gains"][choice]

    assert found["slid"]["revealed"] == 2 and "target" not in found["slid"]
    assert dict(map(tuple, found["ranks"])) == {first["order"][0]: "1", first["order"][1]: "2"}
    assert shown(found["vanilla"]["loss"]) == pytest.approx(vanilla["loss"], rel=1e-3)
    assert found["vanillaCounts"]["target"] == len(vanilla["targets"])
    low = next(r for r in records if r["method"] == "vanilla" and r["t"] == 0.2)
    assert shown(found["lowest"]["t"]) == 0.2
    assert shown(found["lowest"]["loss"]) == pytest.approx(low["loss"], rel=1e-3)


def test_keyboard(page, records):
    found = check(page, "keyboard")
    tokens = len(records[0]["tokens"]["index"])
    assert found["method"] == "vanilla"
    assert found["right"] == found["start"] + 1 and found["end"] == tokens - 1
    assert found["home"] == 0 and "prompt" in found["label"]
    assert found["held"] == 1 and found["released"] == 0
    assert found["tabStops"] == 1 and found["unnamed"] == 0


def test_themes_phone_width_and_contrast(page):
    found = check(page, "themes")
    assert found["light"] != found["dark"] and found["overflow"] <= 0
    assert min(found["contrast"].values()) >= 4.5, found["contrast"]


def test_results_of_the_demo(tmp_path):
    task = {"accuracy": 0.25, "low": 0.2, "high": 0.31, "n": 40, "steps": 12.5}
    model = {"heldout": 0.91, "steps": 20.0, "gains": {}, "tasks": {"sort": task}}
    tuned = {**model, "steps": 10.0, "gains": {"taught": [0.081, -0.02, 0.17]}}
    part = results_section({"base": model, "vanilla": tuned}, {"seed": 1})
    found = check(write_page(tmp_path / "r.html", "demo", [part]), "results")
    assert [row[0] for row in found["rows"]] == ["base", "vanilla"]
    assert found["rows"][0][1] == "–" and "+8.1" in found["rows"][1][1]
    assert "−2.0 to +17.0" in found["rows"][1][1]
    assert all("25" in row[2] for row in found["rows"]) and "10.0" in found["rows"][1][3]


def test_decode_replay(tmp_path):
    left, right = decoded(steps=4), decoded(steps=2)
    made = [decode_record(d, Tokenizer(), n) for d, n in ((left, "before"), (right, HOSTILE[0]))]
    found = check(decode_page(tmp_path / "d.html", made), "decode")
    assert found["axes"][0] == found["axes"][1]  # 4 steps beside 2: the same scales
    legend = " ".join(found["legend"])
    assert "written in this step" in legend and "below τ = 0.9" in legend
    n = len(left.tokens)
    assert found["last"] == [["before", 0, n // 4], [HOSTILE[0], 0, 0]]
    assert found["none"] == [["before", n, 0], [HOSTILE[0], n, 0]]
    assert found["one"] == [["before", n - n // 4, n // 4], [HOSTILE[0], n // 2, n // 2]]
    first = [plain(runs(Tokenizer().words[left.tokens[i]])) for i in left.trace[0].positions]
    assert found["words"][: len(first)] == first


def test_a_long_example_opens_and_answers(tmp_path):
    page = write_page(tmp_path / "long.html", "long", [steps_section([long_record(0.5)])])
    assert page.stat().st_size < 500_000
    found = check(page, "long")
    assert found["tokens"] == 4096
    print(f"CPU time in ms: load {found['load']}, slide {found['slide']}, focus {found['focus']}")


FEW = {"backbones": ("tiny",), "rows": {k: ROWS[k] for k in ("vanilla", "goldimask-d")}}
MANY = {
    **{"backbones": ("tiny", "llada", "dream"), "corpora": ("s1k", "kodcode"), "problems": 2},
    "rows": {**ROWS, **{f"variant-{i}": 0.1 * i for i in range(9)}},
    **{"seeds": range(6), "tasks": ("countdown",)},
}


@pytest.mark.parametrize("size", [FEW, MANY], ids=["10 cells", "500 cells"])
def test_a_campaign_is_explored(size, tmp_path, monkeypatch):
    monkeypatch.setattr("goldimask.backbones.identity.weights_hash", lambda *_, **__: "w")
    few = size is FEW
    seeds = {"seeds": range(4)} if few else {}
    out = write_campaign_folder(tmp_path, **{**size, **seeds}, tables=["main"], figures=["steps"])
    made = write_campaign(out)
    page = out / "report.html"
    assert page.stat().st_size < 5_000_000
    found = check(page, "campaign")
    assert found["all"] == made["cells"] == (11 if few else 509)
    assert found["charts"] == (1 if few else 6) and found["filtered"] == ["goldimask-d"]
    assert found["lines"] == found["charts"] * 2  # a line in the chart, one in its legend
    assert found["best"] == ("goldimask-d" if few else "variant-7")
    assert len(found["failed"]) == 1 and "<b>at</b>" in found["failed"][0]
    assert [row for row, _ in found["answers"]][-1] == "goldimask-d" and found["more"] == 3
    assert all(HOSTILE[0] in text for _, text in found["answers"]) and found["next"] == "1"
    assert len(found["links"]) == made["cells"] - 2 - len(size["backbones"])
    assert max(found["overflow"].values()) <= 0 and found["unnamed"] == 0
    times = {k: found[k] for k in ("ready", "load", "filter")}
    print(f"{made['cells']} cells, {page.stat().st_size} bytes; ms: {times}")
