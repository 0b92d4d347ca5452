"""Options of a loader besides the spec, the same for every kind of model; sidecars; and how preprocessing is found.

Every loader finds the preprocessing of a model by the same policy (docs/models.md):

1. What the caller, a sidecar, the model file or its library state is used, in this order.
2. A stated input size is met by resizing both sides to it ("squash"), without a crop. Models with ImageNet's 1,000
   outputs and an input of at least 160 pixels follow torchvision instead: short side to 256/224 of it, centre crop.
3. An unknown input size is the size of the images if all of them have the same, of at most 224 pixels, and the model
   accepts it; otherwise, and for models with 1,000 outputs, short side to 256, centre crop 224.
4. Unknown mean and std are ImageNet's, on RGB in [0, 1]. Models that take uint8 pixels normalise for themselves.
5. Whatever nobody states is assumed: recorded (``Classifier.assumed``), marked, and reported in one warning. That holds
   for each fact by itself: an input size states no filter, mean and std state no order of the channels.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import BatchedClassifier, Classifier, Outputs
from shiftbench.classifiers.description import (
    DECODING_FACTS,
    GEOMETRY_FACTS,
    KEYS,
    NORMALISATION_FACTS,
    NORMALISATION_KEYS,
    PREPROCESSING_FACTS,
    Description,
    FactSource,
    assumed_keys,
    description_text,
    flat_description,
    given_or_assumed,
    preprocessing_values,
    read_description,
    read_description_file,
)
from shiftbench.classifiers.preprocessing import Layout, Normalisation, Preprocessing
from shiftbench.datasets.geometry import Geometry
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError, ResultWarning, argument, listed, shell_command
from shiftbench.io.atomic import write_bytes
from shiftbench.io.schema import Count, check_keys, decode
from shiftbench.labels.catalogue import FOLDERS, LabelsArgument, find_label_space, label_space, label_spaces
from shiftbench.labels.space import LabelSpace, Scores

C = TypeVar("C", bound=Classifier)
#: The label space of a model whose classes nothing names.
UNKNOWN_CLASSES = "unknown"
Engine = Literal["auto", "onnxruntime", "torch"]
#: What a sidecar may contain.
_SIDECAR_KEYS = ("name", "labels", "preprocessing", "geometry", "normalisation", *KEYS)
#: Outputs of a model of ImageNet's classes.
IMAGENET_CLASSES = 1000
#: The smallest input for which torchvision's convention (resize, then crop) is likely.
_SMALLEST_CROPPED = 160
#: The largest images that are likely to be the input of a model as they are.
_LARGEST_UNTOUCHED = 224

#: Scores of a few images under a preprocessing; a ClassifierError if the model does not accept them.
Trial = Callable[[Preprocessing], Scores]


class _Checked(Struct):
    """The options with values that a user may get wrong."""

    engine: Engine = "auto"
    name: str | None = None
    outputs: Outputs | None = None
    threads: Count | None = None
    batch_size: Count | None = None


@dataclass(frozen=True)
class Options:
    """The keyword arguments of ``load_classifier``, and what is known about the preprocessing so far.

    Attributes:
        labels: Label space of the outputs.
        default_labels: The classes of a model that names none and has as many outputs.
        preprocessing: The complete preprocessing, once it is known: a loader completes it by ``over``.
        name: The name that tables and provenance show.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
        engine: The engine that is to run the model.
        trust: Whether files that can run code may be loaded.
        threads: Threads per model; default: chosen by the engine.
        batch_size: Images per call; default: the model's own.
        outputs: ``"logits"`` or ``"probabilities"``.
        pretrained: Whether named models get their trained weights.
        stateful: Whether the model changes while it runs, or mixes the images of a batch, on purpose.
        check_images: Images in the model's geometry on which a faster engine must agree with the original.
        number_classes: Number the classes of a model whose classes nothing names, instead of raising an error.
        described: What is stated about the preprocessing, and by whom; later ones prevail.
        sources: Who states each fact.
        image_size: Gives (height, width) of the images to be classified, if all have the same.
    """

    labels: LabelSpace | None = None
    default_labels: LabelSpace | None = None
    preprocessing: Preprocessing | None = None
    name: str | None = None
    device: str = "auto"
    engine: Engine = "auto"
    trust: bool = False
    threads: int | None = None
    batch_size: int | None = None
    outputs: Outputs | None = None
    pretrained: bool = True
    stateful: bool = False
    check_images: Pixels | None = None
    number_classes: bool = False
    described: tuple[tuple[Description, FactSource], ...] = ()
    sources: Mapping[str, FactSource] = field(default_factory=dict)
    image_size: Callable[[], tuple[int, int] | None] | None = None

    @property
    def own_labels(self) -> LabelSpace | None:
        """The asked-for classes, or a dataset's own. A known dataset's are a guess: its model may have more."""
        if self.labels:
            return self.labels
        if self.default_labels is not None and self.default_labels.name == FOLDERS:
            return self.default_labels
        return None

    def common_image_size(self) -> tuple[int, int] | None:
        """(height, width) of the images to be classified; None if they differ, or are not known."""
        if self.image_size is None:
            return None
        return self.image_size()

    def trial_images(self, preprocessing: Preprocessing) -> Pixels:
        """Images to try a model on, in the size it will get: that of the data where nothing is resized or cropped."""
        return sample_images(4, preprocessing.geometry.output or self.common_image_size() or (224, 224))

    @classmethod
    def of(cls, labels: LabelsArgument, preprocessing: object, **arguments: Any) -> Options:
        """Options from keyword arguments, with names and files looked up."""
        checked = {key: arguments[key] for key in _Checked.__struct_fields__ if key in arguments}
        decode(checked, _Checked, "the options of the model", ClassifierError)
        space = find_label_space(labels)
        if isinstance(space, str):
            raise ClassifierError(f"{space!r} names the classes of a dataset, not of a model", expected="a label space")
        sources: dict[str, FactSource] = {}
        if space is not None:
            sources["labels"] = "given"
        options = cls(labels=space, sources=sources, **arguments)
        if preprocessing is None:
            return options
        from shiftbench.classifiers.configs import understood

        stated = understood(preprocessing)
        if isinstance(stated, Preprocessing):
            sources |= dict.fromkeys(PREPROCESSING_FACTS, "given")
            return replace(options, preprocessing=stated, sources=sources)
        return replace(options, outputs=options.outputs or stated.outputs, described=((stated, "given"),))

    def over(self, base: Preprocessing, sources: FactSource | Mapping[str, FactSource] = "library") -> Options:
        """With the complete preprocessing: ``base``, and what the sidecar and the caller state in its place.

        ``sources`` is who states ``base``, either one source or a source of each fact ("library" for those that are
        left out). The entry "size" says who states the size of the input.
        """
        if self.preprocessing is not None:
            return self
        noted: dict[str, FactSource] = dict.fromkeys(PREPROCESSING_FACTS, "library")
        if isinstance(sources, str):
            noted |= dict.fromkeys((*GEOMETRY_FACTS, *NORMALISATION_FACTS), sources)
        else:
            noted |= sources
        for description, source in self.described:
            before = preprocessing_values(base)
            base = description.over(base)
            # A value that follows from a rule, not from a word of the description, is an assumption.
            changed = {fact for fact, value in preprocessing_values(base).items() if value != before[fact]}
            noted |= dict.fromkeys(changed | description.facts, "assumed")
            noted |= dict.fromkeys(description.stated_facts, source)
            if "size" in description.keys:
                noted["size"] = source if "size" in description.stated else "assumed"
        noted |= self._settled_by_images(base.geometry, noted)
        return replace(self, preprocessing=base, sources={**self.sources, **noted})

    def _settled_by_images(self, geometry: Geometry, sources: Mapping[str, FactSource]) -> dict[str, FactSource]:
        """Assumed facts of the geometry that make no difference, because of the size that all images have."""
        open_facts = {fact for fact in GEOMETRY_FACTS if sources[fact] == "assumed"}
        if not open_facts:
            return {}
        image_size = self.common_image_size()
        if image_size is None:
            return {}
        settled: dict[str, FactSource] = {}
        height, width = image_size
        if geometry.exif == "apply" and height != width:  # images that are turned have another size
            return {}
        if "interpolation" in open_facts and geometry.target(width, height) == (width, height):
            settled["interpolation"] = "data"
        # All ways to resize an image to a stated size agree if the image has the same ratio of sides.
        size_source = sources.get("size", "assumed")
        if size_source in ("given", "sidecar") and geometry.output is not None:
            input_height, input_width = geometry.output
            if input_height * width == input_width * height:
                settled |= dict.fromkeys(open_facts & {"resize", "crop"}, size_source)
        return settled

    def finish(self, classifier: C, scores: Scores) -> C:
        """Give a classifier that was tried its preprocessing, label space and outputs, and note who states them."""
        assert self.preprocessing is not None
        classifier.preprocessing = self.preprocessing
        classes = scores.shape[1]
        is_single = classes == 1 and len(self.labels or self.default_labels or ()) == 2
        if is_single and isinstance(classifier, BatchedClassifier):
            classifier.single_output = True
            classes = 2
        classifier.space = self._space(classifier.name, classes)
        noted: dict[str, FactSource] = {"labels": "measured"}
        if self.labels:
            noted["labels"] = "library"
        elif classifier.space is self.default_labels:
            noted["labels"] = "data"
        classifier.outputs, noted["outputs"] = self._outputs(scores, is_single)
        classifier.sources = {**noted, **self.sources}
        return classifier

    def _outputs(self, scores: Scores, is_single: bool) -> tuple[Outputs, FactSource]:
        """Whether the outputs of a model are logits or probabilities, and the source of that fact."""
        if self.outputs is not None:
            return self.outputs, "given"
        if is_single and ((scores >= 0) & (scores <= 1)).all():
            # This is an assumption, since a few logits of one output may lie between 0 and 1 by chance.
            return "probabilities", "assumed"
        if not is_single and looks_like_probabilities(scores):
            return "probabilities", "measured"
        if not is_single and looks_like_sigmoids(scores):
            # This is an assumption, too. Read as logits, confidences would be far too low.
            return "probabilities", "assumed"
        return "logits", "measured"

    def _space(self, name: str, classes: int) -> LabelSpace:
        """The label space of a model with this number of classes."""
        fits = self.labels is not None or len(self.default_labels or ()) == classes or classes == IMAGENET_CLASSES
        if self.number_classes and not fits:
            return LabelSpace(UNKNOWN_CLASSES, tuple(map(str, range(classes))))
        return space_for(name, classes, self.labels, self.default_labels)


class UnknownOutputsError(ClassifierError):
    """Nothing names the classes of a model's outputs."""


def existing_file(path: str | Path) -> Path:
    path = Path(path)
    if not path.is_file():
        raise ClassifierError(f"file not found: {path}")
    return path


def space_for(name: str, classes: int, labels: LabelSpace | None, default: LabelSpace | None = None) -> LabelSpace:
    """The asked-for label space if it fits ``classes`` outputs; else the default if it fits; else ImageNet's."""
    if labels is None:
        if default is not None and len(default) == classes:
            return default
        if classes == IMAGENET_CLASSES:
            return label_space("imagenet-1k")
        raise _unknown_outputs(name, classes, default)
    if len(labels) != classes:
        raise ClassifierError(
            f"{name} and the label space {labels.name!r} differ in the number of classes",
            found=f"{classes} outputs",
            expected=f"{len(labels)} classes",
            hint=f"{argument('labels')} with all classes of the model, a background class too: a label space or a file",
        )
    return labels


def _unknown_outputs(name: str, classes: int, default: LabelSpace | None) -> UnknownOutputsError:
    """The error about a model whose outputs nothing names; ``default`` are the classes in the data."""
    classes_in_data = None
    expected = None
    if default is not None:
        classes_in_data = f"{len(default)} classes in the data: {listed(default.names)}"
        expected = "as many outputs as classes, or named classes"
    hint = f"{argument('labels')} with the model's classes: a known label space, or a file of them in order"
    if classes == 1:
        hint = "a model that returns a class number must return one score per class"
    return UnknownOutputsError(
        f"{name} has {classes} outputs of unknown classes",
        found=classes_in_data,
        expected=expected,
        hint=hint,
    )


def looks_like_probabilities(scores: NDArray[np.floating]) -> bool:
    """Whether all rows are non-negative and sum to one, or to 100 as percentages: a softmax is already inside."""
    if not (scores >= 0).all():
        return False
    sums = scores.sum(axis=1)
    return any(np.allclose(sums, total, atol=1e-3 * total) for total in (1, 100))


def looks_like_sigmoids(scores: NDArray[np.floating]) -> bool:
    """Whether all scores lie between 0 and 1 and are not all the same, as the outputs of one sigmoid per class."""
    return bool(scores.size and scores.min() >= 0 and scores.max() <= 1 and scores.max() > scores.min())


# -- sidecars --------------------------------------------------------------------------------------------------------


def with_sidecar(target: str, options: Options) -> Options:
    """Fill options that the caller left open from the file beside a model, if there is one.

    ``model.onnx.json`` (or ``model.json``) describes what ``model.onnx`` does not contain: any of ``name``, ``labels``
    (the name of a label space, a file beside it, or a list of classes) and the keys of ``Description``.
    """
    path = sidecar_of(target)
    if path is None:
        return options
    content = read_description_file(path)
    check_keys(content, _SIDECAR_KEYS, path.name, ClassifierError)
    nested = content.pop("preprocessing", None) or {}
    if not isinstance(nested, Mapping):
        message = f"invalid value of preprocessing in {path.name}"
        raise ClassifierError(message, found=repr(nested), expected="an object")
    name = content.pop("name", None)
    labels = content.pop("labels", None)
    description = read_description({**content, **nested}, path.name)
    changes: dict[str, Any] = {"described": ((description, "sidecar"), *options.described)}
    sources: dict[str, FactSource] = {}
    if options.labels is None and labels is not None:
        sources["labels"] = "sidecar"
        changes["labels"] = _sidecar_labels(path, labels, options)
    if options.outputs is None and description.outputs is not None:
        changes["outputs"] = description.outputs
        sources["outputs"] = "sidecar" if "outputs" in description.stated else "assumed"
    return replace(options, name=options.name or name, sources={**options.sources, **sources}, **changes)


def _sidecar_labels(path: Path, labels: object, options: Options) -> LabelSpace:
    """The label space that a sidecar names, lists, or has in a file beside it."""
    if not isinstance(labels, list):
        labels_file = path.parent / str(labels)
        if labels_file.is_file():
            return label_space(str(labels_file))
        return label_space(str(labels))
    keys = tuple(map(str, labels))
    folders = options.default_labels
    # The classes of the folders keep that name, so that results from before the sidecar are found again.
    if folders is not None and folders.name == FOLDERS and folders.keys == keys:
        return LabelSpace(FOLDERS, keys)
    return LabelSpace(path.name.split(".")[0], keys)


def new_sidecar(model: str, force: bool = False) -> Path:
    """The path of a sidecar that may be written: ``model.onnx.json``."""
    path = Path(f"{model}.json")
    if not Path(model).is_file():
        raise ClassifierError(f"{model} is not a file, so nothing can be written beside it", expected="a model file")
    if (path.exists() or path.is_symlink()) and not force:
        raise ClassifierError(f"{path.name} exists", hint=f"edit it, or replace it with {argument('force', True)}")
    return path


def write_sidecar(model: str, classifier: Classifier, force: bool = False) -> Path:
    """Write down what is known about a model beside its file, where loaders find it.

    Values that are assumed are written, too, and listed under ``assumed``: they stay assumptions until someone states
    them.
    """
    path = new_sidecar(model, force)
    content = sidecar_content(model, classifier)
    text = json.dumps(content, indent=2) + "\n"
    write_bytes(path, text.encode())  # The model may be a stranger's, and a link beside it is replaced, not followed.
    return path


def sidecar_content(model: str | Path, classifier: Classifier) -> dict[str, object]:
    """What is known about a model, as a sidecar has it; values that are assumed are listed under ``assumed``."""
    content: dict[str, object] = {}
    if classifier.name != Path(model).stem:
        content["name"] = classifier.name
    if classifier.space.name in label_spaces:
        content["labels"] = classifier.space.name
    elif classifier.space.name != UNKNOWN_CLASSES:
        content["labels"] = list(classifier.space.keys)
    content["outputs"] = classifier.outputs
    if classifier.output is not None:
        content["output"] = classifier.output
    content |= _described(classifier)
    assumed = assumed_keys(content, classifier.sources)
    if assumed:
        content["assumed"] = assumed
    return content


def _described(classifier: Classifier) -> dict[str, object]:
    """The preprocessing of a model in the flat vocabulary, with what is stated about image files."""
    flat = flat_description(classifier.preprocessing, pixels=classifier.takes_pixels)
    stated = [key for key in DECODING_FACTS if key in classifier.stated]
    return flat | {key: getattr(classifier.preprocessing.geometry, key) for key in stated}


def sidecar_of(target: str | Path) -> Path | None:
    """The sidecar of a model file: ``model.onnx.json``, or ``model.json`` if it contains nothing else."""
    path = Path(f"{target}.json")
    if path.is_file():
        return path
    path = Path(target).with_suffix(".json")
    if path.is_file() and not foreign_keys(path):
        return path
    return None


def foreign_keys(path: Path) -> list[str]:
    """Why a JSON file is not a sidecar; empty for a sidecar."""
    try:
        content = read_description_file(path)
    except ClassifierError as error:
        return [str(error.found or error.message)]
    if not content:
        return ["no keys"]
    return [key for key in content if key not in _SIDECAR_KEYS]


# -- the policy ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KnownInput:
    """What a loader knows about a model's input before it has run it."""

    size: tuple[int, int] | None = None  #: (height, width), if the file or the library states it.
    normalisation: Normalisation = field(default_factory=Normalisation)
    assumed: tuple[str, ...] = NORMALISATION_FACTS  #: Facts of the normalisation that nothing states.
    source: FactSource = "file"  #: Who states the size and the layout.
    pixels: bool = False  #: The model takes uint8 pixels and normalises for itself.

    def grey(self) -> KnownInput:
        """The same with one channel, which then is not assumed."""
        assumed = tuple(fact for fact in self.assumed if fact != "colour order")
        return replace(self, normalisation=replace(self.normalisation, colour_order="grey"), assumed=assumed)


def known_inputs(sides: Sequence[object], pixels: bool = False) -> list[KnownInput]:
    """What the shape of a batch says about the input of a model; dynamic sides are symbols.

    There are two possibilities if the shape does not show which side holds the channels.
    """
    shape = [side if isinstance(side, int) and side > 0 else None for side in sides]
    if not shape:
        shape = [None] * 4
    possible = [
        _ShapeReading("nchw", channels=shape[1], height=shape[2], width=shape[3]),
        _ShapeReading("nhwc", channels=shape[3], height=shape[1], width=shape[2]),
    ]
    source: FactSource = "measured"
    # Three channels are more likely than one, where both sides could be the channels.
    for channels in (3, 1):
        stated = [reading for reading in possible if reading.channels == channels]
        if stated:
            source = "file"
            possible = stated[:1]
            break
    assumed = ("colour order",) if pixels else NORMALISATION_FACTS
    inputs = []
    for reading in possible:
        known_input = KnownInput(reading.size, Normalisation(layout=reading.layout), assumed, source, pixels)
        inputs.append(known_input.grey() if reading.channels == 1 else known_input)
    return inputs


class _ShapeReading(NamedTuple):
    """What the sides of a batch mean in one layout; None where a side is not stated."""

    layout: Layout
    channels: int | None
    height: int | None
    width: int | None

    @property
    def size(self) -> tuple[int, int] | None:
        if self.height is None or self.width is None:
            return None
        return self.height, self.width


def settle(name: str, options: Options, known_input: KnownInput, trial: Trial) -> tuple[Options, Scores]:
    """The options with the complete preprocessing, and the scores of the trial that confirmed it."""
    if options.preprocessing is not None:
        return options, trial(options.preprocessing)
    _check_pixel_keys(name, options, known_input)
    image_size = options.common_image_size()
    size = known_input.size
    settled, scores = _first_accepted(options, known_input, _likely_geometries(size, image_size), trial)
    if scores.shape[1] != IMAGENET_CLASSES:
        return settled, scores
    if size is not None and (min(size) < _SMALLEST_CROPPED or size == image_size or size[0] != size[1]):
        return settled, scores
    # Models of ImageNet's classes get torchvision's resize and crop, if they accept them.
    usual_geometry = Geometry()
    if size is not None:
        usual_geometry = Geometry(resize=round(size[0] * 256 / 224), crop=size[0])
    cropped = _with_geometry(options, known_input, usual_geometry)
    assert settled.preprocessing is not None and cropped.preprocessing is not None
    if cropped.preprocessing.geometry.output == settled.preprocessing.geometry.output:
        return cropped, scores
    try:
        return cropped, trial(cropped.preprocessing)
    except ClassifierError:
        return settled, scores


def _check_pixel_keys(name: str, options: Options, known_input: KnownInput) -> None:
    """Raise ClassifierError if a normalisation is stated for a model that takes uint8 pixels and would ignore it."""
    stated: set[str] = set()
    for description, _ in options.described:
        stated |= description.stated
    useless = [key for key in NORMALISATION_KEYS if key in stated and key != "colour"]
    if known_input.pixels and useless:
        raise ClassifierError(
            f"{name} takes uint8 pixels and normalises for itself",
            found=", ".join(useless),
            expected="only size, resize, crop, interpolation, colour, exif, alpha and outputs",
        )


def _likely_geometries(size: tuple[int, int] | None, images: tuple[int, int] | None) -> list[Geometry]:
    """The geometries to try, most likely first, by the size that the model states and the one that all images have."""
    if size is not None:
        return [Geometry(resize=size, crop=None, resize_rule="exact")]
    if images is None:
        return [Geometry()]
    as_they_are = Geometry(resize=images, crop=None, resize_rule="exact")
    if max(images) <= _LARGEST_UNTOUCHED:
        return [as_they_are, Geometry()]
    return [Geometry(), as_they_are]


def _first_accepted(
    options: Options, known_input: KnownInput, geometries: Sequence[Geometry], trial: Trial
) -> tuple[Options, Scores]:
    """The first geometry that the model accepts; the error of the likeliest one if it accepts none."""
    failures: list[ClassifierError] = []
    for geometry in geometries:
        settled = _with_geometry(options, known_input, geometry)
        assert settled.preprocessing is not None
        try:
            return settled, trial(settled.preprocessing)
        except ClassifierError as error:
            failures.append(error)
    raise failures[0]


def _with_geometry(options: Options, known_input: KnownInput, geometry: Geometry) -> Options:
    """The options with the preprocessing that starts from this geometry."""
    size_source: FactSource = "assumed"
    geometry_source: FactSource = "assumed"
    if known_input.size is not None:
        size_source = known_input.source
        # Images of the size that is stated are neither resized nor cropped.
        if options.common_image_size() == known_input.size:
            geometry_source = known_input.source
    sources: dict[str, FactSource] = {"layout": known_input.source}
    sources |= dict.fromkeys(known_input.assumed, "assumed")
    if known_input.normalisation.colour_order == "grey":
        # A single channel has no order.
        sources["colour order"] = known_input.source
    sources["size"] = size_source
    sources |= dict.fromkeys(GEOMETRY_FACTS, geometry_source)
    return options.over(Preprocessing(geometry, known_input.normalisation), sources)


def assumed_warning(classifier: Classifier) -> ResultWarning | None:
    """One warning about everything that was assumed about a model, with the option that states it."""
    assumed = classifier.assumed
    if not assumed:
        return None
    words = given_or_assumed(_described(classifier), classifier.sources)
    words |= {key: getattr(classifier, key) for key in ("output", "outputs") if key in assumed}
    option = argument("preprocessing", description_text(words), flag="--preprocess")
    names = ["the output with the scores" if fact == "output" else fact for fact in assumed]
    text = f"{classifier.name}: nobody states {_enumeration(names)}, so the usual is assumed; scores are wrong if the "
    text += f"model was trained otherwise. Confirm or correct it: {option}"
    if classifier.origin is not None and Path(classifier.origin[0]).is_file():
        file = classifier.origin[0].removeprefix(f"{Path.cwd()}/")
        write_arguments = ["describe", file, "--write"]
        if Path(f"{file}.json").exists():
            write_arguments.append("--force")
        text += f" (the same option of `{shell_command(*write_arguments)}` saves it next to the "
        text += f"model; `{shell_command('doctor', file, '--data', 'IMAGES')}` tests it)"
    return ResultWarning(text, "assumed-preprocessing")


def several_outputs(name: str, count: int) -> ResultWarning:
    """The warning about a model of which several outputs could hold the scores."""
    return ResultWarning(
        f"{name} has {count} outputs with one score for each class, and the first of them is used. If another one is "
        "meant, export the model with that output alone",
        "several-outputs",
    )


def _enumeration(names: Sequence[str]) -> str:
    """
    >>> _enumeration(["mean", "std", "scale"])
    'mean, std and scale'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
