"""Starts ranks: torchrun as a process of its own, or pyspark's TorchDistributor.

Whatever the launcher, `launch` returns only when every rank has ended well, and no rank outlives the process that
called it. The module that is launched has a `main(arguments)` and is run on every rank.

Run as a program (`python -m adacalib.launch ARGUMENTS OF TORCHRUN`), it is torchrun that ends with its parent and
says in one line per rank what went wrong.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

from adacalib.config import RunConfig, read_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILURES_FILE = "ADACALIB_FAILURES_FILE"
"""Environment variable: where the started torchrun leaves its description of a failure."""

_SECONDS_TO_END = 60.0


class TrainingFailed(RuntimeError):
    """A rank raised or was killed; the message says which and why as far as its launcher knows."""


def launch(
    module: str,
    config_path: str | Path,
    ranks: int,
    launcher: Literal["torchrun", "torch_distributor"] = "torchrun",
    spark: SparkSession | None = None,
    local_mode: bool | None = None,
    timeout_seconds: float | None = None,
) -> None:
    """Runs `module`'s `main(["--config", config_path])` on every rank and waits for the end.

    The ranks' output goes to the terminal: a raising rank's traceback, a killed rank's number and signal.

    Args:
        module: "jobs.train_predictor", say.
        config_path: the run's YAML or JSON file; with a Spark cluster, on storage that every executor reaches under
            the same path, like the run's folder.
        ranks: how many processes.
        launcher: torchrun on this machine, or TorchDistributor in `spark`.
        spark: the session, for torch_distributor.
        local_mode: TorchDistributor's: ranks on the driver's machine (True) or on the executors (False); by default
            what the session's master suggests.
        timeout_seconds: torchrun only: ends the ranks after so long; no limit by default, since every wait inside the
            ranks has its own (training.collective_timeout_seconds).

    Raises:
        TrainingFailed: a rank raised, was killed or ran past the limit.
        ValueError: torch_distributor without a session.
    """
    config_path = Path(config_path).resolve()
    config = read_config(config_path)
    if launcher == "torchrun":
        _launch_torchrun(module, config_path, ranks, config.training.threads_per_rank, timeout_seconds)
        return
    if spark is None:
        raise ValueError(
            "launcher torch_distributor: needs a Spark session; start one, or set training.launcher=torchrun"
        )
    _launch_distributor(module, config_path, config, ranks, spark, local_mode)


def _launch_torchrun(module: str, config_path: Path, ranks: int, threads: int, timeout_seconds: float | None) -> None:
    with tempfile.TemporaryDirectory(prefix="adacalib-ranks-") as folder:
        failures = Path(folder) / "failures"
        command = [sys.executable, "-m", "adacalib.launch", "--standalone", "--nproc-per-node", str(ranks)]
        command += ["--log-dir", folder, "--module", module, "--config", str(config_path)]
        process = subprocess.Popen(command, env=_environment(threads) | {FAILURES_FILE: str(failures)})
        try:
            code = process.wait(timeout_seconds)
        except subprocess.TimeoutExpired as error:
            _end(process)
            raise TrainingFailed(
                f"{module}: not finished after {timeout_seconds:g} seconds; its ranks were ended"
            ) from error
        except BaseException:
            _end(process)
            raise
        if code:
            what = failures.read_text() if failures.exists() else f"torchrun ended with exit code {code}"
            raise TrainingFailed(f"{module}: {what}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends torchrun, which ends its ranks."""
    process.terminate()
    try:
        process.wait(_SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_SECONDS_TO_END)


def _environment(threads: int) -> dict[str, str]:
    root = str(Path(__file__).resolve().parent.parent)
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    count = str(threads)
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
    }


def _launch_distributor(
    module: str,
    config_path: Path,
    config: RunConfig,
    ranks: int,
    spark: SparkSession,
    local_mode: bool | None,
) -> None:
    from pyspark.ml.torch.distributor import TorchDistributor

    if local_mode is None:
        local_mode = str(spark.sparkContext.master).split("[")[0] == "local"
    use_gpu = not local_mode and spark.sparkContext.getConf().contains("spark.task.resource.gpu.amount")
    distributor = TorchDistributor(num_processes=ranks, local_mode=local_mode, use_gpu=use_gpu)
    # Its own word on success is worth little: every rank writes the same output file, so that one which ends well
    # hides one which dies. Each rank leaves a mark of its own instead.
    marks = config.run_dir.resolve() / f".ranks-{uuid4().hex}"
    marks.mkdir(parents=True)
    try:
        distributor.run(
            _make_rank_function(),
            module,
            ["--config", str(config_path)],
            os.getcwd(),
            sys.path,
            str(config.training.threads_per_rank),
            str(marks),
        )
        failure = None
    except Exception as error:  # RuntimeError in local mode, a Py4J error from executors
        failure = error
    missing = sorted(set(map(str, range(ranks))) - {mark.name for mark in marks.iterdir()}, key=int)
    shutil.rmtree(marks)
    if missing or failure is not None:
        raise TrainingFailed(
            f"{module}: rank {', '.join(missing) or '(all)'} of {ranks} did not end well under TorchDistributor"
            f"{_last_python_error(failure)}; the terminal shows a raising rank's traceback, or a killed rank's number "
            "and signal"
        ) from failure


def _last_python_error(failure: Exception | None) -> str:
    """The last line of a Python traceback inside a Java exception's text."""
    telling = r"^(?!RuntimeError: TorchDistributor failed)[\w.]+(?:Error|Exception|Failed): .*$"
    errors = re.findall(telling, str(failure or ""), re.MULTILINE)
    return f" ({errors[-1]})" if errors else ""


def _make_rank_function() -> Callable[..., None]:
    """What TorchDistributor runs on each rank. A nested function travels by value, so executors need not have it."""

    def run_rank(module: str, arguments: list[str], folder: str, paths: list[str], threads: str, marks: str) -> None:
        import importlib
        import os
        import pathlib
        import sys

        os.environ.update(OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads)
        here = pathlib.Path.cwd()
        if str(here) != folder:
            # on an executor: what --py-files shipped lies in its working folder, but not on the rank's path
            sys.path.extend([str(here), *map(str, here.glob("*.zip"))])
            os.chdir(folder)  # relative paths of the configuration mean the driver's
        sys.path.extend(path for path in paths if path not in sys.path)
        importlib.import_module(module).main(arguments)
        pathlib.Path(marks, os.environ["RANK"]).touch()

    return run_rank


def run_torchrun(arguments: Sequence[str]) -> None:
    """torchrun that ends with its parent; a failure is described on stderr and in the file of FAILURES_FILE."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    from adacalib.model.distributed import die_with_parent

    die_with_parent()
    try:
        run(parse_args(list(arguments)))  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        description = describe_failures(error.failures)
        print(f"error: {description}", file=sys.stderr)
        if FAILURES_FILE in os.environ:
            Path(os.environ[FAILURES_FILE]).write_text(description)
        sys.exit(1)


def describe_failures(failures: Mapping[int, Any]) -> str:
    """One clause per failed rank, the first cause first.

    A rank that raises takes the others with it: their next sum fails, and torchrun ends whoever still runs, the first
    one among them if it is slow to end. So the order is that of what the ranks recorded, not of their ends.

    Args:
        failures: rank → torch's ProcessFailure. Ranks that torchrun ended because of the others (SIGTERM, and nothing
            recorded) are left out, unless there are no others.
    """
    causes = {
        rank: failure
        for rank, failure in failures.items()
        if failure.exitcode != -signal.SIGTERM or _has_recorded(failure)
    } or failures
    return "; ".join(
        _describe(rank, causes[rank]) for rank in sorted(causes, key=lambda rank: (_time(causes[rank]), rank))
    )


def _has_recorded(failure: Any) -> bool:
    """Whether join_ranks left word of an exception."""
    return isinstance(failure.message, dict)


def _time(failure: Any) -> int:
    """When the rank recorded its exception, in nanoseconds; 0, so first, for one that left no word (killed, say)."""
    return Path(failure.error_file).stat().st_mtime_ns if _has_recorded(failure) else 0


def _describe(rank: int, failure: Any) -> str:
    if _has_recorded(failure):
        return f"rank {rank} raised {failure.message['message']}"
    if failure.exitcode < 0:
        return f"rank {rank} was killed by signal {-failure.exitcode} ({failure.signal_name()})"
    return f"rank {rank} ended with exit code {failure.exitcode}; its traceback stands above"


if __name__ == "__main__":
    run_torchrun(sys.argv[1:])
