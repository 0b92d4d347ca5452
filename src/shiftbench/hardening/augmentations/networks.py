"""Image-to-image networks: each is one file, which also describes how its weights were trained.

The weights come from a file (our own, or the published ones of EDSR and the compressive auto-encoder), or are trained
on the user's images in minutes.

One in ten images is kept out of the training and measures it. With a number of ``steps``, the default, the same seed
gives the same network; a budget of ``seconds`` gives as many steps as the machine can do.
"""

from __future__ import annotations

import json
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import cv2
import numpy as np
import torch
from msgspec import Meta
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from shiftbench import Dataset, __version__
from shiftbench.errors import BadImageError, ClassifierError
from shiftbench.extend.classifiers import fill, load_weights
from shiftbench.extend.io import cache_folder, digest, file_lock, write_bytes
from shiftbench.extend.jobs import one_torch_thread
from shiftbench.extend.registration import Registry
from shiftbench.extend.types import Pixels
from shiftbench.hardening.errors import NetworkError
from shiftbench.jobs import progress_bar

#: The short side of an image that is fed to a network; the strides leave nothing of a smaller one.
FedSize = Annotated[int, Meta(ge=16, le=4096)]
_METADATA = "shiftbench"


class ImageNetwork(nn.Module, ABC):
    """Pixels in, pixels out. It knows its own options, how it is trained and the size of the images it is fed."""

    kind: ClassVar[str]
    #: The short side of an image that is fed to it.
    size: int
    #: The side of the squares that it is trained on.
    crop: ClassVar[int]
    #: The number of training steps, by default.
    steps: ClassVar[int]
    #: The highest learning rate of Adam.
    rate: ClassVar[float]

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        #: How its weights were trained; empty for published weights.
        self.description: dict[str, Any] = {}

    @classmethod
    @abstractmethod
    def options_of(cls, weights: Mapping[str, Tensor]) -> dict[str, object] | None:
        """The options with which weights of such names and shapes fit; None if they are of another kind."""

    @classmethod
    @abstractmethod
    def suited(cls, side: int) -> tuple[dict[str, object], int]:
        """Options of a network that minutes can train, and its size, for images with a short side of ``side``."""

    def training_side(self, size: int, side: int) -> int:
        """The short side to which images (of a short side of ``side``) are resized for the training."""
        return size

    @abstractmethod
    def loss(self, images: Tensor, generator: np.random.Generator) -> Tensor:
        """The loss that training lowers, for a batch of squares in [0, 1]."""

    @abstractmethod
    def measure(self, images: Tensor, generator: np.random.Generator) -> dict[str, float]:
        """How well it works undistorted; "psnr" is among the measures."""

    def prepare(self, images: Tensor) -> None:
        """Called once before the training, with some of its images."""

    def finish(self, images: Tensor) -> None:
        """Called once after the training, with some of its images."""


#: The kinds of networks, by the name that files and options use.
image_networks: Registry[type[ImageNetwork]] = Registry(
    "image-to-image network",
    builtin=(
        "shiftbench.hardening.augmentations.deepaugment.edsr",
        "shiftbench.hardening.augmentations.deepaugment.cae",
        "shiftbench.hardening.augmentations.stylize",
    ),
)

N = TypeVar("N", bound=ImageNetwork)


def save_network(network: ImageNetwork, path: str | Path) -> Path:
    """Writes a network as safetensors; an interruption leaves no half-written file."""
    path = Path(path)
    if path.suffix != ".safetensors":
        raise NetworkError(f"a network cannot be saved as {path.name}", expected="a name that ends in .safetensors")
    metadata = json.dumps({"kind": network.kind, "size": network.size, "description": network.description})
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    write_bytes(path, save(weights, {_METADATA: metadata}), durable=True)
    return path


def load_network(path: str | Path, expected: type[N]) -> N:
    """Reads a network from our own file or the published weights; no code that a file contains is run."""
    path = Path(path).expanduser()
    try:
        weights = load_weights(path)
    except ClassifierError as error:
        raise NetworkError(
            f"{path.name} holds no network: {error.message}",
            found=error.found,
            expected=f"weights of {expected.kind}: .safetensors, or a state dict of torch with nothing but tensors",
            hint="train one on your own images: network_for(...) or `shiftbench harden augment --train-network`",
        ) from error
    options = expected.options_of(weights)
    if options is None:
        kinds = [name for name, kind in image_networks if kind.options_of(weights) is not None]
        if kinds:
            found = f"a network of the kind {kinds[0]!r}"
        else:
            found = f"weights named {', '.join(list(weights)[:4])}, ..."
        raise NetworkError(
            f"{path.name} is not a network of kind {expected.kind}",
            found=found,
            expected=f"weights of the kind {expected.kind!r}",
        )
    network = expected(**options)
    try:
        fill(network, weights, path.name)
    except ClassifierError as error:
        raise NetworkError(error.message, found=error.found, expected=f"{expected.kind} with {options}") from error
    text = "{}"
    if path.suffix == ".safetensors":
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(_METADATA, text)
    try:
        metadata = json.loads(text)
        network.size = int(metadata.get("size", expected.size))
        network.description = metadata.get("description", {})
        if network.size < 1 or not isinstance(network.description, dict):
            raise ValueError("invalid values")
    except (ValueError, TypeError, AttributeError) as error:
        raise NetworkError(f"the description in {path.name} cannot be read", found=text[:120]) from error
    return network.eval().requires_grad_(False)


def psnr(restored: Tensor, images: Tensor) -> float:
    """Peak signal-to-noise ratio in decibels over pixels in [0, 1], the mean over the images."""
    errors = (restored.clamp(0, 1) - images).square().flatten(1).mean(dim=1)
    return float((-10 * errors.clamp(min=1e-10).log10()).mean())


def as_tensor(image: Pixels) -> Tensor:
    """An image as a batch of one, (1, 3, H, W) in [0, 1]."""
    return torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1).unsqueeze(0).float() / 255


def as_pixels(images: Tensor) -> Pixels:
    """The first image, rounded. NaN becomes black and infinity white, because a distorted network may overflow."""
    rounded = images[0].nan_to_num(0, 1, 0).clamp(0, 1).mul(255).round().byte()
    return rounded.permute(1, 2, 0).cpu().contiguous().numpy()


def resized(image: Pixels, height: int, width: int) -> Pixels:
    """The image in another size: averaged over areas if it gets smaller, interpolated by cubics if it gets larger."""
    if image.shape[:2] == (height, width):
        return image
    method = cv2.INTER_AREA if height * width < image.shape[0] * image.shape[1] else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(image, (width, height), interpolation=method), np.uint8)


def fed_size(image: Pixels, size: int, multiple: int = 1) -> tuple[int, int]:
    """Height and width with a short side of ``size``, both rounded to multiples.

    >>> fed_size(np.zeros((300, 401, 3), np.uint8), 128), fed_size(np.zeros((300, 401, 3), np.uint8), 128, 4)
    ((128, 171), (128, 172))
    """
    height, width = image.shape[:2]
    factor = size / min(height, width)
    fed_height = max(1, round(height * factor / multiple)) * multiple
    fed_width = max(1, round(width * factor / multiple)) * multiple
    return fed_height, fed_width


# Training

#: The largest number of images, and of their bytes: minutes cannot learn from more.
MOST_IMAGES = 1000
_MOST_BYTES = 256 << 20
#: The short side to which larger images are reduced while they wait in memory.
_LARGEST_SIDE = 640
#: Raised when a training of the same steps and seed no longer gives the same network.
_SCHEME = "1"
_BATCH = 16
_LEAST_IMAGES = 4
#: Gradients with a larger norm are shortened to this one.
_MAX_GRADIENT_NORM = 1.0

#: The networks that an augmentation needs: its option, and the kind of network.
NEEDS: dict[str, dict[str, str]] = {
    "deepaugment-edsr": {"network": "edsr"},
    "deepaugment-cae": {"network": "cae"},
    "deepaugment": {"edsr": "edsr", "cae": "cae"},
    "stylize": {"network": "adain"},
}


def network_for(
    name: str,
    file: str | Path | None = None,
    train_on: Dataset | None = None,
    folder: str | Path | None = None,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    show: bool = True,
) -> dict[str, str]:
    """The options with which the factory of the augmentation ``name`` finds its networks; {} if it needs none.

    Networks that are not given are trained; what was trained before on the same images in the same way is used again.

    Args:
        name: The name that tables and provenance show.
        file: Given weights; for ``deepaugment`` a folder with edsr.* and cae.*.
        train_on: Dataset to train the networks on.
        folder: Where trained networks are kept; default: the user's cache.
        steps: Training steps.
        seconds: Training time.
        seed: Seed of all random numbers.
        show: Whether progress is shown.
    """
    needs = NEEDS.get(name, {})
    files = {}
    for option, kind in needs.items():
        if file is not None:
            files[option] = str(_file_of_kind(Path(file).expanduser(), kind, len(needs)))
            continue
        if train_on is None:
            raise missing_network(name)
        home = Path(folder) if folder is not None else cache_folder("networks")
        key = digest("network", _SCHEME, kind, train_on.fingerprint, steps, seconds, seed)
        path = home / f"{kind}-{key[:16]}.safetensors"
        home.mkdir(parents=True, exist_ok=True)
        # The lock makes two runs that need the same network train it once.
        with file_lock(home / f".{path.stem}.lock", wait=True):
            if not path.is_file():
                network = train_network(kind, train_on, steps=steps, seconds=seconds, seed=seed, show=show)
                save_network(network, path)
        files[option] = str(path)
    return files


def missing_network(name: str) -> NetworkError:
    """The error of an augmentation whose network is not given."""
    return NetworkError(
        f"{name} needs an image-to-image network",
        expected=", ".join(f"{option}=FILE with weights of {kind}" for option, kind in NEEDS[name].items()),
        hint="give the published weights, or train on your own images in minutes: "
        f"`shiftbench harden augment --train-network`, or network_for({name!r}, train_on=dataset)",
    )


def _file_of_kind(path: Path, kind: str, networks: int) -> Path:
    """The file itself, or the file of a network of this kind in a folder."""
    if not path.is_dir():
        if networks > 1:
            raise NetworkError(
                "two networks cannot be in one file", found=path, expected="a folder with edsr.* and cae.*"
            )
        return path
    files = sorted(path.glob(f"{kind}*.safetensors")) + sorted(path.glob(f"{kind}*.pt"))
    if not files:
        raise NetworkError(
            f"{path} holds no network of the kind {kind!r}", expected=f"{kind}*.safetensors or {kind}*.pt"
        )
    return files[0]


def train_network(
    kind: str,
    dataset: Dataset,
    *,
    steps: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    size: int | None = None,
    show: bool = True,
    **options: object,
) -> ImageNetwork:
    """A network of this kind, trained on images of the dataset; options that are not given suit the images' size."""
    budgets = [value for value in (steps, seconds) if value is not None]
    if len(budgets) > 1 or any(value <= 0 for value in budgets):
        raise NetworkError(
            "bad budget for training a network",
            found=f"steps={steps}, seconds={seconds}",
            expected="one of them, and more than 0",
        )
    images = _read(dataset, seed)
    side = int(np.median([min(image.shape[:2]) for image in images]))
    with one_torch_thread(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network_class = image_networks.get(kind)
        suited_options, suited_size = network_class.suited(side)
        network = network_class(**{**suited_options, **options})
        network.size = suited_size if size is None else size
        training_side = network.training_side(network.size, side)
        fitted = _Fitting(network, images, training_side, seed).fit(steps, seconds, show)
    network.description = {
        "data": dataset.name,
        "fingerprint": dataset.fingerprint,
        "pictures": len(images),
        "seed": seed,
        "shiftbench": __version__,
        **fitted,
    }
    return network.eval().requires_grad_(False)


def _read(dataset: Dataset, seed: int) -> list[Pixels]:
    """A random selection of the dataset's images, none of them too large; unreadable images are left out."""
    images: list[Pixels] = []
    for index in np.random.default_rng(seed).permutation(len(dataset))[:MOST_IMAGES]:
        if sum(image.nbytes for image in images) > _MOST_BYTES:
            break
        try:
            pixels = dataset.read(int(index)).pixels
        except BadImageError:  # The run that uses the dataset reports the image.
            continue
        images.append(_to_side(pixels, min(_LARGEST_SIDE, min(pixels.shape[:2]))))
    if len(images) < _LEAST_IMAGES:
        raise NetworkError(
            f"too few images in {dataset.name} to train a network",
            found=len(images),
            expected=f"{_LEAST_IMAGES} or more",
        )
    return images


def _to_side(image: Pixels, side: int) -> Pixels:
    """The image with this short side."""
    height, width = image.shape[:2]
    factor = side / min(height, width)
    return resized(image, max(side, round(height * factor)), max(side, round(width * factor)))


class _Fitting:
    """Trains a network on random squares of the images, flipped at random; every tenth image is held out."""

    def __init__(self, network: ImageNetwork, images: list[Pixels], side: int, seed: int) -> None:
        self.network = network
        self.crop = min(network.crop, side) // 4 * 4
        self.generator = np.random.default_rng([seed, 1])
        images = [_to_side(image, max(side, self.crop)) for image in images]
        held_out = max(1, len(images) // 10)
        self.images = images[held_out:]
        self.held_out = _middles(images[:held_out][:64], self.crop)
        #: Some of the training images, for what the network does before and after the training.
        self.sample = _middles(self.images[:256], self.crop)

    def fit(self, steps: int | None, seconds: float | None, show: bool) -> dict[str, object]:
        """Trains the network; returns the number of steps and what the held-out images measure."""
        network = self.network
        with torch.no_grad():
            network.prepare(self.sample)
        before = self._measured()["psnr"]
        weights = [weight for weight in network.parameters() if weight.requires_grad]
        optimizer = torch.optim.Adam(weights, network.rate, betas=(0.9, 0.99))
        losses: list[float] = []
        network.train()
        for progress in _budget(network, steps, seconds, show):
            for group in optimizer.param_groups:
                group["lr"] = network.rate * min(1.0, progress / 0.05 + 0.02) * (1 + math.cos(math.pi * progress)) / 2
            optimizer.zero_grad()
            batch = torch.cat([self._square() for _ in range(_BATCH)])
            loss = network.loss(batch, self.generator)
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]):
                raise NetworkError(
                    f"the training of {network.kind} diverged",
                    found=f"a loss of {losses[-1]} at step {len(losses) - 1}",
                    hint="try another seed, or more of your images; nothing was saved",
                )
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(weights, _MAX_GRADIENT_NORM)
            optimizer.step()
        with torch.no_grad():
            network.finish(self.sample)
        last_losses = losses[-max(1, len(losses) // 20) :]
        measures = {name: round(value, 3) for name, value in self._measured().items()}
        return {
            "steps": len(losses),
            "loss": float(np.mean(last_losses)),
            **measures,
            "psnr untrained": round(before, 3),
        }

    def _square(self) -> Tensor:
        """A random square of a random image, flipped at random."""
        image = self.images[int(self.generator.integers(len(self.images)))]
        height, width = image.shape[:2]
        top = int(self.generator.integers(height - self.crop + 1))
        left = int(self.generator.integers(width - self.crop + 1))
        square = image[top : top + self.crop, left : left + self.crop]
        if self.generator.random() < 0.5:
            square = square[:, ::-1]
        return as_tensor(square)

    def _measured(self) -> dict[str, float]:
        self.network.eval()
        with torch.no_grad():
            return self.network.measure(self.held_out, np.random.default_rng(0))


def _middles(images: Sequence[Pixels], crop: int) -> Tensor:
    """The squares in the middle of the images."""
    squares = []
    for image in images:
        height, width = image.shape[:2]
        top = (height - crop) // 2
        left = (width - crop) // 2
        squares.append(as_tensor(image[top : top + crop, left : left + crop]))
    return torch.cat(squares)


def _budget(network: ImageNetwork, steps: int | None, seconds: float | None, show: bool) -> Iterator[float]:
    """The used share of the steps or seconds, once before each step: from 0 up to 1, and at least once."""
    if seconds is not None:
        total = math.ceil(seconds)
        unit = "seconds"
    else:
        total = steps or network.steps
        unit = "steps"
    begun = time.monotonic()
    steps_done = 0
    amount_shown = 0

    def used_share() -> float:
        if seconds is None:
            return steps_done / total
        return (time.monotonic() - begun) / seconds

    with progress_bar(f"training {network.kind} ({unit})", total, show=show) as advance:
        # A slow machine makes one step at least, however little time it has.
        while (share := used_share()) < 1 or steps_done == 0:
            yield min(share, 1.0)
            steps_done += 1
            amount = int(min(used_share(), 1.0) * total)
            advance(amount - amount_shown)
            amount_shown = amount
