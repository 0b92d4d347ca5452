"""Commands of the plug-ins: the workshops ``testsets`` and ``hardening``, and ``bridges``.

Loaded through the entry point group ``shiftbench.commands``, as a third party's table of commands would be. It imports
none of them: `shiftbench --help` shows this table.
"""

from __future__ import annotations

COMMANDS = {
    "testset": (
        "shiftbench.testsets.commands.app:app",
        "Build a new test set: candidates, annotators, review, sampling.",
    ),
    "harden": (
        "shiftbench.hardening.commands:app",
        "Train more robust models; augment datasets.",
    ),
    "experiment": (
        "shiftbench.hardening.commands:experiment_app",
        "Train the variants of an experiment, and compare them.",
    ),
    "publish": (
        "shiftbench.bridges.commands:publish_command",
        "Put a model's scores beside the model: its card, model-index, .eval_results.",
    ),
    "site": (
        "shiftbench.bridges.commands:site_command",
        "Write a static leaderboard of many workspaces.",
    ),
    "check augmentation": (
        "shiftbench.hardening.commands:check_augmentation_command",
        "Check an augmentation: shape, range, determinism per image and epoch, workers.",
    ),
    "data duplicates": (
        "shiftbench.testsets.commands.duplicates:duplicates_command",
        "Find images of A that are near-duplicates of images of B.",
    ),
    "testset follow-up discriminator": (
        "shiftbench.hardening.follow_up_commands:discriminator_command",
        "Can a model distinguish the old set from the new one?",
    ),
    "testset follow-up half": (
        "shiftbench.hardening.follow_up_commands:half_command",
        "Does training on half of the new set help on its other half?",
    ),
    "testset follow-up splits": (
        "shiftbench.hardening.follow_up_commands:splits_command",
        "Would cross-validation have predicted the drop on the new test set?",
    ),
}
