"""Augmentations of training images: of one image at a time, or of a batch.

``base`` registers them; a module here is one augmentation or a family of simple ones. ``copies`` writes augmented
images, ``gallery`` shows them, and ``check`` holds the conformance checks for authors. An augmentation takes pixels
and a random generator, and knows neither recipes nor the training loop.
"""
