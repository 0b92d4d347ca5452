"""Hard images, which few or no models classify correctly, and human accuracy on them (004 B.2.4, B.2.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import Subset
from shiftbench.errors import DatasetError, ShiftbenchError
from shiftbench.io.paths import Location
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.metrics.paired import aligned
from shiftbench.reports.table import Column, Table
from shiftbench.runs.results import StoredResults
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Workspace
from shiftbench.studies.image_bootstrap import common_hits

HARDEST_SHARE = 0.05
_SHOWN = 30


@dataclass(frozen=True)
class HardImage:
    """An image, how many models classify it correctly, and the most common wrong prediction."""

    image: str
    label: str
    right: int
    common_answer: str
    common_count: int


class HardImages(Table):
    """The hardest images of a setting, the hardest first."""

    def __init__(self, setting: str, models: Sequence[str], total: int, images: Sequence[HardImage]) -> None:
        self.setting, self.models, self.total, self.images = setting, list(models), total, list(images)
        rows: list[dict[str, object]] = [asdict(image) for image in images]
        most = max((image.right for image in images), default=0)
        super().__init__(
            [
                Column("image", "image"),
                Column("label", "label"),
                Column("right", "correct", "count"),
                Column("common_answer", "most common error"),
                Column("common_count", "models", "count", optional=True),
            ],
            rows,
            most=_SHOWN,
            title=f"Hard images of {setting}",
            lead=[
                f"{len(self.missed_by_all):,} of {total:,} images are misclassified by all {len(models)} models",
                f"{len(images):,} images ({len(images) / total:.1%}) are classified correctly by at most {most}",
            ],
        )

    @property
    def missed_by_all(self) -> list[HardImage]:
        return [image for image in self.images if image.right == 0]

    def subset(self, dataset: Dataset, name: str | None = None) -> Subset:
        """The hard images of the dataset."""
        places = {image: i for i, image in enumerate(dataset.ids)}
        missing = [image.image for image in self.images if image.image not in places]
        if missing:
            raise DatasetError(
                f"{len(missing)} hard images are missing in {dataset.name!r}",
                found=f"no {missing[0]}",
                expected=f"the dataset of the setting {self.setting!r}",
            )
        chosen = sorted(places[image.image] for image in self.images)
        return Subset(dataset, chosen, name=name or f"{dataset.name} hard")


def hardest_images(predictions: Sequence[Predictions], *, share: float = HARDEST_SHARE) -> HardImages:
    """The ``share`` of images that the fewest models classify correctly, and all that are as hard as the last of them.

    004 did the same: 500 images of CIFAR-10 and 115 of the new set are the hardest 5 %. ``share=0`` selects the images
    that all models misclassify.
    """
    if not predictions:
        raise ShiftbenchError("no predictions to find hard images in")
    if not 0 <= share <= 1:
        raise ShiftbenchError("invalid share of images", found=share, expected="0 to 1", hint="5 % is 0.05")
    hits, ids = common_hits(predictions)
    right = hits.sum(axis=0)
    limit = int(np.sort(right)[max(0, int(np.ceil(share * len(ids))) - 1)]) if share > 0 else 0
    chosen = sorted(np.flatnonzero(right <= limit).tolist(), key=lambda i: (right[i], ids[i]))
    answers = _answers(predictions, ids)
    space = predictions[0].space
    place = {image: i for i, image in enumerate(predictions[0].ids)}
    images = []
    for i in chosen:
        label = int(predictions[0].labels[place[ids[i]]])
        wrong = Counter(answer for answer in answers[:, i].tolist() if answer != label)
        answer, times = min(wrong.items(), key=lambda item: (-item[1], item[0])) if wrong else (label, 0)
        images.append(HardImage(ids[i], space.names[label], int(right[i]), space.names[answer] if times else "", times))
    return HardImages(predictions[0].setting, [one.classifier for one in predictions], len(ids), images)


def hardest_images_in(
    workspace: str | Location | Workspace,
    setting: str,
    classifiers: Iterable[str] = (),
    *,
    share: float = HARDEST_SHARE,
) -> HardImages:
    """The hardest images by the stored predictions of a workspace, of the named models or of all."""
    run = StoredResults.open(workspace, classifiers, [setting])
    found = [run.workspace.read(result, top_k=1, confidence=False, scores=False) for result in run.results]
    return hardest_images(found, share=share)


def _answers(predictions: Sequence[Predictions], ids: Sequence[str]) -> NDArray[np.int32]:
    """(models, images) top-1 predictions on the images ``ids``."""
    place = {image: i for i, image in enumerate(predictions[0].ids)}
    rows = [place[image] for image in ids]
    return np.stack([one.top[aligned(predictions[0], one), 0][rows] for one in predictions])


class HumanAccuracy(Table):
    """One row per participant, as in table 3 of 004: accuracy on both sets, and the gap."""


def human_accuracy(
    answers: Mapping[str, Mapping[str, Sequence[bool]]], *, original: str, new: str, level: float = 0.95
) -> HumanAccuracy:
    """From correct and wrong answers on the images of two sets, by participant and set.

    >>> table = human_accuracy({"Ann": {"old": [1, 1, 0, 1], "new": [1, 0]}}, original="old", new="new")
    >>> row = table.rows[0]
    >>> row["original"], row["new"], row["gap"]
    (0.75, 0.5, 0.25)
    """
    rows = []
    for participant, sets in answers.items():
        missing = [name for name in (original, new) if not len(sets.get(name, ()))]
        if missing:
            raise ShiftbenchError(f"no answers of {participant} on {missing[0]!r}", found=", ".join(sets) or "nothing")
        row: dict[str, Any] = {"participant": participant}
        for role, name in (("original", original), ("new", new)):
            right, count = int(np.sum(sets[name])), len(sets[name])
            low, high = clopper_pearson(right, count, level)
            row |= {role: right / count, f"{role}_low": low, f"{role}_high": high, f"{role}_n": count}
        rows.append(row | {"gap": row["original"] - row["new"]})
    if not rows:
        raise ShiftbenchError("no answers")
    rows.sort(key=lambda row: (-row["original"], row["participant"]))
    mean = float(np.mean([row["gap"] for row in rows]))
    better = sum(row["gap"] > 0 for row in rows)
    return HumanAccuracy(
        [
            Column("participant", "participant"),
            Column("original", f"{original} %", "number", ends=("original_low", "original_high"), times=100, places=1),
            Column("new", f"{new} %", "number", ends=("new_low", "new_high"), times=100, places=1),
            Column("gap", "gap", "points", times=100, places=1),
        ],
        rows,
        title="Human accuracy",
        lead=[f"mean gap {100 * mean:+.1f} points; {better} of {len(rows)} participants are better on {original}"],
    )
