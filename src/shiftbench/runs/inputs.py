"""The datasets and models of a run, and whose classes are whose.

Labels that the user gives are the classes of data and models. Otherwise a model that names its classes is matched with
the data by name. One that names none has the classes of the data if it has as many outputs: folders in sorted order, as
most training code numbers them. The guard looks at the predictions all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.errors import ResultWarning, UnknownClassesError, argument, listed
from shiftbench.labels.catalogue import FOLDERS
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import LabelSpace
from shiftbench.settings.base import Suite
from shiftbench.settings.roles import Data, Selection, open_data

#: Loads the models, by name, with the classes that the user gave or those of the data, for the images of datasets.
LoadModels = Callable[[LabelSpace | None, LabelSpace | None, Sequence[Dataset]], dict[str, Classifier]]


@dataclass(frozen=True)
class Inputs:
    """Datasets by ``Setting.dataset``, models by name, settings left out with the reason, and what was assumed."""

    datasets: dict[str, Dataset]
    classifiers: dict[str, Classifier]
    left_out: dict[str, str]
    notes: list[ResultWarning]


def open_inputs(
    suite: Suite,
    data: Data,
    labels: LabelSpace | str | None,
    load: LoadModels,
    *,
    selection: Selection | None = None,
    allow_outside: bool = False,
) -> Inputs:
    """Open the data, load the models, and match their classes."""

    def opened(space: LabelSpace | str | None) -> tuple[dict[str, Dataset], dict[str, str]]:
        return open_data(suite, data, space=space, selection=selection, allow_outside=allow_outside)

    unknown: UnknownClassesError | None = None
    try:
        datasets, left_out = opened(labels)
    except UnknownClassesError as error:
        if labels is not None:
            raise
        unknown = error
        datasets, left_out = opened(FOLDERS)
    # Groups of other classes are those of the data; a model has their members.
    given = labels if isinstance(labels, LabelSpace) and labels.members is None else None
    own = next((dataset.space for dataset in datasets.values()), None)
    classifiers = load(given, own, list(datasets.values()))
    if own is None or (unknown is None and labels != FOLDERS):
        return Inputs(datasets, classifiers, left_out, [])
    other = _other_classes(own, [classifier.space for classifier in classifiers.values()])
    if other is not None:
        datasets, left_out = opened(other)
    notes = [] if unknown is None else [_note(own, other)]
    return Inputs(datasets, classifiers, left_out, notes)


def _other_classes(own: LabelSpace, spaces: Sequence[LabelSpace]) -> LabelSpace | None:
    """The models' classes, if none of them has the data's: folders then name some of them."""
    return next(iter(spaces), None) if all(set(space.keys) != set(own.keys) for space in spaces) else None


def _note(own: LabelSpace, other: LabelSpace | None) -> ResultWarning:
    """Which class each folder is taken for."""
    if other is None:
        shown = listed([f"{i} = {key}" for i, key in enumerate(own.keys)], 6)
        text = f"the classes are the {len(own)} class folders in sorted order: {shown}"
        return ResultWarning(f"{text}; {argument('labels', FOLDERS)} confirms this", "own-classes")
    _, index = recognise_folders(own.keys, other)
    shown = listed([f"{folder} = {other.names[i]} ({i})" for folder, i in index.items()], 6)
    return ResultWarning(f"the {len(own)} class folders are classes of {other.name!r}, by name: {shown}", "own-classes")
