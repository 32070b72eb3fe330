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

from rich.console import Console

from adacalib import io
from adacalib.baselines.catalogue import Entry
from adacalib.config import RunConfig, parse_config
from adacalib.report.pictures import Picture
from jobs.evaluate_methods import evaluate_seed
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
    """The run whose tables all variants of a seed share, with every candidate number of bins."""
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


def name_chance(config: RunConfig) -> str:
    """What p values are over: seeds where each deals a split of its own, else groups of the rows that all test on."""
    return "seeds" if config.split.by == "hash" else "groups of rows"


def collect(results: Sequence[Mapping[str, Any]], name: str, metric: str) -> list[float | None]:
    """One method's metric per seed."""
    return [result["methods"][name][metric] for result in results]


def read_training(config: RunConfig, folder: str, name: str, seeds: Sequence[int], key: str) -> list[Any]:
    """What the trainings of one variant told under a key, per seed; None where one had nothing to tell."""
    variants = [config.run_dir / folder / f"seed_{seed}" / name for seed in seeds]
    return [io.read_json(variant / "unified" / "training.json").get(key) for variant in variants]


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
