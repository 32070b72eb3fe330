"""Steps timed in turn, and bars on the ratios of their seconds: what the benchmarks of Spark's passes share.

A machine's speed wavers: steps run one after the other, several turns, and a ratio is taken within a turn.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

Steps = Mapping[str, Callable[[], Any]]
Seconds = Mapping[str, Sequence[float]]
"""Step → seconds per turn."""


@dataclass(frozen=True)
class Bar:
    """The seconds of one step over those of another, and the largest allowed value, if there is one."""

    name: str
    above: str
    below: str
    limit: float = math.inf


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """The options that all of these benchmarks have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--field-values", type=int, default=969)
    parser.add_argument("--repeat", type=int, default=3, help="turns")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--json", type=Path, required=True, help="file for all figures")
    return parser


def time_in_turns(steps: Steps, turns: int, console: Console) -> dict[str, list[float]]:
    """Runs every step once per turn, in the order given; seconds of each."""
    seconds: dict[str, list[float]] = {step: [] for step in steps}
    for turn in range(turns):
        for step, run in steps.items():
            started = time.monotonic()
            run()
            seconds[step].append(time.monotonic() - started)
            console.print(f"turn {turn + 1}, {step}: {seconds[step][-1]:.2f} s", highlight=False)
    return seconds


def median_ratios(seconds: Seconds, bars: Sequence[Bar]) -> dict[str, float]:
    """The bars' ratios: medians over the turns, numerator and denominator of the same turn.

    A step that was not run is left out, and so are its ratios.
    """
    return {
        bar.name: median(above / below for above, below in zip(seconds[bar.above], seconds[bar.below], strict=True))
        for bar in bars
        if bar.above in seconds and bar.below in seconds
    }


def make_table(title: str, seconds: Seconds, ratios: Mapping[str, float], bars: Sequence[Bar]) -> Table:
    """Medians of the seconds with their range, then the ratios beside their bars."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for heading in ("", "median", "least", "most"):
        table.add_column(heading, justify="right" if heading else "left")
    for step, measured in seconds.items():
        table.add_row(f"{step}, s", *(f"{value:.2f}" for value in (median(measured), min(measured), max(measured))))
    for bar in bars:
        if bar.name in ratios:
            word = "[green]holds[/green]" if ratios[bar.name] <= bar.limit else "[red]fails[/red]"
            told = (f"bar {bar.limit:.3g}", word) if bar.limit < math.inf else ()
            table.add_row(bar.name, f"{ratios[bar.name]:.3f}", *told)
    return table


def report(
    title: str, facts: Mapping[str, Any], seconds: Seconds, bars: Sequence[Bar], console: Console, path: Path
) -> int:
    """Prints the table, writes facts, seconds and ratios as JSON; returns 1 where a bar fails, else 0."""
    ratios = median_ratios(seconds, bars)
    console.print(make_table(title, seconds, ratios, bars))
    document = {
        **facts,
        "seconds": {step: median(measured) for step, measured in seconds.items()},
        "seconds_per_turn": seconds,
        "ratio": ratios,
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
    return 0 if all(ratios[bar.name] <= bar.limit for bar in bars if bar.name in ratios) else 1
