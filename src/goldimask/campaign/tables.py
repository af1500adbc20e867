"""The tables of a campaign, in the paper's form (section 4; appendix "Maximizers").

main         per task and average, mean and SD over seeds, relative change against the strongest
             baseline (paper, Table 1)
paired       differences against Vanilla and the strongest baseline, 95 % intervals, steps too
ablations    the same against GoldiMask-D, for every row that differs from it in one part
decoding     accuracy and steps at every threshold, held-out loss, effective targets, cost
supervision  shares of the classes of tokens in targets and weight, where the corpus has classes
frontier     accuracy against Vanilla's at the same number of steps
components, priority, weighting, cap, layer, support, maximisers
             subsets of rows in the form of the main table
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from goldimask.bootstrap import Difference, difference, frontier, mean, relative
from goldimask.campaign.board import Board, Pool, known, short
from goldimask.campaign.settings import BASE, BASELINES
from goldimask.stats import spread
from goldimask.tables import Table, results, results_table

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


def tables(board: Board) -> list[Table]:
    """Every table the rows allow."""
    out = [main_table(board, "main", "Accuracy", board.rows), decoding_table(board)]
    if "vanilla" in board.rows and len(board.rows) > 1:
        out.append(paired_table(board, "paired", "Paired differences", references(board)))
        if len(board.taus) > 1:
            out.append(frontier_table(board))
    if any(board.fact(row, "classes") for row in board.rows):
        out.append(supervision_table(board))
    if any(row.startswith(f"{OWN}-") for row in board.rows) and OWN in board.rows:
        pairs = [(OWN, row) for row in one_part_away(board)]
        out.append(paired_table(board, "ablations", "Ablations against GoldiMask-D", pairs))
    for name, title, rows in ABLATIONS:
        found = known(board.rows, rows)
        own = [r for r in found if r not in BASELINES]
        if len(found) > 1 and own:
            out.append(main_table(board, name, title, found))
    return out


def table_name(board: Board, name: str) -> str:
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


def main_table(board: Board, name: str, title: str, rows: Sequence[str]) -> Table:
    """The paper's results table over some of the rows."""
    scores = {row: board.by_seed(row, board.main_tau) for row in rows}
    if BASE in scores and not board.spread:
        first = next(iter(scores[BASE]))
        scores[BASE] = {first: scores[BASE][first]}  # one model: no deviation
    note = f"{setting(board)}. Mean ± SD over seeds; relative change against the best baseline."
    found = results(scores, baselines=BASELINES, base=(BASE,))
    return results_table(found, table_name(board, name), title, note)


def decoding_table(board: Board) -> Table:
    """Everything about a row that is not an accuracy per task."""
    columns = ["method"]
    columns += [x for tau in board.taus for x in (f"acc. {tau:g}", f"steps {tau:g}")]
    columns += ["held-out loss", "n_eff/n", "kept/K", "cost"]
    rows = []
    for row in board.rows:
        cells = [row]
        for tau in board.taus:
            cells.append(f"{100 * mean(board.shared(row, tau)):.1f}")
            cells.append(f"{mean(board.shared(row, tau, 'steps')):.2f}")
        cells.append(plus_minus(heldout(board, row), 4))
        cells += [plus_minus(board.fact(row, "metrics", x)) for x in ("n_eff_ratio", "kept_ratio")]
        cost = board.costs.get(row)
        cells.append("-" if cost is None else f"{cost:.2f}")
        rows.append(tuple(cells))
    note = (
        f"{setting(board)}. Accuracy (%) and decoding steps by threshold, averages over tasks; "
        "denoising loss of the held-out examples after the last step (± SD over seeds); effective "
        "share of the targets; targets kept over K; CPU time of a training step relative to "
        f"Vanilla.{fewer(board)}"
    )
    title = "Decoding, held-out loss and cost"
    return Table(table_name(board, "decoding"), title, tuple(columns), tuple(rows), note=note)


def heldout(board: Board, row: str) -> list[float]:
    """The held-out loss per seed; of the untuned backbone, what the trainings began with."""
    if row != BASE:
        return board.fact(row, "eval_loss_last")
    others = (r for r in board.rows if r != BASE)
    return next((x for r in others if (x := board.fact(r, "eval_loss_first"))), [])


def supervision_table(board: Board) -> Table:
    """Which tokens are targets, and which carry the weight."""
    rows = [r for r in board.rows if board.fact(r, "classes")]
    classes = list(board.fact(rows[0], "classes")[0])
    columns = [f"{kind}: {what}" for kind in classes for what in ("targets", "weight")]

    def share(row: str, kind: str, what: str) -> str:
        found = board.fact(row, "classes", kind, what)
        return f"{100 * spread(found).mean:.1f}" if found else "-"

    cells = [(r, *(share(r, k, w) for k in classes for w in ("targets", "weight"))) for r in rows]
    masked = ", ".join(f"{k} {share(rows[0], k, 'candidates')}" for k in classes)
    note = (
        f"{setting(board)}. Shares (%) of the targets and of the loss weight by class of token; of "
        f"the masked tokens ({rows[0]}): {masked}."
    )
    name = table_name(board, "supervision")
    return Table(name, "What is supervised", ("method", *columns), tuple(cells), note=note)


def plus_minus(values: Sequence[float], digits: int = 2) -> str:
    if not values:
        return "-"
    found = spread(values)
    text = f"{found.mean:.{digits}f}"
    return text if found.sd is None or digits < 3 else f"{text} ± {found.sd:.{digits}f}"


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


def paired_table(board: Board, name: str, title: str, pairs: Iterable[tuple[str, str]]) -> Table:
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
    return Table(table_name(board, name), title, columns, tuple(rows), note=note)


def frontier_table(board: Board) -> Table:
    """Accuracy at equal steps against Vanilla with another threshold."""
    weights = board.draws(board.shared("vanilla", board.main_tau))
    both = {
        r: {t: (board.shared(r, t), board.shared(r, t, "steps")) for t in board.taus}
        for r in board.rows
    }
    rows = []
    for row in (r for r in board.rows if r != "vanilla"):
        found = [frontier(both["vanilla"], both[row][tau], weights) for tau in board.taus]
        rows.append((row, *("outside" if d is None else points(d) for d in found)))
    note = (
        f"{board.backbone}: accuracy minus Vanilla's accuracy at the same mean number of steps, "
        "with Vanilla's threshold chosen for it (linear between measured thresholds); points, 95 % "
        "bootstrap over problems and seeds. outside: Vanilla does not reach that number of steps."
        f"{fewer(board)}"
    )
    columns = ("method", *(f"at {tau:g}" for tau in board.taus))
    title = "Against Vanilla at equal steps"
    return Table(table_name(board, "frontier"), title, columns, tuple(rows), note=note)
