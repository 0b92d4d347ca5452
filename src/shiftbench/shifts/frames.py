"""One frame of a perturbation sequence as a shift, so that sequences run down the same line as all else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shiftbench.arrays import Pixels
from shiftbench.shifts.base import SequenceShift, Shift, shift_kinds
from shiftbench.shifts.corruptions import GENERATOR_VERSION
from shiftbench.shifts.perturbations import CROP, FRAMES, perturbation_frames

_LONGER = {"translate": 41}
_NOISE = frozenset({"gaussian_noise", "shot_noise", "speckle_noise"})


@dataclass(frozen=True)
class PerturbationFrame(SequenceShift):
    """Frame ``index`` of a sequence. It takes the uncropped image and returns the cropped one.

    A run computes all frames of an image at once (``frames``); a call for one frame gives the same pixels.

    >>> PerturbationFrame("rotate", 7).name
    'rotate.frame07'
    """

    perturbation: str
    index: int
    difficulty: int = 1

    @property
    def name(self) -> str:  # type: ignore[override]
        return f"{self.perturbation}.frame{self.index:02d}"

    @property
    def sequence(self) -> str:
        """What the frames of one sequence share."""
        return f"{self.perturbation}, difficulty {self.difficulty}"

    def frames(self, image: Pixels, *, image_id: str, seed: int, crop: int) -> Pixels:
        return perturbation_frames(image, self.perturbation, self.difficulty, seed=seed, image_id=image_id, crop=crop)

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        frame: Pixels = self.frames(image, image_id=image_id, seed=seed, crop=CROP)[self.index]
        return frame

    def describe(self) -> dict[str, Any]:
        return {
            "shift": "perturbation",
            "perturbation": self.perturbation,
            "frame": self.index,
            "difficulty": self.difficulty,
            "noise": self.perturbation in _NOISE,
            "generator": GENERATOR_VERSION,
        }


@shift_kinds.register("perturbation")
def _frame(record: Mapping[str, Any]) -> Shift:
    return PerturbationFrame(record["perturbation"], record["frame"], record["difficulty"])


def frames_of(perturbation: str, difficulty: int = 1) -> list[PerturbationFrame]:
    """All frames of a sequence, in order.

    >>> len(frames_of("rotate")), len(frames_of("translate"))
    (31, 41)
    """
    return [PerturbationFrame(perturbation, index, difficulty) for index in range(_LONGER.get(perturbation, FRAMES))]
