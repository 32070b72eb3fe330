"""The oracle: slow loops written from the paper and from the rules, not from the product.

Takes plain arrays or lists and imports nothing of ours.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.polynomial.hermite_e import hermeval
from scipy.optimize import minimize


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def log_odds(p):
    return math.log(p) - math.log1p(-p)


def isotonic(values, weights):
    """Min-max formula: entry k is the largest over i <= k of the smallest over j >= k of the mean of i..j."""
    n = len(values)

    def mean(i, j):
        return sum(values[k] * weights[k] for k in range(i, j + 1)) / sum(weights[i : j + 1])

    return [max(min(mean(i, j) for j in range(k, n)) for i in range(k + 1)) for k in range(n)]


def equal_frequency_bounds(cells, n_bins):
    """Bounds from a list of (cell, weight), in exact fractions; equal bounds are kept once."""
    total = sum(Fraction(weight) for _, weight in cells)
    edges = [(Fraction(0), cells[0][0])]
    passed = Fraction(0)
    for position, (cell, weight) in enumerate(cells):
        passed += Fraction(weight)
        edges.append((passed / total, cells[position + 1][0] if position + 1 < len(cells) else cell + 1))
    bounds = [cells[0][0]]
    for k in range(1, n_bins):
        nearest = min(edges, key=lambda edge: (abs(edge[0] - Fraction(k, n_bins)), edge[0]))
        bounds.append(nearest[1])
    bounds.append(cells[-1][0] + 1)
    return [bound / 32 for bound in sorted(set(bounds))]


def bin_bounds(cells_by_value, n_bins):
    """Bounds of every id: its own, or the pooled ones below n_bins + 2 cells. cells_by_value[id] = [(cell, weight)]."""
    pooled = {}
    for cells in cells_by_value:
        for cell, weight in cells:
            pooled[cell] = pooled.get(cell, Fraction(0)) + Fraction(weight)
    pooled_bounds = equal_frequency_bounds(sorted(pooled.items()), n_bins)
    return [
        pooled_bounds if i == 0 or len(cells) < n_bins + 2 else equal_frequency_bounds(cells, n_bins)
        for i, cells in enumerate(cells_by_value)
    ]


def bin_index(bounds, logit):
    passed = sum(1 for bound in bounds if logit >= bound)
    return min(max(passed - 1, 0), len(bounds) - 2)


def piecewise_linear(bounds, knots, slope_lower, slope_upper, logit):
    """Eq. 4, and straight lines beyond the ends."""
    if logit < bounds[0]:
        return knots[0] - slope_lower * (bounds[0] - logit)
    if logit >= bounds[-1]:
        return knots[-1] + slope_upper * (logit - bounds[-1])
    k = bin_index(bounds, logit)
    return knots[k] + (knots[k + 1] - knots[k]) / (bounds[k + 1] - bounds[k]) * (logit - bounds[k])


def global_curve(cells):
    """(un-calibrated, calibrated) logits of the knots, from a list of (cell, n, Σy, mean logit) of any field values."""
    pooled = {}
    for cell, n, y, logit in cells:
        old = pooled.get(cell, (0.0, 0.0, 0.0))
        pooled[cell] = (old[0] + n, old[1] + y, old[2] + n * logit)
    total = sum(n for n, _, _ in pooled.values())
    mean_label = sum(y for _, y, _ in pooled.values()) / total
    bins, passed = {}, 0.0
    for cell in sorted(pooled):
        n, y, s = pooled[cell]
        old = bins.setdefault(int(100 * (passed + n / 2) / total), [0.0, 0.0, 0.0])
        bins[int(100 * (passed + n / 2) / total)] = [old[0] + n, old[1] + y, old[2] + s]
        passed += n
    sums = [bins[index] for index in sorted(bins)]
    rates = isotonic([(y + 0.5 * mean_label) / (n + 0.5) for n, y, _ in sums], [n for n, _, _ in sums])
    logit_knots, calibrated_knots, start = [], [], 0
    for k in range(1, len(rates) + 1):
        if k == len(rates) or rates[k] > rates[start] + 1e-12:
            block = sums[start:k]
            logit_knots.append(sum(s for _, _, s in block) / sum(n for n, _, _ in block))
            calibrated_knots.append(log_odds(rates[start]))
            start = k
    return logit_knots, calibrated_knots


def bends(u):
    """Hermite polynomials of degree 2, 3 and 4 over sqrt(k!), flat beyond 2.5; 3 × the shape of u."""
    u = np.clip(u, -2.5, 2.5)
    return np.array([hermeval(u, [0] * k + [1]) / math.sqrt(math.factorial(k)) for k in (2, 3, 4)])


def value_effects(cells_by_value, tau=None, slope=True, free_mean=True, shape=False):
    """Effects (level, slope and, with shape, three bends) × ids, τ's, mean and scale of l, mean of the levels.

    cells_by_value[id] = [(l, n, Σy)]. Per round BFGS over the levels' mean and all effects at once, then MacKay's
    update of τ, until it stands still.
    """
    everything = [cell for cells in cells_by_value for cell in cells]
    total = sum(n for _, n, _ in everything)
    mean = sum(n * x for x, n, _ in everything) / total
    scale = math.sqrt(sum(n * (x - mean) ** 2 for x, n, _ in everything) / total) + 0.001
    n_effects = 5 if shape else 2
    taus = [0.3] * n_effects if tau is None else list(tau)
    start = None
    for _ in range(500):
        center, thetas, variances, start = _joint_mode(cells_by_value, mean, scale, taus, slope, free_mean, start)
        if tau is not None:
            break
        new = []
        for j in range(n_effects):
            squares = sum((theta[j] - center * (j == 0)) ** 2 for theta in thetas if theta is not None)
            determined = sum(1 - variance[j][j] / taus[j] ** 2 for variance in variances if variance is not None)
            proposal = math.sqrt(squares / max(determined, 0.001))
            new.append(min(max(min(max(proposal, taus[j] / 4), taus[j] * 4), 0.005), 5.0))
        if not slope:
            new[1] = taus[1]
        settled = all(abs(a - b) < 1e-3 * b for a, b in zip(new, taus, strict=True))
        taus = new
        if settled:
            break
    center, thetas, *_ = _joint_mode(cells_by_value, mean, scale, taus, slope, free_mean, start)
    unseen = [center] + [0.0] * (n_effects - 1)
    return np.array([unseen if theta is None else theta for theta in thetas]).T, taus, mean, scale, center


def _joint_mode(cells_by_value, mean, scale, taus, slope, free_mean, start=None):
    """(mean of the levels, effects and posterior covariance per value, None for one without cells; the unknowns).

    The unknowns are the mean, in units of its prior's standard deviation 1, and each effect's deviation in units of τ.
    """
    seen = [i for i, cells in enumerate(cells_by_value) if cells]
    value, x, n, y = (
        np.array(column)
        for column in zip(*((v, *cell) for v, i in enumerate(seen) for cell in cells_by_value[i]), strict=True)
    )
    u, taus = (x - mean) / scale, np.array(taus)
    basis = np.stack([np.ones(len(x)), u * slope, *bends(u)][: len(taus)])

    def unpack(unknowns):
        center = unknowns[0] * free_mean
        effects = taus[:, None] * unknowns[1:].reshape(len(taus), len(seen))
        effects[0] += center
        return center, effects

    def predict(effects):
        return x + sum(row * effect[value] for row, effect in zip(basis, effects, strict=True))

    def loss(unknowns):
        eta = predict(unpack(unknowns)[1])
        residual = n / (1 + np.exp(-eta)) - y
        pulls = np.array([np.bincount(value, residual * row) for row in basis])
        gradient = np.concatenate([[pulls[0].sum() * free_mean], (taus[:, None] * pulls).ravel()])
        return float(np.sum(n * np.logaddexp(0, eta) - y * eta) + unknowns @ unknowns / 2), gradient + unknowns

    start = np.zeros(1 + len(taus) * len(seen)) if start is None else start
    best = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-8, "maxiter": 5000})
    center, effects = unpack(best.x)
    p = 1 / (1 + np.exp(-predict(effects)))
    thetas, variances = [None] * len(cells_by_value), [None] * len(cells_by_value)
    for v, i in enumerate(seen):
        own = value == v
        information = (basis[:, own] * (n * p * (1 - p))[own]) @ basis[:, own].T
        thetas[i] = effects[:, v].tolist()
        variances[i] = np.linalg.inv(information + np.diag(1 / taus**2))
    return center, thetas, variances, best.x


def bin_shifts(cells_by_value, bounds_by_value):
    """Shifts and weights per id and bin, and m; cells_by_value[id] = [(logit, η, n, Σy)], id 0 left empty."""
    rows = []
    for i, cells in enumerate(cells_by_value):
        for k in range(len(bounds_by_value[i]) - 1):
            inside = [c for c in cells if bin_index(bounds_by_value[i], c[0]) == k]
            n = sum(c[2] for c in inside)
            if n > 0:
                p = [sigmoid(c[1]) for c in inside]
                expected = sum(q * c[2] for q, c in zip(p, inside, strict=True))
                variance = sum(q * (1 - q) * c[2] for q, c in zip(p, inside, strict=True)) / expected
                rows.append((i, k, n, sum(c[3] for c in inside), expected, min(max(variance, 0.05), 1.0)))

    def likelihood(m):
        total = 0.0
        for _, _, _, y, e, v in rows:
            x, mu = y / v, e / v
            total += math.lgamma(x + m) - math.lgamma(m) - math.lgamma(x + 1)
            total += m * math.log(m / (m + mu)) + x * math.log(mu / (m + mu))
        return total

    m = max((math.exp(log_m) for log_m in np.linspace(-3, 9, 1201)), key=likelihood)
    shifts = [[0.0] * (len(bounds) - 1) for bounds in bounds_by_value]
    weights = [[0.0] * (len(bounds) - 1) for bounds in bounds_by_value]
    for i, k, n, y, e, v in rows:
        shift = math.log((y / v + m) / (e / v + m)) / max(1 - e / n, 0.1)
        shifts[i][k], weights[i][k] = min(max(shift, -2.0), 2.0), n
    return shifts, weights, m


def knots(bounds, eta, shifts, weights):
    """Monotone knots of one id: η at the bounds, the mean shift of the bins that meet there, slopes of at least .02."""
    raised = []
    for j in range(len(bounds)):
        meeting = [k for k in (j - 1, j) if 0 <= k < len(shifts) and weights[k] > 0]
        total = sum(weights[k] for k in meeting)
        raised.append(eta[j] + (sum(shifts[k] * weights[k] for k in meeting) / total if total else 0.0))
    flat = isotonic([value - 0.02 * bound for value, bound in zip(raised, bounds, strict=True)], [1.0] * len(bounds))
    return [value + 0.02 * bound for value, bound in zip(flat, bounds, strict=True)]
