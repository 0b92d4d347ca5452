"""A shift: what is done to the images between preprocessing and the model.

Deterministic: the same (seed, image id, shift) gives the same pixels on every machine, in any order, with
any number of workers.

A shift knows how it is run. Most change one image at a time (``Shift``); the frames of a sequence are made together
(``SequenceShift``); an attack depends on the model (``attacks.base.ClassifierShift``). A run asks every shift for
``scores_in(view, asked)`` and need not know which it is. A new kind of shift is one class and one builder, registered
in ``shift_kinds`` under its ``kind``, which makes it again from its ``record()``.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.errors import ShiftError
from shiftbench.io.code_state import code_state, is_own, source_of
from shiftbench.io.hashing import digest
from shiftbench.labels.space import Labels, Scores
from shiftbench.registry import Registry

if TYPE_CHECKING:
    from shiftbench.datasets.base import Dataset
    from shiftbench.labels.space import Projection
    from shiftbench.shifts.attacks.base import Attackable

T = TypeVar("T")


class BlockView(Protocol):
    """One model before the readable images of one block."""

    @property
    def classifier(self) -> Attackable: ...
    @property
    def images(self) -> Sequence[Pixels] | Pixels: ...
    @property
    def ids(self) -> Sequence[str]: ...
    @property
    def seed(self) -> int: ...

    def square(self) -> int | None:
        """The side of the model's input; None if its size is free, an error if it is not square."""

    def scores(self, images: Sequence[Pixels] | Pixels, ids: Sequence[str]) -> Scores:
        """What the model gives for any images, in batches."""

    def checked(self, scores: Scores, ids: Sequence[str]) -> Scores:
        """The same scores; an error names images whose scores are not numbers, or have another shape."""

    def shared(self, purpose: str, make: Callable[[], T]) -> T:
        """``make()``, computed once per block and model for all settings that ask for the same purpose."""

    def blamed_on(self, who: str, ids: Sequence[str]) -> AbstractContextManager[None]:
        """Errors inside are reported as failures of ``who`` on these images; the run goes on."""


class Asked(Protocol):
    """What one setting asks of a block: which of the images count, and as what."""

    @property
    def setting(self) -> str: ...
    @property
    def used(self) -> Sequence[int]:
        """Positions of the view's images that the setting has."""

    @property
    def labels(self) -> Labels:
        """Their classes in the model's label space; -1 where unknown."""

    @property
    def classes(self) -> Sequence[int] | None:
        """The columns of the model's scores that compete; None: all."""

    def show(self, images: Pixels) -> None:
        """The images of ``used`` as the model saw them. The run keeps some of the mistakes for the report.

        Only for shifts that are not ``per_image``: images of the others are made again from their record.
        """


class Shift(ABC):
    """Subclasses are small, immutable and picklable; ``name`` is what settings and tables show."""

    name: str
    #: Whether a run shifts the images for all models; otherwise they come as they are, and the shift does the rest.
    per_image: bool = True

    @abstractmethod
    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        """One uint8 image (H, W, 3) to one of the same shape; the input is never changed."""

    def batch(self, images: Pixels, *, image_ids: Sequence[str], seed: int) -> Pixels:
        """A stack (N, H, W, 3); the same pixels as one call per image."""
        out = np.empty_like(images)
        for i, image_id in enumerate(image_ids):
            out[i] = self(images[i], image_id=image_id, seed=seed)
        return out

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """JSON-able provenance: all that decides the pixels, the generator's version included."""

    @property
    def kind(self) -> str:
        """The kind of shift, under which ``shift_kinds`` has its builder."""
        return str(self.describe().get("shift", type(self).__name__))

    def record(self) -> dict[str, Any]:
        """JSON-able: what ``rebuild_shift`` makes the same shift from."""
        return self.describe()

    def for_images(self, ids: Sequence[str], labels: Labels) -> Shift:
        """Of a rebuilt shift: the one that a run used on these images. Most do not depend on the other images."""
        return self

    def identity(self) -> dict[str, Any]:
        """``describe``; of a shift of the user's own also its code and attributes, which may change without it."""
        if not is_own(type(self).__module__):
            return self.describe()
        return {**self.describe(), "code": digest(source_of(self), sorted(code_state(self).items()))}

    @property
    def group(self) -> str:
        """Settings whose shifts agree in it are computed together."""
        return json.dumps(self.identity(), sort_keys=True, default=str)

    def check_setting(self, classifier: Attackable, setting: str, dataset: Dataset, projection: Projection) -> None:
        """Refuse, before a run begins, a model or labels that the shift can't be computed for."""
        return  # most shifts work for all of them

    def shorter(self) -> tuple[Shift, float]:
        """To estimate time: a shift that does part of the work, and how many times as long the whole takes."""
        return self, 1.0

    def scores_in(self, view: BlockView, asked: Asked) -> Scores:
        """The model's scores for the view's images under this shift, one row per image."""
        return view.shared("scores", lambda: view.scores(view.images, view.ids))


class SequenceShift(Shift):
    """One frame of a sequence: all frames of an image are made at once, from the uncropped image."""

    index: int
    per_image = False

    @property
    @abstractmethod
    def sequence(self) -> str:
        """What the frames of one sequence share."""

    @abstractmethod
    def frames(self, image: Pixels, *, image_id: str, seed: int, crop: int) -> Pixels:
        """All frames, (frames, crop, crop, 3)."""

    @property
    def group(self) -> str:
        return self.sequence

    def scores_in(self, view: BlockView, asked: Asked) -> Scores:
        """All frames of one image at a time: a whole block of frames would not fit into memory."""

        def of_one(image: Pixels, image_id: str) -> Scores:
            with view.blamed_on(f"sequence {self.sequence!r}", [image_id]):
                crop = view.square() or min(image.shape[:2])
                frames = self.frames(image, image_id=image_id, seed=view.seed, crop=crop)
            return view.scores(frames, [image_id] * len(frames))

        by_image = view.shared(self.sequence, lambda: list(map(of_one, view.images, view.ids)))
        rows = [frames[self.index] for frames in by_image]
        if not rows:
            return np.empty((0, len(view.classifier.space)), np.float32)
        return np.stack(rows)


@dataclass(frozen=True)
class NoShift(Shift):
    """The images as they are."""

    name = "none"

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        return image

    def batch(self, images: Pixels, *, image_ids: Sequence[str], seed: int) -> Pixels:
        return images

    def describe(self) -> dict[str, Any]:
        return {"shift": "none"}


#: From a shift's record to the shift, by kind.
ShiftBuilder = Callable[[Mapping[str, Any]], Shift]
shift_kinds: Registry[ShiftBuilder] = Registry(
    "kind of shift",
    builtin=(
        "shiftbench.shifts.corruptions.api",
        "shiftbench.shifts.compose",
        "shiftbench.shifts.assigned",
        "shiftbench.shifts.perturbations",
        "shiftbench.shifts.attacks.attack",
    ),
)
shift_kinds.add("none", lambda record: NoShift())


def rebuild_shift(record: Mapping[str, object], description: Mapping[str, object] | None = None) -> Shift:
    """The shift of a record, or of a description of version 0.1, which kept no records.

    With ``description`` (``ShiftRecord.description`` of a result) the shift must still describe itself so; a newer
    generator, other frost textures or a missing plugin would give other pixels.

    Args:
        record: What ``Shift.record()`` gave.
        description: What ``Shift.describe()`` gave in the run, if the pixels must be the same.

    Raises:
        ShiftError: If no such kind of shift is installed, or if it would give other pixels.
    """
    kind = str(record.get("shift", ""))
    if kind not in shift_kinds:
        raise ShiftError(f"no shift of kind {kind!r} is installed", expected=f"one of {', '.join(shift_kinds.names())}")
    shift = shift_kinds.get(kind)(record)
    if description is None:
        return shift
    current = shift.identity() if "code" in description else shift.describe()
    current = json.loads(json.dumps(current, default=str))
    if current != dict(description):
        keys = sorted({*current, *description})
        differing = [key for key in keys if current.get(key) != description.get(key)]
        raise ShiftError(
            f"{shift.name} does not reproduce the pixels of the run",
            found=f"another {', '.join(differing)}",
            hint="use the version of shiftbench, and for frost the textures, that the run was made with",
        )
    return shift
