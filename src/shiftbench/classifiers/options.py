"""Options of a loader besides the spec, the same for every kind of model; sidecars; and the one policy by which every
loader finds the preprocessing of a model (docs/models.md):

1. What the caller, a sidecar, the model file or its library state is used, in this order.
2. A stated input size is met by resizing both sides to it ("squash"), without a crop. Models with ImageNet's 1,000
   outputs and an input of at least 160 pixels follow torchvision instead: short side to 256/224 of it, centre crop.
3. An unknown input size is the size of the images if all of them have the same, of at most 224 pixels, and the model
   accepts it; otherwise, and for models with 1,000 outputs, short side to 256, centre crop 224.
4. Unknown mean and std are ImageNet's, on RGB in [0, 1]. Models that take uint8 pixels normalise for themselves.
5. Whatever is assumed is recorded (``Classifier.assumed``) and reported in one warning.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import BatchedClassifier, Classifier, Outputs
from shiftbench.classifiers.description import (
    GEOMETRY_FACTS,
    KEYS,
    NORMALISATION_FACTS,
    NORMALISATION_KEYS,
    PREPROCESSING_FACTS,
    Description,
    FactSource,
    description_text,
    flat_description,
    read_description,
    read_description_file,
    settled_by,
)
from shiftbench.classifiers.preprocessing import Layout, Normalisation, Preprocessing
from shiftbench.classifiers.samples import sample_images
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import ClassifierError, ResultWarning, argument, listed, shell_command
from shiftbench.io.schema import Count, check_keys, decode
from shiftbench.labels.catalogue import FOLDERS, LabelsArgument, find_label_space, label_space, label_spaces
from shiftbench.labels.space import LabelSpace, Scores

C = TypeVar("C", bound=Classifier)
#: The label space of a model whose classes nothing names.
UNKNOWN_CLASSES = "unknown"
Engine = Literal["auto", "onnxruntime", "torch"]
#: What a sidecar may contain.
_SIDECAR_KEYS = ("name", "labels", "preprocessing", "geometry", "normalisation", *KEYS)
#: Outputs of a model of ImageNet's classes, the smallest input for which torchvision's convention is likely, and the
#: largest images that are likely to be the input as they are.
IMAGENET_CLASSES, _SMALLEST_CROPPED, _LARGEST_UNTOUCHED = 1000, 160, 224

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
        own = self.default_labels
        return self.labels or (own if own is not None and own.name == FOLDERS else None)

    def trial_images(self, preprocessing: Preprocessing) -> Pixels:
        """Images to try a model on, in the size it will get: that of the data where nothing is resized or cropped."""
        own = self.image_size() if self.image_size is not None else None
        return sample_images(4, preprocessing.geometry.output or own or (224, 224))

    @classmethod
    def of(cls, labels: LabelsArgument, preprocessing: object, **others: Any) -> Options:
        """Options from keyword arguments, with names and files looked up."""
        checked = {key: others[key] for key in _Checked.__struct_fields__ if key in others}
        decode(checked, _Checked, "the options of the model", ClassifierError)
        space = find_label_space(labels)
        if isinstance(space, str):
            raise ClassifierError(f"{space!r} names the classes of a dataset, not of a model", expected="a label space")
        options = cls(labels=space, sources={} if space is None else {"labels": "given"}, **others)
        if preprocessing is None:
            return options
        from shiftbench.classifiers.configs import understood

        stated = understood(preprocessing)
        if isinstance(stated, Preprocessing):
            given: dict[str, FactSource] = dict.fromkeys(PREPROCESSING_FACTS, "given")
            return replace(options, preprocessing=stated, sources={**options.sources, **given})
        return replace(options, outputs=options.outputs or stated.outputs, described=((stated, "given"),))

    def over(self, base: Preprocessing, sources: FactSource | Mapping[str, FactSource] = "library") -> Options:
        """With the complete preprocessing: ``base``, and what the sidecar and the caller state in its place.

        ``sources``: who states ``base``, as a whole or each fact ("library" for the rest).
        """
        if self.preprocessing is not None:
            return self
        if isinstance(sources, str):
            sources = {**dict.fromkeys(PREPROCESSING_FACTS, sources), "layout": "library"}
        found: dict[str, FactSource] = {**dict.fromkeys(PREPROCESSING_FACTS, "library"), **sources}
        for description, source in self.described:
            base = description.over(base)
            found.update(dict.fromkeys(settled_by(description.stated), source))
        return replace(self, preprocessing=base, sources={**self.sources, **found})

    def finish(self, classifier: C, scores: Scores) -> C:
        """Give a classifier that was tried its preprocessing, label space and outputs, and note who states them."""
        assert self.preprocessing is not None
        classifier.preprocessing, classes = self.preprocessing, scores.shape[1]
        single = classes == 1 and len(self.labels or self.default_labels or ()) == 2
        if single and isinstance(classifier, BatchedClassifier):
            classifier.single_output, classes = True, 2
        fits = self.labels is not None or len(self.default_labels or ()) == classes or classes == IMAGENET_CLASSES
        if self.number_classes and not fits:
            classifier.space = LabelSpace(UNKNOWN_CLASSES, tuple(map(str, range(classes))))
        else:
            classifier.space = space_for(classifier.name, classes, self.labels, self.default_labels)
        likely = bool(((scores >= 0) & (scores <= 1)).all()) if single else looks_like_probabilities(scores)
        classifier.outputs = self.outputs or ("probabilities" if likely else "logits")
        noted: dict[str, FactSource] = {
            "labels": "library" if self.labels else "data" if classifier.space is self.default_labels else "measured",
            # A few logits of one output may lie between 0 and 1 by chance.
            "outputs": "given" if self.outputs is not None else "assumed" if single and likely else "measured",
        }
        classifier.sources = {**noted, **self.sources}
        return classifier


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
        raise UnknownOutputsError(
            f"{name} has {classes} outputs of unknown classes",
            found=None if default is None else f"{len(default)} classes in the data: {listed(default.names)}",
            expected=None if default is None else "as many outputs as classes, or named classes",
            hint="a model that returns a class number must return one score per class"
            if classes == 1
            else f"{argument('labels')} with the model's classes: a known label space, or a file of them in order",
        )
    if len(labels) != classes:
        raise ClassifierError(
            f"{name} and the label space {labels.name!r} differ in the number of classes",
            found=f"{classes} outputs",
            expected=f"{len(labels)} classes",
            hint=f"{argument('labels')} with all classes of the model, a background class too: a label space or a file",
        )
    return labels


def looks_like_probabilities(scores: NDArray[np.floating]) -> bool:
    """Rows of non-negative numbers that sum to one, or to 100 as percentages: a softmax is already inside."""
    sums = scores.sum(axis=1)
    return bool((scores >= 0).all() and any(np.allclose(sums, whole, atol=1e-3 * whole) for whole in (1, 100)))


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
    name, labels = content.pop("name", None), content.pop("labels", None)
    described = read_description({**content, **nested}, path.name)
    found: dict[str, Any] = {"described": ((described, "sidecar"), *options.described)}
    sources: dict[str, FactSource] = {}
    if options.labels is None and labels is not None:
        sources["labels"] = "sidecar"
        if isinstance(labels, list):
            own, keys = options.default_labels, tuple(map(str, labels))
            # The classes of the folders keep that name, so that results from before the sidecar are found again.
            same = own is not None and own.name == FOLDERS and own.keys == keys
            found["labels"] = LabelSpace(FOLDERS if same else path.name.split(".")[0], keys)
        else:
            beside = path.parent / str(labels)
            found["labels"] = label_space(str(beside) if beside.is_file() else str(labels))
    if options.outputs is None and described.outputs is not None:
        found["outputs"], sources["outputs"] = described.outputs, "sidecar"
    return replace(options, name=options.name or name, sources={**options.sources, **sources}, **found)


def new_sidecar(model: str, force: bool = False) -> Path:
    """The path of a sidecar that may be written: ``model.onnx.json``."""
    path = Path(f"{model}.json")
    if not Path(model).is_file():
        raise ClassifierError(f"{model} is not a file, so nothing can be written beside it", expected="a model file")
    if path.exists() and not force:
        raise ClassifierError(f"{path.name} exists", hint=f"edit it, or replace it with {argument('force', True)}")
    return path


def write_sidecar(model: str, classifier: Classifier, force: bool = False) -> Path:
    """State what is known about a model beside its file, where loaders find it."""
    path = new_sidecar(model, force)
    content: dict[str, object] = {} if classifier.name == Path(model).stem else {"name": classifier.name}
    if classifier.space.name in label_spaces:
        content["labels"] = classifier.space.name
    elif classifier.space.name != UNKNOWN_CLASSES:
        content["labels"] = list(classifier.space.keys)
    content["outputs"] = classifier.outputs
    if classifier.output is not None:
        content["output"] = classifier.output
    content |= flat_description(classifier.preprocessing, pixels=classifier.takes_pixels)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def sidecar_of(target: str | Path) -> Path | None:
    """The sidecar of a model file: ``model.onnx.json``, or ``model.json`` if it contains nothing else."""
    if (path := Path(f"{target}.json")).is_file():
        return path
    path = Path(target).with_suffix(".json")
    return path if path.is_file() and not foreign_keys(path) else None


def foreign_keys(path: Path) -> list[str]:
    """Why a JSON file is not a sidecar; empty for a sidecar."""
    try:
        content = read_description_file(path)
    except ClassifierError as error:
        return [str(error.found or error.message)]
    return [key for key in content if key not in _SIDECAR_KEYS] or ([] if content else ["no keys"])


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
    """What the shape of a batch says, with symbols for dynamic sides; two possibilities where it leaves the place of
    the channels open."""
    shape = [side if isinstance(side, int) and side > 0 else None for side in sides] or [None] * 4
    firsts: list[tuple[Layout, int | None]] = [("nchw", shape[1]), ("nhwc", shape[3])]
    stated = [one for one in firsts if one[1] == 3] or [one for one in firsts if one[1] == 1]
    source: FactSource = "file" if stated else "measured"
    found = []
    for layout, channels in stated[:1] or firsts:
        height, width = shape[2:] if layout == "nchw" else shape[1:3]
        size = (height, width) if height is not None and width is not None else None
        assumed = () if pixels else NORMALISATION_FACTS
        known = KnownInput(size, Normalisation(layout=layout), assumed, source, pixels)
        found.append(known.grey() if channels == 1 else known)
    return found


def settle(name: str, options: Options, known: KnownInput, trial: Trial) -> tuple[Options, Scores]:
    """The options with the complete preprocessing, and the scores of the trial that confirmed it."""
    if options.preprocessing is not None:
        return options, trial(options.preprocessing)
    stated = {key for description, _ in options.described for key in description.stated}
    if known.pixels and (vain := [key for key in NORMALISATION_KEYS if key in stated]):
        raise ClassifierError(
            f"{name} takes uint8 pixels and normalises for itself",
            found=", ".join(vain),
            expected="only size, resize, crop, interpolation and outputs",
        )
    size, images = known.size, options.image_size() if options.image_size is not None else None
    as_they_are = None if images is None else Geometry(resize=images, crop=None, resize_rule="exact")

    def over(geometry: Geometry) -> tuple[Options, Preprocessing]:
        sources: dict[str, FactSource] = {"layout": known.source, **dict.fromkeys(known.assumed, "assumed")}
        # Images of the size that is stated are not resized.
        sources |= dict.fromkeys(GEOMETRY_FACTS, known.source if size is not None and images == size else "assumed")
        if geometry == as_they_are:
            sources["interpolation"] = "library"  # not used
        chosen = options.over(Preprocessing(geometry, known.normalisation), sources)
        assert chosen.preprocessing is not None
        return chosen, chosen.preprocessing

    if size is not None:
        candidates = [Geometry(resize=size, crop=None, resize_rule="exact")]
    elif as_they_are is None or images is None:
        candidates = [Geometry()]
    else:
        candidates = [as_they_are, Geometry()] if max(images) <= _LARGEST_UNTOUCHED else [Geometry(), as_they_are]
    failures: list[ClassifierError] = []
    for geometry in candidates:
        chosen, preprocessing = over(geometry)
        try:
            scores = trial(preprocessing)
            break
        except ClassifierError as error:
            failures.append(error)
    else:
        raise failures[0]
    if scores.shape[1] != IMAGENET_CLASSES:
        return chosen, scores
    if size is not None and (min(size) < _SMALLEST_CROPPED or size == images or size[0] != size[1]):
        return chosen, scores
    # Torchvision's resize and crop for models of ImageNet's classes, where the model accepts them.
    usual = Geometry() if size is None else Geometry(resize=round(size[0] * 256 / 224), crop=size[0])
    other, wanted = over(usual)
    if wanted.geometry.output == preprocessing.geometry.output:
        return other, scores
    try:
        return other, trial(wanted)
    except ClassifierError:
        return chosen, scores


def assumed_warning(classifier: Classifier) -> ResultWarning | None:
    """One warning about everything that was assumed about a model, with the option that states it."""
    assumed = set(classifier.assumed)
    if not assumed:
        return None
    usual = {"resize": "squash", "crop": "none", "interpolation": "bilinear"}
    if {"mean", "std"} <= assumed:
        usual |= {"scale": "1/255", "colour": "rgb"}
    flat = flat_description(classifier.preprocessing, pixels=classifier.takes_pixels)
    words = {key: value for key, value in flat.items() if settled_by([key]) & assumed and usual.get(key) != value}
    words |= {key: getattr(classifier, key) for key in ("output", "outputs") if key in assumed}
    stated = argument("preprocessing", description_text(words), flag="--preprocess")
    what = "the output with the scores" if assumed == {"output"} else "preprocessing"
    text = f"{classifier.name}: assumed {what}; scores are wrong if the model was trained with another. Confirm or "
    text += f"correct it: {stated}"
    if classifier.origin is not None and Path(file := classifier.origin[0]).is_file():
        describe = shell_command("describe", file.removeprefix(f"{Path.cwd()}/"), "--write")
        text += f"; `{describe}` saves it next to the model"
    return ResultWarning(text, "assumed-preprocessing")
