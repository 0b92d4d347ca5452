"""A recipe is checked as a whole before anything is read or trained: names, options, and what fits together."""

from __future__ import annotations

import importlib

from shiftbench.classifiers.zoo import import_timm
from shiftbench.errors import UnknownNameError
from shiftbench.hardening.architectures.base import architectures
from shiftbench.hardening.architectures.baselines import BASELINES
from shiftbench.hardening.architectures.baselines.classifier import FittingOptions, checked_options
from shiftbench.hardening.augmentations.base import batch_augmentations, image_augmentations
from shiftbench.hardening.errors import RecipeError
from shiftbench.hardening.recipe import Recipe
from shiftbench.hardening.training_schemes import make_criterion, make_scheme, schemes
from shiftbench.io.schema import check_options
from shiftbench.labels.catalogue import find_label_space


def check_recipe(recipe: Recipe) -> None:
    """Raises an error that names the key; makes nothing that takes time."""
    find_label_space(recipe.data.labels or None)
    name, scheme = recipe.architecture.name, recipe.scheme.name
    if name in BASELINES:
        baseline_options(recipe)
        for key in ("augmentations", "views", "batch_augmentations", "copies"):
            if parts := getattr(recipe, key):
                raise RecipeError(
                    f"{name} is fitted once, without augmentations",
                    found=f"[[{key}]] with {parts[0].name!r}",
                    hint="architecture.flips=true adds mirrored images",
                )
        return
    if name not in architectures:
        raise UnknownNameError("architecture", name, [*architectures.names(), *BASELINES])
    network, known = architectures.get(name), schemes.get(scheme)
    check_options(recipe.architecture.options, network, f"the architecture {name!r}", RecipeError, given=("classes",))
    if (needed := getattr(network, "scheme", scheme)) != scheme:
        raise RecipeError(
            f"{name} has early exits, which the scheme {scheme!r} does not train", expected=f"scheme.name = {needed!r}"
        )
    check_options(recipe.scheme.options, known, f"the training scheme {scheme!r}", RecipeError, given=("criterion",))
    of_images = (*recipe.augmentations, *recipe.views, *recipe.copies)
    for kind, parts in (("image", of_images), ("batch", recipe.batch_augmentations)):
        for part in parts:
            factory = (image_augmentations if kind == "image" else batch_augmentations).get(part.name)
            check_options(part.options, factory, f"the {kind} augmentation {part.name!r}", RecipeError)
    _check_libraries(recipe)
    criterion = make_criterion(recipe.loss.name, recipe.loss.smoothing)
    views = make_scheme(scheme, criterion, **recipe.scheme.options).views
    if recipe.views and views == 1:
        raise RecipeError(
            f"the scheme {scheme!r} looks at one view of an image",
            found=f"[[views]] with {recipe.views[0].name!r}",
            hint='scheme.name="jsd", or list it under [[augmentations]]',
        )
    if views > 1 and not recipe.views:
        raise RecipeError(
            f"the scheme {scheme!r} compares an image with augmented views of it",
            found="no [[views]]",
            expected='[[views]] with name = "augmix", for example',
        )
    if views == 1 and recipe.train.batch_norm == "split":
        raise RecipeError(
            "split batch norms are for schemes with several views of an image",
            found=f"train.batch_norm = 'split' with the scheme {scheme!r}",
            hint='train.batch_norm="part"',
        )
    if views > 1 and recipe.batch_augmentations:
        raise RecipeError(
            f"the scheme {scheme!r} and batches that mix labels do not go together",
            found=f"[[batch_augmentations]] with {recipe.batch_augmentations[0].name!r}",
        )


def _check_libraries(recipe: Recipe) -> None:
    """Names that timm and torch know, who would complain only when the data are read."""
    import_timm()
    known = importlib.import_module("timm.optim").list_optimizers()
    if recipe.optimizer.name not in known:
        raise UnknownNameError("optimizer", recipe.optimizer.name, known)
    if isinstance(recipe.train.compile, str):
        backends = importlib.import_module("torch._dynamo").list_backends(exclude_tags=())
        if recipe.train.compile not in backends:
            raise UnknownNameError("backend of torch.compile", recipe.train.compile, backends)


def baseline_options(recipe: Recipe) -> FittingOptions:
    """The options of a baseline's [architecture], for images of the recipe's size."""
    name = recipe.architecture.name
    given = {"size": recipe.data.size, **recipe.architecture.options}
    return checked_options(BASELINES[name], given, f"the baseline {name!r}")
