"""Tables about the run itself: its input, its stages, its versions and its configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from adacalib.config import STAGES
from adacalib.report.data import ReportData
from adacalib.report.numbers import UNDEFINED, show_count, show_seconds
from adacalib.report.tables import Cell, Table


def make_input_table(counts: Mapping[str, Any], metrics: Mapping[str, Any]) -> Table:
    """What became of the input's rows."""
    rejected = counts.get("rejected") or {}
    rows = [
        ("rows read", counts.get("n_input"), ""),
        ("filtered out by row_filter", counts.get("n_filtered_out"), "by intention, not faulty"),
        ("rejected as faulty", rejected.get("n_rejected"), "kept in table rejects"),
        *((f"– {reason}", n, "") for reason, n in (rejected.get("reasons") or {}).items()),
        ("accepted samples", counts.get("rows"), ""),
        ("– in train and dev", metrics["n_fit"], "what is learned from"),
        ("– in test", metrics["n_test"], "what this page measures on"),
        ("scores clipped", counts.get("n_scores_clipped"), "to [1e-7, 1 − 1e-7]"),
        *((f"nulls replaced in {name}", n, "by the mean") for name, n in (counts.get("imputed_nulls") or {}).items()),
    ]
    return Table(
        ["input", "rows", "remark"],
        [[Cell(name, is_number=False), Cell(show_count(n)), Cell(remark, is_number=False)] for name, n, remark in rows],
    )


def make_fields_table(counts: Mapping[str, Any], metrics: Mapping[str, Any]) -> Table:
    """Per field: its number of values, samples with null, empty and (in test) unseen value."""
    fields = {metrics["field"]: metrics["methods"], **(metrics.get("other_fields") or {})}
    rows = [
        [
            Cell(field, is_number=False),
            *(
                Cell(show_count((counts.get(f"n_{key}field_values") or {}).get(field)))
                for key in ("", "null_", "empty_")
            ),
            Cell(show_count((methods["adacalib"].get("unseen") or {}).get("n_samples"))),
        ]
        for field, methods in fields.items()
    ]
    return Table(["field", "values", "samples (null)", "samples (empty)", "test samples (unseen)"], rows)


def make_timings_table(status: Mapping[str, Any]) -> Table:
    """Seconds of every stage that status.json knows; the report itself is still under way and left out."""
    known = status.get("stages") or {}
    stages = [stage for stage in STAGES if stage in known and stage != "report"]
    rows = [
        [
            Cell(stage, is_number=False),
            Cell(str(known[stage].get("state")), is_number=False),
            Cell(_show_time(known[stage].get("started"))),
            Cell(show_seconds(known[stage].get("seconds"))),
        ]
        for stage in stages
    ]
    total = sum(known[stage].get("seconds") or 0.0 for stage in stages)
    text = [Cell("together", is_number=False), Cell("", is_number=False), Cell("")]
    return Table(["stage", "state", "started", "time"], [*rows, [*text, Cell(show_seconds(total))]])


def _show_time(text: str | None) -> str:
    return UNDEFINED if text is None else text.replace("T", " ").replace("+00:00", " UTC")


def make_versions_table(data: ReportData) -> Table:
    """Versions, seed and fingerprints: what one needs to get the same again."""
    versions = (data.status or {}).get("versions") or {}
    rows = {
        **{name: version or "not there" for name, version in versions.items()},
        "seed": str(data.config.seed),
        "input": str(data.input_counts.get("input", UNDEFINED)),
        "input fingerprint": str(data.input_counts.get("input_fingerprint", UNDEFINED)),
    }
    return Table(
        ["what", "which"], [[Cell(name, is_number=False), Cell(text, is_number=False)] for name, text in rows.items()]
    )


def format_config(data: ReportData) -> str:
    """The configuration in force as JSON."""
    return json.dumps(data.config.model_dump(mode="json"), indent=2, ensure_ascii=False)
