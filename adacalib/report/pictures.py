"""What all pictures share: size, fonts, colours, axes, and the way to PNG. No global state of matplotlib is touched."""

from __future__ import annotations

import base64
import io
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

log = logging.getLogger("adacalib")

DPI = 150
WIDTH = 10.0
"""Inches of every picture: 1500 pixels, shown at about 1000."""

# Okabe and Ito's colours, told apart by every common colour vision; markers and dashes say the same once more.
COLORS = {"uncalibrated": "#D55E00", "isotonic": "#56B4E9", "isotonic_offset": "#009E73", "adacalib": "#0072B2"}
MARKERS = {"uncalibrated": "o", "isotonic": "^", "isotonic_offset": "s", "adacalib": "D"}
GREY, LIGHT = "#555555", "#D9D9D9"
SEQUENCE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")

_FALLBACK_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "Noto Sans Arabic")

_STYLE: dict[Any, Any] = {
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.labelsize": 10.5,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "legend.fontsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "legend.frameon": False,
    "text.parse_math": False,  # a field value may hold dollar signs
    "axes.unicode_minus": True,
}


@dataclass(frozen=True)
class Picture:
    """One figure of the page.

    Attributes:
        name: stem of its file under figures/.
        title: its heading.
        caption: how to read it.
        png: the file's bytes.
        width: pixels.
        height: pixels.
    """

    name: str
    title: str
    caption: str
    png: bytes
    width: int
    height: int

    @property
    def base64(self) -> str:
        """The file as text, for a data URL."""
        return base64.b64encode(self.png).decode("ascii")


def make_picture(name: str, title: str, caption: str, height: float, draw: Callable[[Figure], None]) -> Picture:
    """Draws a picture in the house style; the same drawing gives the same bytes.

    Args:
        name: stem of the file.
        title: heading, for the page (not drawn).
        caption: how to read it, for the page.
        height: inches; the width is WIDTH.
        draw: fills the empty figure.
    """
    known = set(font_manager.get_font_names())
    fonts = ["DejaVu Sans", *(font for font in _FALLBACK_FONTS if font in known)]
    with matplotlib.rc_context({**_STYLE, "font.family": fonts}):
        figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained", facecolor="white")
        draw(figure)
        buffer = io.BytesIO()
        with warnings.catch_warnings(record=True) as caught:
            figure.savefig(buffer, format="png", metadata={"Software": None})
    _pass_on(caught, name)
    return Picture(name, title, caption, buffer.getvalue(), round(WIDTH * DPI), round(height * DPI))


def _pass_on(caught: list[warnings.WarningMessage], name: str) -> None:
    """One line for all characters that no font here can draw; every other warning as it came."""
    missing = [warning for warning in caught if "missing from font" in str(warning.message)]
    if missing:
        log.warning(
            "figures/%s.png: no installed font has some characters of the labels, they show as boxes; the tables of "
            "the report have them. Install a font that does (fonts-noto-cjk for Chinese and Japanese).",
            name,
        )
    for warning in caught:
        if warning not in missing:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def use_log_scale(axes: Axes, axis: str, ticks: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Sets one axis to a logarithmic scale with plain numbers at ticks × powers of ten."""
    if axis == "x":
        axes.set_xscale("log")
    else:
        axes.set_yscale("log")
    target = axes.xaxis if axis == "x" else axes.yaxis
    target.set_major_locator(LogLocator(subs=ticks))
    target.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    target.set_minor_formatter(NullFormatter())


def use_whole_numbers(axes: Axes) -> None:
    """Ticks of the x axis at whole numbers only."""
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def hide(axes: Axes) -> None:
    """Takes away a panel that has nothing to show."""
    axes.set_visible(False)
