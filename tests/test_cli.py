"""The command: options, messages, exit codes. Stages are stood in for; what they do is tested in tests/jobs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from adacalib import cli
from adacalib.config import STAGES, parse_config
from adacalib.doctor import Finding
from jobs import ablate, compare, generate, pipeline, prepare_ali_ccp
from tests.report.small_comparison import make_ablation, make_comparison

OWN_SCORES = {
    "name": "one",
    "input": {"path": "scores.parquet", "label": "label", "score": "score"},
    "fields": ["campaign"],
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "one.yaml"
    file.write_text(yaml.safe_dump(OWN_SCORES | {"runs_dir": str(tmp_path / "runs")}))
    return str(file)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, tuple[str, ...]]]:
    """What run_stages was asked to do, instead of doing it."""
    asked: list[tuple[Any, tuple[str, ...]]] = []
    monkeypatch.setattr(pipeline, "run_stages", lambda config, stages, console: asked.append((config, stages)))
    return asked


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, arguments)


def test_help_is_quick_because_it_imports_neither_spark_nor_torch() -> None:
    code = (
        "import sys, adacalib.cli as c\n"
        "try: c.app(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'pyspark', 'torch', 'pyarrow', 'petastorm', 'numpy', 'pandas', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert all(stage in done.stdout for stage in STAGES)


@pytest.mark.parametrize("stage", STAGES)
def test_each_stage_has_a_page_that_says_what_it_reads_and_writes(stage: str) -> None:
    result = call(stage, "--help")
    assert result.exit_code == 0
    assert "Writes" in result.stdout and "--config" in result.stdout and "--set" in result.stdout


def test_stage_help_covers_exactly_the_stages() -> None:
    assert tuple(cli.STAGE_HELP) == STAGES


def test_run_takes_a_range_and_overrides(path: str, runs: list[Any]) -> None:
    result = call(
        "run",
        "--config",
        path,
        "--from",
        "score_samples",
        "--until",
        "evaluate",
        "--set",
        "seed=3",
        "--set",
        "fields=[a, b]",
    )
    assert result.exit_code == 0, result.stderr
    ((config, stages),) = runs
    assert (config.seed, config.fields) == (3, ("a", "b"))
    assert (stages[0], stages[-1]) == ("score_samples", "evaluate")


@pytest.mark.parametrize("name", ["build_logit_cells", "build-logit-cells"])
def test_stage_is_a_command_with_either_dash(name: str, path: str, runs: list[Any]) -> None:
    assert call(name, "--config", path).exit_code == 0
    assert runs[0][1] == ("build_logit_cells",)


def test_configuration_fault_is_a_message_and_exit_code_2(path: str) -> None:
    result = call("run", "--config", path, "--set", "training.rank=2")
    assert result.exit_code == 2
    assert "training.rank: unknown key (did you mean ranks?)" in result.stderr
    assert "Traceback" not in result.stderr and result.stdout == ""


def test_unknown_stage_gets_the_nearest(path: str) -> None:
    result = call("run", "--config", path, "--from", "scores_sample")
    assert result.exit_code == 2
    assert "did you mean score_samples?" in result.stderr


def test_unknown_command_gets_the_nearest() -> None:
    result = call("docter")
    assert result.exit_code == 2
    assert "doctor" in result.stderr and "Traceback" not in result.stderr


def test_failed_run_is_a_message_and_exit_code_1(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        try:
            raise ValueError("label [3] is neither 0 nor 1")
        except ValueError as error:
            raise pipeline.StageFailed("prepare_samples failed: label [3] is neither 0 nor 1") from error

    monkeypatch.setattr(pipeline, "run_stages", fail)
    result = call("run", "--config", path)
    assert result.exit_code == 1
    assert result.stderr.strip() == "error: prepare_samples failed: label [3] is neither 0 nor 1"
    verbose = call("run", "--config", path, "--verbose")
    assert "Traceback" in verbose.stderr and "ValueError: label [3]" in verbose.stderr


def test_interrupt_has_its_own_exit_code(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "run_stages", interrupt)
    result = call("run", "--config", path)
    assert result.exit_code == 130
    assert "interrupted" in result.stderr


def test_config_prints_what_it_reads_back(path: str) -> None:
    result = call("config", "--config", path, "--set", "seed=5")
    assert result.exit_code == 0
    content = yaml.safe_load(result.stdout)
    assert content["training"]["ranks"] == 1  # a default
    assert parse_config(content).seed == 5


def test_config_schema_is_json_and_needs_no_file() -> None:
    schema = json.loads(call("config", "--schema").stdout)
    assert schema["$defs"]["TrainingConfig"]["properties"]["ranks"]["minimum"] == 1


def test_config_without_file_says_what_to_give() -> None:
    result = call("config")
    assert result.exit_code == 2
    assert "--config FILE" in result.stderr


def test_doctor_names_the_cure_and_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    well = Finding("Python", "3.11.7", "3.11.*")
    monkeypatch.setattr(cli, "examine", lambda runs_dir: [well, Finding("Java", "11", "17", "install [Java] 17")])
    result = call("doctor")
    assert result.exit_code == 1
    assert "Java: install [Java] 17" in result.stdout
    monkeypatch.setattr(cli, "examine", lambda runs_dir: [well])
    assert call("doctor").exit_code == 0


class Job:
    """Stands in for a job's run; records what it was asked."""

    def __init__(self, answer: Any = None) -> None:
        self.asked: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.answer = answer

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        self.asked.append((arguments, keywords))
        return self.answer


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sessions started, instead of starting them, and what became of them."""
    seen: list[str] = []

    class Session:
        def stop(self) -> None:
            seen.append("stopped")

    def start(settings: Any, name: str) -> Session:
        seen.append(name)
        return Session()

    monkeypatch.setattr("adacalib.io.start_session", start)
    return seen


EVIDENCE = {
    "compare": (compare, make_comparison(3), "isotonic + offset"),
    "ablate": (ablate, make_ablation(3), "− posterior guidance"),
}


@pytest.mark.parametrize("command", EVIDENCE)
def test_evidence_takes_seeds_overrides_and_resume_and_prints_both_tables(
    command: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, document, row = EVIDENCE[command]
    stand_in = Job(document)
    monkeypatch.setattr(job, "run", stand_in)
    result = call(command, "--config", path, "--seeds", "3", "--set", "seed=11", "--resume")
    assert result.exit_code == 0, result.stderr
    (((config, seeds, console), keywords),) = stand_in.asked
    all_rows = {"only": ()} if command == "ablate" else {}
    assert (config.seed, seeds, keywords) == (11, 3, {"resume": True} | all_rows)
    assert console is cli.out
    assert row in result.stdout and "Field-AUC" in result.stdout and "LogLoss" in result.stdout
    call(command, "--config", path)
    assert (stand_in.asked[1][0][1], stand_in.asked[1][1]) == (5, {"resume": False} | all_rows)


def test_ablate_can_be_asked_for_single_rows(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = Job(make_ablation(3))
    monkeypatch.setattr(ablate, "run", stand_in)
    assert call("ablate", "--config", path, "--only", "paper_full", "--only", "robust_no_slope").exit_code == 0
    assert stand_in.asked[0][1]["only"] == ["paper_full", "robust_no_slope"]
    monkeypatch.undo()
    wrong = call("ablate", "--config", path, "--only", "no_slope")
    assert wrong.exit_code == 2 and "--only no_slope: no such row here; there are paper_full" in wrong.stderr


@pytest.mark.parametrize("command", EVIDENCE)
@pytest.mark.parametrize("seeds", ["0", "-1", "few"])
def test_impossible_number_of_seeds_is_refused(
    command: str, seeds: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = Job()
    monkeypatch.setattr(EVIDENCE[command][0], "run", stand_in)
    result = call(command, "--config", path, "--seeds", seeds)
    assert result.exit_code == 2 and stand_in.asked == []
    assert "--seeds" in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("command", EVIDENCE)
def test_evidence_that_fails_is_a_message(command: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise pipeline.StageFailed("train_calibrator failed: no rows")

    monkeypatch.setattr(EVIDENCE[command][0], "run", fail)
    result = call(command, "--config", path)
    assert (result.exit_code, result.stderr.strip()) == (1, "error: train_calibrator failed: no rows")
    wrong = call(command, "--config", path, "--set", "calibrator.mode=robst")
    assert wrong.exit_code == 2 and "calibrator.mode" in wrong.stderr


def test_generate_has_a_session_for_the_job_alone(sessions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = Job()
    monkeypatch.setattr(generate, "run", stand_in)
    assert call("generate", "--world", "cvr_like", "--rows", "40", "--seed", "3").exit_code == 0
    assert call("generate", "--world", "no_effect", "--out", "there").exit_code == 0
    assert sessions == ["generate", "stopped"] * 2
    assert [arguments[1:] for arguments, _ in stand_in.asked] == [
        ("cvr_like", 40, 3, "runs/worlds/cvr_like-40-3"),
        ("no_effect", 2_000_000, 1, "there"),
    ]


def test_unknown_world_is_refused_before_spark_starts(sessions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "run", Job())
    result = call("generate", "--world", "cvrlike")
    assert result.exit_code == 2
    assert result.stderr.strip() == "error: unknown world 'cvrlike' (did you mean cvr_like?)"
    assert sessions == []


@pytest.mark.parametrize("option", [("--rows", "0"), ("--seed", "-1")])
def test_impossible_size_of_a_world_is_refused(option: tuple[str, str], sessions: list[str]) -> None:
    result = call("generate", "--world", "cvr_like", *option)
    assert result.exit_code == 2 and option[0] in result.stderr and sessions == []


def test_session_is_stopped_where_the_job_fails(sessions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("there: is there and is no generated world")

    monkeypatch.setattr(generate, "run", fail)
    result = call("generate", "--world", "cvr_like", "--out", "there")
    assert (result.exit_code, result.stderr.strip()) == (1, "error: there: is there and is no generated world")
    assert sessions == ["generate", "stopped"]


@pytest.mark.parametrize("name", ["prepare-ali-ccp", "prepare_ali_ccp"])
def test_prepare_ali_ccp_is_a_command(name: str, sessions: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = Job()
    monkeypatch.setattr(prepare_ali_ccp, "run", stand_in)
    result = call(name, "--raw", "four-files", "--seed", "2")
    assert result.exit_code == 0, result.stderr
    assert sessions == ["prepare-ali-ccp", "stopped"]
    assert stand_in.asked[0][0][1:] == ("four-files", "runs/ali-ccp", 2)
    assert call(name).exit_code == 2  # without --raw


@pytest.mark.parametrize("command", [*EVIDENCE, "generate", "prepare-ali-ccp"])
def test_each_other_command_has_a_page_that_says_what_it_writes(command: str) -> None:
    result = call(command, "--help")
    assert result.exit_code == 0 and "Write" in result.stdout
    assert command in call("--help").stdout
