"""What the specs of model zoos share: a model's name, and where its weights come from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.options import Options
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.classifiers.torch_ import from_module, import_torch
from shiftbench.classifiers.weights import fill, load_weights
from shiftbench.errors import ClassifierError

# The generator belongs to the whole process.
_seeding = threading.Lock()
_FALSE = ("0", "false", "no")


@dataclass(frozen=True)
class ZooTarget:
    """``NAME``, ``NAME@weights.pth`` or ``NAME?checkpoint=weights.pth&pretrained=false``.

    >>> ZooTarget.parse("resnet50@best.pth").checkpoint
    'best.pth'
    >>> ZooTarget.parse("resnet50?pretrained=false").pretrained
    False
    """

    model: str
    checkpoint: str | None = None
    pretrained: bool | None = None

    @classmethod
    def parse(cls, target: str) -> ZooTarget:
        stem, _, query = target.partition("?")
        model, _, checkpoint = stem.partition("@")
        arguments = dict(parse_qsl(query, keep_blank_values=True))
        unknown = set(arguments) - {"checkpoint", "pretrained"}
        if unknown:
            raise ClassifierError(
                f"unknown options in {target!r}",
                found=", ".join(sorted(unknown)),
                expected="checkpoint=PATH, pretrained=false",
            )
        pretrained = arguments.get("pretrained")
        return cls(
            model,
            checkpoint or arguments.get("checkpoint"),
            None if pretrained is None else pretrained.lower() not in _FALSE,
        )


def from_zoo(
    zoo: str,
    target: ZooTarget,
    options: Options,
    create: Callable[[bool, int | None], object],
    describe: Callable[[object], Preprocessing],
) -> Classifier:
    """``create(pretrained, classes)`` makes the module, ``describe`` reads its preprocessing."""
    pretrained = options.pretrained if target.pretrained is None else target.pretrained
    classes = len(options.own_labels) if options.own_labels is not None else None
    name = target.model
    if target.checkpoint is not None:
        path = Path(target.checkpoint)
        weights = load_weights(path, trust=options.trust)
        module = _filled(create, (classes,) if options.labels else (classes, None), weights, path.name)
        name = f"{target.model}@{path.stem}"
    elif pretrained:
        try:
            module = create(True, None)
        except (OSError, RuntimeError, ValueError) as error:  # no network, or no weights of that name at all
            raise _no_weights(zoo, target.model, error) from error
    else:
        module = _seeded(lambda: create(False, classes))
        name = f"{target.model} (random weights)"
    return from_module(module, options.over(describe(module)), name=name)


def _filled(
    create: Callable[[bool, int | None], object],
    numbers: Sequence[int | None],
    weights: Mapping[str, object],
    source: str,
) -> object:
    """A module with these weights, of the first number of classes that they fit."""
    for classes in numbers:
        module = create(False, classes)
        try:
            fill(module, weights, source)
        except ClassifierError:
            if classes == numbers[-1]:
                raise
        else:
            return module
    raise AssertionError("no number of classes")


def _no_weights(zoo: str, model: str, error: Exception) -> ClassifierError:
    text = str(error).strip().splitlines()
    return ClassifierError(
        f"cannot download the weights of {zoo}:{model}",
        found=f"{type(error).__name__}: {text[0][:160] if text else ''}",
        expected="a network connection, or weights already in the library's cache",
        hint=f"{zoo}:{model}@weights.pth for weights on disk, or {zoo}:{model}?pretrained=false for random ones",
    )


def _seeded(create: Callable[[], object]) -> object:
    """Random weights that are the same in every process, so that runs can be resumed."""
    torch = import_torch()
    with _seeding, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return create()
