"""Model files that a library runs as they are: what their loaders share.

A loader says how its library opens a file and runs a batch (``OpenedModel``). Everything else is the same for all of
them: the policy for the preprocessing, the trial run, batches of one size, threads, fingerprints, copies for workers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import OTHER_INPUTS, BatchedClassifier, Outputs, network_fingerprint, trial_scores
from shiftbench.classifiers.batches import depends_on_neighbours, is_repeatable, scores_alone, with_dark_images
from shiftbench.classifiers.description import Description
from shiftbench.classifiers.options import KnownInput, Options, existing_file, settle, several_outputs
from shiftbench.classifiers.preprocessing import Preprocessing, in_colour_order
from shiftbench.errors import ClassifierError, argument, warn_user
from shiftbench.io.hashing import digest, file_digest
from shiftbench.jobs.threads import worker_count
from shiftbench.labels.guard import recognise_names
from shiftbench.labels.space import LabelSpace, Scores

#: Images per batch of a file that leaves the number open.
DEFAULT_BATCH = 16


@dataclass(frozen=True)
class StatedFacts:
    """What a model file says about itself.

    Attributes:
        inputs: What its input may be, the likeliest first.
        description: The preprocessing that its metadata states.
        class_names: Its classes, in the order of the outputs; empty if it names none.
    """

    inputs: Sequence[KnownInput]
    description: Description = field(default_factory=Description)
    class_names: Sequence[str] = ()


class OpenedModel(ABC):
    """A model file that its library has opened, ready to run one batch at a time."""

    #: What computes the scores, for the provenance.
    engine: str
    #: Images per call; every call has exactly this many.
    batch_size: int
    facts: StatedFacts
    #: The sizes of each output, the batch first; None where the file leaves one open.
    output_shapes: Sequence[Sequence[int | None]]
    #: The output that holds the scores.
    output_index: int = 0

    def stated_outputs(self) -> Outputs | None:
        """Whether its outputs are logits or probabilities, if the file shows it."""
        return None

    @abstractmethod
    def run(self, batch: NDArray[np.generic]) -> Scores:
        """Scores of a batch: normalised float32 images or, if the model takes pixels, uint8 ones, in its layout."""


#: Opens a file for a number of threads and, if the file leaves it open, a number of images per call.
Opener = Callable[[Path, int, int], OpenedModel]


class ModelFile(BatchedClassifier):
    """A classifier in a file.

    All batches have the same size, so that the scores of an image do not depend on the number of images. The library
    opens the file on first use, and again after unpickling.
    """

    self_contained = True

    def __init__(self, name: str, paths: Sequence[Path], opener: Opener, options: Options) -> None:
        super().__init__()
        self.name = name
        self.paths = [path.absolute() for path in paths]
        self.space = LabelSpace("outputs", ("?",))
        self.preprocessing = Preprocessing()
        self.threads = options.threads or worker_count(None)
        self._opener = opener
        self._weights = digest(*map(file_digest, self.paths))
        self._opened: OpenedModel | None = opener(self.paths[0], self.threads, options.batch_size or DEFAULT_BATCH)
        self.engine = self._opened.engine
        self.batch_size = self._opened.batch_size
        #: The outputs that may hold the scores; the first of them is used.
        self.candidates = score_outputs(self._opened.output_shapes, options)
        self._opened.output_index = self.candidates[0]

    @property
    def fingerprint(self) -> str:
        weights = self._weights
        if self.candidates[0] > 0:
            weights = digest(weights, "output", self.candidates[0])
        return network_fingerprint(weights, self.preprocessing.normalisation, self.outputs)

    def rows(self) -> int:
        return self.batch_size

    @property
    def opened(self) -> OpenedModel:
        """The opened file, which is opened when it is needed first."""
        with self._running:
            if self._opened is None:
                self._opened = self._opener(self.paths[0], self.threads, self.batch_size)
                self._opened.output_index = self.candidates[0]
            return self._opened

    def forward(self, images: Pixels) -> Scores:
        opened = self.opened
        normalisation = self.preprocessing.normalisation
        batch: NDArray[np.generic]
        if self.takes_pixels:
            pixels = in_colour_order(images, normalisation.colour_order)
            if normalisation.layout == "nchw":
                pixels = pixels.transpose(0, 3, 1, 2)
            batch = np.ascontiguousarray(pixels)
        else:
            batch = normalisation(images)
        with self._running:
            scores = opened.run(batch)
        if scores.ndim > 2:
            return scores.reshape(len(images), -1)
        return scores

    def _shrink(self, size: int) -> None:
        raise ClassifierError(
            f"{self.name} does not fit into memory with batches of {self.batch_size}",
            hint=f"{argument('batch_size', 1)}, for a file that leaves the size of its batches open",
        )

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_opened": None}


def load_model_file(target: str, options: Options, opener: Opener, *more_files: Path) -> ModelFile:
    """Load a file, settle what is known about its input, and try it on a few images.

    ``more_files`` hold weights beside it; they are part of its fingerprint.
    """
    path = existing_file(target)
    if options.device.partition(":")[0] not in ("auto", "cpu"):
        raise ClassifierError(f"{path.name} is run on CPUs only", found=options.device, hint=argument("device", "cpu"))
    classifier = ModelFile(options.name or path.stem, [path, *more_files], opener, options)
    facts = classifier.opened.facts
    if facts.description.keys:
        options = replace(options, described=((facts.description, "file"), *options.described))
    stated_outputs = classifier.opened.stated_outputs()
    if stated_outputs is not None and options.outputs is None:
        options = replace(options, outputs=stated_outputs, sources={**options.sources, "outputs": "file"})

    def trial(preprocessing: Preprocessing) -> Scores:
        classifier.preprocessing = preprocessing
        images = options.trial_images(preprocessing)
        scores = trial_scores(classifier.name, images[: classifier.batch_size], classifier.padded_forward)
        _observe(classifier, images)
        return scores

    failures: list[ClassifierError] = []
    for known_input in facts.inputs:
        classifier.takes_pixels = known_input.pixels
        try:
            settled, scores = settle(classifier.name, options, known_input, trial)
        except ClassifierError as error:
            failures.append(error)
            continue
        if len(classifier.candidates) > 1:
            warn_user(several_outputs(classifier.name, len(classifier.candidates)))
        return _named(settled, facts.class_names, scores.shape[1]).finish(classifier, scores)
    raise failures[0]


def score_outputs(shapes: Sequence[Sequence[int | None]], options: Options) -> list[int]:
    """The outputs that have one score for each class, or else as many columns as the first table has; at least one."""
    tables: dict[int, int] = {}
    for number, shape in enumerate(shapes):
        columns = _columns(shape)
        if columns is not None:
            tables[number] = columns
    counts = [len(space) for space in (options.labels, options.default_labels) if space is not None]
    counts += tables.values()
    for count in counts:
        fitting = [number for number, columns in tables.items() if columns == count]
        if fitting:
            return fitting
    return [0]


def _columns(shape: Sequence[int | None]) -> int | None:
    """The number of values per image of an output that may be a table of scores; None for other outputs."""
    sizes = [size for size in shape[1:] if size != 1]
    if len(shape) < 2 or len(sizes) > 1:
        return None
    return sizes[0] if sizes else 1


def _named(options: Options, class_names: Sequence[str], outputs: int) -> Options:
    """The options with the classes that the file names, unless others are stated or their number is another."""
    are_names = len(class_names) == outputs == len(set(class_names))
    if options.labels is not None or not are_names:
        return options
    space, _ = recognise_names(list(class_names), own="labels")
    return replace(options, labels=space, sources={**options.sources, "labels": "file"})


def _observe(classifier: ModelFile, images: Pixels) -> None:
    """Note whether images have the same scores each time, and other scores in a batch than alone."""
    images = with_dark_images(images[::2])
    classifier.one_at_a_time = True
    alone = scores_alone(classifier.padded_forward, images)
    classifier.repeatable = is_repeatable(classifier.padded_forward, images, alone)
    classifier.one_at_a_time = False
    if classifier.repeatable and classifier.batch_size > 1:
        forward = classifier.padded_forward
        classifier.one_at_a_time = depends_on_neighbours(forward, images, alone, classifier.batch_size)


def not_one_image_input(name: str, found: str) -> ClassifierError:
    """The error about a file whose inputs are not one batch of images."""
    return ClassifierError(
        f"the input of {name} is not one batch of images",
        found=found,
        expected="one input: (N, C, H, W) or (N, H, W, C), C = 3 or 1",
        hint=OTHER_INPUTS,
    )
