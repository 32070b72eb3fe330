"""Does AdaCalib lead? One sentence per metric, computed from the document and never assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import lt
from typing import Any

from adacalib.report.comparison_data import COLUMNS, FAMILY, GROUPS, TRUTH, Document, average, is_significant
from adacalib.report.numbers import show, show_p_value
from adacalib.report.verdict import Verdict

_COLUMNS = {column.metric: column for column in COLUMNS}
_OURS = "adacalib"


def judge_lead(document: Document, metric: str) -> Verdict:
    """AdaCalib in its default form against the best method that is not AdaCalib, in a metric that is better lower.

    Its other forms (paper mode, without network) are told beside it where one of them is better, and never stand in
    for it: the best of several forms would be chosen on the very test rows that judge it.

    Noise is judged over seeds, and the test over groups of rows stands beside it; where all seeds have one test set
    it is judged by the latter alone.

    Args:
        document: compare.json.
        metric: log_loss, field_rce or truth_error.
    """
    name = _COLUMNS[metric].heading
    means = {method: average(own[metric]) for method, own in document["methods"].items() if method != TRUTH}
    ours = means[_OURS]
    if ours is None:
        return Verdict("not told apart", f"{name} is not defined", f"AdaCalib has no {name} on every test set.")
    rivals = {method: mean for method, mean in means.items() if mean is not None and method not in FAMILY}
    if not rivals:
        return Verdict("not told apart", f"{name}: nothing to compare with", "No other method has a value.")
    rival = min(rivals, key=lambda method: rivals[method])
    leads, p_value = ours < rivals[rival], document["adacalib_minus"][metric][rival]["p_value"]
    sentence = _describe(document, metric, rival)
    kin = min((m for m in FAMILY if means.get(m) is not None), key=lambda method: means[method] or 0.0)
    if kin != _OURS:
        sentence += f"; {document['labels'][kin]} has {_show(document, kin, metric)}"
    if is_significant(p_value):
        title = f"AdaCalib leads {name}" if leads else f"AdaCalib does not lead {name}"
        return Verdict("better" if leads else "worse", title, sentence + ".")
    stands = f"AdaCalib has the lowest {name}" if leads else f"AdaCalib does not lead {name}"
    if p_value is None:
        untested = "one seed" if len(document["seeds"]) == 1 else "without a test"
        return Verdict("not told apart", f"{stands}, {untested}", sentence + ".")
    return Verdict("within noise", f"{stands}, within noise", sentence + ".")


def _describe(document: Document, metric: str, rival: str) -> str:
    """Both figures, by how much they differ, in how many seeds, and how sure that is."""
    ours, theirs = (document["methods"][name][metric] for name in (_OURS, rival))
    mean_ours, mean_theirs = average(ours) or 0.0, average(theirs) or 0.0
    words = f"AdaCalib's {_COLUMNS[metric].heading} is {_show(document, _OURS, metric)}"
    if mean_theirs > 0:
        percent = 100 * (mean_ours / mean_theirs - 1)
        words += f", {show(abs(percent), 3)} % {'above' if percent > 0 else 'below'}"
    else:
        words += ", against"
    words += f" the best of the others, {document['labels'][rival]} ({_show(document, rival, metric)})"
    if len(ours) > 1:
        words += f"; lower in {sum(map(lt, ours, theirs))} of {len(ours)} seeds"
    return f"{words} ({_describe_evidence(document, document['adacalib_minus'][metric][rival])})"


def _describe_evidence(document: Document, pair: Mapping[str, Any]) -> str:
    told = [] if pair["p_value"] is None else [f"{show_p_value(pair['p_value'])} over {document['p_value_over']}"]
    if len(document["seeds"]) == 1:
        told.append("one seed has no p value")
    elif not told:
        told.append(f"no p value over {document['p_value_over']}")
    if document["p_value_over"] == "seeds" and pair["p_value_jackknife"] is not None:
        told.append(f"{show_p_value(pair['p_value_jackknife'])} over groups of rows")
    return "; ".join(told)


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


def describe_choices(document: Document) -> str:
    """What AdaCalib decided for itself in each seed: the field part, the network, the forward slope."""
    choices, n_seeds = document["choices"], len(document["seeds"])
    kept = choices["field_part"].count("robust")
    told = f"Do no harm kept AdaCalib's field part in {kept} of {n_seeds} seeds"
    if None not in choices["chosen_epoch"]:
        told += f", its network in {sum(epoch > 0 for epoch in choices['chosen_epoch'])}"
    slopes = [slope for slope in choices["forward_slope"] if slope is not None]
    if slopes and min(slopes) < 1:
        told += f"; forward slope {show(min(slopes), 2)} to {show(max(slopes), 2)}"
    return told + "."


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
