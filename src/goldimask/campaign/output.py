"""The folder of a comparison: cells, tables, figures, one summary, and the text they appear in.

    cells/*.json   tables/*.{csv,md,tex}   figures/*.{pdf,png}   report.md   summary.json

`fill` (`python -m goldimask.campaign.output PAGE ROOT`) puts tables into a document between
`<!-- lab: FOLDER/TABLE -->` and `<!-- end -->`, so that no figure of a page is typed by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from goldimask.campaign.figures import write_figures
from goldimask.campaign.paired import Difference, difference, frontier, mean, relative
from goldimask.campaign.scores import Board, pool
from goldimask.campaign.settings import BASE, BASELINES, Lab, lab_dict
from goldimask.campaign.sheets import Sheet, write_sheet
from goldimask.campaign.tables import paired_sheet, points, references, sheets, strongest
from goldimask.errors import GoldimaskError
from goldimask.files import write_json, write_text

_SLOT = re.compile(r"(<!-- lab: (\S+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def write_output(
    lab: Lab, boards: Sequence[Board], folder: Path, facts: dict[str, Any]
) -> dict[str, Any]:
    """Tables, figures, report and summary; returns the summary."""
    made: list[Sheet] = []
    figures: list[str] = []
    for board in boards:
        own = sheets(board)
        for sheet in own:
            write_sheet(sheet, folder / "tables")
        made += own
        figures += [p.name for p in write_figures(board, folder / "figures")]
    found = {board.backbone: results(board) for board in boards}
    together = pool(boards)
    over: list[Sheet] = []
    stands = dict(found)
    if together is not None and "vanilla" in together.rows and len(together.rows) > 1:
        title = "Paired differences over all backbones"
        over.append(paired_sheet(together, "paired", title, references(together)))
        stands["all"] = aims(together)
        figures += [p.name for p in write_figures(together, folder / "figures")]
    if any(stand["aim"] for stand in stands.values()):
        over.append(aim_sheet(stands))
    for sheet in over:
        write_sheet(sheet, folder / "tables")
    made += over
    summary = {
        **facts,
        "lab": lab_dict(lab),
        "backbones": found,
        "all": stands.get("all"),
        "tables": [s.name for s in made],
        "figures": figures,
    }
    write_json(folder / "summary.json", summary)
    write_text(folder / "report.md", report(made, summary))
    return summary


def report(made: Sequence[Sheet], summary: dict[str, Any]) -> str:
    """All tables on one page."""
    head = f"# Comparison\n\n    {summary.get('command', '')}\n\ncommit {summary.get('commit')}\n"
    return "\n".join([head, *(f"## {s.title}\n\n{s.text('md')}" for s in made)])


def results(board: Board) -> dict[str, Any]:
    """Figures of one backbone, and how its candidates stand against the aim."""
    rows = {
        row: {
            "accuracy": {f"{t:g}": mean(board.grid(row, t)) for t in board.taus},
            "steps": {f"{t:g}": mean(board.grid(row, t, "steps")) for t in board.taus},
            "heldout_nll": sum(board.heldout(row, "nll")) / len(board.seeds),
            "cost": board.costs.get(row),
        }
        for row in board.rows
    }
    return {
        "seeds": list(board.seeds),
        "problems": board.problems,
        "rows": rows,
        **aims(board),
        "left_out": board.left_out,
    }


def aims(board: Board) -> dict[str, Any]:
    """The best baseline, and every candidate against the aim."""
    tau, weights, best = board.main_tau, board.weights(), strongest(board)
    found = {}
    if "vanilla" in board.rows and best is not None:
        for row in board.rows:
            if row not in (*BASELINES, BASE):
                found[row] = aim(board, row, best, tau, weights)
    return {"strongest_baseline": best, "aim": found}


def aim(board: Board, row: str, best: str, tau: float, weights: Any) -> dict[str, Any]:
    """Accuracy above Vanilla and the best baseline, or a tenth fewer steps at equal accuracy.

    Equal accuracy means that the interval of the difference against Vanilla reaches zero.
    """
    own = board.grid(row, tau)
    vanilla = difference(board.grid("vanilla", tau), own, weights)["average"]
    other = difference(board.grid(best, tau), own, weights)["average"]
    steps = relative(board.grid("vanilla", tau, "steps"), board.grid(row, tau, "steps"), weights)
    first = {
        t: (board.shared("vanilla", t), board.shared("vanilla", t, "steps")) for t in board.taus
    }
    second = board.shared(row, tau), board.shared(row, tau, "steps")
    equal = frontier(first, second, board.draws(second[0]))
    return {
        "against_vanilla": plain(vanilla),
        "against_best_baseline": plain(other),
        "steps": plain(steps),
        "at_equal_steps": None if equal is None else plain(equal),
        "accuracy_reached": vanilla.above and other.above,
        "steps_reached": steps.high <= -0.1 and vanilla.high >= 0,
    }


def aim_sheet(stands: Mapping[str, dict[str, Any]]) -> Sheet:
    """How every candidate stands against the aim, on every backbone and on all of them."""
    rows = []
    for backbone, stand in stands.items():
        for row, a in stand["aim"].items():
            kinds = ("against_vanilla", "against_best_baseline", "steps", "at_equal_steps")
            reached = [k for k in ("accuracy", "steps") if a[f"{k}_reached"]]
            cells = ["outside" if a[k] is None else points(again(a[k])) for k in kinds]
            rows.append((f"{backbone}: {row}", *cells, ", ".join(reached) or "-"))
    best = ", ".join(f"{b}: {stand['strongest_baseline']}" for b, stand in stands.items())
    note = (
        f"Accuracy in points against Vanilla and against the best baseline ({best}); change of "
        "decoding steps in per cent; accuracy against Vanilla with its threshold chosen for the "
        "same number of steps. Reached: accuracy above both with intervals above zero; or a tenth "
        "fewer steps, the interval included, at no loss of accuracy beyond its interval."
    )
    head = ("candidate", "accuracy", "against the best", "steps (%)", "at equal steps", "reached")
    return Sheet("aims", "The aim", head, tuple(rows), note)


def plain(d: Difference) -> list[float | None]:
    """[value, low, high]; None where there is no interval."""
    return [x if x == x else None for x in (d.value, d.low, d.high)]


def again(values: Sequence[float | None]) -> Difference:
    """What `plain` was made of."""
    return Difference(*(float("nan") if x is None else x for x in values))


def fill(document: Path, root: Path) -> int:
    """Replace every marked table by the file it names; returns how many there are."""
    text = document.read_text("utf-8")
    count = 0

    def table(found: re.Match[str]) -> str:
        nonlocal count
        file = root / f"{found.group(2)}.md"
        if not file.is_file():
            raise GoldimaskError(f"{document}: '{found.group(2)}': no table {file}")
        count += 1
        return f"{found.group(1)}{file.read_text('utf-8').rstrip()}\n{found.group(4)}"

    filled = _SLOT.sub(table, text)
    if filled != text:
        write_text(document, filled)
    return count


if __name__ == "__main__":
    print(f"{fill(Path(sys.argv[1]), Path(sys.argv[2]))} tables in {sys.argv[1]}")
