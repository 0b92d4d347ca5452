"""Designs: which images are evaluated under which shifts.

``full`` evaluates every image under every shift of a suite. ``one-pass`` evaluates every image clean and under exactly
one of the shifts (or ``passes`` of them), and estimates what the full grid would give: each shift meets a
class-balanced random part of the images, so that every accuracy is estimated without bias. Seventy-five shifts cost two
forward passes per image instead of seventy-six.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from shiftbench.datasets.base import Dataset
from shiftbench.errors import SettingError, argument, check_names
from shiftbench.settings.base import DesignPart, Setting, Suite
from shiftbench.shifts.assigned import Assigned, ShiftAssignment

Design = Literal["full", "one-pass"]


@dataclass(frozen=True)
class OnePass:
    """Every image clean, and under ``passes`` of the shifts.

    The assignment depends on the seed, the image ids and their classes alone: not on the order of the images or the
    number of workers. A smaller number of passes is a part of a larger one.
    """

    passes: int = 1
    seed: int = 0
    name: str = "one-pass"


def find_design(name: str, passes: int, seed: int) -> OnePass:
    """The design of that name, unless it is the full one, which has no passes."""
    check_names("design", [name], get_args(Design))
    if name == "full":
        raise SettingError(
            "passes, budget and width choose images of a design",
            found="the full design, which evaluates all",
            hint=f"add {argument('design', 'one-pass')}",
        )
    return OnePass(passes, seed)


def apply_design(suite: Suite, datasets: Mapping[str, Dataset], design: OnePass) -> Suite:
    """The suite with the shifts of each dataset replaced by one setting per pass; other settings stay as they are."""
    groups: dict[tuple[object, ...], list[Setting]] = defaultdict(list)
    for setting in suite.settings:
        # Sequences are compared frame by frame, so that an image needs all of theirs.
        assignable = setting.shifted and not setting.uncropped and setting.metric in ("top1", "top5")
        if setting.dataset in datasets and assignable:
            alike = (setting.dataset, setting.space, setting.reference, setting.metric, setting.source)
            groups[*alike, setting.crop_only, setting.shift.per_image].append(setting)
    chosen = {key: members for key, members in groups.items() if len(members) > 1}
    if not chosen:
        raise SettingError(
            f"suite {suite.name!r} does not have several shifts of one dataset for the design {design.name!r}",
            expected="a suite such as corruptions, imagenet-c, cifar-10-c or attacks",
            hint="leave the design out, or choose another suite",
        )
    taken = {setting.name for members in chosen.values() for setting in members}
    settings = [setting for setting in suite.settings if setting.name not in taken]
    for members in chosen.values():
        settings += _passes(members, datasets[members[0].dataset], design)
    return Suite(suite.name, tuple(settings))


def _passes(members: Sequence[Setting], dataset: Dataset, design: OnePass) -> list[Setting]:
    if design.passes not in range(1, len(members) + 1):
        raise SettingError("invalid number of passes", found=design.passes, expected=f"1 to {len(members)} shifts")
    families = list(dict.fromkeys(one.member.family for one in members if one.member is not None))
    family = families[0] if len(families) == 1 else members[0].dataset
    turns = [
        ShiftAssignment(design.name, design.seed, turn).over(dataset.ids, dataset.labels, len(members))
        for turn in range(design.passes)
    ]
    # A design estimates accuracies, so that images without a label do not count.
    labelled = {name for name, label in zip(dataset.ids, dataset.labels.tolist(), strict=True) if label >= 0}
    met = Counter(place for one in turns for name, place in one.places.items() if name in labelled)
    if (fewest := min(met[place] for place in range(len(members)))) < 2:
        raise SettingError(
            f"too few images for the design {design.name!r}",
            found=f"{len(labelled)} labelled images of {dataset.name!r}, {len(members)} shifts: {fewest} under one",
            expected="at least 2 images under each shift",
            hint="evaluate more images, more passes or fewer shifts, or use the full design",
        )
    made = []
    for assignment in turns:
        name = f"{family}.{design.name}" + (f".{assignment.turn + 1}" if assignment.turn else "")
        shift = Assigned(name, tuple(one.shift for one in members), assignment)
        parts = tuple(DesignPart(one.name, one.member) for one in members)
        made.append(replace(members[0], name=name, shift=shift, member=None, parts=parts, note=""))
    return made
