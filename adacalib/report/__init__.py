"""The HTML report: tables and pictures from the run's figures."""
