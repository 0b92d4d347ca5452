"""A recipe is checked as a whole before anything is read or trained: names, options, and what fits together."""

from __future__ import annotations

import importlib

from shiftbench.errors import UnknownNameError, check_names
from shiftbench.hardening.architectures.base import architectures
from shiftbench.hardening.architectures.baselines import BASELINES
from shiftbench.hardening.architectures.baselines.classifier import FittingOptions, checked_options
from shiftbench.hardening.augmentations.base import batch_augmentations, image_augmentations
from shiftbench.hardening.errors import RecipeError
from shiftbench.hardening.recipe import Recipe, flat, timm_part
from shiftbench.hardening.training_schemes import make_criterion, make_scheme, schemes
from shiftbench.io.schema import check_options
from shiftbench.labels.catalogue import find_label_space


def check_recipe(recipe: Recipe) -> None:
    """Raises an error that names the key; makes nothing that takes time."""
    find_label_space(recipe.data.labels or None)
    check_names("key in [sources]", recipe.sources, flat(recipe.as_dict()))
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
    network = architectures.get(name)
    check_options(recipe.architecture.options, network, f"the architecture {name!r}", RecipeError, given=("classes",))
    what = f"the training scheme {scheme!r}"
    check_options(recipe.scheme.options, schemes.get(scheme), what, RecipeError, given=("criterion",))
    of_images = (*recipe.augmentations, *recipe.views, *recipe.copies)
    for kind, parts in (("image", of_images), ("batch", recipe.batch_augmentations)):
        for part in parts:
            factory = (image_augmentations if kind == "image" else batch_augmentations).get(part.name)
            check_options(part.options, factory, f"the {kind} augmentation {part.name!r}", RecipeError)
    _check_libraries(recipe)
    _check_scheme(recipe, getattr(network, "scheme", scheme))


def _check_scheme(recipe: Recipe, needed: str) -> None:
    """What a scheme and the rest of the recipe ask of each other; ``needed``: the scheme that the network needs."""
    scheme, mixing = recipe.scheme.name, [part.name for part in recipe.batch_augmentations]
    criterion = make_criterion(recipe.loss.name, recipe.loss.smoothing)
    several = make_scheme(scheme, criterion, **recipe.scheme.options).views > 1
    added, split = [part.name for part in recipe.views], recipe.train.batch_norm == "split"
    one_view = 'scheme.name="jsd", or list it under [[augmentations]]'
    some = '[[views]] with name = "augmix", for example'
    for wrong, message, found, hint in (
        (needed != scheme, "the network has early exits, which the scheme does not train", "", f"scheme.name={needed}"),
        (added and not several, "the scheme looks at one view of an image", f"[[views]] {added}", one_view),
        (several and not added, "the scheme compares an image with augmented views of it", "no [[views]]", some),
        (split and not several, "split batch norms need several views of an image", "", 'train.batch_norm="part"'),
        (several and mixing, "the scheme and batches that mix labels do not go together", f"{mixing}", None),
    ):
        if wrong:
            raise RecipeError(message, found=f"scheme {scheme!r}{found and ', '}{found}", hint=hint)


def _check_libraries(recipe: Recipe) -> None:
    """Names that timm and torch know, who would complain only when the data are read."""
    chosen, name = recipe.optimizer, recipe.architecture.name
    check_names("optimizer", [chosen.name], timm_part("optim").list_optimizers())
    decays, apart = chosen.layer_decay != 1, chosen.backbone_factor != 1
    for ignored, message in (
        (decays and name != "timm", f"layer_decay needs a network of timm, whose layers are known, not {name!r}"),
        (apart and (decays or not chosen.decay_norms), "backbone_factor excludes layer_decay and decay_norms = false"),
    ):
        if ignored:
            raise RecipeError(f"optimizer.{message}", found=f"layer_decay = {chosen.layer_decay}")
    if isinstance(recipe.train.compile, str):
        backends = importlib.import_module("torch._dynamo").list_backends(exclude_tags=())
        check_names("backend of torch.compile", [recipe.train.compile], backends)


def baseline_options(recipe: Recipe) -> FittingOptions:
    """The options of a baseline's [architecture], for images of the recipe's size."""
    name = recipe.architecture.name
    given = {"size": recipe.data.size, **recipe.architecture.options}
    return checked_options(BASELINES[name], given, f"the baseline {name!r}")
