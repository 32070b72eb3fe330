"""Trains the calibrator of a run: tables in, unified checkpoint out."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from adacalib.baselines.isotonic_field_part import fit_isotonic_field_part
from adacalib.cells.candidate_bins import CandidateBins, arrange_bins
from adacalib.cells.field_part import FieldFit, RobustSwitches, fit_field_part
from adacalib.cells.functions import FUNCTION_ARRAYS, BinFunctions
from adacalib.cells.logit_cells import cells_from_columns
from adacalib.config import RunConfig
from adacalib.manifest import MixedTables, find_table, read_manifest, read_origin
from adacalib.model.auxiliary import AuxiliaryShape
from adacalib.model.calibrator import Calibrator
from adacalib.model.cell_passes import are_cells, repeat_cells
from adacalib.model.checkpoint import fingerprint as read_fingerprint
from adacalib.model.distributed import Ranks, broadcast_arrays, gather_json, join_ranks, wait_for_all
from adacalib.model.neucalib import train_neucalib
from adacalib.model.paper_training import train_paper
from adacalib.model.predictor import load_predictor
from adacalib.model.read_tables import Columns, read_cells, read_columns
from adacalib.model.robust import calibrate_without_rows, train_robust
from adacalib.model.row_files import RowFiles, open_rows
from adacalib.model.unified import UnifiedModel, publish_unified


class OtherBins(ValueError):
    """bin_statistics was computed for other numbers of bins than the configuration asks for."""


def train_calibrator(config: RunConfig) -> None:
    """Fits the field part from cells, trains the networks, publishes the unified checkpoint; called on every rank.

    Raises:
        MixedTables: logit cells, bins, rows, predictor and configuration do not belong together.
        OtherBins: the table of bins and the configuration have different numbers of bins.
        StreamError: a table is missing or incomplete.
    """
    started = time.monotonic()
    seed = config.seed if config.calibrator.seed is None else config.calibrator.seed
    with join_ranks(config.training, seed) as ranks:  # first of all: it passes on what a rank raises
        inputs = _read_inputs(config)
        trainer = _TRAINERS[config.calibrator.mode]
        calibrator, told = trainer(config.model_copy(update={"seed": seed}), inputs, ranks)
        if ranks.is_first:
            told |= {"mode": config.calibrator.mode, "candidates": list(inputs.bins.candidates)}
            predictor = None if config.has_own_scores else load_predictor(config.inputs_dir / "predictor")
            publish_unified(
                config.run_dir / "unified",
                UnifiedModel(predictor, calibrator, config.field),
                documents={"origin": inputs.origin},
                records={"training": {**told, "seconds": time.monotonic() - started}},
            )
        wait_for_all(ranks)


@dataclass(frozen=True)
class _Inputs:
    """What every rank reads before it trains."""

    origin: dict[str, str]
    n_values: int
    shape: AuxiliaryShape
    bins: CandidateBins


def _read_inputs(config: RunConfig) -> _Inputs:
    origin = _read_origin(config)
    manifest = read_manifest(find_table(config, "samples"))
    n_values = int(manifest["n_field_values"][config.field]) + 1
    shape = AuxiliaryShape(manifest["n_auxiliary_features"], tuple(manifest["auxiliary_category_counts"]))
    table = find_table(config, "bin_statistics")
    columns = read_columns(table, config.field)
    made = sorted(set(columns["n_bins_candidate"].tolist()))
    if not set(config.n_bins_candidates) <= set(made):
        raise OtherBins(
            f"{table}: made for {made} bins, the configuration asks for "
            f"{list(config.n_bins_candidates)}; run from compute_bin_statistics again"
        )
    wanted = np.isin(columns["n_bins_candidate"], config.n_bins_candidates)
    columns = {name: values[wanted] for name, values in columns.items()}
    bins = arrange_bins(columns, n_values, may_be_unseen=config.calibrator.fit_on == "dev")
    return _Inputs(origin, n_values, shape, bins)


def _train_robust(config: RunConfig, inputs: _Inputs, ranks: Ranks) -> tuple[Calibrator, dict[str, Any]]:
    """Robust mode, and its opponent isotonic + offset: a field part from cells, then the network on its logits."""
    columns = read_cells(find_table(config, "logit_cells"), config.field)
    fit = _fit_on_every_rank(config, columns, inputs.n_values, inputs.bins, ranks)
    told: dict[str, Any] = {"field_part": fit.chosen, **fit.diagnostics}
    if not config.has_auxiliary_network:
        return calibrate_without_rows(config, fit, cells_from_columns(columns, inputs.n_values)), told
    calibrator, trained = train_robust(config, fit, inputs.shape, *_open_training_rows(config), ranks)
    return calibrator, told | trained


def _train_paper(config: RunConfig, inputs: _Inputs, ranks: Ranks) -> tuple[Calibrator, dict[str, Any]]:
    rows, held_out = _open_training_rows(config)
    config, rows = repeat_cells(config, rows)
    return train_paper(config, inputs.bins, inputs.shape, rows, held_out, ranks)


def _train_neucalib(config: RunConfig, inputs: _Inputs, ranks: Ranks) -> tuple[Calibrator, dict[str, Any]]:
    columns = read_cells(find_table(config, "logit_cells"), config.field)
    cells = cells_from_columns(columns, inputs.n_values)
    rows, held_out = _open_training_rows(config)
    config, rows = repeat_cells(config, rows)
    return train_neucalib(config, cells, inputs.shape, rows, held_out, ranks)


_TRAINERS: dict[str, Callable[[RunConfig, _Inputs, Ranks], tuple[Calibrator, dict[str, Any]]]] = {
    "robust": _train_robust,
    "isotonic_offset": _train_robust,
    "paper": _train_paper,
    "neucalib": _train_neucalib,
}


def _open_training_rows(config: RunConfig) -> tuple[RowFiles, RowFiles]:
    """The rows to train on and those held out to choose the epoch."""
    table = find_table(config, "training_rows")
    return open_rows(table, "hold_out=0"), open_rows(table, "hold_out=1")


def _fit_on_every_rank(
    config: RunConfig, columns: Columns, n_values: int, bins: CandidateBins, ranks: Ranks
) -> FieldFit:
    """The field part; every rank fits it, so that none waits for another, and takes the figures of rank 0."""
    settings = config.calibrator
    switches = RobustSwitches(
        settings.value_level,
        settings.value_slope,
        settings.value_shape,
        settings.bin_shrinkage,
        settings.hard_monotone,
        settings.do_no_harm,
        settings.forward_slope and config.split.by == "date",  # other tests are of the same days as the fit
    )
    if settings.mode == "robust":
        largest = bins.bounds_of(len(bins.candidates) - 1)
        parent_V = _read_parents(config, n_values)
        fit = fit_field_part(columns, n_values, largest, switches, config.seed, parent_V)
    else:
        fit = fit_isotonic_field_part(cells_from_columns(columns, n_values))
    words = gather_json(ranks, [fit.mean_logit, fit.chosen, fit.diagnostics, fit.forward_slope])[0]
    arrays = broadcast_arrays(ranks, _pack(fit))
    functions = BinFunctions(**{name: arrays[name] for name in FUNCTION_ARRAYS})
    level_V, parent_level_P, weight_V = (arrays[name] for name in _FIT_ARRAYS)
    return FieldFit(functions, level_V, parent_level_P, weight_V, *words)


def _read_parents(config: RunConfig, n_values: int) -> npt.NDArray[np.int64] | None:
    """Dense parent id per field value id, 0 for none; None where parents play no part."""
    if config.parent is None or not config.calibrator.value_parent:
        return None
    columns = read_columns(find_table(config, "field_value_parents"), config.field)
    parent_V = np.zeros(n_values, np.int64)
    parent_V[columns["field_value_id"]] = columns["parent_id"]
    return parent_V


_FIT_ARRAYS = ("level_V", "parent_level_P", "weight_V")
"""The arrays of a FieldFit beside its functions."""


def _pack(fit: FieldFit) -> Columns:
    arrays: Columns = {name: getattr(fit, name) for name in _FIT_ARRAYS}
    return arrays | {name: getattr(fit.functions, name) for name in FUNCTION_ARRAYS}


def _read_origin(config: RunConfig) -> dict[str, str]:
    """Where all that is read here comes from; the predictor as it is now among it."""
    tables = ["samples", "logit_cells", "bin_statistics"]
    if config.streams_rows:
        tables.append("training_rows")
        if config.has_auxiliary_network and are_cells(config):
            raise MixedTables(
                f"{find_table(config, 'training_rows')}: made from logit cells, which have no features for the "
                "auxiliary network of this configuration; run from build_logit_cells again"
            )
    tables += ["field_value_parents"] if config.parent is not None else []
    artifacts = {}
    if not config.has_own_scores:
        artifacts["predictor"] = {"predictor_fingerprint": read_fingerprint(config.inputs_dir / "predictor")}
    return read_origin(config, tables, artifacts)
