"""Pictures: PNG of the stated size, the same bytes for the same data, and absent where there is nothing to show."""

from __future__ import annotations

import io
import logging
import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib import rcParams
from matplotlib.image import imread

from adacalib.report.data import ChosenBins, ReportData
from adacalib.report.field_value_pictures import N_NAMED, draw_pcoc, draw_residuals, find_largest_residuals
from adacalib.report.metric_pictures import draw_field_rce, draw_field_value_reliability, draw_reliability
from adacalib.report.page import draw_pictures
from adacalib.report.pictures import Picture
from adacalib.report.training_pictures import (
    draw_chosen_bins,
    draw_functions,
    draw_loss_curves,
    list_loss_panels,
    split_into_deciles,
)
from tests.report.small_report import make_bare_data, make_chosen, make_config, make_data, make_value


def check_png(picture: Picture | None) -> None:
    assert picture is not None
    assert picture.png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", picture.png[16:24]) == (picture.width, picture.height)
    pixels = imread(io.BytesIO(picture.png))
    assert pixels.shape[:2] == (picture.height, picture.width)
    drawn = np.mean(np.any(pixels[..., :3] < 0.9, axis=2))
    assert drawn > 0.005, "the picture is empty"


@pytest.mark.parametrize(
    "draw",
    [
        draw_field_rce,
        draw_reliability,
        draw_field_value_reliability,
        draw_functions,
        draw_residuals,
        draw_pcoc,
        draw_loss_curves,
    ],
)
def test_every_picture_is_a_png_of_its_size(draw: Callable[[ReportData], Picture | None]) -> None:
    check_png(draw(make_data()))


def test_chosen_bins_and_pcoc_of_many_values() -> None:
    check_png(draw_chosen_bins(make_data(chosen_bins=make_chosen(23))))
    many = [make_value(k, f"value {k}", -3.0, 1.0) for k in range(1, N_NAMED + 2)]
    few, points = draw_pcoc(make_data(field_values=many[:-1])), draw_pcoc(make_data(field_values=many))
    check_png(points)
    assert few is not None and points is not None and few.height > points.height


def test_same_data_same_bytes_and_matplotlib_is_left_as_it_was() -> None:
    before = dict(rcParams)
    first, second = draw_residuals(make_data()), draw_residuals(make_data())
    assert first is not None and second is not None and first.png == second.png
    assert dict(rcParams) == before
    changed = draw_residuals(make_data(field_values=[make_value(1, "a", -6.0, 5.0)]))
    assert changed is not None and changed.png != first.png


def test_a_bare_run_has_only_what_it_can_show() -> None:
    # no curves, no functions, no positive in the test split (no PCOC), nothing trained
    assert [picture.name for picture in draw_pictures(make_bare_data())] == ["field_rce", "largest_residuals"]


def test_characters_without_glyph_are_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    unassigned = chr(0xE123)  # private use: no font has it
    with caplog.at_level(logging.WARNING, logger="adacalib"):
        check_png(draw_residuals(make_data(field_values=[make_value(1, unassigned * 3, -6.0, 1.0)])))
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["figures/largest_residuals.png"]


def test_largest_residuals_count_before_or_after() -> None:
    values = [make_value(1, "a", 1.0, -9.0), make_value(2, "b", 5.0, 0.0), make_value(3, "c", -7.0, 7.0)]
    assert [v.label for v in find_largest_residuals(values)] == ["a", "c", "b"]
    many = [make_value(k, str(k), float(k), 0.0) for k in range(1, 31)]
    assert [v.field_value_id for v in find_largest_residuals(many)] == list(range(30, 10, -1))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60))
def test_deciles_keep_everything_in_order(responses: list[int]) -> None:
    groups = split_into_deciles([ChosenBins(n, 5) for n in responses])
    assert [chosen.n_responses for group in groups for chosen in group] == sorted(responses)
    assert len(groups) == min(10, len(responses))
    assert max(map(len, groups)) - min(map(len, groups)) <= 1


def test_loss_panels_of_robust_and_paper_mode() -> None:
    data = make_data()
    names = [(title, sorted(curves), kept) for title, curves, kept in list_loss_panels(data)]
    assert names == [
        ("predictor (held-out: dev)", ["held-out", "training"], None),
        ("auxiliary network", ["held-out", "training"], 1),
    ]
    # the objective of Eq. 7 sums over candidates: never on one axis with a cross-entropy
    curves = {"paper": data.training["loss_curves"]["auxiliary"]}
    paper = make_data(
        config=make_config(calibrator={"mode": "paper"}),
        training={"mode": "paper", "chosen_epoch": 1, "loss_curves": curves},
        predictor_curve=None,
    )
    assert [(title, list(curves)) for title, curves, _ in list_loss_panels(paper)] == [
        ("calibrator: objective (Eq. 7)", ["training"]),
        ("calibrator: mixture", ["held-out"]),
    ]
