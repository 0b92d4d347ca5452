"""A network of a few thousand weights on real CIFAR-10 images: seconds, and everything is as with a large one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from shiftbench.hardening.recipe import Recipe, load_recipe

TINY = (
    'architecture={name="resnet-20", depth=8, width=4}',
    "data.train=cifar-10-test",
    'data.validation=""',
    "data.sample=96",
    "train.batch_size=32",
    "train.epochs=3",
)


@pytest.fixture
def tiny() -> Callable[..., Recipe]:
    def make(*changes: str, recipe: str | Path = "cifar-standard") -> Recipe:
        return load_recipe(recipe, [*TINY, *changes])

    return make


def same_weights(one: Path, other: Path) -> bool:
    from safetensors.torch import load_file

    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)


def steps_of(log: list[dict[str, Any]]) -> list[tuple[int, float, float]]:
    return [(line["step"], line["loss"], line["accuracy"]) for line in log]
