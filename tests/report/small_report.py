"""A small run's figures, made up by hand, for the tests of the report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from adacalib.config import RunConfig, parse_config
from adacalib.report.data import METHODS, ChosenBins, Curve, FieldValue, LearnedFunction, MethodSums, ReportData

NASTY = '<script>alert("x")</script> & $a_1$'


def make_config(**changes: Any) -> RunConfig:
    content: dict[str, Any] = {
        "name": "small",
        "note": f"note {NASTY}",
        "input": {"path": "table.parquet", "label": "y"},
        "fields": ["f", "g"],
        "features": {"numeric": ["x"]},
    }
    return parse_config(content | changes)


def make_method(field_rce: float | None = 0.2, log_loss: float | None = 0.5, **changes: Any) -> dict[str, Any]:
    """Metrics of one method; intervals are ± 0.01 around the two arguments."""
    given = {"field_rce": field_rce, "log_loss": log_loss}
    values: dict[str, Any] = {
        **given,
        "field_rce_terciles": 0.25,
        "field_rce_all_samples": 0.2,
        "field_ece": 0.01,
        "pcoc": 1.02,
        "auc": 0.7,
        "field_auc": None,
        "field_rce_noise_floor": 0.015,
        "field_rce_attainable": 0.02,
        "field_rce_terciles_noise_floor": 0.03,
        "field_rce_terciles_attainable": 0.04,
        "field_rce_excluded_field_values": 1,
        "field_rce_excluded_samples": 3,
        "field_auc_excluded_field_values": None,
        "field_auc_excluded_samples": None,
        "n_samples": 100,
        "n_responses": 20,
        "unseen": {"n_samples": 2, "n_responses": 1, "score_sum": 0.4},
        "intervals": {name: [value - 0.01, value + 0.01] for name, value in given.items() if value is not None},
    }
    return values | changes


def make_difference(difference: float, p_value: float) -> dict[str, Any]:
    return {
        "difference": difference,
        "standard_error": 0.001,
        "interval": [difference - 0.002, difference + 0.002],
        "p_value": p_value,
    }


def make_metrics() -> dict[str, Any]:
    """Field-RCE .2 → .021, far apart; LogLoss against isotonic + offset lower with p = .01."""
    methods = {
        "uncalibrated": make_method(0.2, 0.5),
        "isotonic": make_method(0.19, 0.49),
        "isotonic_offset": make_method(0.022, 0.452),
        "adacalib": make_method(0.021, 0.450),
    }
    paired = {
        "field_rce": make_difference(-0.001, 0.4),
        "log_loss": make_difference(-0.002, 0.01),
        "field_rce_terciles": None,
    }
    return {
        "field": "f",
        "n_test": 100,
        "n_fit": 400,
        "reference_score": "isotonic_offset",
        "methods": methods,
        "paired_differences": {"adacalib_minus_isotonic_offset": paired},
        "other_fields": {"g": {**methods, "paired_differences": {"adacalib_minus_isotonic_offset": paired}}},
    }


def make_value(field_value_id: int, label: str, before: float, after: float, response: float = 10.0) -> FieldValue:
    """A field value with 50 test samples; before and after are the residuals Σp − Σy."""
    residuals = dict.fromkeys(METHODS, before) | {"adacalib": after}
    sums = {m: MethodSums(50, int(response), 50.0, response, response + r, 0.5) for m, r in residuals.items()}
    return FieldValue(field_value_id, label, 200 // field_value_id, sums)


def make_curve(field_value_id: int | None, method: str) -> Curve:
    return Curve(field_value_id, method, [0.1, 0.3], [0.12, 0.28], [0.05, 0.2], [0.2, 0.4], [25, 26])


def make_data(**changes: Any) -> ReportData:
    records = [
        {"epoch": 0, "training_loss": None, "held_out_loss": 0.7},
        {"epoch": 1, "training_loss": 0.6, "held_out_loss": 0.65},
    ]
    data = ReportData(
        config=make_config(),
        metrics=make_metrics(),
        curves=[make_curve(value, method) for value in (None, 1, 2) for method in METHODS],
        level_drift=None,
        labels={0: "(unseen)", 1: NASTY, 2: "(null)"},
        field_values=[make_value(1, NASTY, -6.0, 1.0), make_value(2, "(null)", 2.0, 0.5)],
        functions=[LearnedFunction(NASTY, 200, 40, [0.1, 0.2, 0.4], [0.12, 0.2, 0.3], [120, 0], [0.25, None])],
        chosen_bins=[],
        input_counts={
            "rows": 500,
            "input": "table.parquet",
            "input_fingerprint": "500-ab",
            "n_input": 520,
            "n_filtered_out": 17,
            "n_scores_clipped": 4,
            "rejected": {"n_rejected": 3, "reasons": {f"label is {NASTY}": 3}},
            "imputed_nulls": {"x[0]": 5},
            "n_field_values": {"f": 2, "g": 7},
            "n_null_field_values": {"f": 11, "g": 0},
            "n_empty_field_values": {"f": 0, "g": 0},
        },
        training={
            "mode": "robust",
            "field_part": "global_curve",
            "tau_level": 0.25,
            "bin_strength": 902.3,
            "chosen_epoch": 1,
            "loss_curves": {"auxiliary": records},
        },
        predictor_curve=records,
        status={
            "seed": 7,
            "versions": {"python": "3.11.7", "java": None},
            "stages": {
                "evaluate": {"state": "succeeded", "started": "2024-01-02T03:04:05+00:00", "seconds": 2.0},
                "prepare_samples": {"state": "succeeded", "started": "2024-01-02T03:00:00+00:00", "seconds": 100.0},
                "report": {"state": "running", "started": "2024-01-02T03:05:00+00:00", "seconds": None},
            },
        },
    )
    return replace(data, **changes)


def make_bare_data() -> ReportData:
    """Own scores, no features, one field, test rows without a positive, no status.json, nothing trained."""
    config = make_config(
        fields=["f"], features={}, input={"path": "t", "label": "y", "score": "s", "weight": "w"}, note=None
    )
    nothing = dict.fromkeys(("field_rce", "log_loss", "field_rce_terciles", "field_ece", "pcoc", "auc", "field_auc"))
    levels = {f"field_rce{part}_{level}": None for part in ("", "_terciles") for level in ("noise_floor", "attainable")}
    method = make_method() | nothing | levels | {"intervals": {}}
    metrics = make_metrics() | {"methods": dict.fromkeys(METHODS, method), "other_fields": {}}
    metrics["paired_differences"] = {"adacalib_minus_isotonic_offset": {"field_rce": None, "log_loss": None}}
    return make_data(
        config=config,
        metrics=metrics,
        curves=[Curve(None, method, [], [], [], [], []) for method in METHODS],
        field_values=[make_value(1, "only", 0.3, 0.2, response=0.0)],
        functions=[],
        training={"mode": "robust", "field_part": "robust"},
        predictor_curve=None,
        status=None,
    )


def make_chosen(n_values: int) -> list[ChosenBins]:
    return [ChosenBins(n_responses=k, n_bins=5 if k < n_values / 2 else 20) for k in range(n_values)]
