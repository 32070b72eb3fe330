"""Pictures of compare and ablate: PNG of the stated size, drawn from the data, absent where there is nothing."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.figure import Figure

from adacalib.report import ablation_pictures, comparison_pictures, paper_figures
from adacalib.report.ablation_pictures import draw_differences
from adacalib.report.comparison_pictures import draw_methods, draw_sparsity, draw_truth, use_symmetric_scale
from adacalib.report.paper_figures import draw_figure_3, draw_figure_4
from adacalib.report.pictures import Picture, make_picture
from tests.report.small_comparison import make_ablation, make_comparison
from tests.report.test_pictures import check_png


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """Name of each picture drawn → its figure, to look at what is in it."""
    kept: dict[str, Figure] = {}

    def keep(name: str, title: str, caption: str, height: float, draw: Any) -> Picture:
        def draw_and_keep(figure: Figure) -> None:
            draw(figure)
            kept[name] = figure

        return make_picture(name, title, caption, height, draw_and_keep)

    for module in (comparison_pictures, paper_figures, ablation_pictures):
        monkeypatch.setattr(module, "make_picture", keep)
    return kept


def list_marks(figure: Figure, panel: int, row: int) -> list[float]:
    """x of everything drawn in a row, seeds first, sorted; the mean last."""
    lines = [line for line in figure.axes[panel].lines if len(line.get_ydata()) and set(line.get_ydata()) == {row}]
    seeds, middle = (list(map(float, line.get_xdata())) for line in lines)
    return [*sorted(seeds), *middle]


def test_methods_show_paired_differences_and_field_rce(figures: dict[str, Figure]) -> None:
    document = make_comparison(n_seeds=2)
    document["methods"]["sir"]["log_loss"] = [0.3, 0.5]
    document["methods"]["adacalib"]["log_loss"] = [0.1, 0.2]
    document["methods"]["sir"]["field_rce"] = [0.4, 0.6]
    check_png(draw_methods(document))
    figure, row = figures["compare_methods"], list(document["labels"]).index("sir")
    # .3 − .1 and .5 − .2 in 1e-5, mean .25
    assert list_marks(figure, 0, row) == pytest.approx([20_000, 30_000, 25_000])
    assert list_marks(figure, 1, row) == pytest.approx([0.4, 0.6, 0.5])
    assert list_marks(figure, 0, list(document["labels"]).index("adacalib")) == [0, 0, 0]
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()][row] == "SIR"
    for axes in figure.axes:
        low, high = axes.get_xlim()
        assert all(
            low <= x <= high for line in axes.lines[:-8] for x in line.get_xdata() if line.get_marker() != "None"
        )


def test_levels_below_every_method_are_in_the_picture(figures: dict[str, Figure]) -> None:
    document = make_comparison()
    document["noise_floor"] = [0.001] * 5
    check_png(draw_methods(document))
    axes = figures["compare_methods"].axes[1]
    assert axes.get_xscale() == "log" and axes.get_xlim()[0] < 0.001


def test_methods_with_an_undefined_field_rce(figures: dict[str, Figure]) -> None:
    document = make_comparison(n_seeds=1, has_truth=False)
    for name in document["labels"]:
        document["methods"][name]["field_rce"] = [None]
    document["attainable"] = document["noise_floor"] = [None]
    check_png(draw_methods(document))
    assert len(figures["compare_methods"].axes[1].texts) == len(document["labels"])


def test_truth_shows_every_method_but_the_truth_itself(figures: dict[str, Figure]) -> None:
    document = make_comparison()
    check_png(draw_truth(document))
    texts = [text.get_text() for text in figures["compare_truth"].axes[0].texts]
    # 8 · (.14274 − .1420) + .09 = .09592 for AdaCalib, the last row
    assert len(texts) == 19 and texts[-1] == "0.0959"
    assert draw_truth(make_comparison(has_truth=False)) is None


def test_sparsity_joins_deciles_and_leaves_unseen_values_apart(figures: dict[str, Figure]) -> None:
    document = make_comparison(n_seeds=2)
    for groups in document["sparsity"]["adacalib"]:
        groups[2]["truth_error"] = None
    check_png(draw_sparsity(document))
    axes = figures["compare_sparsity"].axes[0]
    joined = {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}
    assert list(joined) == [
        *("isotonic × value ratio", "isotonic + offset + same network", "AdaCalib without network", "AdaCalib"),
    ]
    heights = list(joined["AdaCalib"].get_ydata())
    assert heights[:2] == [0.5, 0.25] and heights[2] != heights[2] and len(heights) == 10
    assert [tick.get_text() for tick in axes.get_xticklabels()][-1] == "unseen"
    assert draw_sparsity(make_comparison(has_truth=False)) is not None
    for groups in (groups for seeds in document["sparsity"].values() for groups in seeds):
        for group in groups:
            group["truth_error"] = None
    assert draw_sparsity(document) is None


def test_figure_3_has_bars_of_posteriors_and_gaps_at_empty_bins(figures: dict[str, Figure]) -> None:
    document = make_comparison()
    check_png(draw_figure_3(document))
    left, right = figures["compare_figure_3"].axes
    assert [bar.get_height() for bar in left.patches][:2] == pytest.approx([0.005, 0.007])
    assert "20,000 samples, 480 responses" in left.get_title()
    ours = list(right.lines[1].get_ydata())
    assert ours[3] != ours[3] and ours[4] == pytest.approx(1.05 * 0.013)
    document["figures"]["figure_3"] = []
    assert draw_figure_3(document) is None


def test_figure_4_counts_the_smallest_and_the_largest(figures: dict[str, Figure]) -> None:
    document = make_comparison()
    check_png(draw_figure_4(document))
    heights = [bar.get_height() for bar in figures["compare_figure_4"].axes[0].patches]
    assert heights == [*(54 - 5 * k for k in range(10)), *(4 * k for k in range(10))]
    document["figures"]["figure_4"]["groups"] = []
    assert draw_figure_4(document) is None


def test_ablation_bars_are_means_and_blue_where_told_apart(figures: dict[str, Figure]) -> None:
    document = make_ablation()
    robust, paper = draw_differences(document, "robust"), draw_differences(document, "paper")
    check_png(robust)
    check_png(paper)
    axes = figures["ablate_robust"].axes[0]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([250, 12.5, 0.4, -0.7, -8])
    colors = [bar.get_facecolor() for bar in axes.patches]
    assert colors[0] == colors[1] == colors[4] != colors[2] == colors[3]
    # 250 / .4 is far, 720 / 416 is near
    assert axes.get_xscale() == "symlog" and figures["ablate_paper"].axes[0].get_xscale() == "linear"
    assert robust is not None and "logarithmic" in robust.caption
    assert paper is not None and "logarithmic" not in paper.caption
    document["labels"] = {"uncalibrated": "N/A", "robust_full": "robust mode"}
    assert draw_differences(document, "robust") is None


def test_same_document_same_bytes_and_others_differ() -> None:
    first, second = draw_methods(make_comparison()), draw_methods(make_comparison())
    changed = make_comparison()
    changed["methods"]["sir"]["log_loss"][0] += 0.01
    assert first.png == second.png != draw_methods(changed).png


@pytest.mark.parametrize("values", [[0.0], [-3000.0, 0.0, 2.0], [0.001, 1e5], [-0.2, 0.0]])
def test_symmetric_scale_holds_all_values_and_has_few_ticks(values: list[float]) -> None:
    axes = Figure().subplots()
    use_symmetric_scale(axes, {"a": values})
    low, high = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
    assert low < min(values) and max(values) < high and 0 in ticks and len(ticks) <= 12
