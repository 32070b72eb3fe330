"""One thin file per arrow of the data's way; each runs under spark-submit or torchrun, or from the command line."""
