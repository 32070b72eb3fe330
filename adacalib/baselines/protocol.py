"""What every method without a network looks like: fitted on logit cells, it predicts on logits."""

from __future__ import annotations

from typing import Protocol

from adacalib.cells.logit_cells import Floats, Ints


class Baseline(Protocol):
    """A fitted reference method."""

    def predict(self, logit: Floats, field_value_id: Ints) -> Floats:
        """Calibrated probabilities, within [1e-7, 1 - 1e-7].

        Args:
            logit: un-calibrated log-odds, length n.
            field_value_id: dense ids, length n; 0 for unseen values.
        """
        ...
