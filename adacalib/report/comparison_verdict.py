"""Does AdaCalib lead? One sentence per metric, computed from the document and never assumed."""

from __future__ import annotations

from collections.abc import Sequence
from operator import lt

from adacalib.report.comparison_data import COLUMNS, FAMILY, GROUPS, TRUTH, Document, average, is_significant
from adacalib.report.numbers import show, show_p_value
from adacalib.report.verdict import Verdict

_COLUMNS = {column.metric: column for column in COLUMNS}
_OURS = "adacalib"


def judge_lead(document: Document, metric: str) -> Verdict:
    """Whether AdaCalib, in any of its variants, is the best in a metric that is better lower, and beyond noise.

    Noise is judged over seeds, and the test over groups of rows stands beside it; where all seeds have one test set
    it is judged by the latter alone. A lead of another method counts as
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
        untested = "of one seed" if len(document["seeds"]) == 1 else "without a test"
        return Verdict("not told apart", f"AdaCalib has the lowest {name}, {untested}", sentence + ".")
    return Verdict("within noise", f"AdaCalib has the lowest {name}, within noise", sentence + ".")


def _judge_other_lead(document: Document, metric: str) -> Verdict:
    name, found = _COLUMNS[metric].heading, document["by_metric"][metric]
    sentence = f"{_describe_best_two(document, metric)}; {_describe_own(document, metric, found['best'])}."
    if found["second"] in FAMILY and not is_significant(found["p_value"]):
        untested = "one seed" if len(document["seeds"]) == 1 else "without a test"
        outcome, told = ("not told apart", untested) if found["p_value"] is None else ("within noise", "within noise")
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
    told = [] if found["p_value"] is None else [f"{show_p_value(found['p_value'])} over {document['p_value_over']}"]
    if len(document["seeds"]) == 1:
        told.append("one seed has no p value")
    elif not told:
        told.append(f"no p value over {document['p_value_over']}")
    if document["p_value_over"] == "seeds" and found["p_value_jackknife"] is not None:
        told.append(f"{show_p_value(found['p_value_jackknife'])} over groups of rows")
    return f"({'; '.join(told)})"


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


def describe_truth_ratios(document: Document) -> list[str]:
    """AdaCalib's error against the truth as a multiple of others'; empty where no truth is known.

    One sentence for the best method that is not AdaCalib, and one for the best of the paper's Table 1 without network.
    """
    own = average(document["methods"][_OURS]["truth_error"])
    if own is None:
        return []
    names = [name for name in document["labels"] if name not in (*FAMILY, TRUTH)]
    first = _list_first_group(names)
    told = []
    for what, others in {
        "method that is not AdaCalib": names,
        "method of the paper's Table 1 without network": first,
    }.items():
        errors = {name: error for name in others if (error := average(document["methods"][name]["truth_error"]))}
        if errors:
            nearest = min(errors, key=lambda name: errors[name])
            told.append(
                f"Against the true probabilities AdaCalib errs by {show(own, 4)} of the mean: "
                f"{own / errors[nearest]:.3f} × the error of the best {what}, {document['labels'][nearest]} "
                f"({show(errors[nearest], 4)})."
            )
    return told


def _list_first_group(names: Sequence[str]) -> list[str]:
    """The names before the second group begins."""
    starts = [place for place, name in enumerate(names) if name in GROUPS]
    return list(names[: starts[1]] if len(starts) > 1 else names)
