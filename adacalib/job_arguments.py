"""The two options of every job that is started by spark-submit, torchrun or python."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from adacalib.config import RunConfig, read_config


def read_job_config(description: str | None, arguments: Sequence[str] | None = None) -> RunConfig:
    """The run that `--config FILE` and any number of `--set key=value` name.

    Args:
        description: the job's docstring, for `--help`.
        arguments: the command line's by default.

    Raises:
        ConfigError: see `read_config`.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="the run's YAML or JSON file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="overrides one key")
    options = parser.parse_args(arguments)
    return read_config(options.config, tuple(options.set))
