"""Frost textures: five images of our own making, or the original photographs where the user has them.

Ours are feathery ice crystals over a cloudy pane, five panes that differ in tone. Each is a weighted sum of three
layers, standardised and given a mean colour and a contrast like those of window frost under a bright, a dull and a blue
sky: clouds (noise with a power-law spectrum), ferns (a spine with barbs at 60 degrees, the angle of ice crystals) and
needles (spines alone). The panes are periodic.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.errors import ShiftError, argument
from shiftbench.native.loops import draw_strokes
from shiftbench.shifts.seeds import KeyedDraws, derive_key

#: Textures that are drawn by this module.
PROCEDURAL = "procedural"
#: The original photographs, from the ``imagecorruptions`` package.
PACKAGE = "package"
PROCEDURAL_VERSION = "1"
ORIGINALS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")

Ints = NDArray[np.int32]

#: By folder: the hash of the images that were last described.
_described: dict[str, str] = {}


def resolve_textures(choice: str | Path | None) -> str:
    """Which textures a choice means: a folder's path, ``"package"`` or ``"procedural"``.

    None means the original photographs if the ``imagecorruptions`` package that carries them is installed, and
    the procedural ones otherwise. The answer is part of a shift's description, because the pixels differ.
    """
    if choice is None:
        return PACKAGE if _package_folder() else PROCEDURAL
    if str(choice) in (PROCEDURAL, PACKAGE):
        return str(choice)
    return str(Path(choice).expanduser().resolve())


def texture_source(resolved: str) -> dict[str, str]:
    """Provenance of the textures, with a hash of the images' content."""
    if resolved == PROCEDURAL:
        return {"textures": f"procedural v{PROCEDURAL_VERSION}"}
    folder = _folder(resolved)
    digest = hashlib.blake2b(digest_size=8)
    for name in ORIGINALS:
        digest.update((folder / name).read_bytes())
    if _described.setdefault(resolved, digest.hexdigest()) != digest.hexdigest():
        _described[resolved] = digest.hexdigest()
        # The files have changed, so that what was read of them is forgotten.
        texture.cache_clear()
        frost_image.cache_clear()
    return {"textures": "original pictures", "content": digest.hexdigest()}


@lru_cache(maxsize=20)
def texture(resolved: str, index: int, scale: float, height: int, width: int) -> Pixels:
    """Image ``index`` of 0-4 in RGB at ``scale``, enlarged if needed to be larger than (height, width)."""
    original = frost_image(resolved, index)
    cover = max((height + 1) / original.shape[0], (width + 1) / original.shape[1])
    if scale == 1 and cover <= 1:
        return original
    height_before, width_before = original.shape[:2]
    if scale >= cover:
        scaled_size = (round(height_before * scale), round(width_before * scale))
        return _resized(original, scaled_size, (1 / scale, 1 / scale))
    new_height = max(round(height_before * cover), height + 1)
    new_width = max(round(width_before * cover), width + 1)
    steps = (height_before / new_height, width_before / new_width)
    return _resized(original, (new_height, new_width), steps)


class _Neighbours(NamedTuple):
    """Along one axis, the two old pixels that each new pixel lies between, and their weights in units of 2**-11."""

    before: Ints
    after: Ints
    weight_before: Ints
    weight_after: Ints


def _neighbours(old_size: int, new_size: int, step: float) -> _Neighbours:
    """The neighbours along an axis on which new pixels are ``step`` old pixels apart."""
    position = ((np.arange(new_size) + 0.5) * step - 0.5).astype(np.float32)
    before = np.floor(position).astype(np.int32)
    fraction = position - before.astype(np.float32)
    last = old_size - 1
    return _Neighbours(
        np.clip(before, 0, last), np.clip(before + 1, 0, last), _fixed_point(1 - fraction), _fixed_point(fraction)
    )


def _fixed_point(weights: NDArray[np.float32]) -> Ints:
    fixed: Ints = np.rint(weights * np.float32(2048)).astype(np.int32)
    return fixed


def _resized(image: Pixels, size: Sequence[int], steps: Sequence[float]) -> Pixels:
    """Resize bilinearly in fixed point, bit for bit as the ``cv2.resize`` of the published code.

    An image that shrinks is not smoothed, because that function does not smooth either.

    Args:
        image: The image, (height, width, 3).
        size: The new height and width.
        steps: How many old pixels apart new pixels are, down and across.
    """
    rows = _neighbours(image.shape[0], size[0], steps[0])
    columns = _neighbours(image.shape[1], size[1], steps[1])
    levels = image.astype(np.int32)
    from_left = levels[:, columns.before] * columns.weight_before[:, None]
    from_right = levels[:, columns.after] * columns.weight_after[:, None]
    wide = from_left + from_right
    # Two weights of 11 bits make 22 bits. OpenCV drops 4 and 16 of them before it adds the rows, and rounds the last 2.
    from_above = ((wide[rows.before] >> 4) * rows.weight_before[:, None, None]) >> 16
    from_below = ((wide[rows.after] >> 4) * rows.weight_after[:, None, None]) >> 16
    return np.asarray((from_above + from_below + 2) >> 2, np.uint8)


@lru_cache(maxsize=12)
def frost_image(resolved: str, index: int) -> Pixels:
    """A whole frost image in RGB; of the originals there is a sixth, which only the testbed uses."""
    if resolved == PROCEDURAL:
        return frost_texture(index)
    from PIL import Image

    path = _folder(resolved) / (*ORIGINALS, "frost6.jpg")[index]
    try:
        with Image.open(path) as image:
            return np.array(image.convert("RGB"))
    except OSError as error:
        raise ShiftError("a frost image cannot be read", found=path, expected="a PNG or JPEG image") from error


def _folder(resolved: str) -> Path:
    """The folder of the original images; an error says what it lacks."""
    folder = _package_folder() if resolved == PACKAGE else Path(resolved)
    if folder is None:
        problem = "no installed package that carries them"
    else:
        missing = [name for name in ORIGINALS if not (folder / name).is_file()]
        if not missing:
            return folder
        problem = f"{folder} lacks {missing}"
    raise ShiftError(
        "the frost images were not found",
        found=problem,
        expected="a folder with " + ", ".join(ORIGINALS),
        hint=f"{argument('frost_textures', PROCEDURAL)} needs no images",
    )


def _package_folder() -> Path | None:
    """The images' folder in an installed ``imagecorruptions``, found without importing the package."""
    spec = importlib.util.find_spec("imagecorruptions")
    if spec is None:
        return None
    for location in spec.submodule_search_locations or []:
        folder = Path(location) / "frost"
        if all((folder / name).is_file() for name in ORIGINALS):
            return folder
    return None


#: Size of a procedural texture in pixels.
HEIGHT = 512
WIDTH = 768
Values = NDArray[np.float64]
#: Chosen, with the layers' weights, so that classifiers lose as much accuracy as under the original images.
_RELIEF, _GRAIN = 0.2, 0.05


class Pane(NamedTuple):
    """Mean colour, contrast of each channel, layer weights, how many crystals of which length, and the tint."""

    colour: tuple[float, float, float]
    contrast: tuple[float, float, float]
    clouds: float
    ferns: float
    needles: float
    crystals: int
    length: tuple[float, float]
    tint: float


PANES = (
    Pane((80, 148, 165), (26, 17, 16), 1.0, 0.27, 0.33, 700, (10, 34), 0.35),
    Pane((201, 206, 214), (22, 22, 22), 0.6, 0.27, 0.54, 900, (16, 60), 0.03),
    Pane((196, 203, 213), (23, 22, 22), 0.6, 0.48, 0.42, 700, (18, 70), 0.03),
    Pane((138, 153, 165), (28, 28, 29), 0.5, 0.54, 0.42, 1500, (7, 26), 0.05),
    Pane((112, 124, 135), (44, 43, 42), 0.7, 0.6, 0.21, 650, (18, 64), 0.05),
)


def frost_texture(index: int) -> Pixels:
    """Pane 0-4 as an RGB image of 512 x 768 px."""
    pane = PANES[index]
    draws = KeyedDraws(derive_key(0, "frost texture", index))
    clouds = _clouds(draws)
    ferns = _crystals(draws, pane.crystals, pane.length, barbs=16)
    needles = _crystals(draws, 4 * pane.crystals, pane.length, barbs=0)
    light = pane.clouds * clouds + pane.ferns * ferns + pane.needles * needles
    relief = light - np.roll(light, (1, 1), axis=(0, 1))  # light from the upper left: a bright and a dark flank
    light = _standard(light + _RELIEF * relief + _GRAIN * draws.normals((HEIGHT, WIDTH)))
    tint = pane.tint * _clouds(draws)
    pixels = np.empty((HEIGHT, WIDTH, 3))
    for c in range(3):
        # red varies a little against blue, as on a pane with sky behind it
        value = _standard(light + (1.0, 0.0, -0.4)[c] * tint)
        pixels[..., c] = pane.colour[c] + pane.contrast[c] * value
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)


def _clouds(draws: KeyedDraws) -> Values:
    """Noise whose amplitude falls with frequency to the power 1.5."""
    frequency = np.hypot(np.fft.fftfreq(HEIGHT)[:, None], np.fft.rfftfreq(WIDTH)[None, :])
    frequency[0, 0] = np.inf
    spectrum = np.fft.rfft2(draws.normals((HEIGHT, WIDTH)))
    return _standard(np.fft.irfft2(spectrum * frequency**-1.5, s=(HEIGHT, WIDTH)))


def _crystals(draws: KeyedDraws, count: int, length: tuple[float, float], barbs: int) -> Values:
    """Overlapping strokes, brightest along their middle; where many overlap the ice saturates."""
    x, y, turn, size = draws.uniforms((4, count, 1))
    x = x * WIDTH
    y = y * HEIGHT
    angle = 2 * np.pi * turn
    size = length[0] + (length[1] - length[0]) * size**2
    canvas = _strokes(x, y, angle, size, 1.0, samples=48)
    if barbs:
        along = (np.arange(barbs) + draws.uniforms((count, barbs))) / barbs
        root_x = x + along * size * np.cos(angle)
        root_y = y + along * size * np.sin(angle)
        for side in (-1.0, 1.0):
            lean = angle + side * np.pi / 3 * (0.85 + 0.3 * draws.uniforms((count, 1)))
            reach = 0.55 * size * (1 - along) * (0.6 + 0.8 * draws.uniforms((count, barbs)))
            canvas += _strokes(root_x, root_y, lean + 0 * along, reach, 0.7, samples=24)
    return _standard(1 - np.exp(-1.2 * canvas))


def _strokes(x: Values, y: Values, angle: Values, length: Values, strength: float, *, samples: int) -> Values:
    """Tapered lines from (x, y), sampled at points that are shared among the four nearest pixels."""
    columns = np.broadcast_arrays(x, y, length * np.cos(angle), length * np.sin(angle), strength * length)
    canvas = np.zeros((HEIGHT, WIDTH))
    draw_strokes(np.stack([column.ravel() for column in columns]), samples, canvas)
    return canvas


def _standard(layer: Values) -> Values:
    return np.asarray((layer - layer.mean()) / layer.std())
