"""Every kind of table against numbers worked out by hand, from campaign folders and plain runs."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from goldimask.cli.app import app
from goldimask.errors import GoldimaskError
from goldimask.files import write_json
from goldimask.report.campaign_report import write_campaign
from goldimask.report.comparison import Choices
from goldimask.report.paper import ABLATIONS, FIGURES, TABLES, VARIANTS
from goldimask.report.runs_report import make_report
from goldimask.report.sources import known_rows, read_sources
from goldimask.tables import latex, markdown
from unit.report.campaigns import LOW, answers, threshold, write_campaign_folder, write_cell
from unit.report.support import HOSTILE, embedded

NO_FIGURES = ("steps",)  # matplotlib is slow, and drawing has tests of its own


@pytest.fixture(autouse=True)
def weights(monkeypatch):
    monkeypatch.setattr("goldimask.backbones.identity.weights_hash", lambda *_, **__: "w")


def tables(folders, kinds=("all",), **choices):
    """Name -> table of some cells."""
    words = [str(f) if not isinstance(f, tuple) else f"{f[0]}={f[1]}" for f in folders]
    found = make_report(*read_sources(words), "t", Choices(**choices), kinds, NO_FIGURES)
    return {t.name: t for t in found.tables}


def rows(table):
    return {row[0]: row[1:] for row in table.rows}


def cell(tmp_path, name, method, share, tasks=("countdown",), seed=0, **more):
    """A run of a method with `share` of ten problems of each task right."""
    keys = ("decodings", "part", "steps", "problems")
    found = answers(share, tasks, **{k: more.pop(k) for k in keys if k in more})
    section = {"preset": method} if isinstance(method, str) else method
    return write_cell(tmp_path / name, section, found, seed=seed, **more)


def test_main_and_fixed(tmp_path):
    """gsm8k has one problem less right at 256 than at 512, its fixed length; 512 is the best."""
    folders = [
        cell(tmp_path, f"{m}{s}", m, share + s / 10, ("gsm8k", "countdown"), seed=s)
        for m, share in (("vanilla", 0.3), ("cart", 0.5), ("goldimask-d", 0.6))
        for s in (0, 1)
    ]
    made = tables(folders, ("main", "fixed"), length="both")
    assert list(made) == ["main", "fixed"]
    text = markdown(made["main"])
    assert "| goldimask-d | **65.0 ± 7.1** | **65.0 ± 7.1** | **65.0 ± 7.1** |" in text
    assert "| vs. cart | ↑ 18.2% | ↑ 18.2% | ↑ 18.2% |" in text  # 65 / 55
    assert "protocol fixed; n: gsm8k 10, countdown 10; 2 seeds; best length" in made["main"].note
    assert "best lengths" in made["main"].title and "fixed lengths" in made["fixed"].title
    shorter = tables(folders, ("main",), length="256")["main"]
    assert shorter.columns == ("method", "gsm8k")  # 65 - 10
    assert "| goldimask-d | **55.0 ± 7.1** |" in markdown(shorter)
    few = tables(folders, ("main",), rows=("vanilla", "goldimask-d"))["main"]
    assert "cart" not in markdown(few) and "| vs. vanilla | ↑ 85.7% |" in markdown(few)  # 65 / 35


def test_panels_code_and_aime(tmp_path):
    """Code and AIME have tables of their own, with the backbones side by side."""
    folders = []
    for backbone, corpus in (("llada-8b-instruct", "s1k"), ("dream-7b", "kodcode")):
        tasks = ("countdown",) if corpus == "s1k" else ("humaneval", "mbpp")
        for method, share in (("vanilla", 0.3), ("goldimask-d", 0.6)):
            where = {"backbone": backbone, "corpus": corpus}
            folders.append(cell(tmp_path, f"{backbone}-{method}", method, share, tasks, **where))
    base = write_cell(
        tmp_path / "base",
        None,
        answers(0.2, ("countdown", "mbpp", "humaneval")),
        backbone="dream-7b",
    )
    made = tables([*folders, ("base", base)])
    assert {"main", "code", "paired", "paired-code"} <= set(made)
    assert list(rows(made["main"])) == ["vanilla", "goldimask-d", "vs. vanilla"]
    assert made["main"].title.endswith("llada-8b-instruct / s1k")
    code = rows(made["code"])
    assert list(code) == ["base", "vanilla", "goldimask-d", "vs. vanilla"]
    # humaneval is at 256 tokens, where one problem less is right: 5 of 10 and 2 of 10
    assert [100 * x.value.mean for x in code["goldimask-d"]] == pytest.approx([50, 60, 55])
    assert [100 * x.value for x in code["vs. vanilla"]] == pytest.approx([150, 100, 120])


def test_paired_and_mcnemar(tmp_path):
    """Vanilla has the first 3 of 10 right, CART 5, D 6: D - CART is +10 points, one problem won."""
    folders = [
        cell(tmp_path, m, m, share, steps=steps)
        for m, share, steps in (("vanilla", 0.3, 20), ("cart", 0.5, 20), ("goldimask-d", 0.6, 15))
    ]
    base = write_cell(tmp_path / "base", None, answers(0.2, ("countdown",)))
    made = tables([*folders, ("base", base)])
    paired = rows(made["paired"])
    assert list(paired) == [
        *("base - vanilla", "cart - vanilla", "goldimask-d - vanilla", "goldimask-d - cart"),
    ]
    average, steps, task = paired["goldimask-d - vanilla"]
    assert average == task and average.startswith("+30.0 [") and steps == "-25.0 [-25.0, -25.0]"
    assert "1 seeds; n: countdown 10 answers" in made["paired"].note
    records = [r for r in made["paired"].plain if r[1] == "goldimask-d - cart"]
    assert [r[2:4] for r in records] == [
        *(("average", pytest.approx(0.1)), ("steps", -0.25), ("countdown", pytest.approx(0.1))),
    ]
    tested = {r[0]: r for r in made["mcnemar"].rows}
    assert list(tested) == ["goldimask-d - cart"]
    row = tested["goldimask-d - cart"]
    assert row[1:6] == ("countdown", 128, 10, 1, 10.0) and row[7:] == (0, 1, 1.0)


def test_ablations_know_a_method_however_it_is_written(tmp_path):
    written = {
        "vanilla": ("vanilla", 0.2),
        "c5": ({"preset": "goldimask-d", "weigh": {"cap": 5}}, 0.4),
        "c2": ({"preset": "random-waterfill", "weigh": {"cap": 2.0}}, 0.7),
        "first": ({"preset": "goldimask-d", "attention_layer": 0}, 0.5),
        "s10": ({"preset": "goldimask-d", "select": {"support": {"s0": 0.1}}}, 0.5),
        "d": ("goldimask-d", 0.6),
        "r": ("goldimask-r", 0.7),
        "1mp": ("goldimask-d-1mp", 0.3),
    }
    folders = [cell(tmp_path, name, method, share) for name, (method, share) in written.items()]
    made = tables(folders)
    shown = {kind: list(rows(made[kind])) for kind in ABLATIONS if kind in made}
    assert shown["cap"] == ["c = 5", "c = 10 (ours)"]
    assert shown["weighting"] == ["Water-filling (c = 5)", "Water-filling (c = 10, ours)"]
    assert shown["priority"] == ["λ ∝ 1-p (peak at 0)", "λ ∝ p(1-p)³ (ours, peak at 1/4)"]
    assert shown["layer"] == ["first", "last (ours)"]
    assert shown["support"] == ["saturating, s0 = 0.1", "saturating, s0 = 0.05 (ours)"]
    assert shown["components"] == [
        *("None (Vanilla), uniform", "Random, water-filling (c = 2)", "GoldiMask-D, water-filling"),
    ]
    assert rows(made["cap"])["c = 5"][0].value.mean == pytest.approx(0.4)
    # the strongest baseline is Vanilla, 20 %: random reveals, 70 %, are a control
    best = rows(made["maximisers"])
    assert list(best)[:2] == ["vanilla", "goldimask-d"]
    assert [r[1].value for r in made["maximisers"].rows if r[0] == "vs. vanilla"] == pytest.approx(
        [2.0, 2.5]
    )
    gaps = {k.split(" - ")[0]: v[0].split()[0] for k, v in rows(made["ablations"]).items()}
    assert gaps == {
        **{"random-c2": "+10.0", "goldimask-d-1mp": "-30.0", "goldimask-d-c5": "-20.0"},
        **{"goldimask-d-first": "-10.0", "goldimask-d-s10": "-10.0"},
    }


def test_every_ablation_row_can_be_recognised():
    known = dict(known_rows())
    listed = {row for _, many in ABLATIONS.values() for row in many}
    assert listed <= set(known) and set(VARIANTS) <= listed
    assert len({json.dumps(parts, sort_keys=True) for parts in known.values()}) == len(known)


def swept(tmp_path, divided=False):
    """Thresholds 0.7 and 0.9; D needs 15 calls where Vanilla needs 20, and 12 where it needs 16."""
    folders = []
    for method, share, calls in (("vanilla", 0.4, (16, 20)), ("goldimask-d", 0.6, (12, 15))):
        for seed in (0, 1):
            part = (seed, 2) if divided else (0, 1)
            found = [
                o
                for tau, steps in zip((0.7, 0.9), calls, strict=True)
                for o in answers(
                    share + (tau - 0.9) / 2,
                    ("countdown",),
                    [threshold(tau)],
                    part=part,
                    steps=steps,
                )
            ]
            folders.append(
                write_cell(tmp_path / f"{method}{seed}", {"preset": method}, found, seed=seed)
            )
    return folders


def test_thresholds_decoding_and_frontier(tmp_path):
    made = tables(swept(tmp_path), tau=0.9)
    assert made["main"].title.startswith("Accuracy (%), threshold block=32 tau=0.9")
    steps = [r[3:6] for r in made["thresholds"].rows]
    assert steps == [(0.7, 30.0, 16.0), (0.9, 40.0, 20.0), (0.7, 50.0, 12.0), (0.9, 60.0, 15.0)]
    saved = [r[5:7] for r in made["reductions"].rows]
    assert saved == [(25.0, 20.0), (25.0, 20.0)]
    decoding = rows(made["decoding"])
    loss = 1 + 2.718281828 ** (-19 / 5)
    assert decoding["goldimask-d"][:4] == ("50.0", "12.00", "60.0", "15.00")
    assert decoding["goldimask-d"][4] == f"{loss + 0.005:.4f} ± 0.0071"
    assert decoding["goldimask-d"][5:] == ("0.50", None)
    # with 15 calls D is below the 16 that Vanilla needs at least
    assert rows(made["frontier"])["goldimask-d"] == ("outside", "outside")
    without = tables(swept(tmp_path / "again"))
    assert {"main-1", "main-2"} <= set(without)  # nothing else was evaluated


def test_frontier_is_linear_between_thresholds(tmp_path):
    """Vanilla: 30 % with 16 calls, 40 % with 20; 60 % with 18 calls is 25 points above its line."""
    folders = swept(tmp_path)[:2]
    found = [o for t in (0.7, 0.9) for o in answers(0.6, ("countdown",), [threshold(t)], steps=18)]
    folders.append(write_cell(tmp_path / "d", {"preset": "goldimask-d"}, found))
    cells = rows(tables(folders)["frontier"])["goldimask-d"]
    assert [x.split()[0] for x in cells] == ["+25.0", "+25.0"]


def test_frontier_over_all_backbones(tmp_path):
    """Vanilla of both: 30 % with 16 calls, 40 with 20; 60 and 40 % with 18 are 15 above."""
    folders = []
    for on, share in (("tiny", 0.6), ("tiny-b", 0.4)):
        for row, shares, calls in (
            ("vanilla", (0.3, 0.4), (16, 20)),
            ("gift", (share,) * 2, (18,) * 2),
        ):
            found = [
                o
                for tau, right, steps in zip((0.7, 0.9), shares, calls, strict=True)
                for o in answers(right, ("countdown",), [threshold(tau)], steps=steps)
            ]
            folders.append(
                write_cell(tmp_path / f"{on}-{row}", {"preset": row}, found, backbone=on)
            )
    cells = [line for line in tables(folders)["frontier"].rows if line[0] == "gift"]
    firsts = [[str(x).split()[0] for x in line[1:]] for line in cells]
    assert firsts == [["+25.0"] * 2, ["+5.0"] * 2, ["+15.0"] * 2]


def test_the_best_rate_is_that_of_the_mean_over_backbones(tmp_path):
    """On tiny alone 1e-3 would win; a rate that one backbone lacks cannot."""
    shares = {
        ("vanilla@1e-3", "tiny"): 0.6,
        ("vanilla@3e-3", "tiny"): 0.5,
        ("vanilla@6e-3", "tiny"): 0.9,
        ("vanilla@1e-3", "tiny-b"): 0.2,
        ("vanilla@3e-3", "tiny-b"): 0.5,
        ("gift@3e-3", "tiny"): 0.4,
        ("gift@3e-3", "tiny-b"): 0.4,
    }
    folders = [
        (name, cell(tmp_path, f"{name}-{on}", name.split("@")[0], share, backbone=on))
        for (name, on), share in shares.items()
    ]
    made = rows(tables(folders, ("rates",))["rates"])
    assert [x.value.mean for x in made["vanilla"][:3]] == pytest.approx([0.4, 0.5, 0.9])
    assert [x.best for x in made["vanilla"][:3]] == [False, True, False]
    assert made["vanilla"][3] == "3e-3"
    assert made["gift"][0] is None and made["gift"][3] == "3e-3"
    assert "rates" not in tables([folders[0][1]])


def test_problems_may_be_divided_over_the_seeds(tmp_path):
    """Each seed has every second problem: the row is complete, and every problem counts once."""
    folders = swept(tmp_path, divided=True)
    assert make_report(*read_sources(list(map(str, folders))), drawn=NO_FIGURES).notes == ()
    made = tables(folders, tau=0.9)
    assert "n: countdown 10; 2 seeds" in made["main"].note
    assert rows(made["main"])["goldimask-d"][0].value.mean == pytest.approx(0.6)
    assert rows(made["paired"])["goldimask-d - vanilla"][0].startswith("+20.0 [")
    assert [r[-1] for r in made["thresholds"].rows] == [10] * 4
    with pytest.raises(GoldimaskError, match=r"goldimask-d0.*: 5 of 10 answers"):
        tables(folders[:3])
    base = write_cell(
        tmp_path / "base", None, answers(0.2, ("countdown",), [threshold(0.7), threshold(0.9)])
    )
    made = tables([*folders, ("base", base)], tau=0.9)
    assert rows(made["paired"])["base - vanilla"][0].startswith("-20.0 [")


def test_time_and_supervision(tmp_path):
    folders = [
        cell(tmp_path, m, m, 0.5, seconds=seconds)
        for m, seconds in (("vanilla", 100.0), ("goldimask-d", 125.0))
    ]
    made = tables(folders)
    relative = {r[0]: r[4] for r in made["time"].rows}
    assert relative == {"vanilla": 1.0, "goldimask-d": 1.25}
    assert rows(made["supervision"])["vanilla"] == ("30.0", "20.0")
    assert "words 25.0" in made["supervision"].note


def test_lift_star_and_fewer_seeds_are_said(tmp_path):
    folders = [
        cell(tmp_path, f"{m}{s}", m, share, seed=s)
        for m, share in (("lift-2", 0.3), ("lift-3", 0.5), ("goldimask-d", 0.6))
        for s in (0, 1)
    ]
    folders.append(cell(tmp_path, "t", "goldimask-t", 0.6))
    found = tables(folders)["main"]
    assert list(rows(found)) == ["LIFT*", "goldimask-d", "vs. LIFT*", "goldimask-t"]
    assert "2 seeds (goldimask-t 1)" in found.note and "LIFT* is lift-3" in found.note


# --- a campaign's folder --------------------------------------------------------------------------


def test_a_campaign_becomes_tables_and_a_page(tmp_path):
    out = write_campaign_folder(tmp_path / "c", backbones=("tiny", "tiny-b"), seeds=(0, 1))
    found = write_campaign(out, figures=NO_FIGURES)
    assert (found["cells"], found["done"], found["refused"]) == (24, 22, {})
    assert found["left_out"] == [
        *("late: running", "lost: failed, CUDA out of memory <b>at</b> step 3"),
    ]
    names = found["tables"]["all"]
    assert {"main", "fixed", "paired", "mcnemar", "time", "supervision"} <= set(names)
    for name in names:
        for suffix in ("csv", "md", "tex", "json"):
            assert (out / "tables" / f"{name}.{suffix}").stat().st_size > 0
    main = json.loads((out / "tables" / "main.json").read_text())
    ours = [r for r in main["rows"] if (r["method"], r["task"]) == ("goldimask-d", "countdown")]
    assert [(r["panel"], r["mean"], r["seeds"]) for r in ours] == [
        *(("tiny / tiny-1k", pytest.approx(0.65), 2), ("tiny-b / tiny-1k", pytest.approx(0.65), 2)),
    ]
    assert json.loads((out / "summary.json").read_text())["tables"] == found["tables"]
    page = (out / "report.html").read_text("utf-8")
    parts = {s["kind"]: s["data"] for s in embedded(page)["sections"]}
    assert len(parts["cells"]["cells"]) == 24
    failed = parts["cells"]["cells"][-1]
    assert (failed["state"], failed["scores"]) == ("failed", [None, None])
    assert parts["cells"]["cells"][-2]["progress"] == "40 of 200"
    text = parts["answers"]["problems"][0]["rows"][1][4]
    assert HOSTILE[0] in text and "\u202e" not in text and "⟨U+202E⟩" in text
    assert page.count("<script") == 2 and HOSTILE[0] not in page.split('id="data"')[0]
    # another call with fewer tables leaves none of the others behind
    again = write_campaign(out, ["paired"], NO_FIGURES)
    assert again["tables"] == {"all": ["paired", "paired-fixed"]}
    assert not (out / "tables" / "main.csv").exists()


def test_the_verb_takes_a_campaign(tmp_path):
    out = write_campaign_folder(tmp_path / "c", tables=["main"], figures=["steps"])
    done = CliRunner().invoke(app, ["report", str(out), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["tables"] == {"all": ["main"]}
    words = ["report", str(out), "--tables", "main", "--length", "fixed", "--format", "csv"]
    done = CliRunner().invoke(app, words)  # expanded to its cells like other folders
    assert "goldimask-d,average,0.6" in done.stdout


def test_parts_have_folders_of_their_own_and_fail_alone(tmp_path):
    out = write_campaign_folder(tmp_path / "c")
    campaign = json.loads((out / "campaign.json").read_text())
    names = [c["name"] for c in campaign["cells"]]
    other = answers(0.3, ("countdown",))
    other = [o.model_copy(update={"protocol": "lift"}) for o in other]
    write_cell(out / "cells" / "odd", {"preset": "agdo"}, other)
    cell = {"name": "odd", "row": "agdo", "folder": "cells/odd", "done": True}
    campaign["cells"].append(cell)
    campaign["parts"] = [
        {"name": "one", "cells": names, "tables": ["main"], "figures": ["steps"]},
        {"name": "two", "cells": [*names, "odd"], "tables": ["main"], "figures": ["steps"]},
    ]
    write_json(out / "campaign.json", campaign)
    found = write_campaign(out)
    assert found["tables"] == {"one": ["main"]} and "protocol" in found["refused"]["two"]
    assert (out / "tables" / "one" / "main.tex").is_file()


def test_a_campaign_that_has_not_begun_shows_its_cells(tmp_path):
    cells = [{"row": "vanilla", "folder": None, "state": "queued", "name": "a"}]
    write_json(tmp_path / "campaign.json", {"name": "new", "cells": cells})
    found = write_campaign(tmp_path)
    assert (found["done"], found["tables"]) == (0, {"new": []})
    assert "queued" in (tmp_path / "report.html").read_text()
    write_json(tmp_path / "campaign.json", {"cells": [{"row": "vanilla"}]})
    with pytest.raises(GoldimaskError, match=r"campaign.json: cells\[0\]: no folder"):
        write_campaign(tmp_path)


def test_latex_is_balanced(tmp_path):
    """Every table of a campaign: environments closed, as many cells in each row as columns."""
    ways = (LOW, threshold(0.7), threshold(0.9))
    small = {"problems": 4, "seeds": (0,), "rows": {"vanilla": 0.5, "goldimask-d": 0.7}}
    out = write_campaign_folder(
        tmp_path / "c", ("tiny", "tiny-b"), decodings=ways, text="x_1 & 50 %", **small
    )
    report = make_report(*read_sources([str(out)]), "t", Choices(length="both"), drawn=NO_FIGURES)
    assert len(report.tables) > 8
    for table in report.tables:
        text = latex(table)
        assert text.count(r"\begin{") == text.count(r"\end{") in (2, 4)
        assert text.count("{") == text.count("}") and text.isascii(), table.name
        inside = text.split(r"\midrule", 1)[1].split(r"\bottomrule")[0]
        lines = [x for x in inside.splitlines() if x.endswith(r"\\") and "multicolumn" not in x]
        cells = {len(x.replace(r"\&", "").split("&")) for x in lines}
        assert cells <= {len(table.columns)}, table.name


def test_kinds_are_listed():
    assert set(ABLATIONS) < set(TABLES) and set(FIGURES) == {"steps", "paired", "training"}
