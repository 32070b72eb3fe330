"""What a calibrator left per field value: its calibrated test scores, calibrated once more.

    python benchmarks/left_to_gain.py --config configs/flights3m.yaml --seed 7 --seed 8 --json left.json

Reads what `adacalib compare` left in runs/NAME/compare/seed_S: the test rows and the checkpoints of the trained
methods. Their calibrated scores become logit cells, whose samples are dealt to two halves. On each half levels, then
slopes, then bends of every field value are fitted by empirical Bayes on top of the calibrated log-odds, and what that
takes off the LogLoss of the other half is what the method left. A gain within chance of 0 says that no level, slope or
shape per field value is left to find: neither by a better field part nor by any other. It prints the gains of each
method and seed; there is no bar to fail.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from rich.console import Console
from rich.table import Table

from adacalib import io
from adacalib.cells.logit_cells import LogitCells, count_rows, join_cells
from adacalib.cells.robust import compute_log_loss
from adacalib.cells.thinning import split_cells
from adacalib.cells.value_effects import fit_value_effects
from adacalib.config import RunConfig, read_config
from adacalib.model.score import score_batch
from adacalib.model.unified import UnifiedModel, load_model
from adacalib.schemas import id_column

PARTS = {"level": {"slope": False}, "slope": {}, "shape": {"shape": True}}
"""What is fitted: each step has one part more."""
ROWS_AT_ONCE = 200_000

Gains = dict[str, float]
"""log_loss, and what each of PARTS took off it."""


def measure_gains(cells: LogitCells, seed: int) -> Gains:
    """LogLoss of calibrated log-odds on the cells, and what each part, fitted on the other half, takes off it.

    Args:
        cells: logit cells of the calibrated log-odds.
        seed: of the halves.
    """
    halves = split_cells(cells, (0.5, 0.5), seed)
    gains: Gains = dict.fromkeys(("log_loss", *PARTS), 0.0)
    for fitted, other in (halves, halves[::-1]):
        before = compute_log_loss(other, other.logit)
        gains["log_loss"] += before / 2
        for part, switches in PARTS.items():
            effects = fit_value_effects(fitted, fitted.logit, **switches)
            after = compute_log_loss(other, effects.apply(other.field_value_id, other.logit))
            gains[part] += (before - after) / 2
            before = after
    return gains


def collect_calibrated_cells(config: RunConfig, folder: Path, name: str) -> LogitCells:
    """Logit cells of a trained method's calibrated log-odds on the test rows of a seed.

    Args:
        folder: of the seed.
        name: of the method.
    """
    calibrator = load_model(folder / name / "unified", config.field)[0].calibrator
    model = UnifiedModel(None, calibrator, config.field).eval()
    manifest = io.read_json(folder / "tables" / "samples" / "_manifest.json")
    parts = []
    for batch in _read_test_rows(folder):
        logit = score_batch(model, batch, ["calibrated_logit"]).column(0).to_numpy()
        label, weight = (batch.column(column).to_numpy().astype(np.float64) for column in ("label", "weight"))
        ids = batch.column(id_column(config.field)).to_numpy().astype(np.int64)
        parts.append(count_rows(ids, logit, label, weight, manifest["n_field_values"][config.field] + 1))
    return join_cells(parts)


def _read_test_rows(folder: Path) -> Iterator[pa.RecordBatch]:
    paths = sorted((folder / "tables" / "scored_samples" / "split=test").glob("*.parquet"))
    if not paths:
        raise FileNotFoundError(f"{folder}/tables/scored_samples: no test rows; run `adacalib compare` before")
    for path in paths:
        yield from pq.ParquetFile(path).iter_batches(ROWS_AT_ONCE)


def make_table(name: str, found: dict[str, list[Gains]]) -> Table:
    """Mean of the gains over the seeds, with their standard deviation."""
    table = Table(title=f"{name}: LogLoss, and what fitting once more takes off it", title_justify="left")
    for column in ("method", "LogLoss", *(f"− {part}" for part in PARTS)):
        table.add_column(column, justify="left" if column == "method" else "right")
    for method, gains in found.items():
        cells = [f"{np.mean([gain['log_loss'] for gain in gains]):.5f}"]
        for part in PARTS:
            values = [gain[part] for gain in gains]
            spread = f" ± {np.std(values, ddof=1):.6f}" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.6f}{spread}")
        table.add_row(method, *cells)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True)
    parser.add_argument("--seed", type=int, action="append", required=True, help="may be given several times")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    config = read_config(given.config, given.changes)
    found: dict[str, list[Gains]] = {}
    for seed in given.seed:
        folder = config.run_dir / "compare" / f"seed_{seed}"
        for unified in sorted(folder.glob("*/unified")):
            name = unified.parent.name
            gains = measure_gains(collect_calibrated_cells(config, folder, name), seed)
            found.setdefault(name, []).append(gains)
    if not found:
        raise FileNotFoundError(f"{config.run_dir}/compare: no trained methods; run `adacalib compare` before")
    Console().print(make_table(config.name, found))
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
