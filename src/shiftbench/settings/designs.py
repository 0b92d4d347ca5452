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
from typing import Literal, TypedDict, get_args

from shiftbench.datasets.base import Dataset
from shiftbench.errors import SettingError, argument, check_integer, check_names
from shiftbench.settings.base import DesignPart, Setting, Suite
from shiftbench.shifts.assigned import Assigned, ShiftAssignment

DesignName = Literal["full", "one-pass"]


@dataclass(frozen=True)
class Design:
    """Which images are evaluated in which settings, and how many: the argument ``design`` of ``evaluate``.

    Each field but the name is also a keyword argument of ``evaluate`` (``DesignKeywords``): ``design="one-pass",
    budget="60s"`` is short for ``design=Design("one-pass", budget="60s")``.

    Attributes:
        name: ``"full"``: every image in every setting; ``"one-pass"``: every image clean and under one of the suite's
            shifts, which estimates the numbers of the full grid with intervals for that.
        passes: With ``"one-pass"``: number of shifts per image.
        budget: With ``"one-pass"``: as many images as a time (``"60s"``, ``"5m"``) or a number of forward passes per
            model (``5000``) allows.
        width: With ``"one-pass"``: as many images as it takes to know mean accuracy to plus or minus this many
            percentage points (0.5), within the budget. A pilot measures speed and variance.
    """

    name: DesignName = "full"
    passes: int = 1
    budget: str | float | None = None
    width: float | None = None

    def __post_init__(self) -> None:
        check_names("design", [self.name], get_args(DesignName))
        check_integer("passes", self.passes)

    @property
    def is_full(self) -> bool:
        """Whether every image is evaluated in every setting, and nothing else is asked for."""
        return self == Design()


class DesignKeywords(TypedDict, total=False):
    """The fields of ``Design``, besides its name, as keyword arguments."""

    passes: int
    budget: str | float | None
    width: float | None


@dataclass(frozen=True)
class OnePass:
    """Every image clean, and under ``passes`` of the shifts.

    The assignment depends on the seed, the image ids and their classes alone: not on the order of the images or the
    number of workers. A smaller number of passes is a part of a larger one.
    """

    passes: int = 1
    seed: int = 0
    name: str = "one-pass"


def one_pass(design: Design, seed: int) -> OnePass:
    """The one-pass design that is asked for; an error if only passes or limits of one are."""
    if design.name == "full":
        raise SettingError(
            "passes, budget and width choose images of a design",
            found="the full design, which evaluates all",
            hint=f"add {argument('design', 'one-pass')}",
        )
    return OnePass(design.passes, seed)


def apply_design(suite: Suite, datasets: Mapping[str, Dataset], design: OnePass) -> Suite:
    """The suite with the shifts of each dataset replaced by one setting per pass; other settings stay as they are."""
    groups: dict[tuple[object, ...], list[Setting]] = defaultdict(list)
    for setting in suite.settings:
        # Sequences are compared frame by frame, so that an image needs all of theirs.
        assignable = setting.shifted and not setting.uncropped and setting.metric in ("top1", "top5")
        if setting.dataset in datasets and assignable:
            # Images may be shared among shifts only if the settings agree in everything else.
            common = (
                setting.dataset,
                setting.space,
                setting.reference,
                setting.metric,
                setting.source,
                setting.crop_only,
                setting.shift.per_image,
            )
            groups[common].append(setting)
    groups_of_several = [members for members in groups.values() if len(members) > 1]
    if not groups_of_several:
        raise SettingError(
            f"suite {suite.name!r} does not have several shifts of one dataset for the design {design.name!r}",
            expected="a suite such as corruptions, imagenet-c, cifar-10-c or attacks",
            hint="leave the design out, or choose another suite",
        )
    replaced: set[str] = set()
    for members in groups_of_several:
        replaced.update(setting.name for setting in members)
    settings = [setting for setting in suite.settings if setting.name not in replaced]
    for members in groups_of_several:
        settings += _passes(members, datasets[members[0].dataset], design)
    return Suite(suite.name, tuple(settings))


def _passes(members: Sequence[Setting], dataset: Dataset, design: OnePass) -> list[Setting]:
    """One setting per pass, in which every image meets one of the members' shifts."""
    if design.passes not in range(1, len(members) + 1):
        raise SettingError("invalid number of passes", found=design.passes, expected=f"1 to {len(members)} shifts")
    families = {member.member.family for member in members if member.member is not None}
    family = families.pop() if len(families) == 1 else members[0].dataset
    assignments = []
    for turn in range(design.passes):
        assignment = ShiftAssignment(design.name, design.seed, turn)
        assignments.append(assignment.over(dataset.ids, dataset.labels, len(members)))
    _check_images_per_shift(assignments, len(members), dataset, design)
    shifts = tuple(member.shift for member in members)
    parts = tuple(DesignPart(member.name, member.member) for member in members)
    settings: list[Setting] = []
    for assignment in assignments:
        name = f"{family}.{design.name}"
        if assignment.turn > 0:
            name += f".{assignment.turn + 1}"
        shift = Assigned(name, shifts, assignment)
        settings.append(replace(members[0], name=name, shift=shift, member=None, parts=parts, note=""))
    return settings


def _check_images_per_shift(
    assignments: Sequence[ShiftAssignment], shifts: int, dataset: Dataset, design: OnePass
) -> None:
    """Raise SettingError if a shift meets fewer than two images."""
    # A design estimates accuracies, so images without a label do not count.
    labelled = {image_id for image_id, label in zip(dataset.ids, dataset.labels.tolist(), strict=True) if label >= 0}
    images_under: Counter[int] = Counter()
    for assignment in assignments:
        images_under.update(shift for image_id, shift in assignment.places.items() if image_id in labelled)
    fewest = min(images_under[shift] for shift in range(shifts))
    if fewest < 2:
        raise SettingError(
            f"too few images for the design {design.name!r}",
            found=f"{len(labelled)} labelled images of {dataset.name!r}, {shifts} shifts: {fewest} under one",
            expected="at least 2 images under each shift",
            hint="evaluate more images, more passes or fewer shifts, or use the full design",
        )
