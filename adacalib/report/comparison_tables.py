"""Tables of a comparison: Table 1, who leads, errors by frequency."""

from __future__ import annotations

from adacalib.report.comparison_data import (
    COLUMNS,
    GROUPS,
    TRUTH,
    Column,
    Document,
    Values,
    average,
    compute_spread,
    find_decile,
    is_significant,
    list_columns,
    list_groups,
)
from adacalib.report.numbers import UNDEFINED, show, show_p_value
from adacalib.report.tables import Cell, Table

SPARSITY_METHODS = (
    "isotonic_ratio",
    "isotonic_offset_auxiliary",
    "adacalib_no_auxiliary",
    "adacalib_no_parent",
    "adacalib",
)
"""Methods whose errors are shown by frequency, as far as the comparison has them."""

_LEVELS = {"attainable": "attainable", "noise_floor": "noise floor"}


def make_comparison_table(document: Document) -> Table:
    """Table 1: a row per method in groups, mean and standard deviation over seeds, ‡ on a significant best.

    Args:
        document: compare.json.
    """
    columns, names = list_columns(document), list(document["labels"])
    rows = [
        [
            Cell(document["labels"][name], is_number=False),
            *(_make_cell(document, name, column) for column in columns),
        ]
        for name in names
    ]
    groups = list_groups(names)
    groups.setdefault(len(names) if TRUTH not in names else names.index(TRUTH), GROUPS[TRUTH])
    rows += [_make_level_row(document, key, columns) for key in _LEVELS]
    return Table(
        ["method", *(column.heading for column in columns)],
        rows,
        frozenset({names.index("adacalib")}),
        "Bold: the best mean of a column; ‡ where it is better than the second best at p < .05, paired over "
        f"{document['p_value_over']}. AdaCalib's variants count as one method there.",
        groups,
    )


def _make_cell(document: Document, name: str, column: Column) -> Cell:
    values = document["methods"][name][column.metric]
    if column.metric == "fit_seconds":
        return Cell("") if name in ("uncalibrated", TRUTH) else make_seconds_cell(values)
    found = document["by_metric"].get(column.metric) or {"best": None, "p_value": None}
    is_best = found["best"] == name
    return make_mean_cell(values, column.digits, "‡" if is_best and is_significant(found["p_value"]) else "", is_best)


def make_mean_cell(values: Values, digits: int, mark: str = "", is_best: bool = False) -> Cell:
    """Mean over seeds, the standard deviation below it; – where a seed has no value."""
    spread = compute_spread(values)
    detail = "" if spread is None else f"± {show(spread, digits)}"
    return Cell(show(average(values), digits) + mark, detail, is_best=is_best)


def make_seconds_cell(values: Values) -> Cell:
    """Mean seconds over seeds; one digit more below one second."""
    seconds = average(values)
    return Cell(UNDEFINED if seconds is None else show(seconds, 1 + (seconds < 1)))


def _make_level_row(document: Document, key: str, columns: list[Column]) -> list[Cell]:
    levels = {"field_rce": document[key], "field_rce_terciles": document[f"{key}_terciles"]}
    cells = (make_mean_cell(levels[c.metric], c.digits) if c.metric in levels else Cell("") for c in columns)
    return [Cell(_LEVELS[key], is_number=False), *cells]


def make_leads_table(document: Document) -> Table:
    """Per metric the best method and the best of its rivals, their difference, and its two p values."""
    rows = []
    for column in COLUMNS:
        found = document["by_metric"].get(column.metric)
        if found is None or found["second"] is None:
            continue
        words = [column.heading, *(document["labels"][found[place]] for place in ("best", "second"))]
        p_values = [found["p_value"], found["p_value_jackknife"]]
        rows.append(
            [
                *(Cell(word, is_number=False) for word in words),
                Cell(show(found["difference"], column.digits + 1)),
                *(Cell(show_p_value(p).removeprefix("p = ").removeprefix("p ")) for p in p_values),
            ]
        )
    headings = ["metric", "best", "second best", "difference", "p", "p over groups of rows"]
    return Table(headings, rows)


def get_sparsity_metric(document: Document) -> Column:
    """The error shown by frequency: against the truth where it is known, else Field-RCE."""
    has_truth = any(value is not None for value in document["methods"]["adacalib"]["truth_error"])
    wanted = "truth_error" if has_truth else "field_rce"
    return next(column for column in COLUMNS if column.metric == wanted)


def list_sparsity_methods(document: Document) -> list[str]:
    """Those of SPARSITY_METHODS that this comparison has."""
    return [name for name in SPARSITY_METHODS if name in document["sparsity"]]


def list_deciles(document: Document) -> list[int | None]:
    """Deciles that occur in some seed, the sparsest first, then None for unseen values."""
    seeds = document["sparsity"]["adacalib"]
    found = {group["decile"] for groups in seeds for group in groups}
    return [*sorted(decile for decile in found if decile is not None), *([None] if None in found else [])]


def collect_decile(document: Document, method: str, decile: int | None, key: str) -> list[float | None]:
    """One figure of a method's decile per seed; None where a seed has no such group or no value."""
    groups = (find_decile(groups, decile) for groups in document["sparsity"][method])
    return [None if group is None else group[key] for group in groups]


def make_sparsity_table(document: Document) -> Table:
    """A row per decile of field values by their number of fit samples, a column per method; unseen values last."""
    column, methods = get_sparsity_metric(document), list_sparsity_methods(document)
    rows = []
    for decile in list_deciles(document):
        sizes = [_count(document, decile, key) for key in ("n_values", "n_samples", "n_responses")]
        name = "unseen" if decile is None else f"{decile}: {name_fit_samples(document, decile)}"
        errors = [make_mean_cell(collect_decile(document, m, decile, column.metric), column.digits) for m in methods]
        rows.append([Cell(name, is_number=False), *map(Cell, sizes), *errors])
    headings = ["decile: fit samples of a value", "values", "test samples", "of them responses"]
    labels = [document["labels"][method] for method in methods]
    return Table(
        [*headings, *labels], rows, note=f"Shown is {column.heading}; ranges and counts are those of the first seed."
    )


def _count(document: Document, decile: int | None, key: str) -> str:
    value = collect_decile(document, "adacalib", decile, key)[0]
    return UNDEFINED if value is None else f"{int(value):,}"


def name_fit_samples(document: Document, decile: int | None) -> str:
    """Range of the number of fit samples of a decile's field values, in the first seed."""
    group = find_decile(document["sparsity"]["adacalib"][0], decile)
    if group is None:
        return UNDEFINED
    fewest, most = group["min_fit_samples"], group["max_fit_samples"]
    return f"{fewest:,}" if fewest == most else f"{fewest:,}–{most:,}"


def describe_sparsest(document: Document) -> str | None:
    """AdaCalib against isotonic × ratio in the three sparsest deciles; None where a figure is missing."""
    column = get_sparsity_metric(document)
    if "isotonic_ratio" not in document["sparsity"]:
        return None
    ratios = []
    for decile in [d for d in list_deciles(document) if d is not None][:3]:
        means = [average(collect_decile(document, m, decile, column.metric)) for m in ("adacalib", "isotonic_ratio")]
        if means[0] is None or not means[1]:
            return None
        ratios.append(means[0] / means[1])
    if not ratios:
        return None
    shown = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return (
        f"In the {len(ratios)} sparsest deciles AdaCalib's {column.heading} is {shown} × that of "
        f"{document['labels']['isotonic_ratio']}."
    )
