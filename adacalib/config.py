"""The configuration of a run: one frozen, validated model, read from one YAML file.

Imports nothing of ours. Every key has its default and its range here and nowhere else; `adacalib config
--schema` prints them as JSON schema.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, field_validator, model_validator

SPLITS = ("train", "dev", "test")

STAGES = (
    "prepare_samples",
    "train_predictor",
    "score_samples",
    "build_logit_cells",
    "compute_bin_statistics",
    "build_training_rows",
    "train_calibrator",
    "calibrate_samples",
    "evaluate",
    "report",
)


class ConfigError(ValueError):
    """The configuration cannot be used; the message lists every fault with its cure."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class InputConfig(_Section):
    """Where the raw table is and what its columns mean. Label, weight and date are Spark SQL expressions."""

    path: str = Field(description="file, folder or glob; `package:NAME/inner/path` is a file of an installed package")
    format: Literal["parquet", "csv"] = "parquet"
    null_value: str = Field("", description="text that stands for null in a CSV file, NA for instance")
    row_filter: str | None = Field(
        None, description="SQL condition; rows that do not meet it are counted, not rejected"
    )
    label: str = Field(description="SQL expression that gives 0/1 or a boolean: the response")
    score: str | None = Field(
        None, min_length=1, description="the un-calibrated score; with it there is no predictor stage"
    )
    score_kind: Literal["probability", "logit"] = "probability"
    score_version: str = Field(
        "own-scores", description="names the model behind `score`; cells of two versions never mix"
    )
    negative_sampling_rate: float | None = Field(
        None,
        gt=0,
        le=1,
        description="share w of the negatives that was kept when the model behind `score` was trained, such a model's "
        "p being too high: p / (p + (1 - p) / w), which is logit + log(w), takes its place before everything else (He "
        "et al. 2014, Practical Lessons from Predicting Clicks on Ads at Facebook, section 6.3). A service must do the "
        "same to the score before it asks the checkpoint",
    )
    weight: str | None = Field(
        None, description="positive weight: how many rows like it a row stands for; without it every row weighs 1"
    )
    date: str | None = Field(None, description="day of the row")
    row_key: str | None = Field(None, description="your own key of a row, carried to calibrated_samples as text")
    truth: str | None = Field(
        None,
        min_length=1,
        description="true probability of each row, in [0, 1], where it is known (synthetic data): never used for "
        "fitting, only for the error against it",
    )
    max_rejected_share: float = Field(0.01, ge=0, le=1, description="above this share of faulty rows the run stops")

    @model_validator(mode="after")
    def _sampling_rate_is_of_given_scores(self) -> InputConfig:
        if self.negative_sampling_rate is not None and self.score is None:
            raise ValueError(
                f"negative_sampling_rate: {self.negative_sampling_rate:g} corrects `score`, and there is none: the "
                "predictor trained here sees all rows; remove it, or bring the scores it belongs to"
            )
        return self


class FeaturesConfig(_Section):
    """Features by name: a list of columns, or a mapping from a name to a Spark SQL expression."""

    numeric: dict[str, str] = Field(default_factory=dict, description="numbers, or arrays of numbers of one length")
    categorical: dict[str, str] = Field(default_factory=dict, description="values that get an embedding each")

    @field_validator("numeric", "categorical", mode="before")
    @classmethod
    def _names_are_expressions(cls, value: Any) -> Any:
        return {name: name for name in value} if isinstance(value, list) else value

    @model_validator(mode="after")
    def _one_name_one_feature(self) -> FeaturesConfig:
        if twice := sorted(set(self.numeric) & set(self.categorical)):
            raise ValueError(f"{', '.join(twice)}: numeric and categorical at once; keep one of the two")
        for name in self.names:
            if not re.fullmatch(r"[A-Za-z0-9_]+", name):
                plain = re.sub(r"[^A-Za-z0-9_]+", "_", name)
                raise ValueError(
                    f"{name!r}: a feature's name has letters, digits and _ only; "
                    f"write it as {{{plain}: {self._find(name)}}}"
                )
        return self

    def _find(self, name: str) -> str:
        return self.numeric.get(name) or self.categorical[name]

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.numeric, *self.categorical)


class SplitConfig(_Section):
    """How rows are dealt to train, dev and test."""

    by: Literal["hash", "date", "column"] = Field(
        "hash", description="hash of the sample, order of `input.date`, or a column"
    )
    column: str | None = Field(None, description="SQL expression that gives train, dev or test (with by: column)")
    test_only: str | None = Field(
        None,
        min_length=1,
        description="SQL condition; rows that meet it go to test whatever `by` says, as do the field values that only "
        "the future has. Null counts as not met; the others are dealt as they are without it",
    )
    test_days: int | None = Field(
        None, ge=1, description="with by: date: so many days, the last ones, are test; train and dev share those before"
    )
    train: float = Field(0.6, gt=0, lt=1)
    dev: float = Field(0.2, ge=0, lt=1)
    test: float = Field(0.2, gt=0, lt=1)

    @model_validator(mode="after")
    def _shares_sum_to_one(self) -> SplitConfig:
        if abs(self.train + self.dev + self.test - 1) > 1e-9:
            raise ValueError(f"train + dev + test is {self.train + self.dev + self.test:g}; make it 1")
        if (self.by == "column") != (self.column is not None):
            raise ValueError("`column` goes with `by: column`, and only with it")
        if self.test_days is not None and self.by != "date":
            raise ValueError("`test_days` goes with `by: date`, and only with it")
        return self


class WindowConfig(_Section):
    """Logit cells of earlier days, kept from run to run: a daily run reads the rows of one day."""

    path: str = Field(min_length=1, description="folder of the stored days; the runs of one model share it")
    days: int = Field(28, ge=1, le=3650, description="days before the test days that the calibrator is fitted on")
    decay: float = Field(1.0, gt=0, le=1, description="what a day's samples weigh, next to those of the day after it")


class PredictorConfig(_Section):
    """The un-calibrated model: four fully-connected layers on numbers and embeddings."""

    features: tuple[str, ...] | None = Field(None, description="names from `features`; all of them by default")
    hidden: tuple[PositiveInt, PositiveInt, PositiveInt] = (128, 64, 32)
    embedding_width: int = Field(8, ge=1, le=256)
    epochs: int = Field(3, ge=1, le=1000)
    batch_size: int = Field(2048, ge=1, description="rows of one step, over all ranks")
    learning_rate: float = Field(1e-3, gt=0)


class BinsConfig(_Section):
    """Bounds and posteriors per field value."""

    method: Literal["logit_cells", "approx_quantile"] = "logit_cells"
    n_bins_candidates: tuple[int, ...] | None = Field(
        None,
        description="numbers of bins; paper mode weighs them per field value (default 5, 10, 20), "
        "robust mode takes the largest (default 20)",
    )
    accuracy: int = Field(1000, ge=10, description="accuracy of percentile_approx (method: approx_quantile)")

    @field_validator("n_bins_candidates")
    @classmethod
    def _increasing(cls, value: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if value is not None and (not value or value[0] < 1 or list(value) != sorted(set(value)) or value[-1] > 200):
            raise ValueError("different whole numbers from 1 to 200 in increasing order")
        return value


MUCH_INFORMATION = 200_000
"""Σp(1 − p) over the rows of a fit from which the auxiliary network is wider and takes numbers in pieces too.

Measured: with 380,000 (2.4 million flights, a fifth of them late) both gain much; with 20,000 to 60,000 the pieces gain
here and lose there.
"""


class AuxiliaryConfig(_Section):
    """The auxiliary network: what the sample's features add to its field value's function."""

    enabled: bool | None = Field(None, description="on when there are features, unless said here")
    features: tuple[str, ...] | None = Field(None, description="names from `features`; all of them by default")
    hidden: tuple[PositiveInt, ...] | None = Field(
        None,
        description="widths of the hidden layers; by default 64, 64, and 128, 64 where the samples hold much "
        "information (Σp(1 − p) of 200,000, say 2 million rows at a rate of 11 %)",
    )
    numeric_pieces: int | None = Field(
        None,
        ge=0,
        le=256,
        description="each numeric feature is given in so many pieces besides (piecewise linear encoding), which lets "
        "the network follow sharp bends; by default none, and 16 where the samples hold much information",
    )
    embedding_width: int = Field(16, ge=1, le=256)
    field_value_embedding: bool = Field(
        True, description="an embedding of the field value among the inputs, with a normal prior"
    )
    epochs: int = Field(
        20,
        ge=0,
        le=1000,
        description="passes over the training rows at most; with split.by: date the chosen ones once more, on all rows",
    )
    patience: int = Field(2, ge=1, description="epochs without a smaller held-out loss after which training ends")
    batch_size: int | None = Field(
        None,
        ge=1,
        description="rows of one step, over all ranks; by default a 128th of the rows, between 512 and 4,096",
    )
    learning_rate: float = Field(5e-3, gt=0)

    def choose_hidden(self, information: float) -> tuple[int, ...]:
        """Widths of the hidden layers: many labels can tell more than a small network can hold.

        Args:
            information: Σp(1 − p) over the rows of the fit.
        """
        if self.hidden is not None:
            return self.hidden
        return (64, 64) if information < MUCH_INFORMATION else (128, 64)

    def choose_numeric_pieces(self, information: float) -> int:
        """Pieces of each numeric feature; see `choose_hidden`."""
        if self.numeric_pieces is not None:
            return self.numeric_pieces
        return 0 if information < MUCH_INFORMATION else 16

    def choose_batch_size(self, n_rows: int) -> int:
        """Rows of one step: small tables need small steps, or an epoch is over before anything is learnt."""
        return self.batch_size or min(max(n_rows // 128, 512), 4096)


SWITCH_MODES = {
    "posterior_guidance": ("paper",),
    "adaptive_function": ("paper",),
    "adaptive_binning": ("paper",),
    "value_level": ("robust",),
    "value_slope": ("robust",),
    "value_shape": ("robust",),
    "bin_shrinkage": ("robust",),
    "do_no_harm": ("robust",),
    "forward_slope": ("robust",),
    "value_parent": ("robust",),
    "hard_monotone": ("robust",),
    "re_level": ("robust", "isotonic_offset"),
}
"""The modes in which a switch acts; in another mode it is refused, so that none is silently ignored."""


class CalibratorConfig(_Section):
    """AdaCalib itself: its mode and one switch per part."""

    mode: Literal["robust", "paper", "neucalib", "isotonic_offset"] = Field(
        "robust",
        description="AdaCalib in its two modes; to compare with: NeuCalib, and isotonic + offset per field value with "
        "the same auxiliary network",
    )
    fit_on: Literal["train_and_dev", "dev"] = Field(
        "train_and_dev", description="rows that posteriors, functions and networks of the calibrator are fitted on"
    )
    auxiliary: AuxiliaryConfig = AuxiliaryConfig()
    # the paper's four ablation switches (the fourth is auxiliary.enabled)
    posterior_guidance: bool = Field(True, description="false: free knots instead of MLP(posterior) (paper mode)")
    adaptive_function: bool = Field(True, description="false: one function for all field values (paper mode)")
    adaptive_binning: bool = Field(True, description="false: the middle candidate only, no gate (paper mode)")
    # parts of robust mode
    value_level: bool = Field(True, description="empirical-Bayes level per field value")
    value_slope: bool = Field(True, description="empirical-Bayes slope per field value")
    value_shape: bool = Field(True, description="empirical-Bayes bends per field value: smooth shape beyond the slope")
    value_parent: bool = Field(
        True, description="levels shrink towards that of the value's parent, where the run has a `parent`"
    )
    bin_shrinkage: bool = Field(True, description="shrunken shift per bin")
    re_level: bool = Field(True, description="level per field value fitted once more after the auxiliary network")
    hard_monotone: bool = Field(True, description="false: knots may fall where the bins say so")
    do_no_harm: bool = Field(True, description="the global curve alone where held-out loss prefers it")
    forward_slope: bool = Field(
        True,
        description="with split.by: date, calibrated log-odds shrink by the calibration slope that later days show of "
        "a fit to the earlier ones, as far as it lies more than two standard errors below 1",
    )
    seed: int | None = Field(
        None,
        ge=0,
        lt=2**31,
        description="of its training alone: initialisation and batches; by default the run's, which decides "
        "the tables too",
    )
    # paper mode and NeuCalib
    epochs: int = Field(
        8, ge=1, le=1000, description="passes over the training rows without auxiliary network (paper mode, NeuCalib)"
    )
    learning_rate: float = Field(
        2e-3, gt=0, description="of that training; with an auxiliary network that one's counts"
    )
    penalty_weight: float | None = Field(
        None,
        ge=0,
        description="weight of the monotony penalty; by default .01 in paper mode (the 1 of Eq. 5 flattens the "
        "functions of values with few samples, whose posteriors fall as often as rise), 1 for NeuCalib's one curve",
    )
    temperature_start: float = Field(1.0, ge=0.05)
    temperature_end: float = Field(0.3, ge=0.05)

    def choose_penalty_weight(self) -> float:
        """The given weight, or the mode's own."""
        if self.penalty_weight is not None:
            return self.penalty_weight
        return 0.01 if self.mode == "paper" else 1.0

    @model_validator(mode="after")
    def _switches_act_in_this_mode(self) -> CalibratorConfig:
        idle = [
            f"{name}: acts in mode {' and '.join(modes)} only, and this is mode {self.mode}"
            for name, modes in SWITCH_MODES.items()
            if self.mode not in modes and getattr(self, name) != type(self).model_fields[name].default
        ]
        if idle:
            raise ValueError("; ".join(idle))
        return self


class TrainingConfig(_Section):
    """Ranks, readers and safety of the distributed training."""

    ranks: int = Field(1, ge=1, le=1024)
    launcher: Literal["torchrun", "torch_distributor"] = "torchrun"
    threads_per_rank: int = Field(
        1,
        ge=1,
        description="threads that a rank computes with; the default network hardly gains from more, and threads "
        "that wait for one another stall on a busy machine",
    )
    collective_timeout_seconds: float = Field(300, gt=0)
    reader_threads: int = Field(1, ge=1, le=2)
    keep_checkpoints: int = Field(2, ge=1)
    resume: bool = Field(False, description="go on from the last checkpoint of the same configuration")
    hold_out_share: float = Field(
        0.1,
        gt=0,
        lt=0.5,
        description="rows that choose the epoch; with split.by: date the latest days, trained on afterwards",
    )
    rows_per_row_group: int = Field(65536, ge=1)


class EvaluationConfig(_Section):
    """Metrics and their intervals."""

    jackknife_groups: int = Field(50, ge=2, le=1000)
    interval_level: float = Field(0.95, gt=0, lt=1)
    attainable_draws: int = Field(25, ge=1, le=1000, description="draws of labels behind the attainable level")
    score_cells_per_logit: int | None = Field(
        None,
        ge=1,
        le=2**20,
        description="scores that share a cell count as tied in AUC and Field-AUC; metrics.json has the largest error "
        "that this can cause (auc_cell_error). By default 1048576, which is as good as exact, for up to a million "
        "scores (test rows × methods), and 128 beyond",
    )

    def choose_score_cells(self, n_scores: int) -> int:
        """Score cells per unit of logit for so many test rows × methods."""
        return self.score_cells_per_logit or (2**20 if n_scores <= 1_000_000 else 128)


class SparkConfig(_Section):
    """Used when the command line starts Spark itself; under spark-submit the cluster's settings count."""

    master: str = "local[*]"
    conf: str | None = Field(None, description="properties file; default spark_conf/local.conf")


_NOT_IN_GENERATION = {"path", "format", "max_rejected_share", "score_version"}
"""Keys of the input that leave the samples as they are."""


class RunConfig(_Section):
    """One run: everything that decides its outputs."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="the run lives in runs_dir/name")
    runs_dir: str = "runs"
    seed: int = Field(7, ge=0, lt=2**31)
    inputs_from: str | None = Field(
        None,
        min_length=1,
        description="folder of another run to begin with: its tables and predictor are read where this run has none of "
        "its own, and this run has the stages build_logit_cells to train_calibrator alone",
    )
    note: str | None = Field(None, description="a sentence for the report, about the data or the set-up")
    input: InputConfig
    fields: tuple[str, ...] = Field(min_length=1, description="the first is calibrated, all are evaluated")
    parent: str | None = Field(
        None,
        min_length=1,
        description="SQL expression: what a value of the calibrated field belongs to, the category of an item, say. "
        "Levels of values with few samples then shrink towards their parent's and not towards 0, and an unseen value "
        "has its parent's: scoring reads parent_id (robust mode)",
    )
    features: FeaturesConfig = FeaturesConfig()
    split: SplitConfig = SplitConfig()
    window: WindowConfig | None = Field(
        None, description="fit on the stored logit cells of earlier days too; this run's days are added to them"
    )
    predictor: PredictorConfig = PredictorConfig()
    bins: BinsConfig = BinsConfig()
    calibrator: CalibratorConfig = CalibratorConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    spark: SparkConfig = SparkConfig()

    @model_validator(mode="after")
    def _parts_fit_together(self) -> RunConfig:
        faults = []
        if len({field.lower() for field in self.fields}) < len(self.fields):
            faults.append("fields: a field stands twice (column names do not tell A from a)")
        for field in self.fields:
            if not re.fullmatch(r"[A-Za-z0-9_]+", field):
                faults.append(f"fields: {field!r} is not a column name of letters, digits and _")
        for section, names in (
            ("predictor", self.predictor.features),
            ("calibrator.auxiliary", self.calibrator.auxiliary.features),
        ):
            for name in names or ():
                if name not in self.features.names:
                    faults.append(
                        f"{section}.features: {name!r} is not in features ({_nearest(name, self.features.names)})"
                    )
        if self.input.score is None and not self.predictor_features:
            faults.append("neither input.score nor features for a predictor: give one of the two")
        if self.calibrator.auxiliary.enabled and not self.auxiliary_features:
            faults.append("calibrator.auxiliary.enabled: there are no features for it")
        if self.calibrator.fit_on == "dev" and self.split.dev == 0 and self.split.by != "column":
            faults.append("calibrator.fit_on: dev, but split.dev is 0: give it rows")
        if self.split.by == "date" and self.input.date is None:
            faults.append("split.by: date needs input.date")
        faults += self._list_window_faults()
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _list_window_faults(self) -> list[str]:
        """What a window of stored cells, which know no rows, cannot serve."""
        if self.window is None:
            return []
        needs = {
            "split.by: date (it ends where the test days begin)": self.split.by == "date",
            "no split.test_only (all rows of a day are stored)": self.split.test_only is None,
            "input.score (input.score_version names the model of the stored days)": self.has_own_scores,
            "calibrator.auxiliary.enabled: false (the network learns from rows)": not self.has_auxiliary_network,
            "calibrator.fit_on: train_and_dev (stored days are neither)": self.calibrator.fit_on == "train_and_dev",
            "bins.method: logit_cells": self.bins.method == "logit_cells",
            "no parent (cells do not know it)": self.parent is None,
            "no inputs_from (a run stores its own days)": self.inputs_from is None,
        }
        return [f"window: needs {what}" for what, holds in needs.items() if not holds]

    @property
    def run_dir(self) -> Path:
        return Path(self.runs_dir) / self.name

    @property
    def inputs_dir(self) -> Path:
        """The folder that holds the samples and the predictor: the run's own, or that of `inputs_from`."""
        return self.run_dir if self.inputs_from is None else Path(self.inputs_from)

    @property
    def field(self) -> str:
        """The calibrated field."""
        return self.fields[0]

    @property
    def has_own_scores(self) -> bool:
        return self.input.score is not None

    @property
    def predictor_features(self) -> tuple[str, ...]:
        return self.features.names if self.predictor.features is None else self.predictor.features

    @property
    def auxiliary_features(self) -> tuple[str, ...]:
        names = self.calibrator.auxiliary.features
        return self.features.names if names is None else names

    @property
    def has_auxiliary_network(self) -> bool:
        enabled = self.calibrator.auxiliary.enabled
        return bool(self.auxiliary_features) if enabled is None else enabled

    @property
    def streams_rows(self) -> bool:
        """False when the calibrator is fitted on logit cells alone (no auxiliary network, no network on the bins)."""
        return self.has_auxiliary_network or self.calibrator.mode in ("paper", "neucalib")

    @property
    def fit_splits(self) -> tuple[str, ...]:
        """The splits that the calibrator is fitted on."""
        return ("dev",) if self.calibrator.fit_on == "dev" else ("train", "dev")

    @property
    def n_bins_candidates(self) -> tuple[int, ...]:
        """The candidates in force: the middle one alone when adaptive binning is off."""
        chosen = self.bins.n_bins_candidates or ((5, 10, 20) if self.calibrator.mode == "paper" else (20,))
        return chosen if self.calibrator.adaptive_binning else (chosen[len(chosen) // 2],)

    def describe_generation(self, input_fingerprint: str) -> str:
        """What the samples of this run are made from, as a hash: input rows and every key that shapes the samples."""
        keys = {
            "input": self.input.model_dump(mode="json", exclude=_NOT_IN_GENERATION),
            "fields": self.fields,
            "parent": self.parent,
            "features": self.features.model_dump(mode="json"),
            "predictor_features": self.predictor_features,
            "auxiliary_features": self.auxiliary_features,
            "split": self.split.model_dump(mode="json"),
            "window": None if self.window is None else self.window.model_dump(mode="json", exclude={"path"}),
            "seed": self.seed,
            "input_fingerprint": input_fingerprint,
        }
        return hashlib.sha256(json.dumps(keys, sort_keys=False).encode()).hexdigest()[:32]

    def describe_cells(self) -> str:
        """What decides the logit cells of a day beside its rows and their model, as a hash.

        The row filter is not in it: it may name the day.
        """
        left_out = _NOT_IN_GENERATION | {"row_filter", "row_key", "truth"}
        keys = {"input": self.input.model_dump(mode="json", exclude=left_out), "fields": self.fields}
        return hashlib.sha256(json.dumps(keys, sort_keys=False).encode()).hexdigest()[:32]

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages of this run, in order."""
        skipped = set()
        if self.inputs_from is not None:
            first, last = STAGES.index("build_logit_cells"), STAGES.index("train_calibrator")
            skipped = {*STAGES[:first], *STAGES[last + 1 :]}
        if self.has_own_scores:
            skipped.add("train_predictor")
        if not self.streams_rows:
            skipped.add("build_training_rows")
        return tuple(stage for stage in STAGES if stage not in skipped)


def read_config(path: str | Path, overrides: tuple[str, ...] = ()) -> RunConfig:
    """Reads and validates a run's YAML file.

    Args:
        path: the YAML file.
        overrides: `key=value` with dots for sections, the value in YAML: `fields=[dest]`, `training.ranks=2`.

    Raises:
        ConfigError: the file is missing, is no YAML mapping, or has faults; all faults are listed, an unknown key
            with the nearest known one.
    """
    path = Path(path)
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such configuration file; configs/ holds examples")
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected a mapping of keys, found {type(content).__name__}")
    for override in overrides:
        _override(content, override)
    return parse_config(content, source=str(path))


def parse_config(content: dict[str, Any], source: str = "configuration") -> RunConfig:
    """Validates a configuration given as a mapping; see `read_config` for the errors."""
    try:
        return RunConfig.model_validate(content)
    except ValidationError as error:
        faults = "\n".join(f"  - {_describe(fault)}" for fault in error.errors())
        raise ConfigError(f"{source}: {error.error_count()} fault(s)\n{faults}") from error


def _override(content: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {override}: write it as key=value, with dots for sections")
    *sections, last = key.strip().split(".")
    for section in sections:
        content = content.setdefault(section, {})
        if not isinstance(content, dict):
            raise ConfigError(f"--set {override}: {section} is a value, not a section")
    try:
        content[last] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override}: the value is not valid YAML") from error


def _describe(fault: Any) -> str:
    location = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        model: Any = RunConfig
        for part in fault["loc"][:-1]:
            model = model.model_fields[part].annotation
        return f"{location}: unknown key ({_nearest(str(fault['loc'][-1]), tuple(model.model_fields))})"
    shown = "" if isinstance(fault["input"], dict) or fault["type"] == "missing" else f" (got {fault['input']!r})"
    message = fault["msg"].removeprefix("Value error, ")
    if fault["type"] in ("greater_than", "greater_than_equal", "less_than", "less_than_equal"):
        message = f"must be {_describe_range(fault['loc'])}"
    if fault["type"] == "tuple_type" and isinstance(fault["input"], str):
        message = f"a list is needed: write [{fault['input']}]"
    return f"{location + ': ' if location else ''}{message}{shown}"


def _describe_range(location: tuple[Any, ...]) -> str:
    """The range of a number, both ends of it, from its field's constraints."""
    model: Any = RunConfig
    for part in location[:-1]:
        model = model.model_fields[part].annotation
    words = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}
    found = {
        key: getattr(limit, key)
        for limit in model.model_fields[location[-1]].metadata
        for key in words
        if hasattr(limit, key)
    }
    return " and ".join(f"{words[key]} {value}" for key, value in found.items())


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
