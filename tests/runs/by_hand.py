"""The demo classifiers run by hand: Pillow, torch and the published preprocessing, and nothing of the line."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import shiftbench as sb
from shiftbench.jobs.threads import one_torch_thread
from tests.classifiers.keras_networks import network

Scores = NDArray[np.float32]
FULL = sb.label_space("imagenet-1k")
_CAFFE_MEAN = torch.tensor([103.939, 116.779, 123.68])


@cache
def _network(name: str) -> torch.nn.Module:
    return network(name).eval()


def squeezenet(files: Sequence[Path], border: int = 0) -> Scores:
    """Short side 256 bilinear, centre 227, BGR minus the mean; ``border`` pixels of each side go first."""
    return np.stack([_squeezenet(file.read_bytes(), border) for file in files])


@cache  # the same photograph lies in several trees
def _squeezenet(encoded: bytes, border: int) -> Scores:
    image = Image.open(io.BytesIO(encoded)).convert("RGB")
    image = image.crop((border, border, image.width - border, image.height - border))
    ratio = 256 / min(image.size)
    image = image.resize((int(image.width * ratio), int(image.height * ratio)), Image.Resampling.BILINEAR)
    left = round((image.width - 227) / 2)
    top = round((image.height - 227) / 2)
    rgb = np.array(image.crop((left, top, left + 227, top + 227)), np.float32)
    pixels = (torch.from_numpy(rgb[..., ::-1].copy()) - _CAFFE_MEAN).permute(2, 0, 1)
    with torch.no_grad(), one_torch_thread():
        found: Scores = _network("squeezenet1_1")(pixels[None])[0].numpy()
    return found


def resnet8(images: NDArray[np.uint8]) -> Scores:
    """(x - 128) / 128."""
    pixels = torch.from_numpy((images.astype(np.float32) - 128) / 128).permute(0, 3, 1, 2)
    with torch.no_grad(), one_torch_thread():
        found: Scores = _network("resnet8-cifar10")(pixels).numpy()
    return found


def best_keys(scores: Scores, space: sb.LabelSpace) -> list[str]:
    """For each image the class of the space that holds the best of all ImageNet classes that it has."""
    groups = space.members or tuple((key,) for key in space.keys)
    owner = {wnid: key for key, group in zip(space.keys, groups, strict=True) for wnid in group}
    wnids = list(owner)
    columns = [FULL.index(wnid) for wnid in wnids]
    return [owner[wnids[best]] for best in scores[:, columns].argmax(axis=1)]
