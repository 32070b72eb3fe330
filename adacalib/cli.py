"""The `adacalib` command: options, messages, exit codes; no logic of its own.

pyspark and torch are imported when a stage runs, so that help and mistakes answer at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from adacalib.config import STAGES, ConfigError, RunConfig, SparkConfig, read_config
from adacalib.doctor import Finding, examine
from adacalib.status import describe_error
from adacalib.terminal import make_ablation_tables, make_comparison_tables
from adacalib.worlds.kinds import WORLDS, UnknownWorld, find_kind

STAGE_HELP = {
    "prepare_samples": """Raw table → samples, field_values, feature_encodings, rejects.

    Reads the input of the configuration (Parquet or CSV). Writes samples (one row per sample: label, split, weight, a
    dense id per field, features as arrays), field_values (one row per field value), feature_encodings (how features
    became numbers) and rejects (faulty rows with their reasons). Stops when more than input.max_rejected_share of the
    rows is faulty, with all reasons in one message.""",
    "train_predictor": """samples → predictor: the un-calibrated model.

    Reads samples (split train; dev for the loss curve). Writes runs/NAME/predictor (safetensors and JSON). Runs on
    training.ranks ranks. A run with its own scores skips it.""",
    "score_samples": """samples + predictor → scored_samples.

    Reads samples, and the predictor unless the input brings its scores. Writes scored_samples: each sample with its
    un-calibrated logit.""",
    "build_logit_cells": """scored_samples (train, dev) → logit_cells.

    Reads scored_samples and field_values. Writes logit_cells: one row per date, field, field value and slice of 1/32
    of logit, with samples, responses and the sum of logits. What needs no single rows is computed from these.""",
    "compute_bin_statistics": """logit_cells → bin_statistics.

    Reads logit_cells (with bins.method: approx_quantile, scored_samples). Writes bin_statistics: bounds and posteriors
    of every field value, for each candidate number of bins, and of all values together.""",
    "build_training_rows": """scored_samples → training_rows.

    Reads scored_samples. Writes training_rows: features, ids, logit and label of train and dev, shuffled by a seeded
    hash, as the ranks stream them. A run without auxiliary network (robust mode) skips it.""",
    "train_calibrator": """training_rows + logit_cells + bin_statistics (+ predictor) → unified.

    Reads logit_cells and bin_statistics, training_rows where there is an auxiliary network, and the predictor unless
    the input brings its scores. Writes runs/NAME/unified: predictor and calibrator as one checkpoint. Runs on
    training.ranks ranks.""",
    "calibrate_samples": """samples + unified → calibrated_samples.

    Reads samples (scored_samples, with own scores) and the unified checkpoint. Writes calibrated_samples: each sample
    with its un-calibrated logit and its calibrated score, from one forward pass.""",
    "evaluate": """calibrated_samples (test) → metrics.json, field_value_metrics.

    Reads calibrated_samples and logit_cells. Compares un-calibrated, isotonic, isotonic + offset per field value and
    AdaCalib, for every field of the run. Writes runs/NAME/metrics.json and the table field_value_metrics.""",
    "report": """metrics.json → report.html.

    Reads metrics.json and the tables of the run. Writes runs/NAME/report.html, one file with its pictures inside, and
    the pictures as PNG files beside it.""",
}

ConfigPath = Annotated[
    Path, typer.Option("--config", "-c", help="The run's YAML file; configs/ holds examples.", show_default=False)
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Overrides one key, with dots for sections and the value in YAML: fields=[dest], training.ranks=1. "
        "May be given several times.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Trainings go on from their last finished epoch (training.resume).")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show an error's whole trace.")]

EVIDENCE = "Evidence, several seeds each"
DATA = "Data"

out = Console()
err = Console(stderr=True)


class _Commands(TyperGroup):
    """Takes a command's name with - as well as with _."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        spellings = (cmd_name, cmd_name.replace("-", "_"), cmd_name.replace("_", "-"))
        return next(filter(None, (super(_Commands, self).get_command(ctx, name) for name in spellings)), None)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Calibrates the scores of a model per value of a field: AdaCalib, from raw table to report. "
    "A run is one YAML file; its outputs are in runs/NAME.",
)


@app.command()
def run(
    config: ConfigPath,
    first: Annotated[str | None, typer.Option("--from", metavar="STAGE", help="Begin with this stage.")] = None,
    last: Annotated[str | None, typer.Option("--until", metavar="STAGE", help="End with this stage.")] = None,
    overrides: Overrides = None,
    resume: Resume = False,
    verbose: Verbose = False,
) -> None:
    """Run all stages, or a range of them, in one Spark session.

    Reads the input that the configuration names, or, with --from, what the stages before have left in runs/NAME.
    Writes runs/NAME: tables, predictor, unified, metrics.json, report.html, status.json (state, timings, versions)
    and effective_config.json. Every stage overwrites its outputs whole, so a rerun is a repair.
    """
    with _messages(verbose):
        _run(_read(config, overrides, resume), first, last)


def _make_stage_command(stage: str) -> Callable[..., None]:
    def command(config: ConfigPath, overrides: Overrides = None, verbose: Verbose = False) -> None:
        with _messages(verbose):
            _run(_read(config, overrides), stage, stage)

    def training(
        config: ConfigPath, overrides: Overrides = None, resume: Resume = False, verbose: Verbose = False
    ) -> None:
        with _messages(verbose):
            _run(_read(config, overrides, resume), stage, stage)

    return training if stage.startswith("train_") else command


for _stage in STAGES:
    app.command(_stage, help=STAGE_HELP[_stage], rich_help_panel="Stages, in order")(_make_stage_command(_stage))


Seeds = Annotated[
    int, typer.Option("--seeds", min=1, help="How many seeds, from the configuration's on; each has its own split.")
]
Finished = Annotated[
    bool,
    typer.Option("--resume", help="Take the seeds that are finished under the same settings and code as they are."),
]


@app.command(rich_help_panel=EVIDENCE)
def compare(
    config: ConfigPath,
    seeds: Seeds = 5,
    overrides: Overrides = None,
    resume: Finished = False,
    verbose: Verbose = False,
) -> None:
    """Hold AdaCalib against every other calibrator on your data: the paper's Table 1, with floors and significance.

    Reads the input that the configuration names. Per seed it deals a new split, trains the predictor once, fits or
    trains every method on the same rows and evaluates all on the same test rows. Writes runs/NAME/compare.json,
    compare.html (table, pictures, the paper's Fig. 3 and 4) and runs/NAME/compare/seed_S; prints the table.
    """
    with _messages(verbose):
        _start_logging()
        from adacalib.report.comparison_verdict import describe_truth_ratios
        from jobs import compare as job

        document = job.run(_read(config, overrides), seeds, out, resume=resume)
        for part in (*make_comparison_tables(document), *describe_truth_ratios(document)):
            out.print(part)


@app.command(rich_help_panel=EVIDENCE)
def ablate(
    config: ConfigPath,
    seeds: Seeds = 5,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="ROW",
            help="Run this row, by its name in ablate.json (robust_no_slope), and the full calibrator of its mode; may "
            "be repeated.",
        ),
    ] = None,
    overrides: Overrides = None,
    resume: Finished = False,
    verbose: Verbose = False,
) -> None:
    """Take AdaCalib's parts out one at a time: the paper's Table 2, then every part of robust mode.

    Reads the input that the configuration names. Writes runs/NAME/ablate.json, ablate.html and
    runs/NAME/ablate/seed_S; prints the table.
    """
    with _messages(verbose):
        _start_logging()
        from jobs import ablate as job

        document = job.run(_read(config, overrides), seeds, out, only=only or (), resume=resume)
        for table in make_ablation_tables(document):
            out.print(table)


@app.command(rich_help_panel=DATA)
def generate(
    world: Annotated[str, typer.Option(help=f"One of {', '.join(WORLDS)}.", show_default=False)],
    rows: Annotated[int, typer.Option(min=1, help="Number of rows.")] = 2_000_000,
    seed: Annotated[int, typer.Option(min=0, help="Draws the world's parameters and rows.")] = 1,
    path: Annotated[
        str | None, typer.Option("--out", help="Folder to write; runs/worlds/WORLD-ROWS-SEED by default.")
    ] = None,
    verbose: Verbose = False,
) -> None:
    """Generate a synthetic table whose true probabilities are known, with Spark, at any number of rows.

    Writes a folder of Parquet files, whole or not at all. configs/WORLD.yaml runs on 2,000,000 rows of seed 1.
    """
    with _messages(verbose):
        find_kind(world)  # a mistake answers at once, not after Spark has started
        _start_logging()
        from jobs.generate import run as run_generate

        with _spark("generate") as session:
            run_generate(session, world, rows, seed, path or f"runs/worlds/{world}-{rows}-{seed}")


@app.command("prepare-ali-ccp", rich_help_panel=DATA)
def prepare_ali_ccp(
    raw: Annotated[str, typer.Option(help="Folder of the four raw files.", show_default=False)],
    path: Annotated[str, typer.Option("--out", help="Folder to write.")] = "runs/ali-ccp",
    seed: Annotated[int, typer.Option(min=0, help="Deals the training file to train and dev.")] = 1,
    verbose: Verbose = False,
) -> None:
    """Turn the raw files of Ali-CCP, the paper's public data set, into one table, with Spark.

    Reads sample_skeleton_{train,test}.csv and common_features_{train,test}.csv. Writes samples, rejects and a manifest
    with what was counted, whole or not at all. configs/ali_ccp.yaml runs on the result.
    """
    with _messages(verbose):
        _start_logging()
        from jobs.prepare_ali_ccp import run as run_prepare

        with _spark("prepare-ali-ccp") as session:
            run_prepare(session, raw, path, seed)


@app.command()
def doctor(
    runs_dir: Annotated[str, typer.Option(help="Folder of the runs, whose disk is looked at.")] = "runs",
    verbose: Verbose = False,
) -> None:
    """Name every mismatch of this machine, with its cure.

    Looks at Python, Java, the versions of all packages, PYSPARK_PYTHON, disk and memory. Writes nothing. Exit code 1
    when something does not match.
    """
    with _messages(verbose):
        findings = examine(runs_dir)
        _print_findings(findings)
    if not all(one.ok for one in findings):
        raise typer.Exit(1)


@app.command("config")
def show_config(
    config: Annotated[Path | None, typer.Option("--config", "-c", help="The run's YAML file.")] = None,
    overrides: Overrides = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of all keys instead.")] = False,
    verbose: Verbose = False,
) -> None:
    """Print the configuration in force as YAML: every key, with defaults and --set applied.

    Reads the YAML file; writes to standard output only, and what it prints is itself a valid --config. With --schema
    it prints every key's meaning, type, default and range, and needs no --config.
    """
    with _messages(verbose):
        if schema:
            typer.echo(json.dumps(RunConfig.model_json_schema(), indent=2, ensure_ascii=False))
            return
        if config is None:
            raise ConfigError("config: give --config FILE (or --schema)")
        effective = _read(config, overrides).model_dump(mode="json")
        typer.echo(yaml.safe_dump(effective, sort_keys=False, allow_unicode=True), nl=False)


def main() -> None:
    """Entry point of the `adacalib` command. SIGTERM ends a run as Ctrl-C does: with status.json saying so."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    app()


def _read(config: Path, overrides: list[str] | None, resume: bool = False) -> RunConfig:
    return read_config(config, (*(overrides or ()), *(("training.resume=true",) if resume else ())))


def _run(config: RunConfig, first: str | None, last: str | None) -> None:
    from jobs.pipeline import run_stages, select_stages

    stages = select_stages(config, first, last)
    _start_logging()
    run_stages(config, stages, out)


def _start_logging() -> None:
    handler = RichHandler(console=err, show_time=False, show_level=False, show_path=False, markup=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
    logging.getLogger("adacalib").setLevel(logging.INFO)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # an interrupted job's traces; the error itself is shown


@contextlib.contextmanager
def _spark(name: str) -> Iterator[Any]:
    from adacalib.io import start_session

    session = start_session(SparkConfig(), name)
    try:
        yield session
    finally:
        session.stop()


@contextlib.contextmanager
def _messages(verbose: bool) -> Iterator[None]:
    """Errors as messages on stderr: exit code 2 for the user's configuration, 1 for a run that failed."""
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if verbose:
            traceback.print_exc()
        _say(error)
        raise typer.Exit(_exit_code(error)) from None


def _print_findings(findings: Sequence[Finding]) -> None:
    table = Table()
    for heading in ("", "looked at", "found", "wanted"):
        table.add_column(heading, overflow="fold")
    for one in findings:
        mark = "[green]ok[/green]" if one.ok else "[red]mismatch[/red]"
        table.add_row(mark, *(escape(text) for text in (one.subject, one.found, one.wanted)))
    out.print(table)
    # Below the table and unwrapped, so that a cure can be copied.
    for one in findings:
        if not one.ok:
            out.print(f"[red]{escape(one.subject)}:[/red] {escape(one.cure)}", highlight=False, soft_wrap=True)


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return 130
    return 2 if isinstance(error, (ConfigError, UnknownWorld)) else 1


def _say(error: BaseException) -> None:
    err.print(f"[red]error:[/red] {escape(describe_error(error))}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
