"""The most confident mistakes of every classifier in every setting, as words and, where they are at hand, pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from shiftbench.errors import ShiftbenchError
from shiftbench.jobs.progress import Advance
from shiftbench.reports.page.albums import Album
from shiftbench.reports.page.own import judged_by_image
from shiftbench.reports.page.payload import Failure, FailureList
from shiftbench.reports.page.pictures import PictureFinder, Recipe
from shiftbench.reports.page.shifted import rebuild_shift
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result, Workspace

#: How many mistakes of a classifier in a setting are shown: so many at most, and so many on the whole page.
_MOST, _LEAST, _MOST_OF_ALL = 12, 3, 3000
_MADE_TOGETHER = 32
_FEWER = (
    "only the most confident mistakes of each classifier are shown, so that the page stays small: "
    "--failures N shows N in each setting"
)


#: (original, as the classifier saw it); None where there is no such picture.
Recipes = tuple[Recipe | None, Recipe | None]


@dataclass
class Draft:
    """One list of mistakes, before its pictures are made."""

    title: str
    result: Result
    total: int
    failures: list[Failure]
    #: One pair a mistake.
    recipes: list[Recipes] = field(default_factory=list)

    @property
    def shifted(self) -> bool:
        return self.result.spec.shift.kind != "none"

    def payload(self) -> FailureList:
        return {
            "model": self.title,
            "setting": self.result.setting,
            "total": self.total,
            "images": self.failures,
        }


def default_length(lists: int) -> int:
    """How long lists of mistakes are, if so many of them stand on a page and nobody said.

    >>> default_length(100), default_length(500), default_length(10_000)
    (12, 6, 3)
    """
    return max(_LEAST, min(_MOST, _MOST_OF_ALL // max(1, lists)))


def draft_failures(
    workspace: Workspace,
    results: Sequence[Result],
    titles: Mapping[str, str],
    finder: PictureFinder,
    *,
    most: int,
    advance: Advance = lambda count: None,
) -> tuple[list[Draft], list[str]]:
    """A list for each result with mistakes, and what the page must say about them."""
    drafts: list[Draft] = []
    notes: dict[str, None] = {}
    for same in _by_images(result for result in results if judged_by_image(result)):
        read = [workspace.read(result, top_k=1, scores=False) for result in same]
        wrong = np.sum([_wrong(one) for one in read], axis=0)
        of = np.sum([one.valid for one in read], axis=0)
        for result, predictions in zip(same, read, strict=True):
            draft = _draft(titles[result.key], result, predictions, wrong, of, most)
            recipes = _recipe_book(finder, result, notes)
            draft.recipes = [recipes(failure["id"]) for failure in draft.failures]
            drafts += [draft] if draft.failures else []
        advance(len(same))
    return drafts, [*finder.notes, *notes]


def illustrate(drafts: Sequence[Draft], album: Album, advance: Advance = lambda count: None) -> list[str]:
    """Put the pictures into the album until it is full; the answer says if it was.

    Settings without a shift come first. All take turns: the most confident mistake of each classifier in each
    setting before the second of any. A mistake whose picture is at hand but finds no room is left out: people
    look at these lists, they do not read them.
    """
    plain, shifted = ([d for d in drafts if d.shifted is kind] for kind in (False, True))
    all_turns = chain(_in_turn(plain), _in_turn(shifted))
    while not album.full and (turns := list(islice(all_turns, _MADE_TOGETHER))):
        wanted = [recipe for draft, i in turns for recipe in draft.recipes[i] if recipe is not None]
        places = iter(album.place(wanted))
        for draft, i in turns:
            original, seen = (None if recipe is None else next(places) for recipe in draft.recipes[i])
            draft.failures[i]["original"], draft.failures[i]["shifted"] = original, seen
        advance(len(turns))
    left = list(all_turns)
    advance(len(left))
    without_room = [(draft, i) for draft, i in left if any(draft.recipes[i])]
    for draft, i in reversed(without_room):
        del draft.failures[i], draft.recipes[i]
    return [_FEWER] if without_room else []


def _in_turn(drafts: Sequence[Draft]) -> Iterator[tuple[Draft, int]]:
    longest = max((len(draft.failures) for draft in drafts), default=0)
    return ((draft, i) for i in range(longest) for draft in drafts if i < len(draft.failures))


def _by_images(results: Iterable[Result]) -> list[list[Result]]:
    """Cells of one setting on the same images, made the same way: their mistakes can be counted together."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        key = (result.setting, result.spec.dataset.fingerprint, result.spec.provenance)
        groups.setdefault(key, []).append(result)
    return list(groups.values())


def _wrong(predictions: Predictions) -> NDArray[np.bool_]:
    return np.asarray(predictions.valid & (predictions.top[:, 0] != predictions.labels))


def _draft(
    title: str, result: Result, predictions: Predictions, wrong: NDArray[np.int_], of: NDArray[np.int_], most: int
) -> Draft:
    rows = np.flatnonzero(_wrong(predictions))
    # The most confident first; pictures without a confidence come last, equal ones in the order of the data set.
    order = np.argsort(-np.nan_to_num(predictions.confidence[rows], nan=-1.0), kind="stable")
    names = predictions.space.names
    failures: list[Failure] = [
        {
            "id": predictions.ids[row],
            "label": names[predictions.labels[row]],
            "prediction": names[predictions.top[row, 0]],
            "confidence": _share(predictions.confidence[row]),
            "original": None,
            "shifted": None,
            "wrong": int(wrong[row]),
            "of": int(of[row]),
        }
        for row in rows[order[:most]].tolist()
    ]
    return Draft(title, result, len(rows), failures)


def _share(confidence: np.float32) -> float | None:
    return None if np.isnan(confidence) else round(float(confidence), 4)


def _recipe_book(finder: PictureFinder, result: Result, notes: dict[str, None]) -> Callable[[str], Recipes]:
    """From a picture's id to its recipes in this result."""
    source = finder.source(result.spec.dataset)
    if source is None:
        return lambda image_id: (None, None)
    if result.spec.classifier.recorded:  # what it was shown elsewhere is not known
        return lambda image_id: (Recipe(source, image_id), None)
    try:
        shift = rebuild_shift(result.spec.shift.description)
    except ShiftbenchError as error:
        notes[f"{result.setting} is shown without the shifted pictures: {error.message}"] = None
        return lambda image_id: (Recipe(source, image_id), None)
    geometry, seed = result.spec.geometry.rebuild(), result.spec.shift.seed
    return lambda image_id: (Recipe(source, image_id), Recipe(source, image_id, geometry, shift, seed))
