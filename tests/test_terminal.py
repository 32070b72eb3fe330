"""The tables of metrics, comparison and ablation on the terminal."""

from __future__ import annotations

import copy
import io
import re
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from adacalib.baselines.catalogue import BASELINES
from adacalib.terminal import (
    make_ablation_tables,
    make_comparison_tables,
    make_metrics_tables,
    show,
    show_mean,
    show_seconds,
)
from jobs import ablate, compare
from tests.report.small_comparison import make_ablation, make_comparison, vary
from tests.small_runs import make_config


def make_methods(**adacalib: Any) -> dict[str, Any]:
    values = {
        "field_rce": 0.17,
        "field_rce_noise_floor": 0.0161,
        "field_rce_attainable": 0.0202,
        "field_rce_terciles": 0.2,
        "field_rce_terciles_noise_floor": 0.031,
        "field_rce_terciles_attainable": 0.037,
        "log_loss": 0.51234,
        "auc": 0.61,
        "field_auc": 0.6,
        "pcoc": 1.01,
    }
    names = ("uncalibrated", "isotonic", "isotonic_offset")
    return {name: copy.copy(values) for name in names} | {"adacalib": values | adacalib}


def make_metrics(**adacalib: Any) -> dict[str, Any]:
    return {
        "field": "carrier",
        "n_test": 65000,
        "n_fit": 261000,
        "reference_score": "isotonic_offset",
        "methods": make_methods(**adacalib),
        "other_fields": {"dest": make_methods(field_rce=0.0443)},
    }


def render(table: Table, width: int = 160) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True)
    console.print(table)
    return console.file.getvalue()


def read_cells(row: str) -> list[str]:
    return re.split(r"\s{2,}", row.strip())


def test_table_has_each_method_and_the_floors_below() -> None:
    text = render(make_metrics_tables(make_metrics(field_rce=0.0221))[0])
    (row,) = (line for line in text.splitlines() if "AdaCalib" in line)
    assert read_cells(row)[1:] == ["0.0221", "0.2000", "0.51234", "0.6000", "0.6100", "1.0100"]
    assert "carrier: 65,000 test samples, calibrated on 261,000" in text
    assert "Field-RCE: noise floor 0.0161, attainable 0.0202" in text
    assert "Field-RCE terciles: noise floor 0.0310, attainable 0.0370" in text
    assert all(name in text for name in ("un-calibrated", "isotonic + offset", "isotonic_offset"))


def test_error_of_coarse_score_cells_is_told_where_it_shows() -> None:
    text = render(make_metrics_tables(make_metrics(auc_cell_error=9e-4, field_auc_cell_error=1.1e-3))[0])
    assert "AUCs are by cells of scores, and off by at most 0.0011." in text
    for fine in (make_metrics(auc_cell_error=2e-7, field_auc_cell_error=4e-5), make_metrics(auc_cell_error=None)):
        assert "by cells" not in render(make_metrics_tables(fine)[0])


def test_undefined_metric_shows_as_a_dash() -> None:
    text = render(make_metrics_tables(make_metrics(field_rce=None, field_rce_attainable=None))[0])
    (row,) = (line for line in text.splitlines() if "AdaCalib" in line)
    assert read_cells(row)[1] == "–"
    assert "attainable –" in text
    assert show(None, 4) == "–"


def test_other_fields_have_the_same_table() -> None:
    first, other = make_metrics_tables(make_metrics())
    text = render(other)
    (row,) = (line for line in text.splitlines() if "AdaCalib" in line)
    assert read_cells(row)[1:] == ["0.0443", "0.2000", "0.51234", "0.6000", "0.6100", "1.0100"]
    assert "dest: evaluated only" in text and "noise floor 0.0161" in text
    assert "carrier" in render(first)


def test_no_other_fields_no_table() -> None:
    assert len(make_metrics_tables(make_metrics() | {"other_fields": {}})) == 1


def test_fits_80_columns() -> None:
    assert max(map(len, render(make_metrics_tables(make_metrics())[0], width=80).splitlines())) <= 80
    assert "Field-AUC" in render(make_metrics_tables(make_metrics())[0], width=80)


def make_labels(kind: str) -> dict[str, str]:
    """What the jobs call their rows, with every row that there can be."""
    config = make_config(Path("unused"), {"features": {"numeric": ["price"]}})
    if kind == "ablate":
        return {"uncalibrated": "N/A"} | {name: row.label for name, row in ablate.list_variants(config).items()}
    trained = {name: variant.label for name, variant in compare.list_variants(config).items()}
    baselines = {name: entry.label for name, entry in BASELINES.items()}
    return {"uncalibrated": "N/A"} | baselines | trained | {"truth": "the truth itself"}


def make_wide_values(n_seeds: int = 5) -> dict[str, list[float | None]]:
    """Figures that take as much room as they can: spreads everywhere, an hour of fitting."""
    values = {name: vary(0.4511, n_seeds, 0.001) for name in ("field_rce", "field_rce_terciles", "truth_error")}
    values |= {name: vary(0.72, n_seeds, 0.001) for name in ("field_auc", "auc", "pcoc")}
    return values | {"log_loss": vary(0.1518, n_seeds, 0.001), "fit_seconds": [12345.6] * n_seeds}


def make_wide_comparison() -> dict[str, Any]:
    document = make_comparison()
    document["labels"] = make_labels("compare")
    document["methods"] = {name: make_wide_values() for name in document["labels"]}
    found = {"best": "adacalib", "second": "isotonic_offset_auxiliary", "p_value": 1.2e-7, "p_value_jackknife": 0.0031}
    metrics = ("field_rce", "field_rce_terciles", "log_loss", "truth_error", "field_auc", "auc")
    return document | {"by_metric": {metric: found for metric in metrics}}


def make_wide_ablation() -> dict[str, Any]:
    document = make_ablation(5)
    document["labels"] = make_labels("ablate")
    document["methods"] = {name: make_wide_values() for name in document["labels"]}
    document["methods"]["robust_no_level"]["log_loss"] = vary(0.1618, 5, 0.001)  # 1000 of 1e-5 more
    return document | {"p_value_log_loss": {name: 0.001 for name in document["labels"] if name != "uncalibrated"}}


def find_row(text: str, label: str) -> list[str]:
    (row,) = (line for line in text.splitlines() if re.split(r"\s{2,}", line.strip())[0] == label)
    return read_cells(row)[1:]


def test_comparison_fits_80_columns_with_nothing_cut_off() -> None:
    document = make_wide_comparison()
    texts = [render(table, width=80) for table in make_comparison_tables(document)]
    assert len(texts) == 2
    for text in texts:
        assert max(map(len, text.splitlines())) <= 80 and "…" not in text
        for label in document["labels"].values():  # on a line of its own, whole
            assert find_row(text, label) is not None
    # mean .4511, steps of .001: deviation sqrt(2.5)·.001 = .0016; ‡ at the best
    assert find_row(texts[0], "AdaCalib") == ["0.4511 ±.0016‡", "0.4511 ±.0016‡", "0.15180 ±.00158‡"]
    assert find_row(texts[0], "IsoReg") == ["0.4511 ±.0016", "0.4511 ±.0016", "0.15180 ±.00158"]
    assert find_row(texts[1], "AdaCalib") == ["0.4511 ±.0016‡", "0.7200 ±.0016‡", "0.7200 ±.0016‡", "12346"]
    assert find_row(texts[1], "N/A") == ["0.4511 ±.0016", "0.7200 ±.0016", "0.7200 ±.0016"]  # nothing was fitted
    assert "noise floor 0.0740 ±.0016, attainable 0.0880 ±.0016" in texts[0]
    flat = " ".join(texts[1].split())
    assert "LogLoss: AdaCalib before isotonic + offset + net, p = 1.2e-07 (over groups of rows: 0.0031)" in flat


def test_comparison_without_truth_has_no_column_for_it_and_one_seed_no_spread() -> None:
    document = make_comparison(n_seeds=1, has_truth=False)
    first, second = (render(table, width=80) for table in make_comparison_tables(document))
    assert "against truth" not in second and "±" not in first + second and "‡" not in first
    assert find_row(first, "AdaCalib") == ["0.0927", "0.1298", "0.14274"]
    assert find_row(second, "AdaCalib") == ["0.7200", "0.7500", "12.5"]
    assert find_row(second, "IsoReg")[-1] == "0.25"  # below a second two digits
    assert "p = –" in second


def test_no_mark_where_the_best_is_not_told_apart() -> None:
    document = make_comparison()
    document["by_metric"]["log_loss"]["p_value"] = 0.05
    first, _ = (render(table, width=80) for table in make_comparison_tables(document))
    assert "‡" not in "".join(find_row(first, "AdaCalib"))


def test_dated_rows_have_a_table_of_level_drift_beside_adacalib() -> None:
    document = make_comparison(n_seeds=2)
    assert len(make_comparison_tables(document)) == 2
    document["level_drift"] = {
        "none": {"log_loss": [0.5, 0.52], "pcoc": [0.9, 1.0]},
        "dev": {"log_loss": [0.4, 0.42], "pcoc": [1.0, None]},
    }
    document["methods"]["adacalib"] |= {"log_loss": [0.3, 0.3], "pcoc": [1.25, 1.25]}
    text = render(make_comparison_tables(document)[2], width=80)
    assert re.search(r"nothing: N/A +0\.51000 ±\.01414 +0\.9500 ±\.0707", text)
    assert re.search(r"dev +0\.41000 ±\.01414 +–", text)
    assert re.search(r"AdaCalib +0\.30000 ±\.00000 +1\.2500 ±\.0000", text)


def test_ablation_fits_80_columns_with_nothing_cut_off() -> None:
    document = make_wide_ablation()
    texts = [render(table, width=80) for table in make_ablation_tables(document)]
    assert len(texts) == 2
    for text in texts:
        assert max(map(len, text.splitlines())) <= 80 and "…" not in text
        for label in set(document["labels"].values()) - {"− auxiliary network"}:  # that one is in both modes
            assert find_row(text, label) is not None
    assert find_row(texts[0], "robust mode") == ["0.4511 ±.0016", "0.15180 ±.00158"]
    # .1618 - .1518 is 1000 of 1e-5
    assert find_row(texts[0], "− levels, value re-level") == ["0.4511 ±.0016", "0.16180 ±.00158", "+1000.0*"]
    assert find_row(texts[1], "− slope") == ["0.4511 ±.0016", "0.4511 ±.0016", "0.7200 ±.0016", "12346"]
    assert "noise floor" in texts[0] and "* where p < .05" in " ".join(texts[0].split())
    assert "Not monotone without the constraint: 25% of the field values." in texts[1]


def test_ablation_by_hand() -> None:
    first, _ = (render(table, width=80) for table in make_ablation_tables(make_ablation()))
    assert find_row(first, "− slope")[-1] == "+12.5*"
    assert find_row(first, "+ residual network")[-1] == "-0.7"
    assert find_row(first, "− bin shifts")[-1] == "+0.4"
    alone = make_ablation(n_seeds=1)
    assert "*" not in find_row(render(make_ablation_tables(alone)[0], width=80), "− slope")[-1]


def test_a_narrow_terminal_folds_names_and_never_figures() -> None:
    text = render(make_comparison_tables(make_wide_comparison())[1], width=70)
    assert max(map(len, text.splitlines())) <= 70
    assert text.count("0.4511 ±.0016") == len(make_labels("compare"))


def test_mean_and_seconds_by_hand() -> None:
    # deviation of 1 and 3 is sqrt(2)
    assert show_mean([1.0, 3.0], 2) == "2.00 ±1.41"
    assert show_mean([0.25], 3) == "0.250"
    assert show_mean([0.25, None], 3) == "–" and show_mean([], 3) == "–"
    assert [show_seconds([x]) for x in (0.004, 0.994, 1.0, 99.4, 100.4, 98765.4)] == [
        *("0.00", "0.99", "1.0", "99.4", "100", "98765"),
    ]
