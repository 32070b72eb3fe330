"""Documents of compare.json and ablate.json as jobs make them, with figures made up by hand."""

from __future__ import annotations

import copy
from typing import Any

from tests.report.small_report import NASTY

LABELS = {
    "uncalibrated": "N/A",
    "histogram_binning": "HistoBin",
    "isotonic": "IsoReg",
    "gamma": "GammaCalib",
    "sir": "SIR",
    "platt": "Platt",
    "temperature": "temperature",
    "beta": "beta",
    "bbq": "BBQ",
    "scaling_binning": "scaling-binning",
    "histogram_per_value": "HistoBin per value",
    "platt_per_value": "ridge Platt per value",
    "isotonic_ratio": "isotonic × value ratio",
    "isotonic_offset": "isotonic + offset",
    "neucalib": "NeuCalib",
    "isotonic_offset_auxiliary": "isotonic + offset + same network",
    "adacalib_paper": "AdaCalib, paper mode",
    "adacalib_no_auxiliary": "AdaCalib without network",
    "adacalib": "AdaCalib",
    "truth": "the truth itself",
}

LOG_LOSS = {
    **dict.fromkeys(list(LABELS)[:10], 0.1518),
    "histogram_per_value": 0.1640,
    "platt_per_value": 0.1474,
    "isotonic_ratio": 0.14729,
    "isotonic_offset": 0.1470,
    "neucalib": 0.14393,
    "isotonic_offset_auxiliary": 0.14289,
    "adacalib_paper": 0.14283,
    "adacalib_no_auxiliary": 0.1469,
    "adacalib": 0.14274,
    "truth": 0.14228,
}

FIELD_RCE = {
    **dict.fromkeys(list(LABELS)[:10], 0.4511),
    "histogram_per_value": 0.12,
    "platt_per_value": 0.0957,
    "isotonic_ratio": 0.0957,
    "isotonic_offset": 0.0932,
    "neucalib": 0.11,
    "isotonic_offset_auxiliary": 0.0929,
    "adacalib_paper": 0.0951,
    "adacalib_no_auxiliary": 0.0930,
    "adacalib": 0.0927,
    "truth": 0.074,
}

METRICS = ("field_rce", "field_rce_terciles", "log_loss", "field_auc", "auc", "pcoc", "truth_error", "fit_seconds")


def vary(value: float, n_seeds: int, spread: float) -> list[float]:
    """One value per seed with this mean, steps of `spread` apart."""
    return [value + spread * (seed - (n_seeds - 1) / 2) for seed in range(n_seeds)]


def make_method(name: str, n_seeds: int, has_truth: bool) -> dict[str, list[float | None]]:
    own = 1 if name == "adacalib" else 2
    values: dict[str, list[float | None]] = {
        "field_rce": [*vary(FIELD_RCE[name], n_seeds, 0.0007 * own)],
        "field_rce_terciles": [*vary(1.4 * FIELD_RCE[name], n_seeds, 0.001)],
        "log_loss": [*vary(LOG_LOSS[name], n_seeds, 0.0003 + 0.000005 * own)],
        "field_auc": [0.72] * n_seeds,
        "auc": [0.75] * n_seeds,
        "pcoc": [1.0] * n_seeds,
        "truth_error": [None] * n_seeds,
        "fit_seconds": [0.0 if name in ("uncalibrated", "truth") else 0.25 if own == 2 else 12.5] * n_seeds,
    }
    if has_truth:
        error = 0.0 if name == "truth" else 8 * (LOG_LOSS[name] - 0.1420) + 0.09
        values["truth_error"] = [*vary(error, n_seeds, 0.002 if name != "truth" else 0.0)]
    return values


def make_groups(name: str, n_unseen: int = 30, has_truth: bool = True) -> list[dict[str, Any]]:
    """Ten deciles and the unseen values of one seed; errors fall with frequency."""
    factor = {"isotonic_ratio": 1.6, "isotonic_offset_auxiliary": 1.2, "adacalib_no_auxiliary": 1.1}.get(name, 1.0)
    groups: list[dict[str, Any]] = []
    for decile in (*range(1, 11), None):
        error = factor * (0.5 if decile is None else 0.5 / decile)
        groups.append(
            {
                "decile": decile,
                "n_values": 1 if decile is None else 54,
                "min_fit_samples": 0 if decile is None else 20 * 2**decile,
                "max_fit_samples": 0 if decile is None else 20 * 2 ** (decile + 1) - 1,
                "n_samples": n_unseen if decile is None else 300 * 2**decile,
                "n_responses": 1 if decile is None else 5 * 2**decile,
                "field_rce": None if decile is None else 1.1 * error,
                "truth_error": error if has_truth else None,
                "truth_field_rce": error if has_truth else None,
            }
        )
    return groups


def make_figures(label: str = NASTY) -> dict[str, Any]:
    """Fig. 3 of two values of 20 bins (the second has an empty one), Fig. 4 of 54 values a group."""
    rates = [0.005 + 0.002 * k for k in range(20)]
    panel = {
        "field_value": label,
        "n_samples": 20_000,
        "n_responses": 480,
        "bin_samples": [1000] * 20,
        "response_rate": rates,
        "mean_logit": [-5 + 0.2 * k for k in range(20)],
        "adacalib": [rate * 1.05 for rate in rates],
        "neucalib": [0.01 + 0.001 * k for k in range(20)],
    }
    empty: dict[str, Any] = copy.deepcopy(panel) | {"field_value": "rare", "n_samples": 2000, "n_responses": 41}
    for key in ("response_rate", "mean_logit", "adacalib", "neucalib"):
        empty[key][3] = None
    groups = [
        {
            "n_values": 54,
            "min_responses": 3 * k * k,
            "max_responses": 3 * (k + 1) ** 2,
            "n_smallest": 54 - 5 * k,
            "n_largest": 4 * k,
        }
        for k in range(10)
    ]
    return {"figure_3": [panel, empty], "figure_4": {"smallest": 5, "largest": 20, "groups": groups}}


def make_comparison(n_seeds: int = 5, has_truth: bool = True, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """A comparison in which AdaCalib leads LogLoss and is told apart from isotonic + offset + same network."""
    names = [name for name in LABELS if name not in without and (has_truth or name != "truth")]
    second = "isotonic_offset_auxiliary"
    p_value = None if n_seeds == 1 else 0.004
    lead = {"best": "adacalib", "second": second, "p_value": p_value, "p_value_jackknife": 0.03}
    return {
        "name": "small",
        "note": f"note {NASTY}",
        "field": "shop",
        "seeds": list(range(7, 7 + n_seeds)),
        "n_test": 400_000,
        "n_fit": 1_600_000,
        "labels": {name: LABELS[name] for name in names},
        "methods": {name: make_method(name, n_seeds, has_truth) for name in names},
        "noise_floor": vary(0.074, n_seeds, 0.001),
        "attainable": vary(0.088, n_seeds, 0.001),
        "noise_floor_terciles": vary(0.11, n_seeds, 0.001),
        "attainable_terciles": vary(0.125, n_seeds, 0.001),
        "best": "adacalib",
        "p_value": p_value,
        "p_value_over": "seeds",
        "reference_score": "isotonic + effects",
        "by_metric": {
            "log_loss": lead | {"difference": -0.00015},
            "field_rce": lead | {"difference": -0.0002, "p_value": None if n_seeds == 1 else 0.4},
            "auc": lead | {"difference": 0.001, "p_value_jackknife": None},
        },
        "adacalib_minus": {
            metric: {name: {"p_value": p_value, "p_value_jackknife": 0.03} for name in names if name != "adacalib"}
            for metric in ("log_loss", "field_rce", "truth_error")
        },
        "level_drift": None,
        "choices": {
            "field_part": ["robust"] * n_seeds,
            "forward_slope": [1.0] * n_seeds,
            "chosen_epoch": [3] * n_seeds,
        },
        "sparsity": {name: [make_groups(name, has_truth=has_truth) for _ in range(n_seeds)] for name in names},
        "figures": make_figures(),
    }


ABLATION_LABELS = {
    "uncalibrated": "N/A",
    "paper_full": "AdaCalib as published",
    "paper_no_auxiliary": "− auxiliary network",
    "paper_fixed_bins": "− adaptive binning",
    "paper_one_function": "− adaptive function",
    "paper_free_knots": "− posterior guidance",
    "robust_full": "robust mode",
    "robust_no_level": "− levels, value re-level",
    "robust_no_slope": "− slope",
    "robust_no_bin_shift": "− bin shifts",
    "robust_residual": "+ residual network",
    "robust_not_monotone": "− hard monotone",
}

COSTS = (0, 0, 416, 430, 700, 720, 0, 250, 12.5, 0.4, -0.7, -8)
"""What each row of ABLATION_LABELS costs in LogLoss, in 1e-5."""

P_VALUES = (None, 1.0, 0.001, 0.001, 0.001, 0.001, 1.0, 0.001, 0.04, 0.4, 0.5, 0.01)


def make_ablation(n_seeds: int = 3) -> dict[str, Any]:
    """An ablation whose rows cost COSTS; one seed has no p values."""
    methods = {}
    for cost, name in zip(COSTS, ABLATION_LABELS, strict=True):
        own = make_method("adacalib", n_seeds, has_truth=False)
        noise = vary(0.0, n_seeds, 0.0 if name.endswith("_full") else 1e-5)
        own["log_loss"] = [0.14 + 0.001 * k + cost * 1e-5 + noise[k] for k in range(n_seeds)]
        methods[name] = own
    names = [name for name in ABLATION_LABELS if name != "uncalibrated"]
    p_values = dict(zip(ABLATION_LABELS, P_VALUES, strict=True))
    return {
        "name": "small",
        "field": "shop",
        "only": [],
        "seeds": list(range(7, 7 + n_seeds)),
        "n_test": 1000,
        "n_fit": 4000,
        "labels": dict(ABLATION_LABELS),
        "methods": methods,
        "p_value_over": "seeds",
        "reference_score": "isotonic + effects",
        "p_value_log_loss": {name: None if n_seeds == 1 else p_values[name] for name in names},
        "noise_floor": [0.07] * n_seeds,
        "attainable": [0.09] * n_seeds,
        "noise_floor_terciles": [0.1] * n_seeds,
        "attainable_terciles": [0.12] * n_seeds,
        "pooled_share": {"robust_full": [None] * n_seeds, "robust_not_monotone": [0.25] * n_seeds},
    }
