"""The pages of compare and ablate: tables, sentences, and the HTML around them."""

from __future__ import annotations

import base64
import re
from html import escape, unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.report.ablation_tables import describe_levels, describe_parts, make_ablation_table, subtract_full
from adacalib.report.comparison import draw_ablation, draw_comparison, render_ablation, render_comparison
from adacalib.report.comparison_data import average, compute_spread, describe_comparison, list_columns, subtract
from adacalib.report.comparison_tables import (
    describe_sparsest,
    make_comparison_table,
    make_leads_table,
    make_sparsity_table,
)
from adacalib.report.comparison_verdict import describe_choices, describe_reach, describe_truth_ratios, judge_lead
from adacalib.report.page import draw_pictures, render_page
from adacalib.report.tables import Table
from tests.report.small_comparison import LABELS, make_ablation, make_comparison, vary
from tests.report.small_report import NASTY, make_data
from tests.report.test_page import check

SECOND = "isotonic_offset_auxiliary"


def read_row(table: Table, label: str) -> dict[str, tuple[str, str]]:
    """Heading → text and small text of the row that begins with label."""
    (row,) = (row for row in table.rows if row[0].text == label)
    return {heading: (cell.text, cell.detail) for heading, cell in zip(table.headings, row, strict=True)}


def read_text(html: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html)))


def test_mean_and_spread_by_hand() -> None:
    # mean of 1, 2, 6 is 3; squares of -2, -1, 3 add up to 14, by n - 1 = 2: sqrt(7)
    assert average([1.0, 2.0, 6.0]) == 3 and compute_spread([1.0, 2.0, 6.0]) == pytest.approx(7**0.5)
    assert average([1.0, None]) is None and compute_spread([1.0, None, 2.0]) is None and average([]) is None
    assert compute_spread([1.0]) is None
    assert subtract([3.0, None], [1.0, 2.0]) == [2.0, None]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=6), st.floats(-10, 10))
def test_spread_does_not_see_a_shift(values: list[float], shift: float) -> None:
    moved = [value + shift for value in values]
    before, after = compute_spread(values), compute_spread(moved)
    assert before is not None and after is not None and after == pytest.approx(before, abs=1e-9)
    difference = average(subtract(moved, values))
    assert difference is not None and difference == pytest.approx(shift, abs=1e-9)


def test_seeds_of_different_number_are_no_pairs() -> None:
    with pytest.raises(ValueError, match="shorter"):
        subtract([1.0, 2.0], [1.0])


def test_table_1_has_means_spreads_marks_groups_and_levels() -> None:
    document = make_comparison(n_seeds=3)
    document["methods"]["adacalib"]["log_loss"] = [0.1, 0.2, 0.6]
    table = make_comparison_table(document)
    ours = read_row(table, "AdaCalib")
    # mean .3; deviations -.2, -.1, .3: sqrt(.14 / 2) = .26458
    assert ours["LogLoss"] == ("0.30000‡", "± 0.26458")
    assert ours["Field-RCE"] == ("0.0927", "± 0.0007")  # best, but p = .4
    assert ours["Field-AUC"][0] == "0.7200"
    assert read_row(table, "N/A")["fit seconds"] == ("", "") and ours["fit seconds"] == ("12.5", "")
    assert read_row(table, "HistoBin")["fit seconds"][0] == "0.25"
    assert read_row(table, "attainable")["Field-RCE"] == ("0.0880", "± 0.0010")
    assert read_row(table, "noise floor")["Field-RCE terciles"] == ("0.1100", "± 0.0010")
    assert read_row(table, "noise floor")["LogLoss"] == ("", "")
    bold = [
        (row[0].text, heading)
        for row in table.rows
        for heading, c in zip(table.headings, row, strict=True)
        if c.is_best
    ]
    assert bold == [("AdaCalib", "Field-RCE"), ("AdaCalib", "LogLoss"), ("AdaCalib", "AUC")]
    labels = [row[0].text for row in table.rows]
    assert [labels[place] for place in table.groups] == [
        *("N/A", "Platt", "HistoBin per value", "NeuCalib", "AdaCalib, paper mode", "the truth itself"),
    ]
    assert table.marked == {labels.index("AdaCalib")}


def test_table_1_without_truth_without_spread_and_with_an_undefined_seed() -> None:
    document = make_comparison(n_seeds=1, has_truth=False)
    table = make_comparison_table(document)
    assert "error against truth" not in table.headings
    assert read_row(table, "AdaCalib")["LogLoss"] == ("0.14274", "")  # one seed: no p, so no mark
    labels = [row[0].text for row in table.rows]
    assert labels[max(table.groups)] == "attainable"
    two = make_comparison(n_seeds=2)
    two["methods"]["sir"]["field_auc"] = [0.7, None]
    assert read_row(make_comparison_table(two), "SIR")["Field-AUC"] == ("–", "")


@pytest.mark.parametrize(
    ("ours", "p_value", "outcome", "title"),
    [
        (0.14274, 0.004, "better", "AdaCalib leads LogLoss"),
        (0.14274, 0.051, "within noise", "AdaCalib has the lowest LogLoss, within noise"),
        (0.14274, None, "not told apart", "AdaCalib has the lowest LogLoss, one seed"),
        (0.14300, 0.2, "within noise", "AdaCalib does not lead LogLoss, within noise"),
        (0.14300, 0.01, "worse", "AdaCalib does not lead LogLoss"),
    ],
)
def test_verdict_says_who_leads(ours: float, p_value: float | None, outcome: str, title: str) -> None:
    document = make_comparison(n_seeds=1 if p_value is None else 5)
    document["methods"]["adacalib"]["log_loss"] = vary(ours, len(document["seeds"]), 0.0001)
    document["adacalib_minus"]["log_loss"][SECOND]["p_value"] = p_value
    verdict = judge_lead(document, "log_loss")
    assert (verdict.outcome, verdict.title) == (outcome, title)


def test_verdict_gives_figures_distance_seeds_and_evidence_by_hand() -> None:
    document = make_comparison(n_seeds=2)
    document["methods"][SECOND]["log_loss"] = [0.1, 0.2]
    document["methods"]["adacalib"]["log_loss"] = [0.09, 0.2103]
    for name in set(document["methods"]) - {SECOND, "adacalib"}:
        document["methods"][name]["log_loss"] = [0.2, 0.3]
    # means .15 and .15015: .1 % more, and lower in the first seed only
    assert judge_lead(document, "log_loss").sentence == (
        "AdaCalib's LogLoss is 0.15015, 0.100 % above the best of the others, isotonic + offset + same network "
        "(0.15000); lower in 1 of 2 seeds (p = 0.004 over seeds; p = 0.030 over groups of rows)."
    )
    document["methods"]["adacalib"]["field_rce"] = [0.1, None]
    assert judge_lead(document, "field_rce").title == "Field-RCE is not defined"


def test_another_form_of_adacalib_is_told_and_does_not_stand_in_for_it() -> None:
    document = make_comparison()
    document["methods"]["adacalib"]["log_loss"] = vary(0.1430, 5, 0.0001)  # behind .14289, with paper mode at .14283
    verdict = judge_lead(document, "log_loss")
    assert (verdict.outcome, verdict.title) == ("worse", "AdaCalib does not lead LogLoss")
    assert verdict.sentence.endswith("; AdaCalib, paper mode has 0.14283.")
    alone = make_comparison(
        without=tuple(name for name in LABELS if not name.startswith("adacalib") and name != "truth")
    )
    assert judge_lead(alone, "log_loss").title == "LogLoss: nothing to compare with"


def test_with_one_test_set_the_page_judges_by_groups_of_rows_alone() -> None:
    document = make_comparison() | {"p_value_over": "groups of rows"}
    document["adacalib_minus"]["log_loss"][SECOND] = {"p_value": 0.2, "p_value_jackknife": 0.2}
    verdict = judge_lead(document, "log_loss")
    assert (verdict.outcome, verdict.title) == ("within noise", "AdaCalib has the lowest LogLoss, within noise")
    assert "(p = 0.20 over groups of rows)" in verdict.sentence
    assert "a seed varies the initialisation alone" in describe_comparison(document)
    document["adacalib_minus"]["log_loss"][SECOND] = {"p_value": None, "p_value_jackknife": None}
    untested = judge_lead(document, "log_loss")
    assert untested.title == "AdaCalib has the lowest LogLoss, without a test"
    assert "(no p value over groups of rows)" in untested.sentence


def test_page_of_dated_rows_shows_level_drift_and_others_do_not() -> None:
    document = make_comparison(n_seeds=2)
    assert "Level drift" not in render_comparison(document)
    document["level_drift"] = {"none": {"log_loss": [0.5, 0.52], "pcoc": [0.9, 1.0]}}
    html = render_comparison(document)
    assert "Level drift" in html and "0.51000" in html and "0.9500" in html


def test_choices_by_hand() -> None:
    document = make_comparison(n_seeds=3)
    everywhere = "field part in 3 of 3 seeds, its network in 3."
    assert describe_choices(document) == f"Do no harm kept AdaCalib's {everywhere}"
    document["choices"] = {
        "field_part": ["robust", "global_curve", "robust"],
        "forward_slope": [0.876, 1.0, 0.95],
        "chosen_epoch": [4, 0, 2],
    }
    told = describe_choices(document)
    assert told == (
        "Do no harm kept AdaCalib's field part in 2 of 3 seeds, its network in 2; forward slope 0.88 to 1.00."
    )
    assert told in unescape(render_comparison(document))
    document["choices"] |= {"chosen_epoch": [None] * 3}  # without a network
    assert "network" not in describe_choices(document)


def test_reach_and_error_against_the_truth_by_hand() -> None:
    document = make_comparison(n_seeds=1)
    # .0927 / .088 = 1.053; terciles 1.4 · .0927 / .125 = 1.038
    assert "Field-RCE is 1.05 × the attainable level 0.0880 (noise floor 0.0740)" in (describe_reach(document) or "")
    assert "Field-RCE terciles is 1.04 × the attainable level 0.1250" in (describe_reach(document) or "")
    document["methods"]["adacalib"]["truth_error"] = [0.05]
    document["methods"]["adacalib_paper"]["truth_error"] = [0.01]  # our own variant is no rival
    document["methods"]["neucalib"]["truth_error"] = [0.0625]
    for name in ("uncalibrated", "histogram_binning", "gamma", "sir"):
        if name in document["methods"]:
            document["methods"][name]["truth_error"] = [0.3]
    document["methods"]["isotonic"]["truth_error"] = [0.2]
    document["methods"]["isotonic_offset"]["truth_error"] = [0.1]  # not in the paper's table
    any_other, of_table_1 = describe_truth_ratios(document)
    assert "errs by 0.0500 of the mean: 0.800 × the error" in any_other and "NeuCalib (0.0625)" in any_other
    assert "0.250 × the error of the best method of the paper's Table 1 without network, IsoReg (0.2000)" in of_table_1
    assert describe_truth_ratios(make_comparison(has_truth=False)) == []
    document["attainable"] = document["attainable_terciles"] = [None]
    assert describe_reach(document) is None


def test_leads_table() -> None:
    table = make_leads_table(make_comparison())
    assert [cell.text for cell in table.rows[1]] == [
        *("LogLoss", "AdaCalib", "isotonic + offset + same network", "−0.000150", "0.004", "0.030"),
    ]
    assert [cell.text for cell in table.rows[2]][-2:] == ["0.004", "–"]


def test_sparsity_table_and_the_three_sparsest_deciles() -> None:
    document = make_comparison(n_seeds=2)
    for groups in document["sparsity"]["isotonic_ratio"]:
        groups[0]["truth_error"] = 1.0
    table = make_sparsity_table(document)
    assert len(table.rows) == 11 and table.rows[-1][0].text == "unseen"
    first = read_row(table, "1: 40–79")
    assert first["isotonic × value ratio"][0] == "1.0000" and first["AdaCalib"][0] == "0.5000"
    assert (first["values"][0], first["test samples"][0]) == ("54", "600")
    # .5 / 1, then 1 / 1.6 twice
    assert "error against truth is 0.50, 0.62, 0.62 × that of isotonic × value ratio" in (
        describe_sparsest(document) or ""
    )
    # without a truth it is Field-RCE, which unseen values without a positive do not have
    blind = make_sparsity_table(make_comparison(has_truth=False, without=(SECOND,)))
    assert blind.note.startswith("Shown is Field-RCE") and read_row(blind, "unseen")["AdaCalib"] == ("–", "")
    assert "isotonic + offset + same network" not in blind.headings
    assert describe_sparsest(make_comparison(without=("isotonic_ratio",))) is None


def test_sparsity_of_few_values_has_the_deciles_there_are() -> None:
    document = make_comparison(n_seeds=2)
    for seeds in document["sparsity"].values():
        del seeds[0][1:10]  # the first seed has one decile only
    table = make_sparsity_table(document)
    assert [row[0].text for row in table.rows][:2] == ["1: 40–79", "2: –"] and len(table.rows) == 11
    assert table.rows[1][-1].text == "–"
    assert describe_sparsest(document) is None


def test_page_is_complete_escaped_and_needs_no_other_file() -> None:
    document = make_comparison()
    document["labels"]["sir"] = NASTY
    pictures = draw_comparison(document)
    html = render_comparison(document, pictures)
    checker = check(html)
    assert html.count(escape(NASTY).replace("&quot;", "&#34;")) == 2 and "<script" not in html
    assert [picture.name for picture in pictures] == [
        *("compare_methods", "compare_truth", "compare_sparsity", "compare_figure_3", "compare_figure_4"),
    ]
    for picture in pictures:
        assert picture.name in checker.ids and base64.b64encode(picture.png).decode() in html
    text = read_text(html)
    for words in ("compare.json", "adacalib compare --config FILE --seeds 5 --set seed=7", "19 methods for field shop"):
        assert words in text
    for column in list_columns(document):
        assert f"<dt>{column.heading}</dt>" in html
    assert html == render_comparison(document)


def test_page_of_one_seed_without_truth_network_or_choice_of_bins() -> None:
    document = make_comparison(n_seeds=1, has_truth=False, without=(SECOND, "adacalib_no_auxiliary"))
    document["by_metric"]["log_loss"]["second"] = "neucalib"
    document["by_metric"]["field_rce"]["second"] = document["by_metric"]["auc"]["second"] = "neucalib"
    document["figures"]["figure_4"]["groups"] = []
    html = render_comparison(document)
    check(html)
    assert "There is no Fig. 4" in html and "over one seed" in html and "Error against the truth" not in html


def test_document_without_figures_is_no_document() -> None:
    document = make_comparison()
    del document["figures"]
    with pytest.raises(KeyError, match="figures"):
        render_comparison(document)


def test_ablation_table_by_hand() -> None:
    document = make_ablation()
    # seeds differ by -1, 0 and 1 in 1e-5 around the cost
    assert subtract_full(document, "robust_no_slope") == pytest.approx([11.5, 12.5, 13.5])
    table = make_ablation_table(document, "robust")
    assert [row[0].text for row in table.rows][:2] == ["robust mode", "− levels, value re-level"]
    assert "AUC" not in table.headings and table.headings.index("Δ LogLoss, 1e-5") == 1 + table.headings.index(
        "LogLoss"
    )
    assert read_row(table, "− slope")["Δ LogLoss, 1e-5"] == ("+12.5*", "± 1.0")
    assert read_row(table, "− hard monotone")["Δ LogLoss, 1e-5"] == ("−8.0*", "± 1.0")
    assert read_row(table, "+ residual network")["Δ LogLoss, 1e-5"][0] == "−0.7"
    assert read_row(table, "robust mode")["Δ LogLoss, 1e-5"] == ("", "")
    assert "the re-level is one intercept" in table.note and "no shrinkage" in table.note
    assert "25% of the field values" in table.note
    paper = make_ablation_table(document, "paper")
    assert (
        len(paper.rows) == 5 and paper.note == "" and read_row(paper, "− auxiliary network")["LogLoss"][0] == "0.14516"
    )


def test_parts_are_sorted_by_what_they_do() -> None:
    document = make_ablation()
    assert describe_parts(document, "robust") == (
        "Cost LogLoss beyond noise: − levels, value re-level, − slope; gain beyond noise: − hard monotone; "
        "not told apart: − bin shifts, + residual network."
    )
    one = describe_parts(make_ablation(n_seeds=1), "paper")
    assert one.startswith("Not told apart: ") and "beyond noise" not in one
    assert describe_levels(document).startswith("Field-RCE: noise floor 0.0700, attainable 0.0900; Field-RCE terciles")


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_ablation_page(n_seeds: int) -> None:
    document = make_ablation(n_seeds)
    document["labels"]["robust_no_slope"] = NASTY
    pictures = draw_ablation(document)
    html = render_ablation(document, pictures)
    checker = check(html)
    assert [picture.name for picture in pictures] == ["ablate_paper", "ablate_robust"]
    assert {"ablate_paper", "ablate_robust", "paper", "robust"} <= set(checker.ids)
    assert "<script" not in html and escape(NASTY).replace("&quot;", "&#34;") in html
    assert f"adacalib ablate --config FILE --seeds {n_seeds} --set seed=7" in read_text(html)
    assert "<dt>Δ LogLoss</dt>" in html and html == render_ablation(document)


def test_ablation_page_of_paper_mode_alone() -> None:
    document = make_ablation()
    document["labels"] = {k: v for k, v in document["labels"].items() if not k.startswith("robust")}
    html = render_ablation(document)
    check(html)
    assert "Table 2" in html and "Robust mode" not in html


def test_report_of_a_run_shows_its_comparison() -> None:
    data = make_data(comparison=make_comparison())
    pictures = draw_pictures(data)
    html = render_page(data, pictures)
    checker = check(html)
    assert {"comparison", "compare_methods"} <= set(checker.ids)
    text = read_text(html)
    assert all(label in text for label in LABELS.values()) and "0.14274‡" in text
    assert "comparison" not in check(render_page(make_data(), draw_pictures(make_data()))).ids
