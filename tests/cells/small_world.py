"""Cells for tests: drawn from a small synthetic world, given by hand, or made up by hypothesis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from adacalib.cells.logit_cells import LogitCells, merge_cells


def cells_of_rows(field_value_id, logit, label, n_values, weight=None) -> LogitCells:
    logit, label = np.asarray(logit, np.float64), np.asarray(label, np.int64)
    weight = np.ones(len(logit)) if weight is None else np.asarray(weight, np.float64)
    return merge_cells(
        np.asarray(field_value_id, np.int64),
        np.floor(32 * logit).astype(np.int64),
        weight,
        weight * label,
        weight * logit,
        np.ones(len(logit), np.int64),
        label,
        n_values,
    )


def cells_by_hand(rows, n_values) -> LogitCells:
    """From rows (field value id, cell, n, Σy); the mean logit is the middle of the cell."""
    ids, cell, n, y = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    return merge_cells(ids, cell, n * 1.0, y * 1.0, n * (cell + 0.5) / 32, n, y, n_values)


def cells_of_tenths(n_cells, seed) -> LogitCells:
    """Cells 0, 1, … of value 1, ten rows of weight .1 each, whose sums end as they may: .9999999999999999 or 1.

    Responses, the same for every seed, increase from cell to cell.
    """
    cells = cells_by_hand([(1, j, 10, 5) for j in range(n_cells)], 2)
    weight = np.random.default_rng(seed).choice([sum([0.1] * 10), 1.0], n_cells)
    return replace(cells, weight=weight, response=np.linspace(0.1, 0.9, n_cells))


def draw_rows(n_rows, n_field_values, seed, effect=1.0):
    """(train rows, test rows), each (field value id, logit, label, truth): effects on level, slope and shape."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, n_field_values + 1) ** 1.1
    level, slope, wave, phase = (
        effect * rng.normal(0, 0.6, n_field_values + 1),
        effect * rng.normal(0, 0.25, n_field_values + 1),
        effect * rng.normal(0, 0.5, n_field_values + 1),
        rng.uniform(0, 6, n_field_values + 1),
    )

    def draw():
        z = 1 + rng.choice(n_field_values, n_rows, p=share / share.sum())
        s = rng.normal(-2, 1.2, n_rows)
        eta = (
            -0.3 + 0.8 * s + 0.1 * np.sin(2 * s) + level[z] + slope[z] * (s + 2) + wave[z] * np.sin(1.5 * s + phase[z])
        )
        truth = 1 / (1 + np.exp(-eta))
        return z, s, (rng.random(n_rows) < truth).astype(np.int64), truth

    return draw(), draw()


@st.composite
def some_cells(draw, max_cells=40, n_values=4) -> LogitCells:
    """A few cells of ids 1 to n_values - 1, counts from one sample up, any share of responses."""
    keys = draw(
        st.lists(
            st.tuples(st.integers(1, n_values - 1), st.integers(-200, 200)), min_size=1, max_size=max_cells, unique=True
        )
    )
    counts = draw(st.lists(st.integers(1, 500), min_size=len(keys), max_size=len(keys)))
    rows = [(z, cell, n, draw(st.integers(0, n))) for (z, cell), n in zip(keys, counts, strict=True)]
    return cells_by_hand(rows, n_values)


def list_by_value(cells, *columns) -> list[list[tuple]]:
    """For the oracle: per id the list of its cells' rows of the given columns."""
    lists = [[] for _ in range(cells.n_values)]
    for i, *row in zip(cells.field_value_id, *columns, strict=True):
        lists[i].append(tuple(float(x) for x in row))
    return lists
