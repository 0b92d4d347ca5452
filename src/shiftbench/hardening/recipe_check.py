"""A recipe is checked as a whole before anything is read or trained: names, options, and what fits together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shiftbench.errors import UnknownNameError
from shiftbench.hardening.architectures.base import architectures
from shiftbench.hardening.augmentations.base import batch_augmentations, image_augmentations
from shiftbench.hardening.errors import RecipeError
from shiftbench.hardening.losses import make_criterion
from shiftbench.hardening.recipe import Part, Recipe
from shiftbench.hardening.training.baselines import BASELINES, check_baseline
from shiftbench.hardening.training_schemes import make_scheme, schemes
from shiftbench.io.schema import check_options
from shiftbench.labels.catalogue import find_label_space


def check_recipe(recipe: Recipe) -> None:
    """Raises an error that names the key; makes nothing that takes time."""
    find_label_space(recipe.data.labels or None)
    if recipe.architecture.name in BASELINES:
        check_baseline(recipe)
        return
    network = _architecture(recipe.architecture.name)
    _check_part(recipe.architecture, "architecture", network, ("classes",))
    if (needed := getattr(network, "scheme", recipe.scheme.name)) != recipe.scheme.name:
        raise RecipeError(
            f"{recipe.architecture.name} has early exits, which the scheme {recipe.scheme.name!r} does not train",
            expected=f"scheme.name = {needed!r}",
        )
    _check_part(recipe.scheme, "training scheme", schemes.get(recipe.scheme.name), ("criterion",))
    for part in (*recipe.augmentations, *recipe.views, *recipe.copies):
        _check_part(part, "image augmentation", image_augmentations.get(part.name))
    for part in recipe.batch_augmentations:
        _check_part(part, "batch augmentation", batch_augmentations.get(part.name))
    _check_views(recipe)


def _check_part(part: Part, kind: str, factory: Callable[..., object], given: Sequence[str] = ()) -> None:
    check_options(part.options, factory, f"the {kind} {part.name!r}", RecipeError, given=given)


def _architecture(name: str) -> Callable[..., object]:
    if name not in architectures:
        raise UnknownNameError("architecture", name, [*architectures.names(), *BASELINES])
    return architectures.get(name)


def _check_views(recipe: Recipe) -> None:
    criterion = make_criterion(recipe.loss.name, recipe.loss.smoothing)
    scheme = make_scheme(recipe.scheme.name, criterion, **recipe.scheme.options)
    if recipe.views and scheme.views == 1:
        raise RecipeError(
            f"the scheme {recipe.scheme.name!r} looks at one view of an image",
            found=f"[[views]] with {recipe.views[0].name!r}",
            hint='scheme.name="jsd", or list it under [[augmentations]]',
        )
    if scheme.views > 1 and not recipe.views:
        raise RecipeError(
            f"the scheme {recipe.scheme.name!r} compares an image with augmented views of it",
            found="no [[views]]",
            expected='[[views]] with name = "augmix", for example',
        )
    if scheme.views > 1 and recipe.batch_augmentations:
        raise RecipeError(
            f"the scheme {recipe.scheme.name!r} and batches that mix labels do not go together",
            found=f"[[batch_augmentations]] with {recipe.batch_augmentations[0].name!r}",
        )
