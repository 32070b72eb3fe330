"""All methods without a network, by name, in the order in which they are shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from adacalib.baselines.bbq import fit_bbq
from adacalib.baselines.beta import fit_beta
from adacalib.baselines.gamma import fit_gamma
from adacalib.baselines.histogram_binning import fit_histogram_binning
from adacalib.baselines.histogram_per_value import fit_histogram_per_value
from adacalib.baselines.isotonic import fit_isotonic
from adacalib.baselines.isotonic_offset import fit_isotonic_offset
from adacalib.baselines.isotonic_ratio import fit_isotonic_ratio
from adacalib.baselines.platt import fit_platt
from adacalib.baselines.platt_per_value import fit_platt_per_value
from adacalib.baselines.protocol import Baseline
from adacalib.baselines.scaling_binning import fit_scaling_binning
from adacalib.baselines.sir import fit_sir
from adacalib.baselines.temperature import fit_temperature
from adacalib.cells.logit_cells import LogitCells


@dataclass(frozen=True)
class Entry:
    """A method and what it is called.

    Attributes:
        label: the name that people know it by.
        fit: logit cells of train ∪ dev → the fitted method.
    """

    label: str
    fit: Callable[[LogitCells], Baseline]


TABLE_1: Mapping[str, Entry] = {
    "histogram_binning": Entry("HistoBin", fit_histogram_binning),
    "isotonic": Entry("IsoReg", fit_isotonic),
    "gamma": Entry("GammaCalib", fit_gamma),
    "sir": Entry("SIR", fit_sir),
}
"""Those of the paper's Table 1 that have no network."""

GLOBAL: Mapping[str, Entry] = {
    "platt": Entry("Platt", fit_platt),
    "temperature": Entry("temperature", fit_temperature),
    "beta": Entry("beta", fit_beta),
    "bbq": Entry("BBQ", fit_bbq),
    "scaling_binning": Entry("scaling-binning", fit_scaling_binning),
}
"""The others that the paper cites: one function for all field values."""

FIELD_AWARE: Mapping[str, Entry] = {
    "histogram_per_value": Entry("HistoBin per value", fit_histogram_per_value),
    "platt_per_value": Entry("ridge Platt per value", fit_platt_per_value),
    "isotonic_ratio": Entry("isotonic × value ratio", fit_isotonic_ratio),
    "isotonic_offset": Entry("isotonic + offset", fit_isotonic_offset),
}
"""What a practitioner tries first on a field."""

BASELINES: Mapping[str, Entry] = {**TABLE_1, **GLOBAL, **FIELD_AWARE}
