"""Reference calibrators without a network: fit on logit cells, predict on logits."""
