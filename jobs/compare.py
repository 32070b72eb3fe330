"""AdaCalib against every other calibrator, on the user's own data: the paper's Table 1 with floors and significance.

Reads  the raw table of `input`.
Writes runs/NAME/compare/seed_S       tables, checkpoints and result of each seed
       runs/NAME/compare.json         every metric of every method per seed, floors, the best and its p value
       runs/NAME/compare.html         the table, its picture, and the paper's Fig. 3 and 4
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from adacalib import io
from adacalib.baselines.catalogue import BASELINES
from adacalib.cells.seeds import compare_pair, find_best
from adacalib.config import CalibratorConfig, RunConfig
from adacalib.report.comparison import draw_comparison, render_comparison
from adacalib.report.comparison_data import FAMILY
from jobs.compare_figures import gather_figures
from jobs.evaluate_methods import PAIRED
from jobs.experiments import Variant, collect, list_shared_settings, name_chance, read_training, run_seeds, write_page

METRICS = ("field_rce", "field_rce_terciles", "log_loss", "field_auc", "auc", "pcoc", "truth_error", "fit_seconds")
TESTED = ("log_loss", "field_rce", "field_rce_terciles", "field_auc", "auc", "truth_error")
FAMILIES = (frozenset(FAMILY),)
"""Our own variants are no rivals of each other: ‡ is against the best of the others."""

CHOICES = ("field_part", "forward_slope", "chosen_epoch")
"""What AdaCalib decides for itself, by held-out rows, and compare.json tells."""

LEVELS = {
    "noise_floor": "field_rce_noise_floor",
    "attainable": "field_rce_attainable",
    "noise_floor_terciles": "field_rce_terciles_noise_floor",
    "attainable_terciles": "field_rce_terciles_attainable",
}


def run(config: RunConfig, n_seeds: int, console: Console, *, resume: bool = False) -> dict[str, Any]:
    """Runs the comparison, writes its files and gives the document of compare.json."""
    results = run_seeds(
        config,
        variants := list_variants(config),
        BASELINES,
        n_seeds=n_seeds,
        folder="compare",
        resume=resume,
        console=console,
    )
    document = summarise(config, results, {name: variant.label for name, variant in variants.items()})
    document["choices"] = {key: read_training(config, "compare", "adacalib", document["seeds"], key) for key in CHOICES}
    document["figures"] = gather_figures(config, config.run_dir / "compare" / f"seed_{config.seed}")
    io.write_json(config.run_dir / "compare.json", document)
    pictures = draw_comparison(document)
    write_page(config, "compare.html", render_comparison(document, pictures), pictures)
    return document


def list_variants(config: RunConfig) -> dict[str, Variant]:
    """The calibrators that are trained: AdaCalib in its modes and its two rivals with a network."""
    settings, shared = config.calibrator, list_shared_settings(config)
    own = settings if settings.mode == "robust" else CalibratorConfig.model_validate(shared)
    robust = own.model_dump(mode="json")
    variants = {"neucalib": Variant("NeuCalib", shared | {"mode": "neucalib"})}
    if config.has_auxiliary_network:
        isotonic = shared | {"mode": "isotonic_offset", "re_level": own.re_level}
        variants["isotonic_offset_auxiliary"] = Variant("isotonic + offset + net", isotonic)
    variants["adacalib_paper"] = Variant("AdaCalib, paper mode", shared | {"mode": "paper"})
    if config.has_auxiliary_network:
        without = robust | {"auxiliary": shared["auxiliary"] | {"enabled": False}}
        variants["adacalib_no_auxiliary"] = Variant("AdaCalib, no network", without)
    if config.parent is not None:
        variants["adacalib_no_parent"] = Variant("AdaCalib, no parents", robust | {"value_parent": False})
    variants["adacalib"] = Variant("AdaCalib", robust)
    return variants


def summarise(config: RunConfig, results: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> dict[str, Any]:
    """The document of compare.json."""
    names = list(results[0]["methods"])
    same_test_set = name_chance(config) != "seeds"
    by_metric, versus = {}, {}
    for metric in TESTED:
        values = {name: collect(results, name, metric) for name in names if name != "truth"}
        leave_outs = {
            name: [result["leave_outs"][name][metric] for result in results] for name in values if metric in PAIRED
        }
        best = find_best(metric, values, leave_outs or None, FAMILIES, same_test_set=same_test_set)
        if best is not None:
            by_metric[metric] = asdict(best)
        ours = (values["adacalib"], leave_outs.get("adacalib"))
        versus[metric] = {
            name: compare_pair(ours[0], own, ours[1], leave_outs.get(name), same_test_set=same_test_set)
            for name, own in values.items()
            if name != "adacalib"
        }
    shown = {"uncalibrated": "N/A", "truth": "the truth itself"}
    shown |= {name: entry.label for name, entry in BASELINES.items()} | dict(labels)
    return {
        "name": config.name,
        "note": config.note,
        "field": config.field,
        "seeds": [result["seed"] for result in results],
        "n_test": results[0]["n_test"],
        "n_fit": results[0]["n_fit"],
        "labels": {name: shown[name] for name in names},
        "methods": {name: {metric: collect(results, name, metric) for metric in METRICS} for name in names},
        **{key: collect(results, "uncalibrated", metric) for key, metric in LEVELS.items()},
        "best": by_metric["log_loss"]["best"],
        "p_value": by_metric["log_loss"]["p_value"],
        "p_value_over": name_chance(config),
        "reference_score": results[0]["reference_score"],
        "by_metric": by_metric,
        "adacalib_minus": versus,
        "level_drift": collect_level_drift(results),
        "sparsity": {name: [result["sparsity"][name] for result in results] for name in results[0]["sparsity"]},
    }


def collect_level_drift(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[float | None]]] | None:
    """What a global calibration was learned from → metric → its value per seed; None where rows have no dates."""
    first = results[0]["level_drift"]
    if first is None:
        return None
    metrics = ("log_loss", "pcoc")
    return {
        name: {metric: [result["level_drift"][name].get(metric) for result in results] for metric in metrics}
        for name in first
    }
