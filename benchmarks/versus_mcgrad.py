"""AdaCalib against MCGrad 0.1.5 (Tax et al. 2026) on the same rows, fields and features, in one run.

    python benchmarks/versus_mcgrad.py --config configs/flights3m.yaml --json flights3m.json

Per seed, which varies split and initialisation: the configuration's stages up to calibrated_samples, the calibrator
once more without its auxiliary network, and MCGrad on the very same samples and features (mcgrad_fit.py, in the
environment of mcgrad.lock). All are held to the same cores and judged by AdaCalib's metrics on the same test rows.
Fit seconds are AdaCalib's trainer's start to saved calibrator, its reading of tables included, against MCGrad's `fit`
alone, the imports of libraries aside in both; the Spark stages that only AdaCalib needs are shown apart.
Ends with exit code 1 where a bar fails: lower Field-RCE (cvr_like, flights3m), lower LogLoss (cvr_like), both of the
means over the seeds; fit 20 times faster without the auxiliary network and 3 times with it (any configuration).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from adacalib import io, schemas
from adacalib.baselines.isotonic_offset import fit_isotonic_offset
from adacalib.baselines.references import REFERENCE_SCORE, compute_reference_levels
from adacalib.cells.evaluation import describe_differences, describe_methods
from adacalib.config import RunConfig, parse_config, read_config
from adacalib.model.unified import load_model
from adacalib.schemas import id_column
from adacalib.stats import evaluation_sums
from adacalib.stats.logit_cells import build_logit_cells
from jobs.pipeline import run_stages, select_stages

METHODS = {
    "uncalibrated": "un-calibrated",
    "isotonic_offset": "isotonic + offset",
    "adacalib_without_auxiliary": "AdaCalib, no auxiliary",
    "adacalib": "AdaCalib",
    "mcgrad": "MCGrad 0.1.5",
}
METRICS = {
    "field_rce": ("Field-RCE", 4),
    "field_rce_terciles": ("Field-RCE terciles", 4),
    "log_loss": ("LogLoss", 5),
    "field_auc": ("Field-AUC", 4),
    "auc": ("AUC", 4),
    "truth_error": ("truth error", 4),
    "fit_seconds": ("fit seconds", 2),
}
LEVELS = (
    "field_rce_noise_floor",
    "field_rce_attainable",
    "field_rce_terciles_noise_floor",
    "field_rce_terciles_attainable",
)
LOWER = {"cvr_like": ("field_rce", "log_loss"), "flights3m": ("field_rce",)}
"""Which metric must be lower than MCGrad's, by the configuration file's name."""

FASTER = {"adacalib_without_auxiliary": 20.0, "adacalib": 3.0}
"""How many times faster than MCGrad a fit must be."""

MCGRAD_FIT = Path(__file__).with_name("mcgrad_fit.py")
TABLE_STAGES = ("build_logit_cells", "compute_bin_statistics", "build_training_rows")

Results = dict[str, dict[str, list[float]]]
"""Method → metric → its value per seed."""


class McgradMissing(RuntimeError):
    """MCGrad's environment is not there, or its fit failed."""


class DifferentRows(RuntimeError):
    """MCGrad and AdaCalib did not see the same samples."""


@dataclass(frozen=True)
class Bar:
    """One requirement: what was measured, and whether it holds."""

    text: str
    measured: float
    limit: float
    holds: bool


def judge(results: Results, dataset: str) -> list[Bar]:
    """The bars that apply to a data set, on the means over the seeds.

    Args:
        results: with methods adacalib, adacalib_without_auxiliary and mcgrad; the metrics that bars use are defined.
        dataset: stem of the configuration's file; one that LOWER does not name has the bars of speed only.
    """

    def mean(method: str, metric: str) -> float:
        return float(np.mean(results[method][metric]))

    bars = []
    for metric in LOWER.get(dataset, ()):
        ours, theirs = mean("adacalib", metric), mean("mcgrad", metric)
        bars.append(Bar(f"{METRICS[metric][0]} lower than MCGrad's", ours, theirs, ours < theirs))
    for method, limit in FASTER.items():
        ratio = mean("mcgrad", "fit_seconds") / mean(method, "fit_seconds")
        bars.append(Bar(f"{METHODS[method]}: fit at least {limit:g} times faster", ratio, limit, ratio >= limit))
    return bars


def make_table(results: Results, levels: Mapping[str, list[float | None]], title: str) -> Table:
    """A row per method: means over the seeds, ± their standard deviation from two seeds on.

    Args:
        results: a metric that a method lacks (fit seconds of the un-calibrated score) shows as –.
        levels: noise floors and attainable levels per seed, below the table.
        title: above it.
    """
    table = Table(title=title, title_justify="left", caption=_caption(levels), caption_justify="left", box=None)
    table.padding, table.pad_edge = (0, 1, 0, 0), False  # 80 columns
    table.add_column("method", no_wrap=True)
    for heading, _ in METRICS.values():
        table.add_column(re.sub("[ -]", "\n", heading), justify="right", no_wrap=True)
    for method, values in results.items():
        cells = [show(values.get(metric), digits) for metric, (_, digits) in METRICS.items()]
        table.add_row(METHODS[method], *cells, style="bold" if method == "adacalib" else None)
    return table


def show(values: Sequence[float | None] | None, digits: int) -> str:
    """Mean over the seeds, below it its standard deviation from two seeds on; – where nothing is defined."""
    defined = [value for value in values or () if value is not None]
    if not defined:
        return "–"
    spread = f"\n±{np.std(defined, ddof=1):.{digits}f}" if len(defined) > 1 else ""
    return f"{np.mean(defined):.{digits}f}{spread}"


def _caption(levels: Mapping[str, list[float | None]]) -> str:
    parts = [f"{name.replace('_', ' ')} {show(levels[name], 4)}" for name in LEVELS]
    return "; ".join(parts) + f" (taking {REFERENCE_SCORE} for the truth)"


def fit_mcgrad(config: RunConfig, python: Path, threads: int) -> dict[str, Any]:
    """Runs mcgrad_fit.py on the run's samples; its scores lie in runs/NAME/mcgrad/scores.parquet.

    Raises:
        McgradMissing: there is no such interpreter, or it ended with an error.
    """
    if not python.is_file():
        raise McgradMissing(f"{python}: no such interpreter; `make mcgrad` builds MCGrad's environment")
    folder = config.run_dir / "mcgrad"
    folder.mkdir(parents=True, exist_ok=True)
    command = [str(python), str(MCGRAD_FIT), "--samples", str(io.table_path(config, "scored_samples"))]
    command += ["--field-column", id_column(config.field), "--threads", str(threads), "--seed", str(config.seed)]
    command += ["--scores", str(folder / "scores.parquet"), "--record", str(folder / "fit.json")]
    command += ["--has-weights"] if config.input.weight is not None else []
    # passive: threads that spin while they wait made its fit five times slower on a machine that does other work too
    settings = {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "PASSIVE"}
    ended = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True)
    if ended.returncode:
        raise McgradMissing(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stderr[-2000:]}")
    return read_json(folder / "fit.json")


def evaluate(spark: SparkSession, config: RunConfig, without: RunConfig) -> dict[str, Any]:
    """Metrics of every method on the test rows, paired differences AdaCalib − MCGrad, floors and attainable levels."""
    field = config.field
    cells = io.read_table(spark, config, "logit_cells", schemas.LOGIT_CELLS).filter(F.col("field") == field)
    n_values = io.read_manifest(config, "samples")["n_field_values"][field] + 1
    fit_cells = evaluation_sums.collect_cells(cells, n_values)
    reference = fit_isotonic_offset(fit_cells)
    calibrated = io.read_table(spark, config, "calibrated_samples", schemas.calibrated_samples(config.fields))
    scores = spark.read.parquet(str(config.run_dir / "mcgrad" / "scores.parquet"))
    test = calibrated.filter("split = 'test'").join(scores, "sample_id")
    predictors = {
        "isotonic_offset": reference.predict,
        "adacalib_without_auxiliary": _predictor(without),
    }
    test = evaluation_sums.add_scores(test, field, predictors).cache()
    values = io.read_table(spark, config, "field_values", schemas.FIELD_VALUES)
    test_cells = evaluation_sums.collect_cells(
        build_logit_cells(test, values, field, has_weights=config.input.weight is not None), n_values
    )
    settings = config.evaluation
    sums = evaluation_sums.summarise_test(
        test,
        tuple(METHODS),
        field,
        test_cells,
        n_groups=settings.jackknife_groups,
        seed=config.seed,
        cells_per_logit=settings.choose_score_cells(len(METHODS) * int(test_cells.n_samples.sum())),
        has_truth=config.input.truth is not None,
        has_weights=config.input.weight is not None,
    )
    levels = compute_reference_levels(fit_cells, test_cells, settings.attainable_draws, config.seed)
    return {
        "n_fit": int(fit_cells.n_samples.sum()),
        "n_test": int(test_cells.n_samples.sum()),
        "methods": describe_methods(sums, levels, settings.interval_level),
        "adacalib_minus_mcgrad": describe_differences(sums.grouped, "adacalib", "mcgrad", settings.interval_level),
    }


def _predictor(config: RunConfig) -> evaluation_sums.Predict:
    """A calibrator without auxiliary network as a function of (logit, field value id)."""
    calibrator = load_model(config.run_dir / "unified", config.field)[0].calibrator
    if calibrator is None or calibrator.auxiliary is not None:
        raise ValueError(f"{config.run_dir / 'unified'}: expected a calibrator without auxiliary network; run again")

    def predict(logit: npt.NDArray[np.float64], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        with torch.no_grad():
            scores = torch.sigmoid(calibrator(torch.tensor(ids), torch.tensor(logit), {}))
        return np.asarray(scores.numpy(), np.float64)

    return predict


def run_seed(config: RunConfig, python: Path, threads: int, console: Console) -> dict[str, Any]:
    """Fits and evaluates all methods for one seed; see the module's docstring.

    Returns:
        The document of `evaluate`, with fit_seconds, table_seconds (Spark stages that only AdaCalib needs) and
        mcgrad_fit (see mcgrad_fit.py) and load_average (before MCGrad's fit; seconds mean little on a busy machine).
    """
    without = read_without_auxiliary(config)
    run_stages(config, select_stages(config, last="calibrate_samples"), console)
    stages = read_json(config.run_dir / "status.json")["stages"]
    run_stages(without, select_stages(without, last="train_calibrator"), console)
    load_average = os.getloadavg()[0]
    fitted = fit_mcgrad(config, python, threads)
    console.print(f"MCGrad {fitted['fit_seconds']:.1f} s, {fitted['n_rounds']} rounds", highlight=False)
    spark = io.start_session(config.spark, config.name)
    try:
        document = evaluate(spark, config, without)
    finally:
        spark.stop()
    check_same_rows(document, fitted)
    ours = {"adacalib": config, "adacalib_without_auxiliary": without}
    seconds = {method: read_json(run.run_dir / "unified" / "training.json")["seconds"] for method, run in ours.items()}
    return document | {
        "fit_seconds": seconds | {"mcgrad": fitted["fit_seconds"]},
        "table_seconds": {stage: stages[stage]["seconds"] for stage in TABLE_STAGES if stage in stages},
        "mcgrad_fit": fitted,
        "load_average": load_average,
    }


def check_same_rows(document: Mapping[str, Any], fitted: Mapping[str, Any]) -> None:
    """Refuses a comparison on different rows.

    Raises:
        DifferentRows: MCGrad was fitted on or scored another number of rows than AdaCalib.
    """
    faults = [
        f"{name}: MCGrad {fitted[name]:,}, AdaCalib {document[name]:,}"
        for name in ("n_fit", "n_test")
        if fitted[name] != document[name]
    ]
    if faults:
        raise DifferentRows(f"not the same rows ({'; '.join(faults)}); run again without changing the run's tables")


def read_without_auxiliary(config: RunConfig) -> RunConfig:
    """The run that fits the same tables without auxiliary network, beside the run itself; by one rank: it has no rows
    to share out."""
    content = config.model_dump(mode="json")
    content["training"]["ranks"] = 1
    content["calibrator"]["auxiliary"]["enabled"] = False
    return parse_config(content | {"name": f"{config.name}-no-auxiliary", "inputs_from": str(config.run_dir)})


def read_json(path: Path) -> dict[str, Any]:
    """A JSON document."""
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def collect(documents: Sequence[Mapping[str, Any]]) -> tuple[Results, dict[str, list[float | None]]]:
    """Documents of the seeds → each method's metrics per seed, and floors and attainable levels per seed."""
    results: Results = {}
    for method in METHODS:
        known = [document["methods"][method] | _seconds(document, method) for document in documents]
        results[method] = {metric: [one[metric] for one in known] for metric in METRICS if metric in known[0]}
    return results, {name: [d["methods"]["adacalib"][name] for d in documents] for name in LEVELS}


def _seconds(document: Mapping[str, Any], method: str) -> dict[str, float]:
    seconds = document["fit_seconds"]
    return {"fit_seconds": seconds[method]} if method in seconds else {}


def describe(document: Mapping[str, Any]) -> str:
    """What a seed's table leaves out, in one line: paired difference, MCGrad's rounds, stages before the fit, load."""
    difference = document["adacalib_minus_mcgrad"]["log_loss"]
    told = "not defined"
    if difference is not None:
        low, high = difference["interval"]
        told = f"{difference['difference']:+.5f} [{low:+.5f}, {high:+.5f}]"
    stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in document["table_seconds"].items())
    return (
        f"LogLoss AdaCalib - MCGrad {told}; MCGrad {document['mcgrad_fit']['n_rounds']} rounds, "
        f"{document['mcgrad_fit']['fit_cpu_seconds']:.1f} CPU seconds; before AdaCalib's fits: {stages}; "
        f"load average {document['load_average']:.1f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns 1 where a bar fails."""
    options = _parse(arguments)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])  # passed on to all that is started
    configs = [_read_config(options, seed) for seed in options.seed or [None]]
    console = Console()
    documents = [run_seed(config, options.mcgrad_python, options.threads, console) for config in configs]
    results, levels = collect(documents)
    bars = judge(results, options.config.stem)
    first = documents[0]
    title = f"{options.config.stem}, {configs[0].field}: {first['n_test']:,} test samples, fitted on {first['n_fit']:,}"
    console.print(make_table(results, levels, f"{title}, {len(configs)} seed(s), {options.threads} cores"))
    console.print("\n".join(describe(document) for document in documents), highlight=False)
    for bar in bars:
        word = "[green]holds[/green]" if bar.holds else "[red]fails[/red]"
        console.print(f"{word}  {bar.text}: {bar.measured:.5g} (bar {bar.limit:.5g})", highlight=False)
    seeds = [config.seed for config in configs]
    summary = {
        "config": str(options.config),
        "overrides": options.overrides,
        "seeds": seeds,
        "threads": options.threads,
    }
    summary |= {"methods": results, "levels": levels, "bars": [asdict(bar) for bar in bars], "per_seed": documents}
    io.write_json(options.json, summary)
    return 0 if all(bar.holds for bar in bars) else 1


def _read_config(options: argparse.Namespace, seed: int | None) -> RunConfig:
    config = read_config(options.config, (*options.overrides, *([] if seed is None else [f"seed={seed}"])))
    own = {"name": f"{config.name}-{config.seed}", "runs_dir": str(Path(config.runs_dir) / "versus_mcgrad")}
    return parse_config(config.model_dump(mode="json") | own)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, required=True, help="a run's YAML file")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--seed", type=int, action="append", help="several times for several seeds; default: its own")
    parser.add_argument("--json", type=Path, required=True, help="file for all figures")
    parser.add_argument("--threads", type=int, default=2, help="cores that everything is held to")
    parser.add_argument("--mcgrad-python", type=Path, default=Path(".venv-mcgrad/bin/python"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
