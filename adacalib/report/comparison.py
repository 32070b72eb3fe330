"""The pages of adacalib compare and adacalib ablate: one HTML file each, pictures inside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from adacalib.report.ablation_pictures import draw_differences
from adacalib.report.ablation_tables import (
    FULL,
    describe_levels,
    describe_parts,
    list_ablation_columns,
    list_rows,
    make_ablation_table,
)
from adacalib.report.comparison_data import Column, Document, average, describe_comparison, list_columns
from adacalib.report.comparison_pictures import draw_methods, draw_sparsity, draw_truth
from adacalib.report.comparison_tables import (
    describe_sparsest,
    make_comparison_table,
    make_leads_table,
    make_sparsity_table,
)
from adacalib.report.comparison_verdict import describe_choices, describe_reach, describe_truth_ratios, judge_lead
from adacalib.report.glossary import GLOSSARY
from adacalib.report.paper_figures import draw_figure_3, draw_figure_4
from adacalib.report.pictures import Picture
from adacalib.report.tables import Table, make_level_drift_table
from adacalib.report.templates import make_environment

_TERMS = ("noise floor", "attainable", "p value", "paired difference", "posterior", "train, dev, test")

_SIGNS: Mapping[str, str] = {
    "‡": "the best of a column, and better than the second best with p < .05 by a paired t-test over seeds, or "
    "where all seeds have one test set by the paired jackknife over groups of rows; AdaCalib's variants are no rivals "
    "of each other",
    "±": "standard deviation over seeds, most of it the chance of the split, which all methods share",
    "p over groups of rows": "the same question inside a seed: a paired jackknife that leaves out one group of test "
    "rows at a time. Methods without a network have no spread of their own, so a test over seeds alone would flatter "
    "them or us",
    "unseen": "field values that occur in test but neither in train nor in dev",
}

_ABLATION_SIGNS: Mapping[str, str] = {
    "Δ LogLoss": "LogLoss minus that of the full calibrator of the same mode in the same seed, in 1e-5; above 0 the "
    "change costs",
    "*": "p < .05, paired as for ‡ of a comparison, each row for itself: of twenty rows without any effect, one has it",
    "±": _SIGNS["±"],
}


def draw_comparison(document: Document) -> list[Picture]:
    """All pictures that a comparison has something to show in; their names begin with compare_.

    Args:
        document: compare.json, figures of jobs/compare_figures.py among it.
    """
    drawn = (
        draw_methods(document),
        draw_truth(document),
        draw_sparsity(document),
        draw_figure_3(document),
        draw_figure_4(document),
    )
    return [picture for picture in drawn if picture is not None]


def render_comparison(document: Document, pictures: Sequence[Picture] | None = None) -> str:
    """The HTML of compare.html. All text from data is escaped; the same document gives the same text.

    Args:
        document: compare.json, figures of jobs/compare_figures.py among it.
        pictures: from `draw_comparison`; drawn here unless given.
    """
    pictures = draw_comparison(document) if pictures is None else pictures
    return (
        make_environment()
        .get_template("comparison.html.jinja")
        .render(
            document=document,
            pictures={picture.name: picture for picture in pictures},
            lead=describe_comparison(document),
            verdicts=[judge_lead(document, metric) for metric in ("log_loss", "field_rce")],
            reach=describe_reach(document),
            choices=describe_choices(document),
            truth_ratios=describe_truth_ratios(document),
            methods=make_comparison_table(document),
            leads=make_leads_table(document),
            sparsity=make_sparsity_table(document),
            sparsest=describe_sparsest(document),
            level_drift=_make_level_drift_table(document),
            glossary=_make_glossary(list_columns(document), _SIGNS),
        )
    )


def _make_level_drift_table(document: Document) -> Table | None:
    """Means over seeds; None where rows have no dates."""
    if document["level_drift"] is None:
        return None
    drift = document["level_drift"].items()
    return make_level_drift_table({key: {name: average(own) for name, own in found.items()} for key, found in drift})


def draw_ablation(document: Document) -> list[Picture]:
    """The pictures of an ablation, one per mode; their names begin with ablate_.

    Args:
        document: ablate.json.
    """
    drawn = (draw_differences(document, mode) for mode in FULL)
    return [picture for picture in drawn if picture is not None]


def render_ablation(document: Document, pictures: Sequence[Picture] | None = None) -> str:
    """The HTML of ablate.html. All text from data is escaped; the same document gives the same text.

    Args:
        document: ablate.json.
        pictures: from `draw_ablation`; drawn here unless given.
    """
    pictures = draw_ablation(document) if pictures is None else pictures
    modes = [mode for mode in FULL if list_rows(document, mode)]
    return (
        make_environment()
        .get_template("ablation.html.jinja")
        .render(
            document=document,
            pictures={picture.name: picture for picture in pictures},
            tables={mode: make_ablation_table(document, mode) for mode in modes},
            levels=describe_levels(document),
            parts={mode: describe_parts(document, mode) for mode in modes},
            glossary=_make_glossary(list_ablation_columns(document), _ABLATION_SIGNS),
        )
    )


def _make_glossary(columns: Sequence[Column], signs: Mapping[str, str]) -> dict[str, str]:
    """A line per column, then the signs, then the terms of the text."""
    headings = {column.heading: column.meaning for column in columns}
    return headings | dict(signs) | {term: GLOSSARY[term] for term in _TERMS}
