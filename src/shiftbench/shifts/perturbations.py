"""The perturbation sequences of ImageNet-P: one image, changed a little more in every frame.

Hendrycks and Dietterich (2019). A classifier should not change its mind from frame to frame; the flip
probability counts how often it does. The published clips are compressed as video; these frames are not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.errors import ShiftError, required
from shiftbench.registry import Registry
from shiftbench.shifts.base import SequenceShift, shift_kinds
from shiftbench.shifts.corruptions.api import GENERATOR_VERSION
from shiftbench.shifts.corruptions.blur import gaussian_blur_levels, to_float32, trail
from shiftbench.shifts.corruptions.noise import gaussian_noise, shot_noise, speckle_noise
from shiftbench.shifts.corruptions.weather import brightness, snow_flakes, snow_over, spatter_layer, water_drops
from shiftbench.shifts.seeds import Draws, KeyedDraws, PublishedDraws, derive_key

#: The ten perturbations of the benchmark.
TEST: tuple[str, ...] = (
    "gaussian_noise",
    "shot_noise",
    "motion_blur",
    "zoom_blur",
    "snow",
    "brightness",
    "translate",
    "rotate",
    "tilt",
    "scale",
)
#: The four that the benchmark holds out.
EXTRA: tuple[str, ...] = ("speckle_noise", "gaussian_blur", "spatter", "shear")
#: Frames of a sequence, and of ``translate``.
FRAMES = 31
TRANSLATE_FRAMES = 41
CROP = 224

Make = Callable[[Pixels, int, int, Draws], Iterator[Pixels]]
PERTURBATIONS: Registry[Make] = Registry("perturbation", builtin=("shiftbench.shifts.perturbations",))


def perturbations(which: str = "test") -> list[str]:
    """Names: the 10 of the benchmark (``"test"``), the four held out (``"extra"``) or ``"all"`` 14."""
    sets = {"test": list(TEST), "extra": list(EXTRA), "all": [*TEST, *EXTRA]}
    if which not in sets:
        raise ShiftError("unknown set of perturbations", found=repr(which), expected=", ".join(sets))
    return sets[which]


def perturbation_frames(
    image: Pixels,
    name: str,
    difficulty: int = 1,
    *,
    seed: int = 0,
    image_id: str = "0",
    crop: int = CROP,
    rng: np.random.RandomState | None = None,
) -> Pixels:
    """The frames (31, crop, crop, 3) of a perturbation; translate has 41.

    ``image`` is the image before cropping, for ImageNet-P the one whose shorter side was resized to 256 px:
    geometric perturbations move it and then cut out the centre, so that borders stay hidden as long as
    possible. ``difficulty`` 1 to 3 sets the noise level of the three kinds of noise; for all others it is the
    step between the frames that a metric compares, and the frames are the same.
    """
    make = PERTURBATIONS.get(name)
    if difficulty not in (1, 2, 3):
        raise ShiftError("invalid difficulty", found=repr(difficulty), expected="1, 2 or 3")
    if not (isinstance(image, np.ndarray) and image.dtype == np.uint8 and image.ndim == 3 and image.shape[2] == 3):
        raise ShiftError(
            "perturbation sequences start from one 8-bit colour image",
            found=f"{type(image).__name__} {getattr(image, 'shape', '')} {getattr(image, 'dtype', '')}",
            expected="a uint8 array (H, W, 3)",
        )
    if min(image.shape[:2]) < crop:
        raise ShiftError(
            "the image is smaller than the frames to cut from it",
            found=f"{image.shape[0]} x {image.shape[1]} px",
            expected=f"at least {crop} px on each side, 256 for ImageNet-P",
            hint="resize the shorter side to 256 first, or pass a smaller crop",
        )
    key = derive_key(seed, "perturbation", name, difficulty, image_id)
    draws: Draws = KeyedDraws(key)
    if rng is not None:
        draws = PublishedDraws(rng)
    return np.stack(list(make(np.ascontiguousarray(image), crop, difficulty, draws)))


def centre_crop(image: Pixels, side: int) -> Pixels:
    top = round((image.shape[0] - side) / 2)
    left = round((image.shape[1] - side) / 2)
    return np.ascontiguousarray(image[top : top + side, left : left + side])


def _noise(noise: Callable[..., object], levels: Sequence[float]) -> Make:
    """The clean image, then 30 times fresh noise at the level of the difficulty."""

    def make(image: Pixels, crop: int, difficulty: int, draws: Draws) -> Iterator[Pixels]:
        x = centre_crop(image, crop)
        yield x
        for _ in range(1, FRAMES):
            yield np.asarray(noise(x, (levels[difficulty - 1],), draws))

    return make


def _frame_by_frame(frame: Callable[[Pixels, int], Pixels], *, cropped: bool, frames: int = FRAMES) -> Make:
    """A sequence whose frames do not depend on each other: ``frame`` makes one from the image and its number.

    ``cropped`` frames are made of the centre of the image. Others are made of the whole image and cropped afterwards,
    so that what moves into the frame is image and not border.
    """

    def make(image: Pixels, crop: int, difficulty: int, draws: Draws) -> Iterator[Pixels]:
        if cropped:
            centre = centre_crop(image, crop)
            for i in range(frames):
                yield frame(centre, i)
        else:
            for i in range(frames):
                yield centre_crop(frame(image, i), crop)

    return make


_PLAIN: dict[str, Make] = {
    "gaussian_noise": _noise(gaussian_noise, (0.03, 0.05, 0.08)),
    "shot_noise": _noise(shot_noise, (300.0, 120.0, 60.0)),
    "speckle_noise": _noise(speckle_noise, (0.05, 0.1, 0.15)),
    "motion_blur": _frame_by_frame(lambda x, i: trail(x, 10, 3, (i - 30) * 4.0), cropped=True),
    "brightness": _frame_by_frame(lambda x, i: np.asarray(brightness(x, ((i - 15) * 2 / 100.0,), None)), cropped=True),
    "gaussian_blur": _frame_by_frame(
        lambda x, i: gaussian_blur_levels(x, 0.25 + 0.035 * i, truncate=6.0), cropped=True
    ),
    "translate": _frame_by_frame(
        lambda image, i: _affine(image, shift=i - 20.0, smooth=False), cropped=False, frames=TRANSLATE_FRAMES
    ),
    "rotate": _frame_by_frame(lambda image, i: _affine(image, angle=i - 15.0), cropped=False),
    "scale": _frame_by_frame(lambda image, i: _affine(image, scale=(i * 2.5 + 40) / 100.0), cropped=False),
    "shear": _frame_by_frame(lambda image, i: _affine(image, shear=i - 15.0), cropped=False),
}
for _name, _make in _PLAIN.items():
    PERTURBATIONS.add(_name, _make)


@PERTURBATIONS.register("zoom_blur")
def _zoom(image: Pixels, crop: int, difficulty: int, draws: Draws) -> Iterator[Pixels]:
    """The running mean of the image scaled by 1, 1.004, 1.008, ..."""
    x = centre_crop(image, crop)
    total = to_float32(x)
    yield x
    for i in range(1, FRAMES):
        total = total + to_float32(centre_crop(_affine(image, scale=1 + 0.004 * i), crop))
        yield (total / np.float32(i + 1) * np.float32(255)).astype(np.uint8)


@PERTURBATIONS.register("snow")
def _snow(image: Pixels, crop: int, difficulty: int, draws: Draws) -> Iterator[Pixels]:
    """The same flakes, the wind turning by four degrees a frame."""
    x = centre_crop(image, crop)
    flakes = snow_flakes((crop, crop), (0.05, 0.3, 3, 0.5), draws)
    for i in range(FRAMES):
        yield snow_over(x, trail(flakes, 14, 4, i * 4.0 - 150), 0.85)


@PERTURBATIONS.register("tilt")
def _tilt(image: Pixels, crop: int, difficulty: int, draws: Draws) -> Iterator[Pixels]:
    """Turned out of the image plane about both axes, seen from a distance of one diagonal."""
    cv2 = required("cv2", "opencv", "the perturbation 'tilt'", "opencv-python-headless")
    height, width = image.shape[:2]
    focal = math.hypot(width, height)
    to_space = np.array([[1, 0, -width / 2], [0, 1, -height / 2], [0, 0, 1], [0, 0, 1]])
    away = np.eye(4)
    away[2, 3] = focal
    to_plane = np.array([[focal, 0, width / 2, 0], [0, focal, height / 2, 0], [0, 0, 1, 0]])
    for i in range(FRAMES):
        angle = math.radians(i - 15)
        c = math.cos(angle)
        s = math.sin(angle)
        about_x = np.array([[1, 0, 0, 0], [0, c, -s, 0], [0, s, c, 0], [0, 0, 0, 1]])
        about_y = np.array([[c, 0, -s, 0], [0, 1, 0, 0], [s, 0, c, 0], [0, 0, 0, 1]])
        turned = cv2.warpPerspective(image, to_plane @ away @ about_x @ about_y @ to_space, (width, height))
        yield centre_crop(np.asarray(turned, np.uint8), crop)


@PERTURBATIONS.register("spatter")
def _spatter(image: Pixels, crop: int, difficulty: int, draws: Draws) -> Iterator[Pixels]:
    """Drops that run down the lens: each column is filtered with a lopsided kernel from frame to frame."""
    from scipy.ndimage import convolve1d

    x = to_float32(centre_crop(image, crop))
    layer = spatter_layer((crop, crop), (0.65, 0.27, 3.7, 0.69), draws)
    for _ in range(FRAMES):
        yield water_drops(x, (layer * 255).astype(np.uint8), 0.6)
        layer = convolve1d(layer, [0.05, 0.1, 0.15, 0.7], axis=0, mode="constant", origin=-1)


def _affine(
    image: Pixels,
    *,
    angle: float = 0.0,
    shift: float = 0.0,
    scale: float = 1.0,
    shear: float = 0.0,
    smooth: bool = True,
) -> Pixels:
    """Rotation, horizontal shift, scale and shear about the centre, black outside (Pillow's resampling)."""
    from PIL import Image

    height, width = image.shape[:2]
    a = math.radians(angle)
    b = a + math.radians(shear)
    forward = scale * np.array([[math.cos(a), -math.sin(b)], [math.sin(a), math.cos(b)]])
    back = np.linalg.inv(forward)
    centre = np.array([width * 0.5 + 0.5, height * 0.5 + 0.5])
    offset = centre - back @ (centre + np.array([shift, 0.0]))
    coefficients = (*back[0], offset[0], *back[1], offset[1])
    method = Image.Resampling.BILINEAR if smooth else Image.Resampling.NEAREST
    moved = Image.fromarray(image).transform((width, height), Image.Transform.AFFINE, coefficients, method)
    return np.array(moved)


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


shift_kinds.add(
    "perturbation", lambda record: PerturbationFrame(record["perturbation"], record["frame"], record["difficulty"])
)


def frames_of(perturbation: str, difficulty: int = 1) -> list[PerturbationFrame]:
    """All frames of a sequence, in order."""
    count = TRANSLATE_FRAMES if perturbation == "translate" else FRAMES
    return [PerturbationFrame(perturbation, i, difficulty) for i in range(count)]
