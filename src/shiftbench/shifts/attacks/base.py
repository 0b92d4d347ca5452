"""A shift that looks at the classifier: what is done to an image depends on who will see it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.errors import SettingError, ShiftError
from shiftbench.labels.space import Labels, LabelSpace, Scores
from shiftbench.shifts.base import Asked, BlockView, Shift

if TYPE_CHECKING:
    from shiftbench.datasets.base import Dataset
    from shiftbench.labels.space import Projection


class Attackable(Protocol):
    """What an attack uses of a classifier; every ``Classifier`` has it."""

    @property
    def name(self) -> str: ...
    @property
    def space(self) -> LabelSpace: ...
    @property
    def outputs(self) -> str: ...
    @property
    def batch_size(self) -> int: ...

    def gradient_model(self) -> Any:
        """A torch module from RGB pixels (N, 3, H, W) in [0, 1] to scores, or an error that says why not."""


class ClassifierShift(Shift):
    """Computed for each classifier by itself, and giving its scores directly.

    A run asks for the scores, not for pixels: the shifted image stays in floating point, because rounding it to
    8 bits would undo much of an attack of half a grey level.
    """

    per_image = False
    #: Whether it can be run only on images whose class is known.
    needs_labels: bool = True

    @abstractmethod
    def scores_and_images(
        self, classifier: Attackable, images: Pixels, labels: Labels, *, image_ids: Sequence[str], seed: int,
        classes: Sequence[int] | None = None,
    ) -> tuple[Scores, NDArray[np.float32] | None]:  # fmt: skip
        """Scores of the shifted images over the classifier's label space, float32 (N, classes), and these images,
        (N, H, W, 3) in [0, 1], for the report; None: it shows none.

        ``images`` are uint8 (N, H, W, 3), ``labels`` index the classifier's label space. ``classes`` are the
        columns that compete in the setting (None: all of them); the others can't be what the image is taken for.
        An image's scores depend on nothing but itself, its id, the seed and the classifier.
        """

    def check(self, classifier: Attackable) -> None:
        """Refuse a classifier that this shift can't be computed for, before the run begins."""
        classifier.gradient_model()

    def check_setting(self, classifier: Attackable, setting: str, dataset: Dataset, projection: Projection) -> None:
        """It needs model and labels in one label space."""
        if projection.kind == "max":
            raise SettingError(
                f"{setting!r} can't be run for {classifier.name!r}: an attack needs the class of an image among the "
                "model's own classes",
                found="a label space whose classes stand for several of them",
                expected="the model's label space, or a part of it",
            )
        if self.needs_labels and not np.any(dataset.labels >= 0):
            raise SettingError(
                f"{setting!r} needs labels: it drives images away from their class",
                found=f"{dataset.name!r}, whose images have none",
            )
        if self.needs_labels and dataset.label_sets is not None:
            raise SettingError(
                f"{setting!r} needs one label per image: it drives images away from their class",
                found=f"{dataset.name!r}, whose images have several",
            )
        self.check(classifier)

    def scores_in(self, view: BlockView, asked: Asked) -> Scores:
        """Of the images that the setting uses; it needs no others."""
        scores = np.zeros((len(view.ids), len(view.classifier.space)), np.float32)
        used = list(asked.used)
        if used:
            ids = [view.ids[i] for i in used]
            with view.blamed_on(f"setting {asked.setting!r}", ids):
                images = np.stack([view.images[i] for i in used])
                found, shifted = self.scores_and_images(
                    view.classifier, images, asked.labels, image_ids=ids, seed=view.seed, classes=asked.classes
                )
                scores[used] = view.checked(found, ids)
                if shifted is not None:
                    asked.show(np.rint(shifted * 255).astype(np.uint8))
        return scores

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        raise ShiftError(
            f"{self.name} depends on the classifier, so it gives no pixels by itself",
            hint="evaluate a setting that has it, or call scores_and_images(classifier, images, labels, ...)",
        )
