"""Follow-up experiments of 004: what explains the accuracies on the new test set?"""

from shiftbench.testsets.followups.class_balance import balance_effect, class_balanced
from shiftbench.testsets.followups.discriminator import discriminate
from shiftbench.testsets.followups.hard_images import hardest_images, hardest_images_in, human_accuracy
from shiftbench.testsets.followups.revisions_impact import impact_of_revisions
from shiftbench.testsets.followups.splits import SplitComparison, cross_validation_splits, measure_splits

__all__ = [
    "SplitComparison",
    "balance_effect",
    "class_balanced",
    "cross_validation_splits",
    "discriminate",
    "hardest_images",
    "hardest_images_in",
    "human_accuracy",
    "impact_of_revisions",
    "measure_splits",
]
