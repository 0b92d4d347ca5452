"""Adversarial filtration: select candidates that fool models, by the recipes of ImageNet-A and ImageNet-O."""

from shiftbench.testsets.filtration.imagenet_a import filter_adversarially
from shiftbench.testsets.filtration.imagenet_o import filter_out_of_distribution
from shiftbench.testsets.filtration.shortlist import Filtration, Funnel, FunnelStep, Shortlisted

__all__ = ["Filtration", "Funnel", "FunnelStep", "Shortlisted", "filter_adversarially", "filter_out_of_distribution"]
