"""Does AdaCalib lead? One sentence per metric, computed from the document and never assumed."""

from __future__ import annotations

from operator import lt

from adacalib.report.comparison_data import COLUMNS, FAMILY, Document, average, is_significant
from adacalib.report.numbers import show, show_p_value
from adacalib.report.verdict import Verdict

_COLUMNS = {column.metric: column for column in COLUMNS}
_OURS = "adacalib"


def judge_lead(document: Document, metric: str) -> Verdict:
    """Whether AdaCalib, in any of its variants, is the best in a metric that is better lower, and beyond noise.

    Noise is judged over seeds; the test over groups of rows stands beside it. A lead of another method counts as
    such unless AdaCalib is the second best and the two are not told apart.

    Args:
        document: compare.json.
        metric: log_loss, field_rce or truth_error.
    """
    name = _COLUMNS[metric].heading
    found = document["by_metric"].get(metric)
    if found is None:
        return Verdict("not told apart", f"{name} is not defined", f"No method has a {name} on every test set.")
    if found["second"] is None:
        return Verdict("not told apart", f"{name}: nothing to compare with", "No other method has a value.")
    return _judge_own_lead(document, metric) if found["best"] in FAMILY else _judge_other_lead(document, metric)


def _judge_own_lead(document: Document, metric: str) -> Verdict:
    name, found = _COLUMNS[metric].heading, document["by_metric"][metric]
    significant = is_significant(found["p_value"])
    best = found["best"]
    sentence = _describe_best_two(document, metric)
    if best != _OURS and average(document["methods"][_OURS][metric]) is not None:
        sentence += f"; the default form of AdaCalib has {_show(document, _OURS, metric)}"
    if significant:
        return Verdict("better", f"AdaCalib leads {name}", sentence + ".")
    if found["p_value"] is None:
        return Verdict("not told apart", f"AdaCalib has the lowest {name}, of one seed", sentence + ".")
    return Verdict("within noise", f"AdaCalib has the lowest {name}, within noise", sentence + ".")


def _judge_other_lead(document: Document, metric: str) -> Verdict:
    name, found = _COLUMNS[metric].heading, document["by_metric"][metric]
    sentence = f"{_describe_best_two(document, metric)}; {_describe_own(document, metric, found['best'])}."
    if found["second"] in FAMILY and not is_significant(found["p_value"]):
        outcome, told = ("not told apart", "one seed") if found["p_value"] is None else ("within noise", "within noise")
        return Verdict(outcome, f"AdaCalib does not lead {name}; second, {told}", sentence)  # type: ignore[arg-type]
    return Verdict("worse", f"AdaCalib does not lead {name}", sentence)


def _describe_own(document: Document, metric: str, best: str) -> str:
    ours, theirs = (document["methods"][name][metric] for name in (_OURS, best))
    mean_ours, mean_theirs = average(ours), average(theirs)
    if mean_ours is None or mean_theirs is None:
        return "AdaCalib has no value"
    words = f"AdaCalib has {_show(document, _OURS, metric)}"
    if mean_theirs > 0:
        words += f", {show(100 * (mean_ours / mean_theirs - 1), 3)} % more"
    if len(ours) > 1:
        words += f", and less than {document['labels'][best]} in {sum(map(lt, ours, theirs))} of {len(ours)} seeds"
    return words


def _describe_best_two(document: Document, metric: str) -> str:
    found, labels = document["by_metric"][metric], document["labels"]
    best, second = found["best"], found["second"]
    return (
        f"{labels[best]} has the lowest {_COLUMNS[metric].heading}, {_show(document, best, metric)}; the best of its "
        f"rivals, {labels[second]}, has {_show(document, second, metric)} {_describe_evidence(document, metric)}"
    )


def _describe_evidence(document: Document, metric: str) -> str:
    found = document["by_metric"][metric]
    over_seeds = (
        "one seed has no p value" if found["p_value"] is None else f"{show_p_value(found['p_value'])} over seeds"
    )
    over_rows = found["p_value_jackknife"]
    return f"({over_seeds}{'' if over_rows is None else f'; {show_p_value(over_rows)} over groups of rows'})"


def _show(document: Document, method: str, metric: str) -> str:
    return show(average(document["methods"][method][metric]), _COLUMNS[metric].digits)


def describe_reach(document: Document) -> str | None:
    """AdaCalib's Field-RCE as a multiple of what is attainable; None where one of the two is not defined."""
    parts = []
    for metric, suffix in (("field_rce", ""), ("field_rce_terciles", "_terciles")):
        own = average(document["methods"][_OURS][metric])
        attainable, floor = average(document[f"attainable{suffix}"]), average(document[f"noise_floor{suffix}"])
        if own is not None and attainable:
            parts.append(
                f"AdaCalib's {_COLUMNS[metric].heading} is {own / attainable:.2f} × the attainable level "
                f"{show(attainable, 4)} (noise floor {show(floor, 4)})"
            )
    return "; ".join(parts) + "." if parts else None


def describe_truth_ratio(document: Document) -> str | None:
    """AdaCalib's error against the truth as a multiple of the best other method's; None where no truth is known."""
    own = average(document["methods"][_OURS]["truth_error"])
    if own is None:
        return None
    others = {
        name: value
        for name, metrics in document["methods"].items()
        if name not in (*FAMILY, "truth") and (value := average(metrics["truth_error"])) is not None and value > 0
    }
    if not others:
        return None
    nearest = min(others, key=lambda name: others[name])
    return (
        f"Against the true probabilities AdaCalib errs by {show(own, 4)} of the mean: {own / others[nearest]:.2f} × "
        f"the error of the best method that is not AdaCalib, {document['labels'][nearest]} "
        f"({show(others[nearest], 4)})."
    )
