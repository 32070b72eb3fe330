"""A whole run with stand-ins for the stages: order, one session, status.json, failures."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from adacalib.config import STAGES, ConfigError, RunConfig, SparkConfig, parse_config, read_config
from adacalib.manifest import MixedTables
from jobs import pipeline
from jobs.pipeline import RANK_STAGES, StageFailed, run_stages, select_stages


@pytest.fixture
def config(tmp_path: Any) -> RunConfig:
    return parse_config(
        {
            "name": "one",
            "runs_dir": str(tmp_path),
            "input": {"path": "t", "label": "y"},
            "features": {"numeric": ["x"]},
            "fields": ["f"],
            "training": {"ranks": 3},
        }
    )


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=200)


class Stages:
    """Stands in for jobs/, launch and Spark; records what was called with what."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.sessions: list[str] = []
        for stage in set(STAGES) - set(RANK_STAGES):
            monkeypatch.setitem(sys.modules, f"jobs.{stage}", SimpleNamespace(run=self._stage(stage)))
        monkeypatch.setitem(sys.modules, "adacalib.launch", SimpleNamespace(launch=self._launch))
        monkeypatch.setattr(pipeline, "start_session", self._start_session)
        self._monkeypatch = monkeypatch

    def replace(self, stage: str, run: Callable[..., None]) -> None:
        self._monkeypatch.setitem(sys.modules, f"jobs.{stage}", SimpleNamespace(run=run))

    def _stage(self, stage: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((stage, arguments))

    def _launch(self, **arguments: Any) -> None:
        self.calls.append((arguments["module"].removeprefix("jobs."), arguments))

    def _start_session(self, settings: SparkConfig, name: str) -> Any:
        self.sessions.append("started")
        return SimpleNamespace(stop=lambda: self.sessions.append("stopped"))


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Stages:
    return Stages(monkeypatch)


def read_status(config: RunConfig) -> dict[str, Any]:
    return json.loads((config.run_dir / "status.json").read_text())


def test_all_stages_run_in_order_in_one_session(config: RunConfig, stages: Stages, console: Console) -> None:
    def evaluate(spark: Any, config: RunConfig) -> None:
        stages.calls.append(("evaluate", (spark, config)))
        methods = {name: {} for name in ("uncalibrated", "isotonic", "isotonic_offset", "adacalib")}
        metrics = {"field": "f", "n_test": 2, "n_fit": 8, "reference_score": "isotonic_offset", "methods": methods}
        (config.run_dir / "metrics.json").write_text(json.dumps(metrics))

    stages.replace("evaluate", evaluate)
    run_stages(config, config.stages, console)
    assert [stage for stage, _ in stages.calls] == list(STAGES)
    assert stages.sessions == ["started", "stopped"]
    spark = stages.calls[0][1][0]
    assert stages.calls[-1][1] == (config,)  # the report takes no session
    launched = dict(stages.calls)["train_calibrator"]
    assert (launched["ranks"], launched["launcher"], launched["spark"]) == (3, "torchrun", spark)
    assert read_config(launched["config_path"]) == config
    printed = console.file.getvalue()
    assert "1/10 prepare_samples" in printed and "f: 2 test samples" in printed and "report.html" in printed


def test_status_tells_state_timings_versions_and_fingerprint(
    config: RunConfig, stages: Stages, console: Console
) -> None:
    seen = []

    def prepare(spark: Any, config: RunConfig) -> None:
        seen.append(read_status(config))
        samples = config.run_dir / "tables" / "samples"
        samples.mkdir(parents=True)
        (samples / "_manifest.json").write_text('{"input_fingerprint": "8-ff"}')

    stages.replace("prepare_samples", prepare)
    run_stages(config, ("prepare_samples", "score_samples"), console)
    assert (seen[0]["state"], seen[0]["stage"]) == ("running", "prepare_samples")
    status = read_status(config)
    assert (status["state"], status["stage"], status["error"]) == ("succeeded", None, None)
    assert (status["input_fingerprint"], status["seed"]) == ("8-ff", config.seed)
    assert status["versions"]["pyarrow"] == "14.0.2"
    assert list(status["stages"]) == ["prepare_samples", "score_samples"]
    assert all(entry["state"] == "succeeded" and entry["seconds"] >= 0 for entry in status["stages"].values())
    assert status["started"] <= status["ended"] and status["ended"].endswith("+00:00")


def test_stage_without_spark_starts_no_session(config: RunConfig, stages: Stages, console: Console) -> None:
    run_stages(config, ("train_predictor",), console)
    assert stages.sessions == []
    assert dict(stages.calls)["train_predictor"]["spark"] is None


def test_torch_distributor_gets_a_session_even_alone(config: RunConfig, stages: Stages, console: Console) -> None:
    training = config.training.model_copy(update={"launcher": "torch_distributor"})
    run_stages(config.model_copy(update={"training": training}), ("train_predictor",), console)
    assert stages.sessions == ["started", "stopped"]
    assert dict(stages.calls)["train_predictor"]["spark"] is not None


def test_failed_stage_ends_the_run_and_says_so(config: RunConfig, stages: Stages, console: Console) -> None:
    def fail(spark: Any, config: RunConfig) -> None:
        raise ValueError("3 labels are neither 0 nor 1; repair them")

    stages.replace("score_samples", fail)
    with pytest.raises(StageFailed, match="score_samples failed: 3 labels are neither 0 nor 1; repair them"):
        run_stages(config, ("prepare_samples", "score_samples", "build_logit_cells"), console)
    assert [stage for stage, _ in stages.calls] == ["prepare_samples"]
    assert stages.sessions == ["started", "stopped"]
    status = read_status(config)
    assert (status["state"], status["stage"]) == ("failed", "score_samples")
    assert status["error"] == "3 labels are neither 0 nor 1; repair them"
    assert {stage: entry["state"] for stage, entry in status["stages"].items()} == {
        "prepare_samples": "succeeded",
        "score_samples": "failed",
    }
    assert "in fail" in (config.run_dir / "error.log").read_text()


def test_repaired_run_leaves_no_old_error_behind(config: RunConfig, stages: Stages, console: Console) -> None:
    config.run_dir.mkdir()
    (config.run_dir / "error.log").write_text("old")
    run_stages(config, ("score_samples",), console)
    assert not (config.run_dir / "error.log").exists()
    assert read_status(config)["error"] is None


def test_interrupt_stays_an_interrupt(config: RunConfig, stages: Stages, console: Console) -> None:
    def interrupt(spark: Any, config: RunConfig) -> None:
        raise KeyboardInterrupt

    stages.replace("score_samples", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_stages(config, ("score_samples",), console)
    assert (read_status(config)["state"], read_status(config)["error"]) == ("failed", "interrupted")
    assert stages.sessions == ["started", "stopped"]


def test_range_of_stages_includes_both_ends(config: RunConfig) -> None:
    assert select_stages(config) == STAGES
    assert select_stages(config, "score_samples", "compute_bin_statistics") == STAGES[2:5]
    assert select_stages(config, first="evaluate") == ("evaluate", "report")
    assert select_stages(config, last="train_predictor") == STAGES[:2]


def test_range_leaves_out_what_the_run_skips() -> None:
    own = parse_config({"name": "o", "input": {"path": "t", "label": "y", "score": "s"}, "fields": ["f"]})
    assert select_stages(own, "train_predictor", "build_logit_cells") == ("score_samples", "build_logit_cells")
    with pytest.raises(ConfigError, match="nothing to run: this run skips train_predictor"):
        select_stages(own, "train_predictor", "train_predictor")


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        ("scores_sample", None, r"unknown stage 'scores_sample' \(did you mean score_samples\?\)"),
        (None, "build-logit-cells", r"did you mean build_logit_cells\?"),
        ("xyz", None, r"unknown stage 'xyz' \(stages: prepare_samples, "),
        ("evaluate", "score_samples", "--from evaluate comes after --until score_samples"),
    ],
)
def test_impossible_range_is_refused(config: RunConfig, first: str, last: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        select_stages(config, first, last)


def test_interrupt_during_a_spark_job_is_an_interrupt_whatever_the_job_raises(
    config: RunConfig, stages: Stages, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark cancels the job first, and that error comes back before the interrupt does
    def interrupted(*_: Any) -> None:
        pipeline._interrupted.set()
        raise RuntimeError("Job 3 cancelled")

    monkeypatch.setattr(pipeline, "_interrupted", threading.Event())
    stages.replace("prepare_samples", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_stages(config, ("prepare_samples",), console)
    status = json.loads((config.run_dir / "status.json").read_text())
    assert (status["state"], status["error"]) == ("failed", "interrupted")


def test_a_stage_of_another_configuration_is_refused_before_anything_is_recorded(
    config: RunConfig, stages: Stages, console: Console
) -> None:
    manifest = config.run_dir / "tables" / "samples" / "_manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text(json.dumps({"input_fingerprint": "1-a", "generation": config.describe_generation("1-a")}))
    run_stages(config, ("score_samples",), console)
    recorded = (config.run_dir / "effective_config.json").read_text()
    with pytest.raises(MixedTables, match="another input, fields, features, split or seed"):
        run_stages(config.model_copy(update={"seed": 99}), ("report",), console)
    assert (config.run_dir / "effective_config.json").read_text() == recorded


def test_a_given_session_is_used_and_stays_open(config: RunConfig, stages: Stages, console: Console) -> None:
    with contextlib.ExitStack() as cleanup:
        session = pipeline.SessionOnDemand(config, cleanup)
        run_stages(config, ("prepare_samples", "train_predictor"), console, session)
        run_stages(config.model_copy(update={"name": "two"}), ("score_samples",), console, session)
        assert stages.sessions == ["started"]
        first, second = (dict(stages.calls)[stage][0] for stage in ("prepare_samples", "score_samples"))
        assert first is second is session.current
        assert dict(stages.calls)["train_predictor"]["spark"] is first  # the launcher may use what is there
    assert stages.sessions == ["started", "stopped"]


def test_a_given_session_outlives_a_failure(config: RunConfig, stages: Stages, console: Console) -> None:
    def fail(spark: Any, config: RunConfig) -> None:
        raise ValueError("no rows")

    stages.replace("score_samples", fail)
    with contextlib.ExitStack() as cleanup:
        session = pipeline.SessionOnDemand(config, cleanup)
        with pytest.raises(StageFailed, match="score_samples failed: no rows"):
            run_stages(config, ("score_samples",), console, session)
        assert stages.sessions == ["started"]
    assert stages.sessions == ["started", "stopped"]


def test_a_session_that_nobody_asks_for_is_not_started(config: RunConfig, stages: Stages, console: Console) -> None:
    with contextlib.ExitStack() as cleanup:
        run_stages(config, ("train_predictor",), console, pipeline.SessionOnDemand(config, cleanup))
    assert stages.sessions == []


def test_a_quiet_console_says_nothing(config: RunConfig, stages: Stages) -> None:
    quiet = Console(file=io.StringIO(), quiet=True)
    run_stages(config, ("score_samples",), quiet)
    assert quiet.file.getvalue() == ""
    assert read_status(config)["state"] == "succeeded"
