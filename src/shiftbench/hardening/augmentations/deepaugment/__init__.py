"""DeepAugment (000): an image goes through an image-to-image network whose weights and signals are distorted.

``edsr`` and ``cae`` are the two networks, ``distortions`` what happens to them, ``augmentation`` their use on images.
Names, order and probabilities are those of the published code, which docs/deepaugment.md compares with the paper.
"""
