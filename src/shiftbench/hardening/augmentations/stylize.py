"""Style transfer by adaptive instance normalisation: the content of one image, the textures of another.

Stylized-ImageNet gives each image the style of a painting. Here the styles are images of a folder, or those that the
network was trained on. The network follows Huang and Belongie (2017). Its encoder is the beginning of a real
classifier, SqueezeNet 1.1 up to its second fire module, which comes with the demo; it is not trained. The decoder
mirrors it and learns, on the user's images, to draw what has the code of one image with the statistics of another's.
The published VGG-19 and decoder load, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, mse_loss, pad, relu

from shiftbench.arrays import Pixels
from shiftbench.classifiers.preprocessing import CAFFE_NORMALISATION
from shiftbench.classifiers.torch_ import torch_device
from shiftbench.classifiers.weights import fill, load_weights
from shiftbench.datasets.folder import EXTENSIONS
from shiftbench.datasets.images import decode
from shiftbench.errors import BadImageError, argument
from shiftbench.hardening.augmentations.base import ImageAugmentation, image_augmentations
from shiftbench.hardening.augmentations.networks import (
    FedSize,
    ImageNetwork,
    as_pixels,
    as_tensor,
    fed_size,
    image_networks,
    load_network,
    missing_network,
    psnr,
    resized,
)
from shiftbench.hardening.errors import AugmentationError, NetworkError
from shiftbench.io.hashing import file_digest
from shiftbench.io.schema import Probability

# The network

_CHANNELS = 128
_LAYERS = ("conv1", "fire2", "fire3", "fire4", "fire5")
#: Which of the layers is the code.
_CODE = 2
#: Beside the content's loss. The original's weight of the style is 10 too; it needs no restoring, which teaches a
#: decoder in minutes what colours are.
_STYLE, _RESTORING = 10.0, 50.0

#: Mean and standard deviation of each channel: (N, C, 1, 1).
Statistics = tuple[Tensor, Tensor]


class Fire(nn.Module):
    """Squeeze to few channels, then expand by 1x1 and 3x3 filters side by side."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        self.squeeze1x1 = nn.Conv2d(channels, squeeze, 1)
        self.expand1x1 = nn.Conv2d(squeeze, 4 * squeeze, 1)
        self.expand3x3 = nn.Conv2d(squeeze, 4 * squeeze, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.squeeze1x1(x))
        return torch.cat([relu(self.expand1x1(x)), relu(self.expand3x3(x))], dim=1)


@image_networks.register("adain")
class AdaIn(ImageNetwork):
    """Pixels in [0, 1] in and out; sides are multiples of four. Remembers the styles of ``styles`` images."""

    kind = "adain"
    size = 256
    #: An image's code has a place for each four by four pixels.
    stride = 4
    crop = 64
    steps = 250
    rate = 2e-3
    #: Variances divide by n minus this.
    correction = 0
    mean: Tensor
    scales: Tensor
    style_means: Tensor
    style_deviations: Tensor

    def __init__(self, styles: int = 0) -> None:
        super().__init__(styles=styles)
        layers = nn.Conv2d(3, 64, 3, stride=2), Fire(64, 16), Fire(128, 16), Fire(128, 32), Fire(256, 32)
        self.encoder = nn.ModuleDict(dict(zip(_LAYERS, layers, strict=True))).requires_grad_(False)
        self.decoder = nn.Sequential(*_layers((_CHANNELS, 128, 0, 64, 64, 0, 32, 3), nn.Upsample(scale_factor=2))[:-1])
        self.register_buffer("mean", torch.tensor(CAFFE_NORMALISATION.mean).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("scales", torch.ones(len(_LAYERS)))
        self.register_buffer("style_means", torch.zeros(styles, _CHANNELS))
        self.register_buffer("style_deviations", torch.ones(styles, _CHANNELS))

    def forward(self, pixels: Tensor, style: Statistics, alpha: float = 1.0) -> Tensor:
        code = self.encode(pixels)
        return self.decode(alpha * self.with_statistics(code, style) + (1 - alpha) * code)

    def encode(self, pixels: Tensor) -> Tensor:
        """(N, 128, H / 4, W / 4)."""
        return self._features(pixels, _CODE + 1)[_CODE]

    def decode(self, code: Tensor) -> Tensor:
        return self.decoder(code / self.scales[_CODE])  # type: ignore[no-any-return]

    def statistics(self, code: Tensor) -> Statistics:
        variance, mean = torch.var_mean(code, dim=(2, 3), keepdim=True, correction=self.correction)
        return mean, (variance + 1e-5).sqrt()

    def with_statistics(self, code: Tensor, style: Statistics) -> Tensor:
        """Adaptive instance normalisation: the code with the mean and deviation of another in each channel."""
        mean, deviation = self.statistics(code)
        return (code - mean) / deviation * style[1] + style[0]

    @classmethod
    def options_of(cls, weights: Mapping[str, Tensor]) -> dict[str, object] | None:
        return {"styles": len(weights["style_means"])} if "style_means" in weights else None

    @classmethod
    def suited(cls, side: int) -> tuple[dict[str, object], int]:
        """Small images are fed at twice their size, lest their code be a few places only."""
        return {}, cls.size if side >= 128 else 2 * side

    def prepare(self, images: Tensor) -> None:
        """The real encoder, and how large the numbers of its layers are: the losses count each layer alike."""
        from shiftbench.classifiers.demo import DEMO_CLASSIFIERS, keras_file

        arrays = keras_file(DEMO_CLASSIFIERS["squeezenet1_1"].weights())
        own = {name: arrays[name] for name in self.encoder.state_dict()}
        self.encoder.load_state_dict({name: torch.from_numpy(array) for name, array in own.items()})
        self.scales.copy_(torch.stack([layer.std() for layer in self._features(images)]))

    def finish(self, images: Tensor) -> None:
        means, deviations = self.statistics(self.encode(images))
        self.style_means, self.style_deviations = means.flatten(1), deviations.flatten(1)
        self.options = {"styles": len(images)}

    def loss(self, images: Tensor, generator: np.random.Generator) -> Tensor:
        features = self._features(images)
        code = features[_CODE]
        # Each image in the style of its neighbour in the batch.
        styles = [tuple(part.roll(1, 0) for part in self.statistics(layer)) for layer in features]
        wanted = self.with_statistics(code, (styles[_CODE][0], styles[_CODE][1]))
        drawn = self._features(self.decode(wanted))
        content = mse_loss(drawn[_CODE] / self.scales[_CODE], wanted / self.scales[_CODE])
        style = torch.zeros(())
        for layer, target, scale in zip(drawn, styles, self.scales, strict=True):
            for own, other in zip(self.statistics(layer), target, strict=True):
                style = style + mse_loss(own / scale, other / scale)
        return content + _STYLE * style / len(_LAYERS) + _RESTORING * mse_loss(self.decode(code), images)

    def measure(self, images: Tensor, generator: np.random.Generator) -> dict[str, float]:
        """Of images in their own style."""
        return {"psnr": psnr(self.decode(self.encode(images)), images)}

    def _features(self, pixels: Tensor, layers: int = len(_LAYERS)) -> list[Tensor]:
        """What the first layers see, each after its rectifier."""
        x = (pixels * 255).flip(1) - self.mean
        found: list[Tensor] = []
        for name in _LAYERS[:layers]:
            if name in ("conv1", "fire2", "fire4"):
                # One more row and column, lest a stride of two lose the last.
                x = pad(x, (0, 1, 0, 1), mode="replicate")
            if name == "conv1":
                x = relu(self.encoder[name](x))
            else:
                x = self.encoder[name](x if name in ("fire3", "fire5") else max_pool2d(x, 3, 2))
            found.append(x)
        return found


def _layers(channels: Sequence[int], change: nn.Module) -> list[nn.Module]:
    """Convolutions of these channels, each after a reflected border of one; 0 is a change of size."""
    layers: list[nn.Module] = []
    before = channels[0]
    for width in channels[1:]:
        layers += [nn.ReflectionPad2d(1), nn.Conv2d(before, width, 3), nn.ReLU()] if width else [change]
        before = width or before
    return layers


class PublishedAdaIn(AdaIn):
    """Huang and Belongie's own network, VGG-19 up to relu4_1 and its decoder, as the PyTorch port has their weights.

    Statistics use n - 1, as published. It has no styles of its own and is not trained here.
    """

    size = 512
    stride = 8
    correction = 1

    def __init__(self) -> None:
        ImageNetwork.__init__(self)
        encoder = _layers((3, 64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512), nn.MaxPool2d(2, ceil_mode=True))
        decoder = _layers((512, 256, 0, 256, 256, 256, 128, 0, 128, 64, 0, 64, 3), nn.Upsample(scale_factor=2))
        self.encoder = nn.Sequential(nn.Conv2d(3, 3, 1), *encoder)  # type: ignore[assignment]
        self.decoder = nn.Sequential(*decoder[:-1])
        self.register_buffer("style_means", torch.zeros(0, 512))

    def encode(self, pixels: Tensor) -> Tensor:
        return self.encoder(pixels)  # type: ignore[no-any-return]

    def decode(self, code: Tensor) -> Tensor:
        return self.decoder(code)  # type: ignore[no-any-return]


def load_adain(path: str | Path) -> AdaIn:
    """A network of our own, or the published decoder (decoder.pth) with the encoder, vgg_normalised.*, beside it."""
    path = Path(path).expanduser()
    weights = load_weights(path) if path.is_file() else {}
    if "1.weight" not in weights or tuple(weights["1.weight"].shape) != (256, 512, 3, 3):
        return load_network(path, AdaIn)
    network, encoder = PublishedAdaIn(), _encoder(path)
    wanted = network.encoder.state_dict()
    fill(network.decoder, weights, path.name)
    fill(network.encoder, {key: value for key, value in load_weights(encoder).items() if key in wanted}, encoder.name)
    return network.eval().requires_grad_(False)


def _encoder(decoder: Path) -> Path:
    found = sorted(decoder.parent.glob("vgg_normalised.*"))
    if not found:
        raise AugmentationError(
            f"{decoder.name} is the published decoder, without its encoder",
            expected=f"vgg_normalised.pth in {decoder.parent}",
        )
    return found[0]


# The augmentation


class Stylize:
    """An image in the style of another, which is drawn for it."""

    def __init__(self, network: AdaIn, files: list[Path], alpha: float, size: int) -> None:
        self.network, self.files, self.alpha, self.size = network, files, alpha, size
        self._known: dict[int, Statistics] = {}

    def __call__(self, image: Pixels, generator: np.random.Generator) -> Pixels:
        return self.drawn(image, int(generator.integers(self.count)), self.alpha)

    @property
    def count(self) -> int:
        """Number of styles."""
        return len(self.files) or len(self.network.style_means)

    def drawn(self, image: Pixels, number: int, alpha: float) -> Pixels:
        """The image in one of the styles, to the degree ``alpha``."""
        with torch.inference_mode():
            drawn = self.network(self._fed(image), self._style(number), alpha)
        return resized(as_pixels(drawn), *image.shape[:2])

    def _style(self, number: int) -> Statistics:
        if not self.files:
            means, deviations = self.network.style_means[number], self.network.style_deviations[number]
            return means.view(1, -1, 1, 1), deviations.view(1, -1, 1, 1)
        if number not in self._known:
            path = self.files[number]
            try:
                pixels = decode(path, path.name).pixels
            except BadImageError as error:
                raise AugmentationError(f"an image of a style cannot be used: {path}", found=error.found) from error
            self._known[number] = self.network.statistics(self.network.encode(self._fed(pixels)))
        return self._known[number]

    def _fed(self, image: Pixels) -> Tensor:
        small = resized(image, *fed_size(image, self.size, self.network.stride))
        return as_tensor(small).to(next(self.network.parameters()).device)


@image_augmentations.register("stylize")
def stylize(
    network: str | Path | AdaIn | None = None,
    styles: str | Path | None = None,
    alpha: Probability = 1.0,
    size: FedSize | None = None,
    device: str = "cpu",
) -> ImageAugmentation:
    """The style of another image by AdaIN (Huang and Belongie 2017; Geirhos et al. 2019).

    ``network``: a file of weights, or the network itself. ``styles``: a folder of images, by default those that
    the network was trained on. ``alpha``: from 0 (as it was) to 1 (all of the style). ``size``: the short side that
    is fed, by default 256 or what the network was trained for.
    """
    if network is None:
        raise missing_network("stylize")
    loaded, files = network if isinstance(network, AdaIn) else load_adain(network), list[Path]()
    if styles is not None:
        folder = Path(styles).expanduser()
        there = [path for path in folder.rglob("*") if path.name.lower().endswith(EXTENSIONS) and path.is_file()]
        # In an order that every machine shares.
        files = sorted(there, key=lambda path: path.relative_to(folder).as_posix())
        if not files:
            raise AugmentationError(
                f"no images of styles in {folder}", expected=f"files that end in {', '.join(EXTENSIONS)}"
            )
    elif not len(loaded.style_means):
        raise AugmentationError(
            "the network remembers no styles", expected=argument("styles", "FOLDER"), hint="name a folder of images"
        )
    return Stylize(loaded.to(torch_device(device)), files, alpha, loaded.size if size is None else size)


@lru_cache(maxsize=2)
def stylizer(network: str | None, styles: str | None) -> Stylize:
    """For the corruption ``style_transfer``; kept, as it is asked for with every image."""
    if network is None:
        raise NetworkError(
            "style_transfer needs an image-to-image network",
            expected=argument("style_network", "FILE") + " with weights of adain",
            hint="give the published decoder, or train one: `shiftbench harden augment -a stylize --train-network`",
        )
    made = stylize(network, styles)
    assert isinstance(made, Stylize)
    return made


@lru_cache(maxsize=2)
def identity(network: str | None = None, styles: str | None = None) -> dict[str, str]:
    """The content of the files that decide the pixels of ``style_transfer``."""
    published = isinstance(stylizer(network, styles).network, PublishedAdaIn)
    file = Path(network or "").expanduser()
    files = {"network": file, **({"encoder": _encoder(file)} if published else {})}
    if styles is not None:
        files["styles"] = Path(styles).expanduser()
    return {name: file_digest(path) for name, path in files.items()}
