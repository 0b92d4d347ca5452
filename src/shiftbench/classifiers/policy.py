"""The one policy by which every loader finds the preprocessing of a model (docs/models.md).

1. What the caller, a sidecar, the model file or its library state is used, in this order.
2. A stated input size is met by resizing both sides to it ("squash"), without a crop. Models with ImageNet's 1,000
   outputs and an input of at least 160 pixels follow torchvision instead: short side to 256/224 of it, centre crop.
3. An unknown input size is the size of the images if all of them have the same, of at most 224 pixels, and the model
   accepts it; otherwise, and for models with 1,000 outputs, short side to 256, centre crop 224.
4. Unknown mean and std are ImageNet's, on RGB in [0, 1]. Models that take uint8 pixels normalise for themselves.
5. Whatever is assumed is recorded (``Classifier.assumed``) and reported in one warning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.description import (
    GEOMETRY_FACTS,
    NORMALISATION_FACTS,
    NORMALISATION_KEYS,
    FactSource,
    description_text,
    flat_description,
    settled_by,
)
from shiftbench.classifiers.options import Options
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import ClassifierError, ResultWarning, argument
from shiftbench.labels.space import Scores

#: Outputs of a model of ImageNet's classes, the smallest input for which torchvision's convention is likely, and the
#: largest images that are likely to be the input as they are.
IMAGENET_CLASSES = 1000
_SMALLEST_CROPPED = 160
_LARGEST_UNTOUCHED = 224

#: Scores of a few images under a preprocessing; a ClassifierError if the model does not accept them.
Trial = Callable[[Preprocessing], Scores]


@dataclass(frozen=True)
class KnownInput:
    """What a loader knows about a model's input before it has run it."""

    #: (height, width), if the file or the library states it.
    size: tuple[int, int] | None = None
    normalisation: Normalisation = field(default_factory=Normalisation)
    #: Facts of the normalisation that nothing states.
    assumed: tuple[str, ...] = NORMALISATION_FACTS
    #: Who states the size and the layout.
    source: FactSource = "file"
    #: The model takes uint8 pixels and normalises for itself.
    pixels: bool = False


def settle(name: str, options: Options, known: KnownInput, trial: Trial) -> tuple[Options, Scores]:
    """The options with the complete preprocessing, and the scores of the trial that confirmed it."""
    if options.preprocessing is not None:
        return options, trial(options.preprocessing)
    if known.pixels:
        _refuse_normalisation(name, options)
    images = options.image_size() if options.image_size is not None else None
    tried: list[Preprocessing] = []
    failures: list[ClassifierError] = []
    for geometry in _candidates(known.size, images):
        chosen = _over(options, known, geometry, images)
        assert chosen.preprocessing is not None
        if chosen.preprocessing in tried:
            continue
        tried.append(chosen.preprocessing)
        try:
            scores = trial(chosen.preprocessing)
        except ClassifierError as error:
            failures.append(error)
            continue
        return _by_convention(options, known, images, chosen, scores, trial)
    raise failures[0]


def _candidates(size: tuple[int, int] | None, images: tuple[int, int] | None) -> Iterator[Geometry]:
    if size is not None:
        yield _squash(size)
        return
    if images is not None and max(images) <= _LARGEST_UNTOUCHED:
        yield _squash(images)
    yield Geometry()
    if images is not None:
        yield _squash(images)


def _by_convention(
    options: Options,
    known: KnownInput,
    images: tuple[int, int] | None,
    chosen: Options,
    scores: Scores,
    trial: Trial,
) -> tuple[Options, Scores]:
    """Torchvision's resize and crop for models of ImageNet's classes, where the model accepts them."""
    size = known.size
    if scores.shape[1] != IMAGENET_CLASSES or (size is not None and (min(size) < _SMALLEST_CROPPED or size == images)):
        return chosen, scores
    usual = Geometry()
    if size is not None:
        if size[0] != size[1]:
            return chosen, scores
        usual = Geometry(resize=round(size[0] * 256 / 224), crop=size[0])
    other = _over(options, known, usual, images)
    assert other.preprocessing is not None and chosen.preprocessing is not None
    if other.preprocessing.geometry.output == chosen.preprocessing.geometry.output:
        return other, scores
    try:
        return other, trial(other.preprocessing)
    except ClassifierError:
        return chosen, scores


def _over(options: Options, known: KnownInput, geometry: Geometry, images: tuple[int, int] | None) -> Options:
    sources: dict[str, FactSource] = {"layout": known.source, **dict.fromkeys(known.assumed, "assumed")}
    # Images of the size that is stated are not resized.
    stated = known.size is not None and images == known.size
    sources |= dict.fromkeys(GEOMETRY_FACTS, known.source if stated else "assumed")
    if images is not None and geometry == _squash(images):
        sources["interpolation"] = "library"  # not used
    return options.over(Preprocessing(geometry, known.normalisation), sources)


def _squash(size: tuple[int, int]) -> Geometry:
    return Geometry(resize=size, crop=None, resize_rule="exact")


def _refuse_normalisation(name: str, options: Options) -> None:
    stated = {key for description, _ in options.described for key in description.stated}
    if vain := [key for key in NORMALISATION_KEYS if key in stated]:
        raise ClassifierError(
            f"{name} takes uint8 pixels and normalises for itself",
            found=", ".join(vain),
            expected="only size, resize, crop, interpolation and outputs",
        )


def assumed_warning(classifier: Classifier) -> ResultWarning | None:
    """One warning about everything that had to be assumed about a model."""
    if not classifier.assumed:
        return None
    assumed = argument("preprocessing", description_text(assumed_description(classifier)), flag="--preprocess")
    return ResultWarning(
        f"{classifier.name}: assumed preprocessing; scores are wrong if the model was trained with another. Confirm "
        f"or correct it: {assumed}, or write it beside the model: shiftbench describe MODEL --write",
        "assumed-preprocessing",
    )


def assumed_description(classifier: Classifier) -> dict[str, Any]:
    """What is assumed, in the words that would state it."""
    flat = flat_description(classifier.preprocessing, pixels=classifier.takes_pixels)
    normalised = {"mean", "std"} <= set(classifier.assumed)
    usual = {"resize": "squash", "crop": "none", "interpolation": "bilinear"}
    if normalised:
        usual |= {"scale": "1/255", "colour": "rgb"}
    settled = {key: settled_by([key]) for key in flat}
    return {
        key: value for key, value in flat.items() if settled[key] & set(classifier.assumed) and usual.get(key) != value
    }
