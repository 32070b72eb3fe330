"""The page: one HTML file with its pictures inside, from a template beside this module."""

from __future__ import annotations

from collections.abc import Sequence

from adacalib.report import run_tables, tables
from adacalib.report.comparison_data import describe_comparison
from adacalib.report.comparison_pictures import draw_methods
from adacalib.report.comparison_tables import make_comparison_table
from adacalib.report.data import ReportData
from adacalib.report.field_value_pictures import draw_pcoc, draw_residuals, find_largest_residuals
from adacalib.report.glossary import GLOSSARY
from adacalib.report.learned import make_learned_table
from adacalib.report.metric_pictures import draw_field_rce, draw_field_value_reliability, draw_reliability
from adacalib.report.pictures import Picture
from adacalib.report.templates import make_environment
from adacalib.report.training_pictures import draw_chosen_bins, draw_functions, draw_loss_curves
from adacalib.report.verdict import describe_reach, judge


def draw_pictures(data: ReportData) -> list[Picture]:
    """All pictures that this run has something to show in, in the order of the page."""
    drawn = (
        draw_field_rce(data),
        None if data.comparison is None else draw_methods(data.comparison),
        draw_reliability(data),
        draw_field_value_reliability(data),
        draw_functions(data),
        draw_chosen_bins(data),
        draw_residuals(data),
        draw_pcoc(data),
        draw_loss_curves(data),
    )
    return [picture for picture in drawn if picture is not None]


def render_page(data: ReportData, pictures: Sequence[Picture]) -> str:
    """The HTML of the report. All text from data is escaped; the same data give the same text.

    Args:
        data: the run.
        pictures: from `draw_pictures`.
    """
    metrics = data.metrics
    largest = find_largest_residuals(list(data.field_values))
    shown = data.field_values[: tables.MAX_FIELD_VALUES]
    return (
        make_environment()
        .get_template("report.html.jinja")
        .render(
            data=data,
            metrics=metrics,
            pictures={picture.name: picture for picture in pictures},
            verdicts=[judge(metrics, other) for other in ("uncalibrated", "isotonic_offset")],
            reach=describe_reach(metrics),
            methods=tables.make_methods_table(metrics["methods"]),
            other_fields={
                field: tables.make_methods_table(methods)
                for field, methods in (metrics.get("other_fields") or {}).items()
            },
            comparison=None if data.comparison is None else make_comparison_table(data.comparison),
            comparison_lead=None if data.comparison is None else describe_comparison(data.comparison),
            paired=tables.make_paired_table(metrics),
            input_counts=run_tables.make_input_table(data.input_counts, metrics),
            fields=run_tables.make_fields_table(data.input_counts, metrics),
            learned=make_learned_table(data),
            largest=tables.make_residuals_table(largest),
            all_values=tables.make_residuals_table(shown),
            n_left_out=len(data.field_values) - len(shown),
            level_drift=tables.make_level_drift_table(data.level_drift) if data.level_drift else None,
            timings=run_tables.make_timings_table(data.status) if data.status else None,
            versions=run_tables.make_versions_table(data),
            config_text=run_tables.format_config(data),
            glossary=GLOSSARY,
            field_value_count=len([value for value in data.labels if value > 0]),
        )
    )
