"""What the pages of a comparison and of an ablation share: groups of methods, columns, means over seeds.

Their data are the documents of compare.json and ablate.json as they are: per method and metric one value per seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

from adacalib.report.glossary import GLOSSARY

Document = Mapping[str, Any]
Values = Sequence[float | None]

FAMILY = ("adacalib_paper", "adacalib_no_auxiliary", "adacalib_no_parent", "adacalib")
"""AdaCalib's own variants: no rivals of each other."""

TRUTH = "truth"
"""The true probabilities as if they were a method; only where they are known."""

GROUPS: Mapping[str, str] = {
    "uncalibrated": "One function for all, in the paper's Table 1",
    "platt": "One function for all, others that the paper cites",
    "histogram_per_value": "Per field value, no network",
    "neucalib": "Trained with AdaCalib's network, where there is one",
    "adacalib_paper": "AdaCalib",
    TRUTH: "For orientation",
}
"""The method that begins a group of rows → the group's heading."""

SIGNIFICANCE = 0.05
"""A paired difference counts below this p value."""


@dataclass(frozen=True)
class Column:
    """One metric of the tables.

    Attributes:
        metric: its key in the documents.
        heading: the name it is shown by.
        digits: digits behind the point.
        meaning: its line in the page's glossary.
    """

    metric: str
    heading: str
    digits: int
    meaning: str


COLUMNS = (
    Column("field_rce", "Field-RCE", 4, GLOSSARY["Field-RCE"]),
    Column("field_rce_terciles", "Field-RCE terciles", 4, GLOSSARY["terciles"]),
    Column("log_loss", "LogLoss", 5, GLOSSARY["LogLoss"]),
    Column("pcoc", "PCOC", 4, GLOSSARY["PCOC"]),
    Column("field_auc", "Field-AUC", 4, GLOSSARY["Field-AUC"]),
    Column("auc", "AUC", 4, GLOSSARY["AUC"]),
    Column(
        "truth_error",
        "error against truth",
        4,
        "mean |p − t| divided by mean t, t being the true probability of each test sample: known for synthetic data "
        "only, never used for fitting. 0 is best; unlike the others it has no chance of labels in it",
    ),
    Column(
        "fit_seconds",
        "fit seconds",
        1,
        "from the start of fitting to the saved calibrator, tables and predictor being there; for methods without a "
        "network, the fit on logit cells",
    ),
)


def describe_comparison(document: Document) -> str:
    """One sentence: what was run, on how many samples, over how many seeds."""
    n_methods, seeds = len([name for name in document["labels"] if name != TRUTH]), document["seeds"]
    over = "one seed" if len(seeds) == 1 else f"{len(seeds)} seeds"
    varied = "a seed varies the split and the initialisation"
    if document["p_value_over"] != "seeds":
        varied = "the split is one and the same, a seed varies the initialisation alone"
    return (
        f"{n_methods} methods for field {document['field']}, fitted on {document['n_fit']:,} samples and measured on "
        f"{document['n_test']:,} others, over {over}; {varied}, and all methods of a seed share its predictor."
    )


def list_columns(document: Document) -> list[Column]:
    """The columns that at least one method has a value in."""
    return [
        column
        for column in COLUMNS
        if any(value is not None for own in document["methods"].values() for value in own[column.metric])
    ]


def list_groups(names: Sequence[str]) -> dict[int, str]:
    """Place of each method that begins a group → the group's heading."""
    return {place: GROUPS[name] for place, name in enumerate(names) if name in GROUPS}


def average(values: Values) -> float | None:
    """Mean over seeds; None where a seed has no value."""
    defined = [value for value in values if value is not None]
    return mean(defined) if defined and len(defined) == len(values) else None


def compute_spread(values: Values) -> float | None:
    """Standard deviation over seeds (n − 1); None with one seed or where a seed has no value."""
    defined = [value for value in values if value is not None]
    return stdev(defined) if len(defined) > 1 and len(defined) == len(values) else None


def subtract(values: Values, others: Values) -> list[float | None]:
    """Difference per seed; None where one of the two is not defined."""
    pairs = zip(values, others, strict=True)
    return [None if a is None or b is None else a - b for a, b in pairs]


def is_significant(p_value: float | None) -> bool:
    """Whether a p value counts; None (a single seed) never does."""
    return p_value is not None and p_value < SIGNIFICANCE


def find_decile(groups: Sequence[Mapping[str, Any]], decile: int | None) -> Mapping[str, Any] | None:
    """A seed's group of one decile (None: unseen values); None where the seed has no such group."""
    return next((group for group in groups if group["decile"] == decile), None)
