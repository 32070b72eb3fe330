"""Makes oracle_values.json: what the libraries betacal and netcal say on small data sets.

Neither is a dependency of ours: run this where they are, and nowhere in the tests. For instance

    python3.11 -m venv oracles
    oracles/bin/pip install "numpy<2" scipy scikit-learn torch tqdm
    oracles/bin/pip install --no-deps betacal netcal
    oracles/bin/python tests/baselines/make_oracle_values.py

(netcal's own requirements are for its regression part and ask for numpy 2; its binning needs none of them.)

A data set is a list of levels of the score with counts of samples and responses. All samples of a level have one
score, and two levels lie in different logit cells, so that cells lose nothing.

betacal's solver stops at its tolerance of 1e-4, up to .01 away from its own maximum; here it goes on to 1e-12.

What netcal is asked, and what not: its HistogramBinning per number of bins, its range of numbers of bins, and the
BBQ's prediction where one binning has all the weight. Elsewhere it leaves the paper: bins of equal width (its
equal-frequency bins cannot predict: transform raises), scores by BIC instead of the marginal likelihood, and
only the best binnings kept ("elbow"). On equally spaced levels of equal weight both kinds of bins are the same.
"""

from __future__ import annotations

import json
import re
from functools import partial
from importlib.metadata import version
from pathlib import Path

import betacal.beta_calibration
import numpy as np
from betacal import BetaCalibration
from netcal.binning import BBQ, HistogramBinning
from sklearn.linear_model import LogisticRegression

betacal.beta_calibration.LogisticRegression = partial(LogisticRegression, tol=1e-12, max_iter=100_000)


def expit(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def make_data_sets() -> dict:
    rng = np.random.default_rng(20150125)
    even = (np.arange(64) + 0.5) / 64
    low = expit((np.arange(-192, -31, 4) + 0.5) / 32)
    wide = expit((np.arange(-96, 97, 3) + 0.5) / 32)
    two = np.array([0.25, 0.75])
    return {
        # (scores, samples of a level, true rate)
        "even": (even, 5, rng, 0.15 + 0.6 * even**2),
        "low": (low, 600, rng, expit(1.3 * np.log(low) - 2 * np.log1p(-low) + 0.4)),
        "a_is_negative": (wide, 80, rng, expit(-0.4 * np.log(wide) - 1.5 * np.log1p(-wide) - 2)),
        "b_is_negative": (wide, 80, rng, expit(1.5 * np.log(wide) + 0.4 * np.log1p(-wide) + 2)),
        "step": (two, 500, rng, np.array([0.1, 0.8])),
    }


def expand(data: dict) -> tuple[np.ndarray, np.ndarray]:
    """One row per sample: (score, label)."""
    n, positive = data["n_samples"], data["n_responses"]
    labels = [np.repeat([1, 0], [m, k - m]) for k, m in zip(n, positive, strict=True)]
    return np.repeat(data["score"], n), np.concatenate(labels)


def fit_betacal(data: dict) -> dict:
    """a, b and the predictions; once on the labels, once on Platt's smoothed targets as pairs of weighted rows."""
    score, n, m = (np.array(data[name], float) for name in ("score", "n_samples", "n_responses"))
    up, down = (m.sum() + 1) / (m.sum() + 2), 1 / ((n - m).sum() + 2)
    smoothed = m * up + (n - m) * down
    values = {}
    for targets, response in {"labels": m, "smoothed": smoothed}.items():
        model = BetaCalibration(parameters="abm")
        label = np.repeat([1, 0], len(score))
        model.fit(np.tile(score, 2), label, sample_weight=np.concatenate([response, n - response]))
        a, b, _ = model.calibrator_.map_
        values[targets] = {"a": float(a), "b": float(b), "predicted": model.predict(score).tolist()}
    return values


def fit_netcal(data: dict) -> dict:
    """Rates of each bin for each number of bins, the range of these numbers, and BBQ's predictions."""
    score, label = expand(data)
    tried = []

    class Recorded(BBQ):
        def _elbow(self, confidences, ground_truth, model_list, *args, **kwargs):
            tried.extend(len(model._bin_map) for model in model_list)
            return super()._elbow(confidences, ground_truth, model_list, *args, **kwargs)

    model = Recorded().fit(score, label)
    rates = {}
    for n_bins in sorted({tried[0], 2, 3, 7, 10, tried[-1]} & set(tried)):
        rates[n_bins] = HistogramBinning(bins=n_bins).fit(score, label).transform(np.array(data["score"])).tolist()
    return {
        "n_bins_range": [min(tried), max(tried)],
        "rates_of_levels_by_n_bins": rates,
        "predicted": model.transform(np.array(data["score"])).tolist(),
    }


def main() -> None:
    data_sets = {}
    for name, (score, n, rng, rate) in make_data_sets().items():
        data = {
            "score": score.tolist(),
            "n_samples": [n] * len(score),
            "n_responses": rng.binomial(n, rate).tolist(),
        }
        data_sets[name] = data
        if name != "step":
            data["betacal"] = fit_betacal(data)
        if name in ("even", "step"):
            data["netcal"] = fit_netcal(data)
    packages = ("betacal", "netcal", "numpy", "scipy", "scikit-learn", "torch")
    values = {"versions": {package: version(package) for package in packages}, "data_sets": data_sets}
    path = Path(__file__).with_name("oracle_values.json")
    one_line_a_list = re.sub(r",\s+(?=[-\d])", ", ", json.dumps(values, indent=1))
    path.write_text(one_line_a_list + "\n")
    print(f"{path}: {len(data_sets)} data sets, {values['versions']}")


if __name__ == "__main__":
    main()
