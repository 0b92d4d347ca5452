"""The images of a block, made ready for classifiers: each is read once, cut to every geometry, and shifted.

The worker that computes a block does it for itself, or a reader on its machine does it for all workers there and
sends what is ready (``ray_engine``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import BadImageError, ClassifierError, explain
from shiftbench.jobs.base import Problem
from shiftbench.jobs.threads import on_threads
from shiftbench.runs.plan import WorkItem
from shiftbench.shifts.base import Shift

#: Blocks that a maker of images remembers: enough for workers that are at nearly the same one.
_REMEMBERED = 4


@dataclass(frozen=True)
class Wanted:
    """All images of a block in one geometry: stacked and shifted or, without a shift, as they are."""

    geometry: Geometry
    shift: Shift | None


@dataclass(frozen=True)
class Ready:
    """What was wanted, of the images that could be read."""

    images: Sequence[Pixels] | Pixels
    #: Their positions in the block, and their ids.
    readable: tuple[int, ...]
    ids: tuple[str, ...]
    #: Images of the block that were skipped or converted, and why.
    problems: tuple[dict[str, str], ...] = ()


@dataclass(frozen=True)
class _Block:
    """The readable images of a block in some geometries."""

    crops: dict[Geometry, list[Pixels]]
    readable: tuple[int, ...]
    ids: tuple[str, ...]
    problems: tuple[dict[str, str], ...]


class PictureMaker:
    """Reads the blocks of a run's datasets, and reports which images could not be used."""

    def __init__(self, datasets: Mapping[str, Dataset], seed: int, *, threads: int = 1) -> None:
        self.datasets, self.seed, self.threads = datasets, seed, threads

    def __call__(self, item: WorkItem, wanted: Sequence[Wanted]) -> Iterator[Ready | Problem]:
        """In the order asked for; a shift that fails yields a Problem, and the next follows."""
        block = self._block(item, list(dict.fromkeys(one.geometry for one in wanted)))
        for one in wanted:
            yield self._made(block, one)

    def _block(self, item: WorkItem, geometries: Sequence[Geometry]) -> _Block:
        """Every readable image once, in every geometry, and what was wrong with the others."""
        dataset = self.datasets[item.dataset]
        places = range(item.start, item.stop)
        read = on_threads(lambda index: _read(dataset, index, geometries), places, self.threads)
        problems = tuple(
            {"id": dataset.ids[index], "action": "skipped" if one.crops is None else "converted", "why": one.problem}
            for index, one in zip(places, read, strict=True)
            if one.problem
        )
        kept = [(i, one.crops) for i, one in enumerate(read) if one.crops is not None]
        return _Block(
            {geometry: [crops[number] for _, crops in kept] for number, geometry in enumerate(geometries)},
            tuple(i for i, _ in kept),
            tuple(dataset.ids[item.start + i] for i, _ in kept),
            problems,
        )

    def _made(self, block: _Block, wanted: Wanted) -> Ready | Problem:
        images = block.crops[wanted.geometry]
        if wanted.shift is None:
            return Ready(images, block.readable, block.ids, block.problems)
        try:
            shifted = self._shifted(wanted.shift, stacked(images), block.ids)
            return Ready(shifted, block.readable, block.ids, block.problems)
        except Exception as error:
            return Problem(f"shift {wanted.shift.name!r}", explain(error), block.ids)

    def _shifted(self, shift: Shift, images: Pixels, ids: Sequence[str]) -> Pixels:
        """An image's shift does not depend on its neighbours', so that each thread takes some."""
        size = max(1, -(-len(ids) // self.threads))
        parts = [slice(start, start + size) for start in range(0, len(ids), size)]
        if len(parts) < 2:
            return shift.batch(images, image_ids=ids, seed=self.seed)
        return np.concatenate(
            on_threads(lambda part: shift.batch(images[part], image_ids=ids[part], seed=self.seed), parts, self.threads)
        )


class SharedPictureMaker(PictureMaker):
    """For several workers, which ask for the same blocks at nearly the same time: the last ones are remembered, so
    that each is read once. Safe with threads."""

    def __init__(self, datasets: Mapping[str, Dataset], seed: int, *, threads: int = 1) -> None:
        super().__init__(datasets, seed, threads=threads)
        self._blocks: OrderedDict[WorkItem, _Block] = OrderedDict()
        self._turn = threading.Lock()

    def __reduce__(self) -> Any:
        return partial(SharedPictureMaker, threads=self.threads), (self.datasets, self.seed)

    def _block(self, item: WorkItem, geometries: Sequence[Geometry]) -> _Block:
        with self._turn:  # a second one who asks waits for the first one's reading
            known = self._blocks.get(item)
            if known is None or not set(geometries) <= set(known.crops):
                wanted = dict.fromkeys([*(known.crops if known else ()), *geometries])
                known = self._blocks[item] = super()._block(item, list(wanted))
            self._blocks.move_to_end(item)
            while len(self._blocks) > _REMEMBERED:
                self._blocks.popitem(last=False)
            return known


@dataclass(frozen=True)
class _Read:
    """One image in every geometry asked for; None when it can't be used."""

    crops: list[Pixels] | None
    problem: str


def _read(dataset: Dataset, index: int, geometries: Sequence[Geometry]) -> _Read:
    try:
        picture: DecodedImage = dataset.read(index)
    except BadImageError as error:
        return _Read(None, error.message)
    return _Read([geometry(picture.pixels) for geometry in geometries], picture.converted)


def stacked(images: Sequence[Pixels] | Pixels) -> Pixels:
    if isinstance(images, np.ndarray):
        return images
    if len({image.shape for image in images}) > 1:
        shapes = sorted({image.shape for image in images})
        raise ClassifierError(
            "images of different sizes can't be put in one batch",
            found=", ".join(map(str, shapes[:3])),
            expected="one size",
            hint="give the classifier a preprocessing with a crop",
        )
    return np.stack(images) if images else np.empty((0, 1, 1, 3), np.uint8)
