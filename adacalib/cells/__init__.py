"""NumPy and SciPy only: from logit cells to bounds, value effects, knots, metrics and floors."""
