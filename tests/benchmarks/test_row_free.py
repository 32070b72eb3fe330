"""The parts of the benchmark that run nothing: its bars and its table."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchmarks.row_free import Results, judge, judge_growth, make_lean_table, make_table


def figures(seconds: float, log_loss: float, field_rce: float = 0.2) -> dict[str, float]:
    own = {"field_rce": field_rce, "log_loss": log_loss, "field_auc": 0.7, "fit_seconds": seconds}
    return own | {"field_rce_noise_floor": 0.1, "field_rce_attainable": 0.15}


def small() -> Results:
    return {
        "robust_cells": [figures(1.0, 0.06), figures(3.0, 0.06)],
        "paper_cells": [figures(10.0, 0.064, 0.3), figures(10.0, 0.068, 0.3)],
        "paper_rows": [figures(40.0, 0.06, 0.2), figures(40.0, 0.07, 0.4)],
        "paper_rows_again": [figures(40.0, 0.061, 0.23), figures(40.0, 0.069, 0.44)],
    }


def test_bars_by_hand() -> None:
    large: Results = {"robust_cells": [figures(3.0, 0.06)], "paper_cells": [figures(19.0, 0.06)]}
    loss, rce, robust, paper = judge({2000: small(), 20000: large})
    # cells less rows, seed by seed: .004 and -.002 of the loss, .1 and -.1 of Field-RCE. An initialisation's variance:
    # of the loss (.001² + .001²)/2/2 = .0000005, of Field-RCE (.03² + .04²)/2/2 = .000625, so .025; the bar is twice
    assert (loss.measured, loss.limit) == (pytest.approx(0.001), pytest.approx(2 * 5e-7**0.5))
    assert (rce.measured, rce.limit) == (pytest.approx(0.0, abs=1e-12), pytest.approx(0.05))
    assert (robust.measured, robust.limit, robust.holds) == (pytest.approx(1.5), 1.8, True)  # 3 / median of 1 and 3
    assert (paper.measured, paper.holds) == (pytest.approx(1.9), False)


def test_what_splits_differ_by_is_no_yardstick() -> None:
    # both arms are .01 higher on the second split; cells are .002 above rows on either, initialisations .0002 apart
    arms = {"robust_cells": 0.06, "paper_cells": 0.062, "paper_rows": 0.06, "paper_rows_again": 0.0602}
    loss = judge({2000: {name: [figures(1.0, own), figures(1.0, own + 0.01)] for name, own in arms.items()}})[0]
    assert (loss.measured, loss.limit) == (pytest.approx(0.002), pytest.approx(2 * 0.0002 / 2**0.5))
    assert not loss.holds


def test_one_size_has_no_growth_and_one_seed_no_deviation() -> None:
    assert len(judge({2000: small()})) == 2
    one: Results = {name: found[:1] for name, found in small().items()}
    assert judge({2000: one}) == []


def lean(robust: float, paper: float) -> Results:
    return {"robust_cells": [{"fit_seconds": robust}], "paper_cells": [{"fit_seconds": paper}]}


def test_growth_is_the_largest_size_over_the_smallest() -> None:
    robust, paper = judge_growth({200: lean(2.0, 10.0), 2000: lean(9.0, 99.0), 20000: lean(3.0, 19.0)})
    assert (robust.measured, robust.limit, robust.holds) == (pytest.approx(1.5), 1.8, True)
    assert (paper.measured, paper.holds) == (pytest.approx(1.9), False)
    assert judge_growth({200: lean(2.0, 10.0)}) == judge_growth({}) == judge({}) == []


def test_the_lean_table_has_a_row_per_size() -> None:
    facts = {rows: {"cells": rows // 10, "table_seconds": 34.6} for rows in (2000, 200_000_000)}
    console = Console(file=io.StringIO(), width=80)
    console.print(make_lean_table({2000: lean(2.04, 10.0), 200_000_000: lean(3.0, 1234.5)}, facts))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    assert [line.split() for line in text.splitlines() if line.strip()[:1].isdigit()] == [
        ["2,000", "200", "35", "2.0", "10.0"],
        ["200,000,000", "20,000,000", "35", "3.0", "1234.5"],
    ]


def test_the_table_fits_80_columns_and_shows_the_floors() -> None:
    large: Results = {"robust_cells": [figures(1234.0, 0.06)], "paper_cells": [figures(19.0, 0.06)]}
    facts = {2000: {"cells": 1234, "table_seconds": 10.0}, 200_000_000: {"cells": 1_234_567, "table_seconds": 10_000.0}}
    console = Console(file=io.StringIO(), width=80)
    console.print(make_table({2000: small(), 200_000_000: large}, facts))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "…" not in text
    assert "200,000,000 rows 0.1000 / 0.1500" in " ".join(text.split())
    assert [line.split() for line in text.splitlines() if "paper mode, rows" in line] == [
        ["paper", "mode,", "rows", "40.0", "0.3000", "0.06500", "0.7000"]
    ]
