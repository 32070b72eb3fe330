"""Ranks under every launcher: they end well together, or the run fails and says why."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

from adacalib.launch import TrainingFailed, describe_failures, launch
from tests.model.toy_training import toy_config, write_config

ROOT = Path(__file__).parent.parent


def config_for(folder: Path, note: str) -> Path:
    config = toy_config(folder, note=note, threads_per_rank=2)
    Path(config.runs_dir).mkdir(exist_ok=True)
    return write_config(config, folder / f"{note.replace(' ', '-')}.json")


def test_torchrun_runs_every_rank(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    launch("tests.launch_victim", config_for(tmp_path, "well"), ranks=2)
    output = capfd.readouterr().out
    for rank in (0, 1):
        assert f"rank {rank} of 2 is well, 2 of 2 threads, {Path.cwd()}" in output


def test_a_raising_rank_fails_the_run_with_its_traceback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TrainingFailed, match=r"^tests\.launch_victim: rank 1 raised ValueError: rank 1 has had enough"):
        launch("tests.launch_victim", config_for(tmp_path, "raise"), ranks=2)
    terminal = capfd.readouterr().err
    assert re.search(r"rank1\]?:? .*Traceback", terminal)
    assert 'raise ValueError("rank 1 has had enough")' in terminal


def test_the_rank_that_raised_first_is_named_first_however_late_it_ends(tmp_path: Path) -> None:
    told = (
        r"^tests\.launch_victim: rank 1 raised ValueError: rank 1 has had enough; rank 0 raised RuntimeError: .*closed"
    )
    with pytest.raises(TrainingFailed, match=told):
        launch("tests.launch_victim", config_for(tmp_path, "raise and end late"), ranks=2)


def test_a_killed_rank_fails_the_run_with_its_number_and_signal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TrainingFailed, match=r"rank 1 was killed by signal 9 \(SIGKILL\)"):
        launch("tests.launch_victim", config_for(tmp_path, "kill"), ranks=2)
    assert "rank 1 was killed by signal 9 (SIGKILL)" in capfd.readouterr().err


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        TrainingFailed, match=r"tests\.nothing: rank 0 ended with exit code 1; its traceback stands above"
    ):
        launch("tests.nothing", config_for(tmp_path, "well"), ranks=1)


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_no_rank_outlives_the_one_who_launched(tmp_path: Path, ending: signal.Signals) -> None:
    config = config_for(tmp_path, "hang")
    program = f"from adacalib.launch import launch; launch('tests.launch_victim', {str(config)!r}, ranks=2)"
    process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        pids = [int(wait_for(tmp_path / "runs" / f"pid-{rank}")) for rank in (0, 1)]
        process.send_signal(ending)
        process.wait(60)
    finally:
        process.kill()
    assert process.returncode != 0
    deadline = time.monotonic() + 60
    while any(map(is_alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(is_alive, pids))


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.1)
    return path.read_text()


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"  # a zombie has ended
    except OSError:
        return False


def test_a_run_past_its_limit_is_ended(tmp_path: Path) -> None:
    config = config_for(tmp_path, "hang")
    with pytest.raises(TrainingFailed, match="not finished after 1 seconds; its ranks were ended"):
        launch("tests.launch_victim", config, ranks=1, timeout_seconds=1)


def run_under_spark(master: str, folder: Path, notes: list[str]) -> tuple[list[str], str]:
    configs = [str(config_for(folder, note)) for note in notes]
    command = [sys.executable, str(ROOT / "tests" / "launch_under_spark.py"), master, *configs]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout
    outcomes = [json.loads(line)["outcome"] for line in done.stdout.splitlines() if line.startswith('{"outcome"')]
    return outcomes, done.stdout


@pytest.mark.parametrize(
    ("master", "notes"),
    [
        ("local[2]", ["well", "raise", "kill", "kill after the other has ended"]),
        ("local-cluster[2,1,2048]", ["well", "raise", "kill"]),
    ],
)
def test_torch_distributor(tmp_path: Path, master: str, notes: list[str]) -> None:
    outcomes, terminal = run_under_spark(master, tmp_path, notes)
    assert outcomes[0] == "well"
    for rank in (0, 1):
        assert f"rank {rank} of 2 is well, 2 of 2 threads, {ROOT}" in terminal
    for outcome in outcomes[1:3]:
        assert "rank 0, 1 of 2 did not end well under TorchDistributor" in outcome
    assert 'raise ValueError("rank 1 has had enough")' in terminal
    assert re.search(r"rank +: 1 .*\n +exitcode +: -9 .*SIGKILL", terminal)
    # rank 1 has left its output by then, which is all that TorchDistributor looks at
    assert all("rank 0 of 2 did not end well" in outcome for outcome in outcomes[3:])
    assert not list((tmp_path / "runs" / "toy").iterdir())


def test_torch_distributor_needs_a_session(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"needs a Spark session; start one, or set training.launcher=torchrun"):
        launch("tests.launch_victim", config_for(tmp_path, "well"), ranks=2, launcher="torch_distributor")


def failure(exitcode: int, error_file: Path | str = "none") -> ProcessFailure:
    return ProcessFailure(local_rank=0, pid=1, exitcode=exitcode, error_file=str(error_file))


def recorded(file: Path, message: str, second: int) -> Path:
    file.write_text(json.dumps({"message": {"message": message, "extraInfo": {"timestamp": "1"}}}))
    os.utime(file, (second, second))
    return file


def test_failures_are_described_by_their_causes(tmp_path: Path) -> None:
    told = recorded(tmp_path / "error.json", "KeyError: 3", second=1)
    failures = {2: failure(-9), 0: failure(-15), 1: failure(1, told), 3: failure(7)}
    # rank 0 was ended by torchrun because of the others
    assert describe_failures(failures) == (
        "rank 2 was killed by signal 9 (SIGKILL); rank 3 ended with exit code 7; its traceback stands above; "
        "rank 1 raised KeyError: 3"
    )
    assert describe_failures({0: failure(-15)}) == "rank 0 was killed by signal 15 (SIGTERM)"


def test_what_was_recorded_first_is_told_first(tmp_path: Path) -> None:
    cause = recorded(tmp_path / "1.json", "ValueError: rank 1 has had enough", second=1)
    consequence = recorded(tmp_path / "0.json", "RuntimeError: Connection closed by peer", second=2)
    # rank 1 was so slow to end that torchrun saw the end of rank 0 first, and ended rank 1
    assert describe_failures({0: failure(1, consequence), 1: failure(-15, cause)}) == (
        "rank 1 raised ValueError: rank 1 has had enough; rank 0 raised RuntimeError: Connection closed by peer"
    )
