from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.bin_bounds import NoCellsError
from adacalib.cells.drift_evidence import (
    DriftEvidenceError,
    assign_time_blocks,
    discount_cells,
    estimate_drift,
    fit_drifting_effects,
    split_by_time_block,
)
from adacalib.cells.global_curve import GlobalCurve, fit_global_curve
from adacalib.cells.logit_cells import join_cells
from adacalib.cells.value_effects import TAU_LIMITS, fit_value_effects
from tests.cells.small_world import cells_by_hand, cells_of_tenths

IDENTITY = GlobalCurve(np.array([-9.0, 9.0]), np.array([-9.0, 9.0]), 1.0, 1.0)


def draw_blocks(seed, tau=0.5, delta=0.3, n_values=300, n_blocks=6, n=1500):
    """(blocks, θ_V): one cell per value and block at logit about -2, counts from n/10 to n."""
    rng = np.random.default_rng(seed)
    level_V = np.append(0, rng.normal(0, tau, n_values))
    blocks = []
    for _ in range(n_blocks):
        eta = (-64 + 0.5) / 32 + level_V + delta * rng.normal(size=n_values + 1)
        counts = rng.integers(n // 10, n, n_values + 1)
        y = rng.binomial(counts, 1 / (1 + np.exp(-eta)))
        blocks.append(cells_by_hand([(z, -64, counts[z], y[z]) for z in range(1, n_values + 1)], n_values + 1))
    return blocks, level_V


def oracle_drift(information, residual, level):
    """Step 9 of algorithm.md in plain loops; information and residual [value][block], value 0 left out."""
    n_blocks, tau2, delta2 = len(information[0]), 0.09, 0.0
    for _ in range(6):
        shift = []
        for b in range(n_blocks):
            trusted = [(1 / (1 + i[b] * delta2), i[b], r[b]) for i, r in zip(information, residual, strict=True)]
            below = sum(v * i for v, i, _ in trusted)
            shift.append(sum(v * r for v, _, r in trusted) / below if below > 0 else 0.0)
        pairs_u = pairs_i = own_u = own_i = 0.0
        for i, r, a in zip(information, residual, level, strict=True):
            u = [r[b] - i[b] * shift[b] + i[b] * a for b in range(n_blocks)]
            w = [1 / (1 + x * (tau2 + delta2)) for x in i]
            for b in range(n_blocks):
                own_u += (u[b] ** 2 - i[b]) * w[b] ** 2
                own_i += (i[b] * w[b]) ** 2
                pairs_u += sum(u[b] * w[b] * u[c] * w[c] for c in range(n_blocks) if c != b)
                pairs_i += sum(i[b] * w[b] * i[c] * w[c] for c in range(n_blocks) if c != b)
        tau2 = min(max(pairs_u / pairs_i, 0.005**2), 25.0)
        delta2 = max(own_u / own_i - tau2, 0.0)
    kappa = [sum(x / (1 + delta2 * x) for x in i) / sum(i) if sum(i) else 1.0 for i in information]
    return kappa, math.sqrt(tau2), math.sqrt(delta2), shift


def test_time_blocks_by_hand():
    # weights by day: 1:2, 2:2, 5:4, 9:8; mid-ranks 1/16, 3/16, 6/16, 12/16; times 4: .25, .75, 1.5, 3 → 0, 0, 1, 3;
    # block 2 is empty, so 3 becomes 2
    day = np.array([9, 1, 5, 2, 9])
    assert assign_time_blocks(day, np.array([4.0, 2, 4, 2, 4]), 4).tolist() == [2, 0, 1, 0, 2]
    assert assign_time_blocks(np.array([7, 7]), np.ones(2)).tolist() == [0, 0]
    equal = assign_time_blocks(np.arange(60), np.ones(60))
    assert np.bincount(equal).tolist() == [10] * 6


def test_last_bits_of_the_weights_move_no_day():
    # 15 days of weight 1, ten blocks: (j + .5)/1.5 is whole for j = 1, 4, … and goes up
    for seed in range(20):
        block = assign_time_blocks(np.arange(15), cells_of_tenths(15, seed).weight, 10)
        assert block.tolist() == [0, 1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9, 9]


def test_split_adds_up_the_days_of_a_block():
    columns = {
        "field_value_id": np.array([1, 1, 2, 1]),
        "cell": np.array([3, 3, 3, 3]),
        "n_samples": np.array([4, 2, 3, 9]),
        "n_responses": np.array([1, 1, 0, 5]),
        "sum_weight": np.array([4.0, 2, 3, 9]),
        "sum_weight_responses": np.array([1.0, 1, 0, 5]),
        "sum_weight_logit": np.array([0.4, 0.2, 0.3, 0.9]),
    }
    early, late = split_by_time_block(columns, np.array([10, 11, 11, 12]), 3, n_blocks=2)
    assert early.field_value_id.tolist() == [1, 2]
    assert early.weight.tolist() == [6, 3]
    assert early.response.tolist() == [2, 0]
    assert late.weight.tolist() == [9]
    assert late.n_values == 3


def test_discount_by_hand():
    cells = cells_by_hand([(1, 0, 8, 2), (2, 0, 6, 3), (2, 4, 10, 1)], 3)
    discounted = discount_cells(cells, np.array([1, 0.5, 0.25]))
    assert discounted.weight.tolist() == [4, 1.5, 2.5]
    assert discounted.response.tolist() == [1, 0.75, 0.25]
    assert discounted.n_samples.tolist() == [8, 6, 10]
    assert discounted.logit.tolist() == cells.logit.tolist()


@pytest.mark.parametrize(
    ("residuals", "tau_p", "delta", "kappa", "shift"),
    [
        # p = .5 and n = 400 throughout, so I = 100 and all weights are equal. Residuals (value 1; value 2) by block.
        # (20, 20; -20, -20): τ² = 2·(40² - 2·20²)/(2·(200² - 2·100²)) = .04; δ² = (400 - 100)/100² - .04 < 0
        ([[20, 20], [-20, -20]], 0.2, 0.0, 1.0, [0, 0]),
        # (40, 20; -40, -20): τ² = 1600/20000 = .08; δ² = (1000 - 100)/100² - .08 = .01; κ = 1/(1 + .01·100)
        ([[40, 20], [-40, -20]], math.sqrt(0.08), 0.1, 0.5, [0, 0]),
        # both values move together: shift 10/100 and -10/100, and nothing is left
        ([[10, -10], [10, -10]], TAU_LIMITS[0], 0.0, 1.0, [0.1, -0.1]),
    ],
)
def test_moments_by_hand(residuals, tau_p, delta, kappa, shift):
    blocks = [cells_by_hand([(z + 1, 0, 400, 200 + residuals[z][b]) for z in range(2)], 4) for b in range(2)]
    drift = estimate_drift(blocks, [np.zeros(2), np.zeros(2)], np.zeros(4))
    np.testing.assert_allclose([drift.tau_p, drift.delta], [tau_p, delta], atol=1e-9)
    np.testing.assert_allclose(drift.kappa_V, [1, kappa, kappa, 1], atol=1e-9)
    np.testing.assert_allclose(drift.common_shift_B, shift, atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(2, 4), st.floats(0, 2))
def test_drift_is_the_oracles_and_kappa_a_share(seed, n_values, n_blocks, spread):
    rng = np.random.default_rng(seed)
    level = np.append(0, rng.normal(0, 1, n_values))
    blocks, logits = [], []
    information, residual = np.zeros((n_values + 1, n_blocks)), np.zeros((n_values + 1, n_blocks))
    for b in range(n_blocks):
        rows = [(z, int(c), int(rng.integers(1, 400))) for z in range(n_values + 1) for c in rng.integers(-90, 40, 2)]
        rows = [(z, c, n, int(rng.binomial(n, 0.3))) for z, c, n in rows if b == 0 or rng.random() < 0.8 or z == 1]
        cells = cells_by_hand(rows, n_values + 1)
        eta = cells.logit + level[cells.field_value_id] + spread * rng.normal(size=len(cells))
        for z, n, y, x in zip(cells.field_value_id, cells.weight, cells.response, eta, strict=True):
            p = 1 / (1 + math.exp(-x))
            information[z, b] += n * p * (1 - p)
            residual[z, b] += y - n * p
        blocks.append(cells)
        logits.append(eta)
    drift = estimate_drift(blocks, logits, level)
    kappa, tau_p, delta, shift = oracle_drift(information[1:], residual[1:], level[1:])
    np.testing.assert_allclose(drift.kappa_V, [1, *kappa], rtol=1e-6)
    np.testing.assert_allclose([drift.tau_p, drift.delta], [tau_p, delta], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(drift.common_shift_B, shift, rtol=1e-6, atol=1e-9)
    assert np.all((drift.kappa_V > 0) & (drift.kappa_V <= 1))
    backwards = estimate_drift(blocks[::-1], logits[::-1], level)
    np.testing.assert_allclose(backwards.kappa_V, drift.kappa_V, rtol=1e-6)


def test_tau_and_delta_are_recovered():
    blocks, _ = draw_blocks(3)
    effects, drift = fit_drifting_effects(blocks, fit_global_curve(join_cells(blocks)), slope=False)
    assert 0.43 < drift.tau_p < 0.57
    assert 0.26 < drift.delta < 0.34
    assert effects.tau_level == drift.tau_p
    assert np.all(drift.kappa_V[1:] < 0.5)


def test_without_drift_nothing_is_discounted():
    blocks, _ = draw_blocks(4, delta=0.0)
    _, drift = fit_drifting_effects(blocks, IDENTITY, slope=False)
    assert drift.delta < 0.06
    assert np.median(drift.kappa_V) > 0.85
    plain = fit_value_effects(join_cells(blocks), join_cells(blocks).logit, slope=False)
    assert abs(drift.tau_p / plain.tau_level - 1) < 0.05


def test_levels_that_do_not_last_are_nearer_the_truth():
    # nothing lasts: six blocks leave each value a spurious mean of .5·N(0, 1)/sqrt(6)
    blocks, _ = draw_blocks(5, tau=0.0, delta=0.5)
    cells = join_cells(blocks)
    plain = fit_value_effects(cells, cells.logit, slope=False)
    effects, drift = fit_drifting_effects(blocks, IDENTITY, slope=False)
    assert np.mean(effects.level_V**2) < 0.6 * np.mean(plain.level_V**2)
    assert drift.tau_p < 0.8 * plain.tau_level


def test_second_fit_is_the_discounted_one():
    blocks, _ = draw_blocks(6, n_values=20)
    effects, drift = fit_drifting_effects(blocks, IDENTITY)
    cells = discount_cells(join_cells(blocks), drift.kappa_V)
    tau_slope = fit_value_effects(join_cells(blocks), join_cells(blocks).logit).tau_slope
    # the gradient of the discounted, penalised likelihood is 0 at the result
    residual = cells.response - cells.weight / (1 + np.exp(-effects.apply(cells.field_value_id, cells.logit)))
    deviation_V = effects.level_V - effects.mean_level
    np.testing.assert_allclose(cells.sum_by_value(residual), deviation_V / drift.tau_p**2, atol=1e-5)
    assert effects.tau_slope == tau_slope


def test_a_typical_level_is_no_drift_and_no_lasting_difference():
    # all levels .7 higher: the mean of the levels, and neither in τ_p nor in δ nor in the blocks' common shift
    blocks, _ = draw_blocks(7)
    lower = GlobalCurve(IDENTITY.logit_knots, IDENTITY.calibrated_knots - 0.7, 1.0, 1.0)
    plain, drift = fit_drifting_effects(blocks, IDENTITY, slope=False)
    lifted, same = fit_drifting_effects(blocks, lower, slope=False)
    assert lifted.mean_level - plain.mean_level == pytest.approx(0.7, abs=0.01)
    np.testing.assert_allclose([same.tau_p, same.delta], [drift.tau_p, drift.delta], atol=2e-3)
    np.testing.assert_allclose(same.common_shift_B, drift.common_shift_B, atol=0.01)
    np.testing.assert_allclose(lifted.level_V, plain.level_V + 0.7, atol=0.01)


def test_faults():
    cells = cells_by_hand([(1, 0, 50, 1), (0, 0, 9, 1)], 3)
    other = cells_by_hand([(2, 0, 50, 1), (0, 0, 9, 1)], 3)
    with pytest.raises(DriftEvidenceError, match=r"2 time blocks, and no field value has samples in two.*step 9 off"):
        estimate_drift([cells, other], [np.zeros(2), np.zeros(2)], np.zeros(3))
    with pytest.raises(DriftEvidenceError, match="0 rows with a day"):
        assign_time_blocks(np.zeros(0, np.int64), np.zeros(0))
    with pytest.raises(ValueError, match=r"2 factors for 3 field value ids.*one positive finite factor"):
        discount_cells(cells, np.ones(2))
    with pytest.raises(ValueError, match=r"smallest 0: each id needs one positive"):
        discount_cells(cells, np.array([1, 0, 1.0]))
    with pytest.raises(NoCellsError):
        fit_drifting_effects([cells.select(cells.cell > 5)], IDENTITY)
