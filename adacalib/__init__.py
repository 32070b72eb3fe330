"""AdaCalib: field-level calibration of click and conversion scores (SIGIR 2022), at the scale of Spark."""

__version__ = "0.1.0"
