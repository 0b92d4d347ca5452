"""Style transfer by adaptive instance normalisation: the content of one image, the textures of another.

Stylized-ImageNet gives each image the style of a painting. Here the styles are images of a folder, or those that the
network was trained on. The network follows Huang and Belongie (2017). Its encoder is the beginning of a real
classifier, SqueezeNet 1.1 up to its second fire module, which comes with the demo; it is not trained. The decoder
mirrors it. On the user's images, it learns to draw an image that has the code of one image and the statistics of
another. The published VGG-19 and decoder can be loaded, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, mse_loss, pad, relu

from shiftbench.errors import BadImageError
from shiftbench.extend.classifiers import demo_weights, fill, load_weights, torch_device
from shiftbench.extend.datasets import EXTENSIONS, decode
from shiftbench.extend.errors import argument
from shiftbench.extend.io import file_digest
from shiftbench.extend.options import Probability
from shiftbench.extend.types import Pixels
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

# The network

#: The mean colour of the encoder's training images, blue first, that Caffe's networks subtract.
_CAFFE_MEAN = (103.939, 116.779, 123.68)
_CHANNELS = 128
_LAYERS = ("conv1", "fire2", "fire3", "fire4", "fire5")
#: The position in ``_LAYERS`` of the layer whose output is the code.
_CODE = 2
#: The weight of the loss of the style, beside that of the content; the original's is 10, too.
_STYLE = 10.0
#: The weight of the loss of restoring an image from its own code. The original has no such loss; it teaches a decoder
#: within minutes what colours are.
_RESTORING = 50.0

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
    """Pixels in [0, 1] in and out; sides are multiples of four. It remembers the styles of ``styles`` images."""

    kind = "adain"
    size = 256
    #: An image's code has one position for each four by four pixels.
    stride = 4
    crop = 64
    steps = 250
    rate = 2e-3
    #: Variances are divided by n minus this.
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
        self.register_buffer("mean", torch.tensor(_CAFFE_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("scales", torch.ones(len(_LAYERS)))
        self.register_buffer("style_means", torch.zeros(styles, _CHANNELS))
        self.register_buffer("style_deviations", torch.ones(styles, _CHANNELS))

    def forward(self, pixels: Tensor, style: Statistics, alpha: float = 1.0) -> Tensor:
        code = self.encode(pixels)
        return self.decode(alpha * self.with_statistics(code, style) + (1 - alpha) * code)

    def encode(self, pixels: Tensor) -> Tensor:
        """The code of the images, (N, 128, H / 4, W / 4)."""
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
        if "style_means" not in weights:
            return None
        return {"styles": len(weights["style_means"])}

    @classmethod
    def suited(cls, side: int) -> tuple[dict[str, object], int]:
        """Small images are fed at twice their size, because their code would have a few positions only."""
        return {}, cls.size if side >= 128 else 2 * side

    def prepare(self, images: Tensor) -> None:
        """Loads the real encoder, and measures the scales of its layers, so that the losses count all layers alike."""
        arrays = demo_weights("squeezenet1_1")
        encoder = {name: torch.from_numpy(arrays[name]) for name in self.encoder.state_dict()}
        self.encoder.load_state_dict(encoder)
        self.scales.copy_(torch.stack([layer.std() for layer in self._features(images)]))

    def finish(self, images: Tensor) -> None:
        """Remembers the styles of the images."""
        means, deviations = self.statistics(self.encode(images))
        self.style_means = means.flatten(1)
        self.style_deviations = deviations.flatten(1)
        self.options = {"styles": len(images)}

    def loss(self, images: Tensor, generator: np.random.Generator) -> Tensor:
        features = self._features(images)
        code = features[_CODE]
        # Each image is drawn in the style of its neighbour in the batch.
        styles = [self._neighbours_statistics(layer) for layer in features]
        target = self.with_statistics(code, styles[_CODE])
        drawn = self._features(self.decode(target))
        content = mse_loss(drawn[_CODE] / self.scales[_CODE], target / self.scales[_CODE])
        style = torch.zeros(())
        for layer, (target_mean, target_deviation), scale in zip(drawn, styles, self.scales, strict=True):
            mean, deviation = self.statistics(layer)
            style = style + mse_loss(mean / scale, target_mean / scale)
            style = style + mse_loss(deviation / scale, target_deviation / scale)
        return content + _STYLE * style / len(_LAYERS) + _RESTORING * mse_loss(self.decode(code), images)

    def _neighbours_statistics(self, layer: Tensor) -> Statistics:
        mean, deviation = self.statistics(layer)
        return mean.roll(1, 0), deviation.roll(1, 0)

    def measure(self, images: Tensor, generator: np.random.Generator) -> dict[str, float]:
        """The quality of images in their own style."""
        return {"psnr": psnr(self.decode(self.encode(images)), images)}

    def _features(self, pixels: Tensor, layers: int = len(_LAYERS)) -> list[Tensor]:
        """The outputs of the first layers, each after its rectifier."""
        x = (pixels * 255).flip(1) - self.mean
        outputs: list[Tensor] = []
        for name in _LAYERS[:layers]:
            if name in ("conv1", "fire2", "fire4"):
                # A stride of two would lose the last row and column, so they are repeated.
                x = pad(x, (0, 1, 0, 1), mode="replicate")
            if name in ("fire2", "fire4"):
                x = max_pool2d(x, 3, 2)
            x = self.encoder[name](x)
            if name == "conv1":
                x = relu(x)
            outputs.append(x)
        return outputs


def _layers(channels: Sequence[int], change: nn.Module) -> list[nn.Module]:
    """Convolutions with these channels, each after a reflected border of one; 0 stands for the change of size."""
    layers: list[nn.Module] = []
    before = channels[0]
    for width in channels[1:]:
        if width:
            layers += [nn.ReflectionPad2d(1), nn.Conv2d(before, width, 3), nn.ReLU()]
        else:
            layers.append(change)
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
    """One of our networks, or the published decoder (decoder.pth) with the encoder, vgg_normalised.*, beside it."""
    path = Path(path).expanduser()
    weights = load_weights(path) if path.is_file() else {}
    if "1.weight" not in weights or tuple(weights["1.weight"].shape) != (256, 512, 3, 3):
        return load_network(path, AdaIn)
    network = PublishedAdaIn()
    encoder = _encoder(path)
    fill(network.decoder, weights, path.name)
    # The encoder's file goes on beyond the layers that are needed.
    keys = network.encoder.state_dict()
    encoder_weights = {key: value for key, value in load_weights(encoder).items() if key in keys}
    fill(network.encoder, encoder_weights, encoder.name)
    return network.eval().requires_grad_(False)


def _encoder(decoder: Path) -> Path:
    """The file of the published encoder, which must be beside the decoder."""
    files = sorted(decoder.parent.glob("vgg_normalised.*"))
    if not files:
        raise AugmentationError(
            f"{decoder.name} is the published decoder, without its encoder",
            expected=f"vgg_normalised.pth in {decoder.parent}",
        )
    return files[0]


# The augmentation


class Stylize:
    """An image in a style that is drawn at random."""

    def __init__(self, network: AdaIn, files: list[Path], alpha: float, size: int) -> None:
        self.network = network
        self.files = files
        self.alpha = alpha
        self.size = size
        self._statistics: dict[int, Statistics] = {}

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
            means = self.network.style_means[number]
            deviations = self.network.style_deviations[number]
            return means.view(1, -1, 1, 1), deviations.view(1, -1, 1, 1)
        if number not in self._statistics:
            path = self.files[number]
            try:
                pixels = decode(path, path.name).pixels
            except BadImageError as error:
                raise AugmentationError(f"an image of a style cannot be used: {path}", found=error.found) from error
            self._statistics[number] = self.network.statistics(self.network.encode(self._fed(pixels)))
        return self._statistics[number]

    def _fed(self, image: Pixels) -> Tensor:
        """The image as the network takes it: resized, as a tensor on the network's device."""
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
    adain = network if isinstance(network, AdaIn) else load_adain(network)
    files: list[Path] = []
    if styles is not None:
        files = _style_files(Path(styles).expanduser())
    elif not len(adain.style_means):
        raise AugmentationError(
            "the network remembers no styles", expected=argument("styles", "FOLDER"), hint="name a folder of images"
        )
    return Stylize(adain.to(torch_device(device)), files, alpha, adain.size if size is None else size)


def _style_files(folder: Path) -> list[Path]:
    """The images below a folder, in an order that every machine shares."""
    candidates = [path for path in folder.rglob("*") if path.name.lower().endswith(EXTENSIONS)]
    files = [path for path in candidates if path.is_file()]
    if not files:
        raise AugmentationError(
            f"no images of styles in {folder}", expected=f"files that end in {', '.join(EXTENSIONS)}"
        )
    return sorted(files, key=lambda path: path.relative_to(folder).as_posix())


@lru_cache(maxsize=2)
def stylizer(network: str | None, styles: str | None) -> Stylize:
    """The stylizer of the corruption ``style_transfer``. It is cached, because every image asks for it."""
    if network is None:
        raise NetworkError(
            "style_transfer needs an image-to-image network",
            expected=argument("style_network", "FILE") + " with weights of adain",
            hint="give the published decoder, or train one: `shiftbench harden augment -a stylize --train-network`",
        )
    augmentation = stylize(network, styles)
    assert isinstance(augmentation, Stylize)
    return augmentation


@lru_cache(maxsize=2)
def identity(network: str | None = None, styles: str | None = None) -> dict[str, str]:
    """The content of the files that decide the pixels of ``style_transfer``."""
    published = isinstance(stylizer(network, styles).network, PublishedAdaIn)
    file = Path(network or "").expanduser()
    files = {"network": file}
    if published:
        files["encoder"] = _encoder(file)
    if styles is not None:
        files["styles"] = Path(styles).expanduser()
    return {name: file_digest(path) for name, path in files.items()}
