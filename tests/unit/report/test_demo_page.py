"""The demo's page holds the figures it was given."""

from goldimask.report.decode_page import decode_record
from goldimask.report.demo_page import demo_page
from goldimask.report.page import LIMIT
from unit.report.support import Tokenizer, embedded, step
from unit.report.test_decode_page import decoded

TASK = {"accuracy": 0.25, "low": 0.2, "high": 0.31, "n": 40, "steps": 12.5, "seconds": 0.1}
ROWS = [
    {"name": "base", "held_out": 0.91, "steps": 20.0, "tasks": {"sort": TASK, "chain": TASK}},
    {"name": "vanilla", "held_out": None, "steps": 19.0, "tasks": {"sort": TASK}},
]


def test_every_part(tmp_path):
    steps = []
    for name in ("vanilla", "goldimask-d"):
        out, batch, method = step(name)
        steps.append(step_record_of(out, batch, method))
    decodes = [decode_record(decoded(steps=s), Tokenizer(), n) for s, n in ((4, "base"), (2, "x"))]
    curves = {"loss": {"vanilla": [[1, 2.0], [2, 1.0]]}}
    path = demo_page(
        tmp_path / "d.html", {"rows": ROWS, "facts": {"seed": 1}}, steps, decodes, curves
    )
    page = path.read_text("utf-8")
    assert len(page.encode()) < LIMIT
    parts = {s["kind"]: s["data"] for s in embedded(page)["sections"]}
    assert parts["results"]["tasks"] == ["sort", "chain"]
    assert parts["results"]["rows"][0]["tasks"]["sort"]["accuracy"] == 0.25
    assert parts["results"]["facts"] == {"seed": 1}
    assert parts["curves"]["charts"][0]["lines"][0]["points"] == [[1.0, 2.0], [2.0, 1.0]]
    assert [r["method"] for r in parts["steps"]["groups"][0]["records"]] == [
        "vanilla",
        "goldimask-d",
    ]
    assert [m["label"] for m in parts["decodes"]["groups"][0]["models"]] == ["base", "x"]


def step_record_of(out, batch, method):
    from goldimask.report.step_page import step_record

    return step_record(out, batch, 0, Tokenizer(), method)


def test_parts_may_be_missing(tmp_path):
    page = demo_page(tmp_path / "d.html", {"rows": ROWS}).read_text("utf-8")
    assert [s["kind"] for s in embedded(page)["sections"]] == ["results"]
