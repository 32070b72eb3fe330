"""benchmarks/turns.py: steps in turn, ratios and their bars."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.turns import Bar, make_table, median_ratios, report, time_in_turns

BARS = (
    Bar("cells_over_quantile", "cells", "quantile", 0.2),
    Bar("cells_over_scan", "cells", "scan", 3.5),
    Bar("cells_over_other", "cells", "other", 2.5),
)


def make_console() -> Console:
    return Console(file=io.StringIO(), width=100, no_color=True)


def test_steps_take_turns() -> None:
    order: list[str] = []
    seconds = time_in_turns({name: lambda name=name: order.append(name) for name in "ab"}, 3, make_console())
    assert order == ["a", "b", "a", "b", "a", "b"]
    assert {name: len(measured) for name, measured in seconds.items()} == {"a": 3, "b": 3}


def test_ratios_are_medians_of_turns_by_hand() -> None:
    seconds = {"scan": [1.0, 2.0, 4.0], "cells": [4.0, 6.0, 8.0], "other": [2.0, 2.0, 8.0]}
    # 4, 3, 2 and 2, 3, 1; nothing was measured for quantile
    assert median_ratios(seconds, BARS) == {"cells_over_scan": 3.0, "cells_over_other": 2.0}


def test_table_says_which_bar_fails() -> None:
    console = make_console()
    ratios = {"cells_over_scan": 3.6, "cells_over_other": 2.5}
    console.print(make_table("small", {"scan": [1.0, 3.0, 2.0]}, ratios, BARS))
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert ["scan,", "s", "2.00", "1.00", "3.00"] in lines
    assert ["cells_over_scan", "3.600", "bar", "3.5", "fails"] in lines
    assert ["cells_over_other", "2.500", "bar", "2.5", "holds"] in lines


@pytest.mark.parametrize(("cells", "code"), [(6.0, 0), (8.0, 1)])
def test_a_failed_bar_is_the_exit_code(tmp_path: Path, cells: float, code: int) -> None:
    seconds = {"scan": [2.0], "cells": [cells]}
    assert report("small", {"rows": 5}, seconds, BARS, make_console(), tmp_path / "out.json") == code
    document = json.loads((tmp_path / "out.json").read_text())
    assert document == {
        "rows": 5,
        "seconds": {"scan": 2.0, "cells": cells},
        "seconds_per_turn": {"scan": [2.0], "cells": [cells]},
        "ratio": {"cells_over_scan": cells / 2},
    }
