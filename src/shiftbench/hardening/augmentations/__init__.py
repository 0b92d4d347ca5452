"""Augmentations of training images: of one image at a time, or of a batch."""
