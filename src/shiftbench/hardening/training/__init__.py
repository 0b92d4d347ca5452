"""The training loop, with its images, batches, devices, checkpoints and log.

``train`` follows a recipe; ``data`` opens and keeps its images, ``batches`` puts them in order, ``loop`` steps, and
``checkpoint`` writes what a run continues from. What one step optimises belongs to ``training_schemes``, what happens
to an image to ``augmentations``.
"""
