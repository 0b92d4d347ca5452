"""The images of a block, made ready for classifiers: each is read once, cut to every geometry, and shifted.

The worker that computes a block does it for itself, or a reader on its machine does it for all workers there and
sends what is ready (``ray_engine``).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import BadImageError, ClassifierError, explain
from shiftbench.jobs.base import Block, Problem
from shiftbench.jobs.threads import on_threads
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


#: The images of a block in some geometries, as far as each can be used.
_Block = dict[Geometry, Ready]


class PictureMaker:
    """Reads the blocks of a run's datasets, and reports which images could not be used."""

    def __init__(self, datasets: Mapping[str, Dataset], seed: int, *, threads: int = 1) -> None:
        self.datasets, self.seed, self.threads = datasets, seed, threads

    def __call__(self, item: Block, wanted: Sequence[Wanted]) -> Iterator[Ready | Problem]:
        """In the order asked for; a shift that fails yields a Problem, and the next follows."""
        block = self._block(item, list(dict.fromkeys(one.geometry for one in wanted)))
        for one in wanted:
            yield self._made(block, one)

    def _block(self, item: Block, geometries: Sequence[Geometry]) -> _Block:
        """Every readable image once, in every geometry, and what was wrong with the others."""
        dataset = self.datasets[item.whole]
        places = range(item.start, item.stop)
        read = on_threads(lambda index: _read(dataset, index, geometries), places, self.threads)
        problems = tuple(
            {"id": dataset.ids[index], "action": one.action, "why": one.problem}
            for index, one in zip(places, read, strict=True)
            if one.problem
        )
        block: _Block = {}
        for number, geometry in enumerate(geometries):
            kept = {i: crop for i, one in enumerate(read) if (crop := one.crops[number]) is not None}
            ids = tuple(dataset.ids[item.start + i] for i in kept)
            block[geometry] = Ready(list(kept.values()), tuple(kept), ids, problems)
        return block

    def _made(self, block: _Block, wanted: Wanted) -> Ready | Problem:
        ready = block[wanted.geometry]
        if wanted.shift is None:
            return ready
        try:
            return replace(ready, images=self._shifted(wanted.shift, stacked(ready.images), ready.ids))
        except Exception as error:
            return Problem(f"shift {wanted.shift.name!r}", explain(error), ready.ids)

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
        self._blocks: OrderedDict[Block, _Block] = OrderedDict()
        self._turn = threading.Lock()

    def __reduce__(self) -> Any:
        return partial(SharedPictureMaker, threads=self.threads), (self.datasets, self.seed)

    def _block(self, item: Block, geometries: Sequence[Geometry]) -> _Block:
        with self._turn:  # a second one who asks waits for the first one's reading
            known = self._blocks.get(item)
            if known is None or not set(geometries) <= set(known):
                wanted = dict.fromkeys([*(known or ()), *geometries])
                known = self._blocks[item] = super()._block(item, list(wanted))
            self._blocks.move_to_end(item)
            while len(self._blocks) > _REMEMBERED:
                self._blocks.popitem(last=False)
            return known


@dataclass(frozen=True)
class _Read:
    """One image in every geometry asked for; None where it can't be used."""

    crops: list[Pixels | None]
    problem: str

    @property
    def action(self) -> str:
        return "skipped" if any(crop is None for crop in self.crops) else "converted"


def _read(dataset: Dataset, index: int, geometries: Sequence[Geometry]) -> _Read:
    try:
        picture: DecodedImage = dataset.read(index)
    except BadImageError as error:
        return _Read([None] * len(geometries), error.message)
    crops: list[Pixels | None] = []
    problem = picture.converted
    for geometry in geometries:
        try:
            crops.append(geometry(picture.pixels))
        except BadImageError as error:
            crops.append(None)
            problem = f"{dataset.ids[index]} can't be used: {error.found}"
    return _Read(crops, problem)


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
