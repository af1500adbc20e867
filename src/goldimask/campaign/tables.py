"""The tables of a comparison, in the paper's form (section 4; appendix "Maximizers").

main         per task and average, mean and SD over seeds, relative change against the strongest
             baseline (paper, Table 1)
paired       differences against Vanilla and the strongest baseline, 95 % intervals, steps too
ablations    the same against GoldiMask-D, for every row that differs from it in one part
decoding     accuracy and steps at every threshold, held-out loss, effective targets, cost
supervision  shares of words, numbers, wrong labels and identifiers in targets and weight
frontier     accuracy against Vanilla's at the same number of steps
components, priority, weighting, cap, layer, support, maximisers
             subsets of rows in the form of the main table
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from goldimask.campaign.classes import CLASSES
from goldimask.campaign.paired import Difference, difference, frontier, mean, relative
from goldimask.campaign.scores import Board, Pool, known, short
from goldimask.campaign.settings import BASE, BASELINES
from goldimask.campaign.sheets import Sheet
from goldimask.eval.stats import spread
from goldimask.eval.tables import render, results_table

# name, title, rows; a table is made when it has at least two of them
ABLATIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "components",
        "Contributions of selection and weighting",
        (
            *("vanilla", "random-uniform", "random-waterfill", "static-waterfill"),
            *("static-uniform", "goldimask-d-uniform", "goldimask-d"),
        ),
    ),
    (
        "components-c2",
        "Selection and weighting with cap 2",
        ("vanilla", "random-uniform", "random-c2", "goldimask-d-uniform", "goldimask-d-c2"),
    ),
    (
        "priority",
        "Supervision priority",
        ("goldimask-d-1mp", "goldimask-d-p1mp", "goldimask-d-p1mp2", "goldimask-d"),
    ),
    (
        "weighting",
        "Loss weighting",
        (
            *("goldimask-d-uniform", "goldimask-d-dro", "goldimask-d-uncapped"),
            *("goldimask-d-clip", "goldimask-d"),
        ),
    ),
    (
        "cap",
        "Cap of the water-filling",
        (
            *("goldimask-d-uniform", "goldimask-d-c2", "goldimask-d-c5"),
            *("goldimask-d", "goldimask-d-c15", "goldimask-d-uncapped"),
        ),
    ),
    (
        "layer",
        "Attention layer",
        (
            *("random-waterfill", "goldimask-d-first", "goldimask-d-middle", "goldimask-d"),
            *("goldimask-d-probe", "random-uniform", "goldimask-d-uniform"),
            "goldimask-d-uniform-probe",
        ),
    ),
    (
        "support",
        "Support function",
        ("goldimask-d", "goldimask-d-s10", "goldimask-d-s20", "goldimask-d-linear"),
    ),
    (
        "maximisers",
        "Maximisers",
        (*BASELINES, "goldimask-d", "goldimask-r", "goldimask-t", "goldimask-p", "goldimask-a"),
    ),
)


OWN = "goldimask-d"
CONTROLS = {
    "goldimask-d": "random-waterfill",
    "goldimask-r": "random-waterfill",
    "goldimask-d-uniform": "random-uniform",
    "goldimask-d-c2": "random-c2",
}


def sheets(board: Board) -> list[Sheet]:
    """Every table the rows allow."""
    out = [main_sheet(board, "main", "Accuracy", board.rows), decoding_sheet(board)]
    if "vanilla" in board.rows and len(board.rows) > 1:
        pairs = references(board)
        out.append(paired_sheet(board, "paired", "Paired differences", pairs))
        out += frontier_sheets(board)
    if any(row != BASE for row in board.rows):
        out.append(supervision_sheet(board))
    if any(row.startswith(f"{OWN}-") for row in board.rows) and OWN in board.rows:
        pairs = [(OWN, row) for row in one_part_away(board)]
        out.append(paired_sheet(board, "ablations", "Ablations against GoldiMask-D", pairs))
    for name, title, rows in ABLATIONS:
        found = known(board.rows, rows)
        own = [r for r in found if r not in BASELINES]
        if len(found) > 1 and own:
            out.append(main_sheet(board, name, title, tuple(found)))
    return out


def sheet_name(board: Board, name: str) -> str:
    return f"{name}-{board.backbone}"


def strongest(board: Board) -> str | None:
    """The baseline with the highest average accuracy at the main threshold."""
    found = known(board.rows, BASELINES)
    return max(found, key=lambda r: mean(board.grid(r, board.main_tau)), default=None)


def setting(board: Board) -> str:
    n = len(board.seeds)
    return (
        f"{board.title}, threshold {board.main_tau:g}, {board.problems} problems per task, "
        f"{n} seed{'s' if n != 1 else ''}"
    )


def fewer(board: Board) -> str:
    if board.common == board.problems:
        return ""
    return f" Comparisons over thresholds use {board.common} problems per task."


def main_sheet(board: Board, name: str, title: str, rows: tuple[str, ...]) -> Sheet:
    """The paper's results table over some of the rows."""
    scores = {row: board.by_seed(row, board.main_tau) for row in rows}
    if BASE in scores and not spread_over(board):
        first = next(iter(scores[BASE]))
        scores[BASE] = {first: scores[BASE][first]}  # one model: no deviation
    note = f"{setting(board)}. Mean ± SD over seeds; relative change against the best baseline."
    made = results_table(scores, baselines=BASELINES, base=(BASE,), note=note)
    ready = tuple(
        (suffix, render(made, form))  # type: ignore[arg-type]
        for suffix, form in (("csv", "csv"), ("md", "markdown"), ("tex", "latex"))
    )
    return Sheet(sheet_name(board, name), title, (), (), note, ready)


def spread_over(board: Board) -> bool:
    """Whether the problems are divided over the seeds."""
    first = board.records[board.rows[0]][0]["tasks"][f"{board.main_tau:g}"]
    return next(iter(first.values()))["every"] > 1


def decoding_sheet(board: Board) -> Sheet:
    """Everything about a row that is not an accuracy per task."""
    columns = ["method"]
    columns += [x for tau in board.taus for x in (f"acc. {tau:g}", f"steps {tau:g}")]
    columns += ["held-out NLL", "p ≥ .9", "p < .05", "n_eff/n", "kept/K", "cost"]
    rows = []
    for row in board.rows:
        cells = [row]
        for tau in board.taus:
            cells.append(f"{100 * mean(board.shared(row, tau)):.1f}")
            cells.append(f"{mean(board.shared(row, tau, 'steps')):.2f}")
        cells.append(plus_minus(board.heldout(row, "nll"), 4))
        cells += [f"{spread(board.heldout(row, x)).mean:.3f}" for x in ("confident", "lost")]
        for name in ("n_eff_ratio", "kept_ratio"):
            values = board.metric(row, name)
            cells.append(f"{spread(values).mean:.2f}" if values else "-")
        cost = board.costs.get(row)
        cells.append("-" if cost is None else f"{cost:.2f}")
        rows.append(tuple(cells))
    note = (
        f"{setting(board)}. Accuracy (%) and decoding steps by threshold, averages over tasks; "
        "held-out NLL of content tokens at t = .25, .5, .75 (± SD over seeds) with the shares of "
        "confident and lost ones; effective share of the targets; targets kept over K; CPU time "
        f"of a training step relative to Vanilla.{fewer(board)}"
    )
    return Sheet(
        sheet_name(board, "decoding"), "Decoding, held-out loss and cost", tuple(columns),
        tuple(rows), note,
    )  # fmt: skip


def supervision_sheet(board: Board) -> Sheet:
    """Which tokens are targets, and which carry the weight."""
    columns = ["method"]
    columns += [f"{kind}: {what}" for kind in CLASSES for what in ("targets", "weight")]
    rows = []
    for row in board.rows:
        if row == BASE:
            continue
        cells = [board.share(row, k, what) for k in CLASSES for what in ("targets", "weight")]
        rows.append((row, *("-" if x is None else f"{100 * x:.1f}" for x in cells)))
    first = next(r for r in board.rows if r != BASE)
    masked = [board.share(first, kind, "candidates") or 0.0 for kind in CLASSES]
    listed = ", ".join(f"{k} {100 * x:.1f}" for k, x in zip(CLASSES, masked, strict=True))
    note = (
        f"{setting(board)}. Shares (%) of the targets and of the loss weight by class of token; of "
        f"the masked tokens ({first}): {listed}."
    )
    return Sheet(sheet_name(board, "supervision"), "What is supervised", tuple(columns),
                 tuple(rows), note)  # fmt: skip


def plus_minus(values: list[float], digits: int) -> str:
    found = spread(values)
    text = f"{found.mean:.{digits}f}"
    return text if found.sd is None else f"{text} ± {found.sd:.{digits}f}"


def points(d: Difference) -> str:
    return f"{100 * d.value:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]"


def references(board: Board) -> Iterator[tuple[str, str]]:
    """(reference, row): every row against Vanilla, candidates against the strongest baseline, and
    what selects its reveals against the control that draws them.
    """
    best = strongest(board)
    for row in board.rows:
        if row != "vanilla":
            yield "vanilla", row
    if best not in (None, "vanilla"):
        for row in board.rows:
            if row not in (*BASELINES, BASE):
                yield str(best), row
    for row, control in CONTROLS.items():
        if row in board.rows and control in board.rows:
            yield control, row


def one_part_away(board: Board) -> list[str]:
    """Rows of the ablation tables other than GoldiMask-D and the baselines, in their order."""
    listed = dict.fromkeys(row for _, _, rows in ABLATIONS for row in rows)
    return [row for row in listed if row in board.rows and row not in (OWN, *BASELINES)]


def paired_sheet(board: Board, name: str, title: str, pairs: Iterable[tuple[str, str]]) -> Sheet:
    """Differences with intervals of (reference, row)."""
    tau, weights = board.main_tau, board.weights()
    tasks = [short(t) for t in board.grid(board.rows[0], tau)]
    rows = []
    for reference, row in pairs:
        found = difference(board.grid(reference, tau), board.grid(row, tau), weights)
        before, after = (board.grid(r, tau, "steps") for r in (reference, row))
        cells = [points(found.pop("average")), points(relative(before, after, weights))]
        rows.append((f"{row} - {reference}", *cells, *(points(d) for d in found.values())))
    drawn = "problems, seeds and backbones" if isinstance(board, Pool) else "problems and seeds"
    note = (
        f"{setting(board)}. Paired differences in points of accuracy, change of decoding steps in "
        f"per cent; 95 % bootstrap over {drawn}."
    )
    columns = ("pair", "average", "steps (%)", *tasks)
    return Sheet(sheet_name(board, name), title, columns, tuple(rows), note)


def frontier_sheets(board: Board) -> list[Sheet]:
    """Accuracy at equal steps against Vanilla with another threshold."""
    if len(board.taus) < 2:
        return []
    weights = board.draws(board.shared("vanilla", board.main_tau))
    both = {r: {t: (board.shared(r, t), board.shared(r, t, "steps")) for t in board.taus}
            for r in board.rows}  # fmt: skip
    rows = []
    for row in board.rows:
        if row == "vanilla":
            continue
        cells = []
        for tau in board.taus:
            found = frontier(both["vanilla"], both[row][tau], weights)
            cells.append("outside" if found is None else points(found))
        rows.append((row, *cells))
    note = (
        f"{board.backbone}: accuracy minus Vanilla's accuracy at the same mean number of steps, "
        "with Vanilla's threshold chosen for it (linear between measured thresholds); points, 95 % "
        "bootstrap over problems and seeds. outside: Vanilla does not reach that number of steps."
        f"{fewer(board)}"
    )
    columns = ("method", *(f"at {tau:g}" for tau in board.taus))
    return [
        Sheet(sheet_name(board, "frontier"), "Against Vanilla at equal steps", columns,
              tuple(rows), note)
    ]  # fmt: skip
