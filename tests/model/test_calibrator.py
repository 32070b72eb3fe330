from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adacalib.cells.functions import FUNCTION_ARRAYS, interpolate
from adacalib.model.calibrator import Calibrator, functions_of, restore_calibrator
from tests import oracle
from tests.model.served_models import N_VALUES, make_auxiliary, make_calibrator, make_columns, make_functions


def test_by_hand() -> None:
    # id 2: one bin from (-1, .3) to (1, .7), shift .3: at 0 it is .5 + .3; above 1 the slope .2 goes on: .7 + .2·2 + .3
    # id 0 serves unseen values: at -1 its knot -1, shift .1
    calibrator = make_calibrator(None)
    found = calibrator(torch.tensor([2, 2, 0]), torch.tensor([0.0, 3.0, -1.0]), {})
    np.testing.assert_allclose(found.numpy(), [0.8, 1.4, -0.9])
    assert found.dtype == torch.float64


@pytest.mark.parametrize("embedding", [True, False])
def test_is_function_plus_network_plus_shift(embedding: bool) -> None:
    calibrator, columns = make_calibrator(make_auxiliary(embedding)), make_columns()
    ids, logits = columns["field_value_id"].long(), columns["uncalibrated_logit"]
    functions = make_functions()
    k = np.array(
        [
            oracle.piecewise_linear(
                functions.bin_bounds_RJ[z, : functions.n_bins_R[z] + 1],
                functions.knots_RJ[z],
                functions.slope_lower_R[z],
                functions.slope_upper_R[z],
                float(s),
            )
            for z, s in zip(ids.tolist(), logits, strict=True)
        ]
    )
    network = make_auxiliary(embedding)
    with torch.no_grad():
        term = network(columns, ids, torch.from_numpy((k + 0.7) / 1.5)).double().numpy()
        found = calibrator(ids, logits, columns).numpy()
        unshifted = calibrator.compute_unshifted(ids, logits, columns).numpy()
    assert np.abs(term).max() > 0.1
    np.testing.assert_allclose(unshifted, k + term, atol=1e-6)
    np.testing.assert_allclose(found - unshifted, np.array([0.1, -0.2, 0.3, 0.05])[ids], atol=1e-12)


@pytest.mark.parametrize("auxiliary", [None, make_auxiliary(True), make_auxiliary(False, takes_logit=False)])
def test_restored_from_its_description_it_gives_the_same_bits(auxiliary: torch.nn.Module | None) -> None:
    calibrator, columns = make_calibrator(auxiliary).eval(), make_columns()
    description = json.loads(json.dumps(calibrator.describe()))  # JSON holds it
    again = restore_calibrator(description, {name: t.clone() for name, t in calibrator.state_dict().items()})
    assert not again.training
    arguments = columns["field_value_id"].long(), columns["uncalibrated_logit"], columns
    with torch.no_grad():
        assert torch.equal(again(*arguments), calibrator(*arguments))


def test_functions_of_include_the_shift() -> None:
    calibrator, line = make_calibrator(None), np.linspace(-6, 6, 41)
    functions = functions_of(calibrator)
    for z in range(N_VALUES):
        ids = np.full(41, z)
        expected = calibrator(torch.from_numpy(ids), torch.from_numpy(line), {}).numpy()
        np.testing.assert_allclose(interpolate(functions, ids, line), expected, atol=1e-12)


def test_functions_of_leave_the_shift_with_the_network_that_it_belongs_to() -> None:
    functions = functions_of(make_calibrator(make_auxiliary(True)))
    for name in FUNCTION_ARRAYS:
        np.testing.assert_array_equal(getattr(functions, name), getattr(make_functions(), name))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.floats(-3, 3))
def test_a_higher_score_never_gets_a_lower_result_without_features(seed: int, shift: float) -> None:
    functions = make_functions()
    calibrator = Calibrator(functions, np.full(N_VALUES, shift), 0.0, None)
    line = np.sort(np.random.default_rng(seed).uniform(-20, 20, 50))
    for z in range(N_VALUES):
        found = calibrator(torch.full((50,), z), torch.from_numpy(line), {}).numpy()
        assert np.all(np.diff(found) >= 0)
        assert np.all(np.isfinite(found))


def test_an_unseen_value_gets_its_parents_level_and_no_other_value_does() -> None:
    # parents 1 and 2 are .5 above and 2 below the typical value; parent 0 is none
    network = make_auxiliary(True)
    plain, levels = make_calibrator(network), np.array([0.0, 0.5, -2.0])
    calibrator = Calibrator(make_functions(), plain.level_shift_V.numpy(), -0.7, network, levels)
    columns = make_columns(60)
    columns["parent_id"] = torch.arange(60) % 3
    ids, logits = columns["field_value_id"].long(), columns["uncalibrated_logit"]
    found, without = calibrator(ids, logits, columns), plain(ids, logits, columns)
    is_moved = (ids == 0) & (columns["parent_id"] > 0)
    assert 5 < int(is_moved.sum()) < 30
    assert torch.equal(found[~is_moved], without[~is_moved])
    # before the network, which sees the level as part of the calibrated logit
    before = calibrator.table(ids, logits) + torch.from_numpy(levels)[columns["parent_id"]] * (ids == 0)
    term = network(columns, ids, (before + 0.7) / 1.5).double()
    torch.testing.assert_close(found, before + term + calibrator.level_shift_V[ids], rtol=0, atol=1e-6)
    assert calibrator.columns == ("parent_id", *plain.columns)
    again = restore_calibrator(calibrator.describe(), calibrator.state_dict())
    with torch.no_grad():
        assert torch.equal(again(ids, logits, columns), found)


@pytest.mark.parametrize("auxiliary", [None, make_auxiliary(True)])
def test_slope_and_offset_come_last(auxiliary: torch.nn.Module | None) -> None:
    plain, columns = make_calibrator(auxiliary), make_columns()
    shift_V = plain.level_shift_V.numpy()
    calibrator = Calibrator(make_functions(), shift_V, -0.7, auxiliary, slope=0.8, offset=-0.25).eval()
    ids, logits = columns["field_value_id"].long(), columns["uncalibrated_logit"]
    with torch.no_grad():
        found, before = calibrator(ids, logits, columns), plain(ids, logits, columns)
        torch.testing.assert_close(found, 0.8 * before - 0.25, rtol=0, atol=1e-12)
        again = restore_calibrator(calibrator.describe(), calibrator.state_dict())
        assert torch.equal(again(ids, logits, columns), found)


def test_functions_of_include_slope_and_offset_too() -> None:
    calibrator = Calibrator(make_functions(), np.linspace(-1, 1, N_VALUES), 0.3, None, slope=0.6, offset=0.4)
    functions, line = functions_of(calibrator), np.linspace(-9, 9, 41)
    for z in range(N_VALUES):
        ids = np.full(41, z)
        expected = calibrator(torch.from_numpy(ids), torch.from_numpy(line), {}).numpy()
        np.testing.assert_allclose(interpolate(functions, ids, line), expected, atol=1e-12)


def test_a_calibrator_of_another_shape_is_not_restored() -> None:
    calibrator = make_calibrator(None)
    with pytest.raises(RuntimeError, match="size mismatch for"):
        restore_calibrator(
            {"n_values": N_VALUES, "shape": [N_VALUES, 2], "auxiliary": None, "n_parent_ids": None},
            calibrator.state_dict(),
        )
