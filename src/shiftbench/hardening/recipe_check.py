"""A recipe is checked as a whole before anything is read or trained: its names, its options, and how they combine."""

from __future__ import annotations

import importlib

from shiftbench.errors import UnknownNameError
from shiftbench.extend.datasets import find_label_space
from shiftbench.extend.errors import check_names
from shiftbench.extend.options import check_options
from shiftbench.hardening.architectures.base import architectures
from shiftbench.hardening.architectures.baselines import BASELINES
from shiftbench.hardening.architectures.baselines.classifier import FittingOptions, checked_options
from shiftbench.hardening.augmentations.base import batch_augmentations, image_augmentations
from shiftbench.hardening.errors import RecipeError
from shiftbench.hardening.recipe import Recipe, flat, timm_part
from shiftbench.hardening.training_schemes import make_criterion, make_scheme, schemes

#: Augmentations of batches that leave the targets as they are; with several views, they change the first one.
_KEEP_TARGETS = ("noise2net",)


def check_recipe(recipe: Recipe) -> None:
    """Raises an error that names the wrong key. Nothing that takes time is built."""
    find_label_space(recipe.data.labels or None)
    check_names("key in [sources]", recipe.sources, flat(recipe.as_dict()))
    name = recipe.architecture.name
    if name in BASELINES:
        _check_baseline(recipe)
        return
    if name not in architectures:
        raise UnknownNameError("architecture", name, [*architectures.names(), *BASELINES])
    network = architectures.get(name)
    check_options(recipe.architecture.options, network, f"the architecture {name!r}", RecipeError, given=("classes",))
    scheme = recipe.scheme.name
    scheme_title = f"the training scheme {scheme!r}"
    check_options(recipe.scheme.options, schemes.get(scheme), scheme_title, RecipeError, given=("criterion",))
    for part in (*recipe.augmentations, *recipe.views, *recipe.copies):
        factory = image_augmentations.get(part.name)
        check_options(part.options, factory, f"the image augmentation {part.name!r}", RecipeError)
    for part in recipe.batch_augmentations:
        batch_factory = batch_augmentations.get(part.name)
        check_options(part.options, batch_factory, f"the batch augmentation {part.name!r}", RecipeError)
    _check_libraries(recipe)
    _check_scheme(recipe, getattr(network, "scheme", scheme))


def _check_baseline(recipe: Recipe) -> None:
    baseline_options(recipe)
    for key in ("augmentations", "views", "batch_augmentations", "copies"):
        parts = getattr(recipe, key)
        if parts:
            raise RecipeError(
                f"{recipe.architecture.name} is fitted once, without augmentations",
                found=f"[[{key}]] with {parts[0].name!r}",
                hint="architecture.flips=true adds mirrored images",
            )


def _check_scheme(recipe: Recipe, needed: str) -> None:
    """Raises if the scheme does not fit the other tables; ``needed`` is the scheme that the network needs."""
    scheme = recipe.scheme.name
    criterion = make_criterion(recipe.loss.name, recipe.loss.smoothing)
    several_views = make_scheme(scheme, criterion, **recipe.scheme.options).views > 1
    views = [part.name for part in recipe.views]
    mixing = [part.name for part in recipe.batch_augmentations if part.name not in _KEEP_TARGETS]
    found = f"scheme {scheme!r}"
    if needed != scheme:
        raise RecipeError(
            "the network has early exits, which the scheme does not train", found=found, hint=f"scheme.name={needed}"
        )
    if views and not several_views:
        raise RecipeError(
            "the scheme looks at one view of an image",
            found=f"{found}, [[views]] {views}",
            hint='scheme.name="jsd", or list it under [[augmentations]]',
        )
    if several_views and not views:
        raise RecipeError(
            "the scheme compares an image with augmented views of it",
            found=f"{found}, no [[views]]",
            hint='[[views]] with name = "augmix", for example',
        )
    if recipe.train.batch_norm == "split" and not several_views:
        raise RecipeError(
            "split batch norms need several views of an image", found=found, hint='train.batch_norm="part"'
        )
    if several_views and mixing:
        raise RecipeError("the scheme and batches that mix labels do not go together", found=f"{found}, {mixing}")


def _check_libraries(recipe: Recipe) -> None:
    """Raises for names that timm or torch do not know; they themselves would complain only after the data are read."""
    optimizer = recipe.optimizer
    network = recipe.architecture.name
    check_names("optimizer", [optimizer.name], timm_part("optim").list_optimizers())
    if network == "timm" and recipe.architecture.options.get("model") is not None:
        _check_timm_model(str(recipe.architecture.options["model"]))
    found = f"layer_decay = {optimizer.layer_decay}"
    layer_decay = optimizer.layer_decay != 1
    if layer_decay and network != "timm":
        raise RecipeError(
            f"optimizer.layer_decay needs a network of timm, whose layers are known, not {network!r}", found=found
        )
    if optimizer.backbone_factor != 1 and (layer_decay or not optimizer.decay_norms):
        raise RecipeError("optimizer.backbone_factor excludes layer_decay and decay_norms = false", found=found)
    if isinstance(recipe.train.compile, str):
        backends = importlib.import_module("torch._dynamo").list_backends(exclude_tags=())
        check_names("backend of torch.compile", [recipe.train.compile], backends)


def _check_timm_model(model: str) -> None:
    timm_models = timm_part("models")
    if not timm_models.is_model(model):
        raise UnknownNameError("timm model", model, timm_models.list_models())


def baseline_options(recipe: Recipe) -> FittingOptions:
    """The options of a baseline's [architecture], for images of the recipe's size."""
    name = recipe.architecture.name
    options = {"size": recipe.data.size, **recipe.architecture.options}
    return checked_options(BASELINES[name], options, f"the baseline {name!r}")
