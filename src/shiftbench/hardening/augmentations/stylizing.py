"""Style transfer by adaptive instance normalisation: the content of one picture, the textures of another.

Stylized-ImageNet gives each picture the style of a painting. Here the styles are pictures of a folder, or those
that the network was trained on.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from shiftbench.arrays import Pixels
from shiftbench.classifiers.torch_ import torch_device
from shiftbench.datasets.folder import EXTENSIONS
from shiftbench.datasets.images import decode
from shiftbench.errors import BadImageError
from shiftbench.hardening.augmentations.base import ImageAugmentation, image_augmentations
from shiftbench.hardening.augmentations.network_training import missing_network
from shiftbench.hardening.augmentations.networks import FedSize, as_pixels, as_tensor, fed_size, load_network, resized
from shiftbench.hardening.augmentations.stylizing_network import STRIDE, AdaIn, Statistics, statistics
from shiftbench.hardening.errors import AugmentationError
from shiftbench.io.schema import Probability


@image_augmentations.register("stylize")
def stylize(
    network: str | Path | AdaIn | None = None,
    styles: str | Path | None = None,
    alpha: Probability = 1.0,
    size: FedSize | None = None,
    device: str = "cpu",
) -> ImageAugmentation:
    """The style of another picture by AdaIN (Huang and Belongie 2017; Geirhos et al. 2019).

    ``network``: a file of weights, or the network itself. ``styles``: a folder of pictures, by default those that
    the network was trained on. ``alpha``: from 0 (as it was) to 1 (all of the style). ``size``: the short side that
    is fed, by default 256 or what the network was trained for.
    """
    if network is None:
        raise missing_network("stylize")
    loaded = network if isinstance(network, AdaIn) else load_network(network, AdaIn)
    files = _pictures(Path(styles).expanduser()) if styles is not None else []
    if not files and not len(loaded.style_means):
        raise AugmentationError(
            "the network remembers no styles", expected="styles=FOLDER", hint="name a folder of pictures"
        )
    return Stylize(loaded.to(torch_device(device)), files, alpha, loaded.fed(size))


class Stylize:
    """A picture in the style of another, which is drawn for it."""

    def __init__(self, network: AdaIn, files: list[Path], alpha: float, size: int) -> None:
        self.network, self.files, self.alpha, self.size = network, files, alpha, size
        self._device = next(network.parameters()).device
        self._known: dict[int, Statistics] = {}

    def __call__(self, image: Pixels, generator: np.random.Generator) -> Pixels:
        number = int(generator.integers(len(self.files) or len(self.network.style_means)))
        with torch.inference_mode():
            drawn = self.network(self._fed(image), self._style(number), self.alpha)
        return resized(as_pixels(drawn), *image.shape[:2])

    def _style(self, number: int) -> Statistics:
        if not self.files:
            return self.network.style(number)
        if number not in self._known:
            self._known[number] = statistics(self.network.encode(self._fed(_read(self.files[number]))))
        return self._known[number]

    def _fed(self, image: Pixels) -> torch.Tensor:
        return as_tensor(resized(image, *fed_size(image, self.size, STRIDE))).to(self._device)


def _pictures(folder: Path) -> list[Path]:
    """All pictures below the folder, in an order that every machine shares."""
    found = sorted(
        (path for path in folder.rglob("*") if path.name.lower().endswith(EXTENSIONS) and path.is_file()),
        key=lambda path: path.relative_to(folder).as_posix(),
    )
    if not found:
        raise AugmentationError(
            f"no pictures of styles in {folder}", expected=f"files that end in {', '.join(EXTENSIONS)}"
        )
    return found


def _read(path: Path) -> Pixels:
    try:
        return decode(path, path.name).pixels
    except BadImageError as error:
        raise AugmentationError(f"a picture of a style can't be used: {path}", found=error.found) from error
