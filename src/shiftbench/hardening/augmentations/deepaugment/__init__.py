"""DeepAugment (000): an image goes through an image-to-image network whose weights and signals are distorted."""
