"""A decode's record holds its trace, and a page groups records by prompt."""

from goldimask.decoding.types import Commit, Decoded, Settings
from goldimask.report.decode_page import decode_page, decode_record, group_decodes
from unit.report.support import HOSTILE, Tokenizer, embedded


def decoded(steps: int = 4, n: int = 24, prompt: tuple[int, ...] = (0, 1, 2)) -> Decoded:
    """`n` tokens in `steps` equal steps over one block, in an order that is not left to right."""
    tokens = [i % (len(HOSTILE) + 1) for i in range(n)]
    trace = tuple(
        Commit(
            step=s + 1,
            block=0,
            positions=tuple(range(s, n, steps)),
            tokens=tuple(tokens[i] for i in range(s, n, steps)),
            confidence=tuple(0.5 + 0.4 * i / n for i in range(s, n, steps)),
        )
        for s in range(steps)
    )
    settings = Settings(length=n, block=n)
    return Decoded("text", tokens, steps, trace, None, True, list(prompt), settings=settings)


def test_the_record_is_the_trace():
    made = decoded()
    record = decode_record(made, Tokenizer(), "before", verdict={"correct": False})
    assert [t["positions"] for t in record["trace"]] == [list(c.positions) for c in made.trace]
    assert record["trace"][0]["confidence"][1] == float(f"{made.trace[0].confidence[1]:.4g}")
    vocab = record["canvas"]["vocab"]
    assert [vocab[v]["id"] for v in record["canvas"]["index"]] == made.tokens
    assert record["tau"] == 0.9 and record["steps"] == 4 and record["verdict"] == {"correct": False}


def test_tau_is_shown_only_where_it_is_a_confidence():
    made = decoded()
    other = Decoded(**{**vars(made), "settings": Settings(decoder="entropy", tau=0.5)})
    assert decode_record(other, Tokenizer(), "x")["tau"] is None


def test_records_of_one_prompt_stand_together(tmp_path):
    records = [
        decode_record(decoded(prompt=p), Tokenizer(), label)
        for p in ((0, 1), (2, 3))
        for label in ("before", "after")
    ]
    groups = group_decodes(records)
    assert [[m["label"] for m in g["models"]] for g in groups] == [["before", "after"]] * 2
    page = decode_page(tmp_path / "d.html", records).read_text("utf-8")
    assert embedded(page)["sections"][0]["data"]["groups"] == groups
