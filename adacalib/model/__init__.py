"""torch only: predictor, calibrator, their distributed training, checkpoints and scoring."""
