"""Several calibrators on the tables of one run, for several seeds: what compare and ablate have in common.

Per seed, in runs/NAME/FOLDER/seed_S: the tables as any run has them, made once; VARIANT/unified for every trained
calibrator; result.json, the metrics of all on the same test rows. A seed varies the split and the initialisation; the
predictor is one per seed, shared by all.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType
from rich.console import Console

from adacalib import io, schemas
from adacalib.baselines.catalogue import Entry
from adacalib.baselines.references import REFERENCE_SCORE, compute_reference_levels
from adacalib.cells.evaluation import describe_methods
from adacalib.cells.seeds import list_leave_outs
from adacalib.cells.sparsity import describe_sparsity
from adacalib.config import RunConfig, parse_config
from adacalib.model.score import build_comparer
from adacalib.report.pictures import Picture
from adacalib.stats import evaluation_sums
from adacalib.stats.logit_cells import build_logit_cells
from jobs.pipeline import SessionOnDemand, run_stages

log = logging.getLogger("adacalib")

TABLE_STAGES = (
    "prepare_samples",
    "train_predictor",
    "score_samples",
    "build_logit_cells",
    "compute_bin_statistics",
    "build_training_rows",
)
OWN_TABLE_STAGES = TABLE_STAGES[3:]
CODE = Path(__file__).resolve().parent.parent
"""The folder that holds adacalib and jobs."""
PAIRED = ("field_rce", "field_rce_terciles", "log_loss", "truth_error")


class CodeChanged(RuntimeError):
    """The code is no longer what a comparison began with."""


@dataclass(frozen=True)
class Variant:
    """A calibrator that is trained.

    Attributes:
        label: what it is called on the terminal and in the report.
        calibrator: the configuration's section for it.
    """

    label: str
    calibrator: dict[str, Any]


def list_shared_settings(config: RunConfig) -> dict[str, Any]:
    """Keys of `calibrator` that mean the same in every mode: rows, network and epochs are equal for all variants."""
    training = {"epochs", "learning_rate", "penalty_weight", "temperature_start", "temperature_end"}
    keys = {"fit_on", "auxiliary", *training}
    return config.calibrator.model_dump(mode="json", include=keys)


def run_seeds(
    config: RunConfig,
    variants: Mapping[str, Variant],
    baselines: Mapping[str, Entry],
    *,
    n_seeds: int,
    folder: str,
    resume: bool,
    console: Console,
) -> list[dict[str, Any]]:
    """Runs every seed from config.seed on and gives what each found.

    Args:
        folder: below the run's own.
        resume: take a seed's result as it stands where it was made with the same settings and the same code. Whether
            the input still has the same rows is not looked at.

    Raises:
        CodeChanged: the code changed since the first seed began. Each training is a process of its own, so the seed
            that has just ended may mix both versions; its result is not kept.
    """
    code = compute_code_digest(CODE)
    results = []
    with ExitStack() as cleanup:
        session = SessionOnDemand(config, cleanup)
        for place in range(n_seeds):
            seed = config.seed + place
            base = _base_config(config, variants, seed, folder)
            settings = _settings(base, config, variants, baselines) | {"code": code}
            found = _read_result(base.run_dir, settings) if resume else None
            console.print(f"[bold]seed {seed}[/bold] ({place + 1} of {n_seeds})", highlight=False)
            if found is None:
                found = _run_seed(base, config, variants, baselines, session, console)
                _check_code(code, base.run_dir)
                io.write_json(base.run_dir / "result.json", found | {"settings": settings})
            else:
                console.print(f"  as found in {base.run_dir}", highlight=False, soft_wrap=True)
            results.append(found)
    return results


def compute_code_digest(folder: Path) -> str:
    """SHA-256 over the relative paths and bytes of all .py files below adacalib and jobs in folder, sorted.

    A folder or package that is not there has no files: a digest of what is there.
    """
    digest = hashlib.sha256()
    for path in sorted(path for room in ("adacalib", "jobs") for path in (folder / room).rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(content)};".encode() + content)
    return digest.hexdigest()


def _check_code(begun_with: str, run_dir: Path) -> None:
    if compute_code_digest(CODE) != begun_with:
        raise CodeChanged(
            f"{run_dir}: the code below {CODE} changed since the first seed began, so this one may come from two "
            "versions and was not kept; start again and leave the code as it is meanwhile"
        )


def _base_config(config: RunConfig, variants: Mapping[str, Variant], seed: int, folder: str) -> RunConfig:
    """The run whose tables all variants of a seed share: with folds, and with every candidate number of bins."""
    settings = {
        "name": f"seed_{seed}",
        "runs_dir": str(config.run_dir / folder),
        "seed": seed,
        "inputs_from": None,
        "calibrator": list_shared_settings(config),
    }
    base = parse_config(config.model_dump(mode="json") | settings)
    candidates = {k for name in variants for k in _variant_config(config, base, name, variants[name]).n_bins_candidates}
    bins = config.bins.model_dump(mode="json") | {"n_bins_candidates": sorted(candidates)}
    return parse_config(base.model_dump(mode="json") | {"bins": bins})


def _variant_config(config: RunConfig, base: RunConfig, name: str, variant: Variant) -> RunConfig:
    settings = {
        "name": name,
        "runs_dir": str(base.run_dir),
        "inputs_from": str(base.run_dir),
        "seed": base.seed,
        "calibrator": variant.calibrator,
    }
    return parse_config(config.model_dump(mode="json") | settings)


def _settings(
    base: RunConfig, config: RunConfig, variants: Mapping[str, Variant], baselines: Mapping[str, Entry]
) -> dict[str, Any]:
    """What must be the same for a result to be taken as it stands."""
    return {
        "run": base.model_dump(mode="json", exclude={"spark", "note"}),
        "bins": config.bins.model_dump(mode="json"),  # those of `run` are the union over the variants
        "variants": {name: variant.calibrator for name, variant in variants.items()},
        "baselines": list(baselines),
    }


def _read_result(run_dir: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    path = run_dir / "result.json"
    if not path.is_file():
        return None
    found: dict[str, Any] = io.read_json(path)
    return found if found.pop("settings", None) == json.loads(json.dumps(settings)) else None


def _run_seed(
    base: RunConfig,
    config: RunConfig,
    variants: Mapping[str, Variant],
    baselines: Mapping[str, Entry],
    session: SessionOnDemand,
    console: Console,
) -> dict[str, Any]:
    quiet = Console(quiet=True)
    skipped = {"train_predictor"} if base.has_own_scores else set()
    with _timed(console, "tables"):
        run_stages(base, tuple(stage for stage in TABLE_STAGES if stage not in skipped), quiet, session)
    trained = {}
    for name, variant in variants.items():
        own = _variant_config(config, base, name, variant)
        shutil.rmtree(own.run_dir / "tables", ignore_errors=True)  # of other settings: they would be read
        needs_own_tables = own.calibrator.fit_on != base.calibrator.fit_on
        stages = (*(OWN_TABLE_STAGES if needs_own_tables else ()), "train_calibrator")
        with _timed(console, variant.label):
            run_stages(own, stages, quiet, session)
        trained[name] = own.run_dir / "unified"
    with _timed(console, "evaluation"):
        return evaluate_seed(session.start(), base, trained, baselines)


class _timed:
    """Prints a line with the seconds that its block took."""

    def __init__(self, console: Console, what: str) -> None:
        self.console, self.what = console, what

    def __enter__(self) -> None:
        self.started = time.monotonic()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            seconds = time.monotonic() - self.started
            self.console.print(f"  {self.what} [dim]{seconds:.1f} s[/dim]", highlight=False)


def evaluate_seed(
    spark: SparkSession, config: RunConfig, trained: Mapping[str, Path], baselines: Mapping[str, Entry]
) -> dict[str, Any]:
    """All methods on the test rows of one seed.

    Args:
        config: the run whose tables are read.
        trained: name → unified checkpoint.
        baselines: name → method to fit on the logit cells.

    Returns:
        What JSON can hold: methods (metrics and fit_seconds of each), leave_outs (the paired metrics without each
        group of rows), sparsity, n_test, n_fit.
    """
    field, settings = config.field, config.evaluation
    values = io.read_table(spark, config, "field_values", schemas.FIELD_VALUES)
    cells = io.read_table(spark, config, "logit_cells", schemas.LOGIT_CELLS).filter(F.col("field") == field)
    n_values = io.read_manifest(config, "samples")["n_field_values"][field] + 1
    fit_cells = evaluation_sums.collect_cells(cells, n_values)
    fitted, seconds = {}, {name: _read_seconds(path) for name, path in trained.items()}
    for name, entry in baselines.items():
        started = time.monotonic()
        fitted[name] = entry.fit(fit_cells)
        seconds[name] = time.monotonic() - started
    rows = io.read_table(spark, config, "scored_samples", schemas.scored_samples(config.fields))
    test = rows.filter("split = 'test'")
    scored = _add_trained(test, field, trained)
    scored = evaluation_sums.add_scores(scored, field, {name: method.predict for name, method in fitted.items()})
    scored = scored.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        methods = ("uncalibrated", *baselines, *trained)
        test_cells = evaluation_sums.collect_cells(
            build_logit_cells(test, values, field, has_weights=config.input.weight is not None), n_values
        )
        sums = evaluation_sums.summarise_test(
            scored,
            methods,
            field,
            test_cells,
            settings.jackknife_groups,
            config.seed,
            has_truth=config.input.truth is not None,
        )
    finally:
        scored.unpersist()
    levels = compute_reference_levels(fit_cells, test_cells, settings.attainable_draws, config.seed)
    described = describe_methods(sums, levels, settings.interval_level)
    n_fit_V = fit_cells.sum_by_value(fit_cells.n_samples.astype(np.float64))
    return {
        "seed": config.seed,
        "n_test": int(test_cells.n_samples.sum()),
        "n_fit": int(fit_cells.n_samples.sum()),
        "reference_score": REFERENCE_SCORE,
        "methods": {name: own | {"fit_seconds": seconds.get(name, 0.0)} for name, own in described.items()},
        "leave_outs": {name: list_leave_outs(sums.grouped, name, PAIRED) for name in methods},
        "sparsity": {name: describe_sparsity(n_fit_V, sums.grouped, name) for name in methods},
    }


def _add_trained(rows: DataFrame, field: str, trained: Mapping[str, Path]) -> DataFrame:
    columns = {evaluation_sums.score_column(name): path for name, path in trained.items()}
    added = [StructField(name, DoubleType(), nullable=False) for name in columns]
    kept = [f for f in rows.schema.fields if not f.name.startswith("auxiliary_")]
    schema = StructType([*kept, *added])
    return rows.mapInArrow(build_comparer(columns, field, schema.fieldNames()), schema)


def _read_seconds(unified: Path) -> float:
    """From the trainer's start to the saved calibrator."""
    return float(io.read_json(unified / "training.json")["seconds"])


def name_chance(config: RunConfig) -> str:
    """What p values are over: seeds where each deals a split of its own, else groups of the rows that all test on."""
    return "seeds" if config.split.by == "hash" else "groups of rows"


def collect(results: Sequence[Mapping[str, Any]], name: str, metric: str) -> list[float | None]:
    """One method's metric per seed."""
    return [result["methods"][name][metric] for result in results]


def write_page(config: RunConfig, name: str, page: str, pictures: Sequence[Picture]) -> None:
    """Writes a page, whole, and its pictures under figures/."""
    figures = config.run_dir / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for picture in pictures:
        (figures / f"{picture.name}.png").write_bytes(picture.png)
    staging = config.run_dir / f".{name}.new"
    staging.write_text(page, encoding="utf-8")
    staging.replace(config.run_dir / name)
    log.info("wrote %s: %d pictures", config.run_dir / name, len(pictures))
