"""The page as HTML: complete, escaped, self-contained."""

from __future__ import annotations

import base64
import re
from html import escape, unescape
from html.parser import HTMLParser

from adacalib.report.glossary import GLOSSARY
from adacalib.report.page import draw_pictures, render_page
from adacalib.report.tables import MAX_FIELD_VALUES
from tests.report.small_report import NASTY, make_bare_data, make_chosen, make_config, make_data, make_value

VOID = {"meta", "img", "br", "link", "hr"}


class Checker(HTMLParser):
    """Collects tags, addresses and ids, and fails on tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href") and value is not None:
                self.addresses.append(value)
            if name == "id" and value is not None:
                self.ids.append(value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check(html: str) -> Checker:
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    assert "script" not in checker.tags
    assert all(address.startswith(("#", "data:image/png;base64,")) for address in checker.addresses)
    assert {a.removeprefix("#") for a in checker.addresses if a.startswith("#")} <= set(checker.ids)
    assert len(checker.ids) == len(set(checker.ids))
    assert "url(" not in html and "@import" not in html
    return checker


def test_page_is_complete_escaped_and_needs_no_other_file() -> None:
    data = make_data(level_drift={"none": {"log_loss": 0.5, "pcoc": 1.1}, "dev": {"log_loss": 0.4}})
    pictures = draw_pictures(data)
    html = render_page(data, pictures)
    checker = check(html)
    assert "<script" not in html
    # note, field value in two tables, reason of a reject; in the configuration once more, as JSON
    assert html.count(escape(NASTY).replace("&quot;", "&#34;")) == 4
    assert html.count("&lt;script&gt;") == 5
    for picture in pictures:
        assert picture.name in checker.ids
        assert base64.b64encode(picture.png).decode() in html
    text = unescape(re.sub(r"<[^>]+>", " ", html))
    for expected in ("Better than un-calibrated", "Level drift", "global curve from dev", "(null)", "0.40000"):
        assert expected in text
    assert "1 min 40 s" in text and "3.11.7" in text and '"seed": 7' in text


def test_every_term_of_the_metrics_table_is_in_the_glossary() -> None:
    html = render_page(make_data(), [])
    for term in ("Field-RCE", "noise floor", "attainable", "terciles", "PCOC", "LogLoss", "AUC", "Field-AUC"):
        assert term in GLOSSARY and f"<dt>{term}</dt>" in html
    for term in ("Field-ECE", "isotonic", "offset", "logit cell", "posterior", "auxiliary network", "train, dev, test"):
        assert term in GLOSSARY


def test_same_data_same_page() -> None:
    data = make_data()
    pictures = draw_pictures(data)
    assert render_page(data, pictures) == render_page(data, draw_pictures(make_data()))


def test_bare_run_says_what_is_not_there() -> None:
    data = make_bare_data()
    html = render_page(data, draw_pictures(data))
    check(html)
    assert "Not told apart from un-calibrated" in html
    assert "No network was trained" in html and "There is no status.json" in html and "no test samples to show" in html
    assert "Other fields" not in html and "Level drift" not in html
    assert not re.search(
        r"\b(nan|None|inf)\b", re.sub(r"<style>.*?</style>|<pre>.*?</pre>|<[^>]+>", " ", html, flags=re.S)
    )
    assert "weighted responses" in html


def test_paper_mode_with_three_candidates() -> None:
    data = make_data(config=make_config(calibrator={"mode": "paper"}), chosen_bins=make_chosen(12))
    html = render_page(data, draw_pictures(data))
    assert 'id="chosen_bins"' in html and "5 bins: 6, 20 bins: 6" in html


def test_long_lists_of_field_values_are_cut_and_it_is_said() -> None:
    values = [make_value(k, f"v{k}", 1.0, 0.5) for k in range(1, MAX_FIELD_VALUES + 4)]
    html = render_page(make_data(field_values=values), [])
    assert "3 less frequent values are left out here" in html
    assert '<td class="">v500</td>' in html and '<td class="">v501</td>' not in html
