"""Every term on the page in words that need no other page."""

from __future__ import annotations

from collections.abc import Mapping

GLOSSARY: Mapping[str, str] = {
    "AdaCalib": "the method of this page: for each value of the calibrated field a monotone piecewise-linear function "
    "of the un-calibrated score, guided by observed response rates (posteriors), plus an auxiliary network on features "
    "(“Posterior Probability Matters”, SIGIR 2022)",
    "attainable": "the Field-RCE that a correct calibrator would have after learning from as many samples: labels are "
    "drawn from the reference score for train, dev and test, a calibrator is fitted and measured, several times",
    "AUC": "chance that a random positive has a higher score than a random negative; 0.5 is guessing, 1 perfect. It "
    "looks at order only, not at whether probabilities are right",
    "auxiliary network": "a small network that adjusts the calibrated score for the sample's features, after its field "
    "value's function",
    "bin": "one of the equal-frequency slices of a field value's un-calibrated scores; its bounds carry the function's "
    "knots",
    "calibrated field": "the column for each of whose values scores are repaired; other fields are measured only",
    "do no harm": "field values get functions of their own only where held-out samples are predicted better with them",
    "embedding": "a few learned numbers that stand for a category in a network",
    "epoch": "one pass of training over all its rows",
    "(empty), (null), (unseen)": "field values that are an empty text, missing, or occur in test but neither in train "
    "nor in dev; each is treated as a value of its own",
    "Field-AUC": "AUC inside each field value, averaged by number of samples; values with one class only are left out",
    "Field-ECE": "Σ|Σp − Σy| over field values, divided by the number of samples: how many responses per sample are "
    "expected in the wrong place",
    "Field-RCE": "mean over samples of |Σp/Σy − 1| of their field value: by what part expected responses miss observed "
    "ones. 0 is best; values without a positive are left out and counted",
    "held-out": "rows that training does not learn from, but uses to choose the epoch; where rows are split by date "
    "they are the latest days, and the network is trained once more on all rows, for as many epochs",
    "interval": "where the true figure lies with 95 % confidence (or the level configured); for metrics by leaving out "
    "one fiftieth of the samples at a time (jackknife), for AUC by DeLong's formula, for rates by Wilson's",
    "isotonic": "one monotone function for all samples, the best in hindsight on train and dev; a reference",
    "isotonic + offset": "isotonic, and a shift per field value, shrunken towards 0 where samples are few "
    "(empirical Bayes); the simplest thing that works, which AdaCalib must beat to earn its keep",
    "logit, log-odds": "log(p / (1 − p)) of a probability p",
    "logit cell": "the samples of one field value whose un-calibrated logit lies in the same thirty-second of a unit; "
    "everything but the networks is computed from sums per cell",
    "LogLoss": "mean of −log(probability given to what happened); lower is better. It punishes wrong order and wrong "
    "level alike",
    "noise floor": "the Field-RCE that the true probabilities themselves would score on this test set, since observed "
    "responses are random; the reference score stands for the truth",
    "offset": "a shift of the log-odds that all samples of a field value get alike",
    "p value": "chance of a difference at least as large if there were none; below 0.05 counts as beyond noise",
    "paired difference": "two methods on the same test samples, so that the chance in the labels cancels",
    "PCOC": "predicted over observed: Σp/Σy, expected by observed responses; 1 is right, 1.2 is 20 % too many",
    "posterior": "the observed response rate of one bin, and the number of responses it rests on",
    "reference score": "the score that stands for the truth in noise floor and attainable level",
    "response": "a sample with label 1",
    "score": "the probability of a response that a model gives a sample: p; Σp over samples is the expected number",
    "terciles": "Field-RCE terciles is Field-RCE over thirds of each field value (low, middle and high scores), so it "
    "sees whether the function has the right shape, not only the right level",
    "train, dev, test": "the predictor learns from train; calibration from train and dev (train ∪ dev); everything "
    "measured on this page is measured on test, which nothing has learned from",
    "un-calibrated": "the score as it comes from the predictor, or as you brought it",
    "weighted": "where samples have weights, sums and means count each sample by its weight",
    "Σp, Σy": "sums over samples of scores (expected responses) and labels (observed responses)",
}
