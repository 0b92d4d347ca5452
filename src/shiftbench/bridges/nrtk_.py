"""Perturbers of NRTK (Natural Robustness Toolkit) as shifts, with random numbers of their own for each image."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Protocol, cast

import numpy as np

from shiftbench.errors import ShiftError
from shiftbench.extend.errors import required
from shiftbench.extend.shifts import SEED_SCHEME, derive_seed
from shiftbench.extend.types import Pixels
from shiftbench.shifts import Shift

#: The largest seed that NRTK's generators take.
_SEEDS = 2**31


class PerturberLike(Protocol):
    """A perturber of NRTK."""

    def get_config(self) -> dict[str, object]: ...
    def __call__(self, *, image: Pixels) -> tuple[Pixels, object]: ...


class PerturberClass(Protocol):
    """A class of perturbers, which makes one of a configuration."""

    def from_config(self, config_dict: object) -> PerturberLike: ...


def nrtk_shift(perturber: PerturberLike, name: str | None = None) -> NrtkShift:
    """A perturber of NRTK as a shift, for settings of your own.

    Every seed in its configuration, those of perturbers inside it included, is replaced by one that follows from the
    run's seed and the image's id: the same image gets the same pixels in any order, and different images differ.

    Args:
        perturber: The perturber, with its parameters.
        name: The name in tables; default: that of its class.

    Raises:
        ShiftError: Its configuration cannot be stored.
    """
    kind = type(perturber)
    try:
        config = json.loads(json.dumps(_without_seeds(perturber.get_config())))
    except (TypeError, ValueError) as error:
        raise ShiftError(
            f"the configuration of {kind.__name__} cannot be stored",
            found=str(error),
            expected="numbers, texts, lists and mappings, as get_config() of NRTK gives",
        ) from error
    return NrtkShift(
        f"{kind.__module__}.{kind.__qualname__}", json.dumps(config, sort_keys=True), name or kind.__name__
    )


@dataclass(frozen=True)
class NrtkShift(Shift):
    """A perturber of NRTK, made anew for each image with a seed of its own.

    Attributes:
        perturber: Where its class is.
        config: Its configuration without seeds, as JSON.
        name: The name in tables.
    """

    perturber: str
    config: str
    name: str = ""

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        number = derive_seed(seed, "nrtk", self.name, image_id) % _SEEDS
        perturber = self._kind.from_config(_with_seeds(json.loads(self.config), number))
        changed, _ = perturber(image=image.copy())
        changed = np.asarray(changed)
        if changed.shape != image.shape or changed.dtype != np.uint8:
            raise ShiftError(
                f"{self.name} returned an invalid image",
                found=f"{changed.dtype} {changed.shape}",
                expected=f"a uint8 array {image.shape}",
                hint="perturbers that change the size of an image are no shifts",
            )
        return changed

    @cached_property
    def _kind(self) -> PerturberClass:
        """The class, of the library alone: a record may come from a stranger's workspace."""
        library = required("nrtk.interfaces", "nrtk", "perturbers of NRTK")
        module, _, name = self.perturber.rpartition(".")
        kind = None
        if module.startswith("nrtk."):
            kind = getattr(importlib.import_module(module), name, None)
        if not (isinstance(kind, type) and issubclass(kind, library.PerturbImage)):
            raise ShiftError("not a perturber of NRTK", found=self.perturber, expected="a class of the package nrtk")
        return cast("PerturberClass", kind)

    def describe(self) -> dict[str, object]:
        return {
            "shift": "nrtk",
            "perturber": self.perturber,
            "config": json.loads(self.config),
            "name": self.name,
            "generator": f"nrtk {version('nrtk')}",
            "seed_scheme": SEED_SCHEME,
        }

    def __getstate__(self) -> dict[str, str]:
        return {"perturber": self.perturber, "config": self.config, "name": self.name}

    def __setstate__(self, state: dict[str, str]) -> None:
        self.__dict__.update(state)


def rebuilt(record: Mapping[str, object]) -> NrtkShift:
    """The shift of a record.

    Args:
        record: What ``describe`` gave.
    """
    return NrtkShift(str(record["perturber"]), json.dumps(record["config"], sort_keys=True), str(record["name"]))


def _without_seeds(value: object) -> object:
    return _with_seeds(value, None)


def _with_seeds(value: object, seed: int | None) -> object:
    """A configuration with this seed in place of every one."""
    if isinstance(value, Mapping):
        replaced = {}
        for key, entry in value.items():
            replaced[key] = seed if key == "seed" else _with_seeds(entry, seed)
        return replaced
    if isinstance(value, list | tuple):
        return [_with_seeds(entry, seed) for entry in value]
    return value
