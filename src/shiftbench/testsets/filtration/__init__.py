"""Adversarial filtration: candidates that fool classifiers, by the recipes of ImageNet-A and ImageNet-O."""

from shiftbench.testsets.filtration.funnel import Funnel, Step
from shiftbench.testsets.filtration.imagenet_a import filter_adversarially
from shiftbench.testsets.filtration.imagenet_o import filter_out_of_distribution
from shiftbench.testsets.filtration.shortlist import Filtration, Shortlisted

__all__ = ["Filtration", "Funnel", "Shortlisted", "Step", "filter_adversarially", "filter_out_of_distribution"]
