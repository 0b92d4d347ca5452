"""Colour counterfactuals (003, figure 12): how often a wrong prediction hangs on the colours of the image.

Every image is predicted again in greyscale and with its hues rotated. Of the images that a model gets wrong: how often
the wrong class disappears, and how often the right one takes its place; of the others: how often that is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import numpy as np
from PIL import Image

from shiftbench.arrays import BoolArray, IntArray, Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.diagnosis.images import Images, finite_scores
from shiftbench.jobs.progress import Advance, progress_bar
from shiftbench.studies.base import StudyError

#: Degrees by which hues are rotated.
HUES = (60, 120, 180, 240, 300)


def recoloured(pixels: Pixels, degrees: int | None) -> Pixels:
    """With hues rotated by some degrees; None is greyscale."""
    image = Image.fromarray(pixels)
    if degrees is None:
        return np.asarray(image.convert("L").convert("RGB"))
    hsv = np.array(image.convert("HSV"))
    hsv[..., 0] += np.uint8(round(degrees * 256 / 360))  # hues are a circle of 256
    return np.asarray(Image.fromarray(hsv, "HSV").convert("RGB"))


@dataclass(frozen=True)
class ColourEffect:
    """One way of changing colours: what it does to images that the model gets wrong, and right, as they are."""

    variant: str
    wrong: int
    right: int
    #: Of the wrong ones, how many are not predicted as that wrong class any more, and how many are right.
    disappears: int
    corrected: int
    #: Of the right ones, how many are not right any more.
    lost: int


def colour_counterfactuals(classifier: Classifier, images: Images, progress: bool = False) -> list[ColourEffect]:
    """The effect of every variant, and of any of them (the last entry), on labelled images."""
    images.check_labels()
    labels = images.labels[images.rows]
    rows = images.rows.tolist()
    decoding = classifier.preprocessing.geometry.decoding
    predictions: dict[str, IntArray] = {}
    with progress_bar(classifier.name, (len(HUES) + 2) * len(rows), show=progress) as advance:
        originals = (images.pixels(row, decoding) for row in rows)
        usual = _predicted(classifier, images, originals, advance)
        wrong = usual != labels
        if not wrong.any():
            raise StudyError(f"{classifier.name} gets all {len(rows)} images right", expected="images with mistakes")
        for degrees in (None, *HUES):
            variants = (recoloured(images.pixels(row, decoding), degrees) for row in rows)
            name = "greyscale" if degrees is None else f"hue {degrees}"
            predictions[name] = _predicted(classifier, images, variants, advance)
    effects = []
    for name, predicted in predictions.items():
        effects.append(_effect(name, wrong, predicted != usual, predicted == labels))
    every = np.stack(list(predictions.values()))
    changed_by_any = (every != usual).any(axis=0)
    corrected_by_any = (every == labels).any(axis=0)
    return [*effects, _effect("any of these", wrong, changed_by_any, corrected_by_any)]


def _effect(variant: str, wrong: BoolArray, changed: BoolArray, corrected: BoolArray) -> ColourEffect:
    """Count the images, by whether the model gets them wrong as they are."""
    return ColourEffect(
        variant,
        wrong=int(wrong.sum()),
        right=int((~wrong).sum()),
        disappears=int((changed & wrong).sum()),
        corrected=int((corrected & wrong).sum()),
        lost=int((changed & ~wrong).sum()),
    )


def _predicted(classifier: Classifier, images: Images, pixels: Iterable[Pixels], advance: Advance) -> IntArray:
    """Classes in the label space of the images."""
    project = images.dataset.space.projection_from(classifier.space)
    prepared = map(classifier.preprocessing.geometry, pixels)
    parts = []
    while batch := list(islice(prepared, classifier.batch_size)):
        parts.append(finite_scores(classifier, batch))
        advance(len(batch))
    return np.asarray(project(np.concatenate(parts)).argmax(axis=1), dtype=np.int64)
