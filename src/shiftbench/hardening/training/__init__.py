"""The training loop, and what it stands on: images, batches, checkpoints, the log."""
