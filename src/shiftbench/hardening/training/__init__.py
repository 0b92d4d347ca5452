"""The training loop, with its images, batches, devices, checkpoints and log."""
