"""The training loop, and what it stands on: pictures, batches, checkpoints, the log."""
