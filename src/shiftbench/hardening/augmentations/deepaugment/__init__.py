"""DeepAugment (000): a picture goes through an image-to-image network whose weights and signals are distorted."""
