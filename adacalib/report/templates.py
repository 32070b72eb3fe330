"""The way from templates beside this module to HTML."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined


def make_environment() -> Environment:
    """Templates of this room; all text is escaped, and a name that is not given is an error."""
    return Environment(
        loader=FunctionLoader(_read_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _read_template(name: str) -> str:
    return files("adacalib.report").joinpath(name).read_text(encoding="utf-8")
