"""AUC and Field-AUC with DeLong standard errors, from a histogram of each method's own scores.

Score cells are slices of a method's calibrated logit; a finer grid only makes `cell_error` smaller. Samples of one
cell count as tied, at half credit. Field-AUC comes in two steps, so that the first can run where the cells are: one
row per field value (value_aucs.py), then their average (`average_value_aucs`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from adacalib.cells.logit_cells import Floats, Ints
from adacalib.cells.value_aucs import AucError, ValueAucs, compute_value_aucs

__all__ = ["AucError", "AucEstimate", "average_value_aucs", "compute_auc", "compute_field_auc"]

_MAX_VARIANCE = 0.25
"""Largest variance of a quantity in [0, 1] (Popoviciu), used where data say nothing about it."""


@dataclass(frozen=True)
class AucEstimate:
    """An AUC, or a weighted mean of the field values' AUCs.

    Attributes:
        auc: in [0, 1], ties at half credit.
        standard_error: DeLong's, ≥ 0.
        cell_error: upper bound of |auc − AUC of the samples' exact scores|, since half credit is off by at most
            half of the pairs that share a cell: Σ_cells w1·w0/2 / (W1·W0).
        n_values: number of field values with both classes (1 for the plain AUC).
        n_samples: number of samples in them.
        n_values_left_out: number of field values with one class only.
        n_samples_left_out: number of samples in them.
    """

    auc: float
    standard_error: float
    cell_error: float
    n_values: int
    n_samples: int
    n_values_left_out: int
    n_samples_left_out: int


def compute_auc(
    cell: Ints, weight: Floats, response: Floats, n_samples: Ints | None = None, n_responses: Ints | None = None
) -> AucEstimate | None:
    """Computes the AUC of all samples, field values pooled.

    Args:
        cell: index of the score cell, increasing with the score; in any order, a cell may repeat.
        weight, response, n_samples, n_responses: see `compute_field_auc`.

    Returns:
        The estimate; None where there is one class only, or no sample.

    Raises:
        AucError: see `compute_field_auc`.
    """
    return compute_field_auc(np.zeros(len(cell), np.int64), cell, weight, response, n_samples, n_responses)


def compute_field_auc(
    field_value_id: Ints,
    cell: Ints,
    weight: Floats,
    response: Floats,
    n_samples: Ints | None = None,
    n_responses: Ints | None = None,
) -> AucEstimate | None:
    """Computes Field-AUC: the AUC inside each field value, weighted by the value's samples; one-class values left out.

    Its variance is Σ_z w_z²·var_z, w_z the value's share of the weight. A value with a single positive (negative)
    says nothing about the spread over positives (negatives): it takes the spread pooled over the other values, or
    1/4, the largest there is, where there are none.

    Args:
        field_value_id: dense id per row; rows in any order, a combination of id and cell may repeat.
        cell: index of the score cell, increasing with the score.
        weight: sum of sample weights, > 0.
        response: weighted sum of labels, in [0, weight].
        n_samples: number of samples; without it weights are taken for counts.
        n_responses: number of samples with label 1; without it responses are taken for counts. The two decide how
            many observations the standard error rests on; that weights differ from sample to sample is not in it.

    Returns:
        The estimate; None where no field value has both classes.

    Raises:
        AucError: lengths differ, one of the two counts is given without the other, a weight is not positive, or a
            response is not in [0, weight].
    """
    return average_value_aucs(compute_value_aucs(field_value_id, cell, weight, response, n_samples, n_responses))


def average_value_aucs(values: ValueAucs) -> AucEstimate | None:
    """Averages the field values' AUCs by their weights: Field-AUC, with DeLong's standard error.

    The order of the entries does not matter, rounding aside.

    Returns:
        The estimate; None where no field value has both classes.
    """
    both = values.has_both_classes
    if not both.any():
        return None
    count_1, count_0 = values.count_1[both], values.count_0[both]
    variance = _compute_class_variance(values.spread_1[both], count_1) + _compute_class_variance(
        values.spread_0[both], count_0
    )
    share = values.weight[both] / values.weight[both].sum()
    left_out = (values.count_1 + values.count_0)[~both]
    return AucEstimate(
        auc=float(np.sum(share * values.auc[both])),
        standard_error=float(np.sqrt(np.sum(share**2 * variance))),
        cell_error=float(np.sum(share * values.cell_error[both])),
        n_values=int(np.count_nonzero(both)),
        n_samples=round(float((count_1 + count_0).sum())),
        n_values_left_out=len(left_out),
        n_samples_left_out=round(float(left_out.sum())),
    )


def _compute_class_variance(spread: Floats, count: Floats) -> Floats:
    """One class's term of DeLong's variance per value: S/m, S = m/(m − 1) times the mean squared deviation."""
    several = count >= 2
    freedom = np.where(several, count - 1, 1.0)
    pooled = _MAX_VARIANCE
    if several.any():
        pooled = float(np.sum((spread * count)[several]) / np.sum(freedom[several]))
    return np.where(several, spread / freedom, pooled / np.maximum(count, 1.0))
