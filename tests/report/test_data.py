"""Names of field values and which of them are picked."""

from __future__ import annotations

from adacalib.report.data import MethodSums, name_field_value, pick_by_frequency, shorten


def test_field_values_without_text_have_names() -> None:
    named = [name_field_value(*pair) for pair in (("UA", "value"), ("", "value"), ("  ", "value"), (None, "null"))]
    assert named == ["UA", "(empty)", "(blanks)", "(null)"]
    assert name_field_value(None, "unseen") == "(unseen)"


def test_labels_of_pictures_are_short_and_one_line() -> None:
    assert shorten("a\n\tb\x00c") == "a b c"
    assert shorten("x" * 30) == "x" * 21 + "…"
    assert shorten("x" * 22) == "x" * 22


def test_picked_values_are_spread_over_frequencies() -> None:
    # targets 1000, 100, 10, 1 (each a tenth of the one before)
    n_samples = {1: 1000, 2: 900, 3: 110, 4: 90, 5: 12, 6: 5, 7: 1, 8: 0}
    picked = pick_by_frequency(n_samples, 4)
    assert picked[0] == 1 and picked[-1] == 7 and set(picked[1:-1]) <= {3, 4, 5} and 5 in picked
    assert pick_by_frequency({1: 5, 2: 9}, 4) == [2, 1]
    assert pick_by_frequency({1: 7, 2: 7, 3: 7}, 2) == [1, 2]
    assert pick_by_frequency({}, 4) == []


def test_pcoc_without_a_positive_is_not_defined() -> None:
    assert MethodSums(5, 0, 5.0, 0.0, 0.7, 0.2).pcoc is None
    assert MethodSums(5, 2, 5.0, 2.0, 3.0, 0.2).pcoc == 1.5
    assert MethodSums(5, 2, 5.0, 2.0, 3.0, 0.2).residual == 1.0
