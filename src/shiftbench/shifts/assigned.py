"""One shift of several for each image, as a design assigned it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from shiftbench.arrays import IntArray, Pixels
from shiftbench.datasets.subset import in_turns
from shiftbench.errors import ShiftError
from shiftbench.grouping import by_key
from shiftbench.io.hashing import digest, seeded_rank
from shiftbench.labels.space import Labels, Scores
from shiftbench.shifts.base import Asked, BlockView, Shift, rebuild_shift, shift_kinds

if TYPE_CHECKING:
    from shiftbench.datasets.base import Dataset
    from shiftbench.labels.space import Projection
    from shiftbench.shifts.attacks.base import Attackable

T = TypeVar("T")


def assign(ids: Sequence[str], labels: Labels, shifts: int, *, seed: int = 0, turn: int = 0) -> IntArray:
    """The number of the shift that each image meets in pass number ``turn``.

    It depends on the seed, the image ids and their classes alone, not on the order of the images. The classes take
    turns, each with its images in a seeded order; an image gets a shift that its class met least so far, of those one
    that the fewest images met, of those the first in a seeded order. So every class meets all shifts equally often to
    within one image, and all images do so nearly. The images that ``datasets.subset.per_class`` chooses with this seed
    are assigned as they are among all, and so are those of ``proportional`` if all classes have the same size.
    """
    order = np.array(sorted(range(shifts), key=lambda shift: seeded_rank(seed, "shift", shift)), np.int64)
    met = np.zeros(shifts, np.int64)
    met_by_class: dict[int, IntArray] = defaultdict(lambda: np.zeros(shifts, np.int64))
    places = np.empty(len(ids), np.int64)
    classes = labels.tolist()
    ranks = [seeded_rank(seed, image_id) for image_id in ids]
    for row in in_turns(ranks, classes):
        met_by_this_class = met_by_class[classes[row]]
        # The factor makes the class decide before the total does.
        step = int(np.argmin(met_by_this_class * (len(ids) + 1) + met))
        met_by_this_class[step] += 1
        met[step] += 1
        places[row] = step
    return order[(places + turn) % shifts]


@dataclass(frozen=True)
class ShiftAssignment:
    """Which of the shifts each image meets."""

    design: str
    seed: int
    #: The number of the pass over the images, from 0.
    turn: int
    #: A hash of all ids and their shifts; two assignments are the same if their digests are.
    digest: str = ""
    #: By image id, the number of its shift.
    places: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    def over(self, ids: Sequence[str], labels: Labels, shifts: int) -> ShiftAssignment:
        """The assignment of a dataset's images; one that was read from a record must come out as it was."""
        shift_numbers = assign(ids, labels, shifts, seed=self.seed, turn=self.turn).tolist()
        places = dict(zip(ids, shift_numbers, strict=True))
        new_digest = digest(sorted(places.items()))
        if self.digest not in ("", new_digest):
            raise ShiftError("these images are not those of the design", found=new_digest, expected=self.digest)
        return replace(self, digest=new_digest, places=places)

    def describe(self) -> dict[str, Any]:
        return {"design": self.design, "seed": self.seed, "turn": self.turn, "digest": self.digest}


@dataclass(frozen=True)
class Assigned(Shift):
    """Each image under its assigned member, with the same pixels as if that shift were run alone."""

    name: str
    members: tuple[Shift, ...]
    assignment: ShiftAssignment

    @property
    def per_image(self) -> bool:  # type: ignore[override]
        return all(member.per_image for member in self.members)

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        return self.members[self.assignment.places[image_id]](image, image_id=image_id, seed=seed)

    def for_images(self, ids: Sequence[str], labels: Labels) -> Assigned:
        return replace(self, assignment=self.assignment.over(ids, labels, len(self.members)))

    def batch(self, images: Pixels, *, image_ids: Sequence[str], seed: int) -> Pixels:
        shifted = np.empty_like(images)
        for place, rows in self._rows_by_place(image_ids).items():
            ids = [image_ids[row] for row in rows]
            shifted[rows] = self.members[place].batch(images[rows], image_ids=ids, seed=seed)
        return shifted

    def _rows_by_place(self, ids: Sequence[str]) -> dict[int, list[int]]:
        return by_key((self.assignment.places[image_id], row) for row, image_id in enumerate(ids))

    def describe(self) -> dict[str, Any]:
        identities = [member.identity() for member in self.members]
        common: dict[str, object] = {}
        for key in ("generator", "then"):
            first = identities[0].get(key)
            if key in identities[0] and all(identity.get(key) == first for identity in identities):
                common[key] = first
        return {"shift": "assigned", **common, "members": identities, "assignment": self.assignment.describe()}

    def record(self) -> dict[str, Any]:
        members = [member.record() for member in self.members]
        return {"shift": "assigned", "name": self.name, "members": members, "assignment": self.assignment.describe()}

    def check_setting(self, classifier: Attackable, setting: str, dataset: Dataset, projection: Projection) -> None:
        for member in self.members:
            member.check_setting(classifier, setting, dataset, projection)

    def scores_in(self, view: BlockView, asked: Asked) -> Scores:
        if self.per_image:
            return super().scores_in(view, asked)
        scores = np.zeros((len(view.ids), len(view.classifier.space)), np.float32)
        used_positions = {row: position for position, row in enumerate(asked.used)}
        for place, rows in self._rows_by_place(view.ids).items():
            used = [i for i, row in enumerate(rows) if row in used_positions]
            labels = asked.labels[[used_positions[rows[i]] for i in used]]
            asked_rows = _AskedRows(asked.setting, used, labels, asked.classes)
            scores[rows] = self.members[place].scores_in(cast("BlockView", _BlockRows(view, rows)), asked_rows)
        return scores


class _BlockRows:
    """Some images of a block, as a block; everything else is the block's."""

    def __init__(self, block: BlockView, rows: Sequence[int]) -> None:
        self._block = block
        self.images = [block.images[row] for row in rows]
        self.ids = [block.ids[row] for row in rows]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)

    def shared(self, purpose: str, make: Callable[[], T]) -> T:
        return make()  # no other setting asks for these images together


@dataclass(frozen=True)
class _AskedRows:
    """What a setting asks of some rows of a block."""

    setting: str
    #: Positions among these rows.
    used: Sequence[int]
    labels: Labels
    classes: Sequence[int] | None

    def show(self, images: Pixels) -> None:
        return  # the run keeps images of whole blocks only


@shift_kinds.register("assigned")
def _rebuilt(record: Mapping[str, Any]) -> Shift:
    """Rebuild the shift of a record; it can be applied once ``for_images`` has given it the images of the run."""
    members = tuple(rebuild_shift(member) for member in record["members"])
    return Assigned(str(record["name"]), members, ShiftAssignment(**record["assignment"]))
