"""AdaCalib with one part taken out at a time: the paper's Table 2, then every part of robust mode.

Reads  the raw table of `input`.
Writes runs/NAME/ablate/seed_S   tables, checkpoints and result of each seed
       runs/NAME/ablate.json     every metric of every row per seed, and its difference to the full calibrator
       runs/NAME/ablate.html     the table and its picture
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from adacalib import io
from adacalib.cells.seeds import compare_pair
from adacalib.config import CalibratorConfig, ConfigError, RunConfig
from adacalib.report.comparison import draw_ablation, render_ablation
from jobs.compare import LEVELS, METRICS
from jobs.experiments import Variant, collect, list_shared_settings, name_chance, read_training, run_seeds, write_page

FULL = {"paper": "paper_full", "robust": "robust_full"}
"""The row that the others of a mode are held against."""


def run(
    config: RunConfig, n_seeds: int, console: Console, *, only: Sequence[str] = (), resume: bool = False
) -> dict[str, Any]:
    """Runs the ablation, writes its files and gives the document of ablate.json.

    Args:
        only: see `pick_variants`.

    Raises:
        ConfigError: a row of `only` does not exist.
    """
    variants = pick_variants(list_variants(config), only)
    results = run_seeds(config, variants, {}, n_seeds=n_seeds, folder="ablate", resume=resume, console=console)
    document = summarise(config, results, {name: variant.label for name, variant in variants.items()})
    document["only"] = list(only)
    document["pooled_share"] = {
        name: read_training(config, "ablate", name, document["seeds"], "pooled_share")
        for name in variants
        if name.startswith("robust_")
    }
    io.write_json(config.run_dir / "ablate.json", document)
    pictures = draw_ablation(document)
    write_page(config, "ablate.html", render_ablation(document, pictures), pictures)
    return document


def list_variants(config: RunConfig) -> dict[str, Variant]:
    """Table 2 in paper mode (each row takes one part more out), then robust mode with one part changed at a time.

    What the configuration itself has changed already is left out: it would be the full calibrator once more.
    """
    settings, shared = config.calibrator, list_shared_settings(config)
    own = settings if settings.mode == "robust" else CalibratorConfig.model_validate(shared)
    rows = _list_paper_rows(shared, config.has_auxiliary_network)
    full = own.model_dump(mode="json")
    robust = _list_robust_rows(full, config.has_auxiliary_network)
    if config.split.by == "date":
        robust["robust_no_forward_slope"] = Variant("− forward slope", full | {"forward_slope": False})
    if config.parent is not None:
        robust["robust_no_parent"] = Variant("− parents", full | {"value_parent": False})
    return rows | {name: row for name, row in robust.items() if name == FULL["robust"] or row.calibrator != full}


def pick_variants(variants: Mapping[str, Variant], only: Sequence[str]) -> dict[str, Variant]:
    """The rows named and the full calibrators of their modes; all rows where none is named.

    Raises:
        ConfigError: there is no such row; the message lists those that there are.
    """
    if unknown := [name for name in only if name not in variants]:
        raise ConfigError(f"--only {', '.join(unknown)}: no such row here; there are {', '.join(variants)}")
    wanted = {*only, *(FULL[name.split("_")[0]] for name in only)} or set(variants)
    return {name: variant for name, variant in variants.items() if name in wanted}


def _list_paper_rows(shared: dict[str, Any], has_network: bool) -> dict[str, Variant]:
    full = shared | {"mode": "paper"}
    without = full | {"auxiliary": shared["auxiliary"] | {"enabled": False}}
    fixed = without | {"adaptive_binning": False}
    shared = fixed | {"adaptive_function": False}
    rows = {
        "paper_full": Variant("AdaCalib as published", full),
        "paper_no_auxiliary": Variant("− auxiliary network", without),
        "paper_fixed_bins": Variant("− adaptive binning", fixed),
        "paper_one_function": Variant("− adaptive function", shared),
        "paper_free_knots": Variant("− posterior guidance", shared | {"posterior_guidance": False}),
    }
    return rows if has_network else {name: row for name, row in rows.items() if name != "paper_no_auxiliary"}


def _list_robust_rows(full: dict[str, Any], has_network: bool) -> dict[str, Variant]:
    def network(**changes: Any) -> dict[str, Any]:
        return full | {"auxiliary": full["auxiliary"] | changes}

    rows = {
        "robust_full": Variant("robust mode", full),
        "robust_no_level": Variant("− levels, value re-level", full | {"value_level": False}),
        "robust_no_slope": Variant("− slope", full | {"value_slope": False}),
        "robust_no_shape": Variant("− shape", full | {"value_shape": False}),
        "robust_no_bin_shift": Variant("− bin shifts", full | {"bin_shrinkage": False}),
        "robust_no_re_level": Variant("− re-level", full | {"re_level": False}),
        "robust_not_monotone": Variant("− hard monotone", full | {"hard_monotone": False}),
        "robust_always": Variant("− do no harm", full | {"do_no_harm": False}),
        "robust_dev_only": Variant("dev alone", full | {"fit_on": "dev"}),
    }
    if has_network:
        rows |= {
            "robust_no_auxiliary": Variant("− auxiliary network", network(enabled=False)),
            "robust_no_embedding": Variant("− embedding", network(field_value_embedding=False)),
        }
    return rows


def summarise(config: RunConfig, results: Sequence[Mapping[str, Any]], labels: Mapping[str, str]) -> dict[str, Any]:
    """The document of ablate.json, less what is read from the checkpoints."""
    names = [name for name in results[0]["methods"] if name != "truth"]
    metrics = {name: {metric: collect(results, name, metric) for metric in METRICS} for name in names}
    return {
        "name": config.name,
        "field": config.field,
        "seeds": [result["seed"] for result in results],
        "n_test": results[0]["n_test"],
        "n_fit": results[0]["n_fit"],
        "labels": {"uncalibrated": "N/A", **labels},
        "methods": metrics,
        "p_value_log_loss": {
            name: _compare_loss(results, name, FULL[name.split("_")[0]], name_chance(config) != "seeds")
            for name in labels
        },
        "p_value_over": name_chance(config),
        "reference_score": results[0]["reference_score"],
        **{key: collect(results, "uncalibrated", metric) for key, metric in LEVELS.items()},
    }


def _compare_loss(results: Sequence[Mapping[str, Any]], name: str, full: str, same_test_set: bool) -> float | None:
    """p value of a row's difference in LogLoss to the full calibrator."""
    (own, own_groups), (whole, whole_groups) = (
        (collect(results, method, "log_loss"), [result["leave_outs"][method]["log_loss"] for result in results])
        for method in (name, full)
    )
    return compare_pair(own, whole, own_groups, whole_groups, same_test_set=same_test_set)["p_value"]
