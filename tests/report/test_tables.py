"""Tables of the page."""

from __future__ import annotations

from dataclasses import replace

from adacalib.report import run_tables, tables
from adacalib.report.learned import make_learned_table
from adacalib.report.tables import Table
from tests.report.small_report import make_bare_data, make_chosen, make_data, make_metrics, make_value


def text(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_methods_with_intervals_floors_and_the_best_in_bold() -> None:
    table = tables.make_methods_table(make_metrics()["methods"])
    shown = text(table)
    assert [row[0] for row in shown] == [
        "un-calibrated",
        "isotonic",
        "isotonic + offset",
        "AdaCalib",
        "attainable",
        "noise floor",
    ]
    assert shown[3] == ["AdaCalib", "0.0210", "0.2500", "0.01000", "1.0200", "0.45000", "0.7000", "–"]
    assert [row[1] for row in shown[4:]] == ["0.0200", "0.0150"] and shown[4][5] == ""
    assert table.rows[3][1].detail == "0.0110 – 0.0310"
    best = {(r, c) for r, row in enumerate(table.rows) for c, cell in enumerate(row) if cell.is_best}
    assert {r for r, c in best if c in (1, 5)} == {3}  # Field-RCE and LogLoss: AdaCalib alone
    assert {r for r, c in best if c == 6} == {0, 1, 2, 3}  # AUC: all the same
    assert not {r for r, c in best if c == 7}  # undefined
    assert "without a positive in the test split: 1 of them, with 3 samples" in table.note
    assert "(unseen)" in table.note


def test_pcoc_is_best_nearest_to_one_and_auc_when_high() -> None:
    methods = make_metrics()["methods"]
    methods["isotonic"] |= {"pcoc": 0.99, "auc": 0.71}
    methods["uncalibrated"] |= {"pcoc": 1.3, "auc": 0.69}
    table = tables.make_methods_table(methods)
    assert [row[4].is_best for row in table.rows[:4]] == [False, True, False, False]
    assert [row[6].is_best for row in table.rows[:4]] == [False, True, False, False]


def test_paired_differences_of_every_field() -> None:
    shown = text(tables.make_paired_table(make_metrics()))
    assert [row[0] for row in shown] == ["f"] * 3 + ["g"] * 3
    assert shown[0][1:] == [
        "AdaCalib − isotonic + offset",
        "Field-RCE",
        "−0.00100",
        "−0.00300 to +0.00100",
        "0.40",
        "within noise",
    ]
    assert shown[1][6] == "better" and shown[2][3:] == ["–", "–", "–", "not told apart"]


def test_residuals_before_and_after() -> None:
    # 50 samples, 10 responses; before Σp = 4: PCOC .4; after Σp = 11: PCOC 1.1, noise 1.96·sqrt(11·.78) = 5.74
    (row,) = text(tables.make_residuals_table([make_value(1, "a", -6.0, 1.0)]))
    assert row[:9] == ["a", "200", "50", "10", "−6.0", "+1.0", "± 5.7", "0.400", "1.100"]
    (row,) = text(tables.make_residuals_table([make_value(1, "a", 0.5, 0.5, response=0.0)]))
    assert row[7:9] == ["–", "–"] and row[9].endswith("∞")


def test_input_rows_add_up_and_reasons_are_listed() -> None:
    data = make_data()
    shown = {row[0]: row[1] for row in text(run_tables.make_input_table(data.input_counts, data.metrics))}
    assert shown["rows read"] == "520" and shown["filtered out by row_filter"] == "17"
    assert shown["rejected as faulty"] == "3" and shown["accepted samples"] == "500"
    assert 520 == 17 + 3 + 500
    assert any(name.startswith("– label is <script>") for name in shown)
    assert shown["scores clipped"] == "4" and shown["nulls replaced in x[0]"] == "5"
    assert text(run_tables.make_fields_table(data.input_counts, data.metrics)) == [
        ["f", "2", "11", "0", "2"],
        ["g", "7", "0", "0", "2"],
    ]


def test_timings_are_in_order_and_without_the_report_itself() -> None:
    data = make_data()
    assert data.status is not None
    shown = text(run_tables.make_timings_table(data.status))
    assert shown == [
        ["prepare_samples", "succeeded", "2024-01-02 03:00:00 UTC", "1 min 40 s"],
        ["evaluate", "succeeded", "2024-01-02 03:04:05 UTC", "2.0 s"],
        ["together", "", "", "1 min 42 s"],
    ]
    assert ["java", "not there"] in text(run_tables.make_versions_table(data))


def test_learned_parts_and_what_is_absent() -> None:
    shown = {row[0]: row[1] for row in text(make_learned_table(make_data()))}
    assert shown == {
        "mode": "robust",
        "field part": "the global curve alone",
        "spread of levels": "0.250",
        "bin strength": "902",
        "kept epoch": "1",
    }
    with_bins = {row[0]: row[1] for row in text(make_learned_table(make_data(chosen_bins=make_chosen(10))))}
    assert with_bins["adaptive binning"] == "5 bins: 5, 20 bins: 5"
    assert [row[0] for row in text(make_learned_table(make_bare_data()))] == ["mode", "field part"]
    slope = {"forward_slope": 0.9, "forward_slope_measured": 0.876, "forward_slope_error": 0.012}
    dated = make_data()
    dated = replace(dated, training={**dated.training, **slope})
    assert ["forward slope", "0.900 (measured 0.876 ± 0.012)"] in [row[:2] for row in text(make_learned_table(dated))]
