"""What a page shows of a step is what the StepOutput says."""

import math

import numpy as np
import pytest
import torch

from goldimask.data.batches import make_batch
from goldimask.methods import PRESETS
from goldimask.objective import Priority, Support, value
from goldimask.report.page import LIMIT, embed, page_html
from goldimask.report.step_page import SUPPORTERS, pack, step_record, steps_section
from goldimask.select.base import candidate_attention
from goldimask.types import Batch, Example
from unit.report.support import Tokenizer, embedded, examples, step

METHODS = ("vanilla", "cart", "gift", "lift-2", "agdo", "goldimask-d", "goldimask-r", "goldimask-t")
close = lambda x: pytest.approx(x, rel=6e-4, abs=1e-12)  # noqa: E731  four digits


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("row", [0, 1])
def test_every_number_is_the_steps_own(name, row):
    out, batch, method = step(name)
    record = step_record(out, batch, row, Tokenizer(), method)
    c = out.corruption
    assert record["method"] == name and record["example"] == str(int(batch.example_id[row]))
    assert record["t"] == close(float(c.t[row])) and record["rho"] == close(float(c.rho[row]))
    assert record["loss"] == pytest.approx(float(out.per_example[row]), rel=1e-5)
    assert record["masked"] == c.candidates[row].nonzero().squeeze(1).tolist()
    assert record["targets"] == out.supervised[row].nonzero().squeeze(1).tolist()
    assert sorted(record["order"]) == out.reveal.mask[row].nonzero().squeeze(1).tolist()
    for j, i in enumerate(record["targets"]):
        assert record["after"][j] == close(math.exp(float(out.logp[row, i])))
        assert record["weight"][j] == close(float(out.weights.value[row, i]))
    if out.signals.logp is None:
        assert record["before"] is None
    else:
        p = [math.exp(float(out.signals.logp[row, i])) for i in record["masked"]]
        assert record["before"] == [close(x) for x in p]


@pytest.mark.parametrize("name", ["goldimask-d", "goldimask-r", "static-waterfill"])
def test_order_gains_and_objective(name):
    out, batch, method = step(name)
    record = step_record(out, batch, 0, Tokenizer(), method)
    assert record["ordered"] and record["order"] == list(out.reveal.order[0])
    assert record["gains"] == [close(g) for g in out.reveal.gains[0]]
    assert record["objective"]["value"] == pytest.approx(out.reveal.value[0], rel=1e-4)
    paths = record["objective"]["paths"]
    total = np.concatenate([[0.0], np.cumsum(out.reveal.gains[0])])
    assert paths["own"] == pytest.approx([total[k] for k in paths["k"]], rel=1e-4, abs=1e-9)
    assert paths["k"][0] == 0 and paths["k"][-1] == len(record["order"])
    assert all(a <= b for a, b in zip(paths["low"], paths["high"], strict=True))


def test_supporters_are_the_strongest_revealed_tokens():
    out, batch, method = step("goldimask-d")
    record = step_record(out, batch, 0, Tokenizer(), method, supporters=3)
    masked, revealed = record["masked"], sorted(record["order"])
    a = candidate_attention(out.signals, 0, len(masked)).numpy()
    for j, i in enumerate(record["targets"]):
        line = {x: float(a[masked.index(i), masked.index(x)]) for x in revealed}
        best = sorted(line, key=lambda x: -line[x])[:3]
        assert record["supporters"][j][::2] == best
        assert record["supporters"][j][1::2] == pytest.approx([line[x] for x in best], rel=6e-3)
        assert record["support"][j] == close(sum(line.values()))


def test_a_reference_gives_f_to_a_method_without_attention():
    goldimask, batch, _ = step("goldimask-d")
    out, _, lift = step("lift-2", batch)
    bare = step_record(out, batch, 0, Tokenizer(), lift)
    assert bare["objective"] is None and bare["supporters"] is None
    record = step_record(out, batch, 0, Tokenizer(), lift, reference=goldimask.signals)
    masked = record["masked"]
    a = candidate_attention(goldimask.signals, 0, len(masked)).double().numpy()
    lam = Priority()(np.exp(goldimask.signals.logp[0, masked].double().numpy()))
    reveal = np.isin(masked, record["order"])
    assert not record["objective"]["own"]
    assert record["objective"]["value"] == pytest.approx(value(a, lam, reveal, Support()), rel=1e-4)


def test_a_reference_with_other_candidates_is_not_used():
    goldimask, batch, _ = step("goldimask-d")
    out, _, vanilla = step("vanilla", batch)
    record = step_record(out, batch, 0, Tokenizer(), vanilla, reference=goldimask.signals)
    assert record["objective"] is None


def test_left_padding_changes_no_position():
    right = make_batch(examples(), 0)
    shift = int((~right.valid[1]).sum())
    assert shift
    roll = lambda x: torch.stack([x[0], torch.roll(x[1], shift)])  # noqa: E731
    left = Batch(roll(right.ids), roll(right.response), roll(right.valid), right.example_id)
    keys = ("masked", "tokens", "length", "t", "rho")
    a = step_record(*step("vanilla", right)[:2], 1, Tokenizer(), "vanilla")
    b = step_record(*step("vanilla", left)[:2], 1, Tokenizer(), "vanilla")
    assert {k: a[k] for k in keys} == {k: b[k] for k in keys}
    out, _, method = step("goldimask-d", left)
    record = step_record(out, left, 1, Tokenizer(), method)
    assert record["order"] == [i - shift for i in out.reveal.order[1]]
    assert set(record["order"]) <= set(record["masked"])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("response", [0, 1, 2])
def test_tiny_and_empty_responses(name, response):
    batch = make_batch([Example([1] * (3 + response), 3, [False] * 3 + [True] * response, 5)], 0)
    out, _, method = step(name, batch)
    record = step_record(out, batch, 0, Tokenizer(), method)
    assert record["length"] == response and record["tokens"]["prompt"] == 3
    embed(record)


@pytest.mark.parametrize("name", sorted(PRESETS.names()))
def test_every_preset_can_be_shown(name):
    out, batch, method = step(name)
    embed(steps_section([step_record(out, batch, 0, Tokenizer(), method)]))


def test_packing_shares_tokens_and_probes_and_loses_nothing():
    records = []
    for name in METHODS:
        out, batch, method = step(name)
        records += [step_record(out, batch, row, Tokenizer(), method) for row in (0, 1)]
    groups = pack(records)
    assert len(groups) == 2 and [len(g["records"]) for g in groups] == [len(METHODS)] * 2
    again = []
    for group in groups:
        for r in group["records"]:
            rest = {k: v for k, v in r.items() if k != "probe"}
            shared = {"tokens": group["tokens"], "example": group["example"]}
            again.append({**rest, **shared, **group["probes"][r["probe"]]})
    key = lambda r: (r["example"], r["method"])  # noqa: E731
    assert sorted(again, key=key) == sorted(records, key=key)
    assert len(groups[0]["probes"]) < len(METHODS)


def long_record(t: float, tokens: int = 4096) -> dict:
    """A record of the shape and size of a long example, without the cost of making one."""
    masked = list(range(200, tokens, 2))
    targets, order = masked[::2], masked[1::2]
    number = lambda i: round(0.1234 + (i * 7919 % 8191) / 9999, 4)  # noqa: E731
    return {
        **{"method": "goldimask-d", "example": "1", "t": t, "rho": 0.1, "length": tokens - 200},
        **{"keep": 1, "budget": 1, "scale": 1.0, "loss": 1.0, "n_eff": 1.0, "cap": 10.0},
        **{"seconds": {}, "ordered": True, "objective": None, "entropy": None},
        "tokens": {
            "vocab": [{"id": 0, "runs": [["t", "a"]]}],
            "index": [0] * tokens,
            "prompt": 200,
        },
        "masked": masked,
        "before": [number(i + t) for i in masked],
        "order": order,
        "gains": [number(i) for i in order],
        "targets": targets,
        "after": [number(i) for i in targets],
        "weight": [number(i) for i in targets],
        "support": [number(i) for i in targets],
        "supporters": [
            [x for j in range(SUPPORTERS) for x in (order[j], number(j))] for _ in targets
        ],
    }


def test_a_long_example_stays_small_and_says_what_it_left_out():
    records = [long_record(t) for t in (0.5, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9)]
    page = page_html("long", [steps_section(records)])
    assert len(page.encode()) < LIMIT
    data = embedded(page)["sections"][0]["data"]
    kept = data["groups"][0]["records"]
    found = data["supporters"], len(kept), kept[0]["t"]
    assert 0 < found[0] < SUPPORTERS and 1 < found[1] < 9 and found[2] == 0.5
    assert f"{9 - found[1]} of 9" in data["left_out"]
