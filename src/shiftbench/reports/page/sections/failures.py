"""The failures section: the most confident mistakes per model and setting, with images where they are available."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import BoolArray, IntArray
from shiftbench.errors import ShiftbenchError, ShiftError, listed
from shiftbench.jobs.progress import Advance
from shiftbench.reports.images import read_tags
from shiftbench.reports.page.sections import Section, settings_with_room
from shiftbench.reports.page.thumbnails import Album, ImageFinder, Thumbnail
from shiftbench.shifts.base import Shift, rebuild_shift
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData

#: Mistakes per model and setting: at most and at least.
_MOST = 12
_LEAST = 3
#: Mistakes on the whole page.
_MOST_OF_ALL = 3000
#: Mistakes whose images are made at once, by several threads.
_MADE_TOGETHER = 32
_FEWER = (
    "only the most confident mistakes of each model are shown, to keep the page small: --failures N shows N per setting"
)


class Mistake(TypedDict):
    id: str
    label: str
    prediction: str
    confidence: float | None
    #: Indices into ``Failures.thumbnails``: the whole image, and the image as the model saw it, resized, cropped and
    #: shifted. Null if there is no such thumbnail.
    original: int | None
    shifted: int | None
    #: Number of the workspace's models that are wrong on this image, and number of models.
    wrong: int
    of: int
    #: What people tagged the image with, under any shift.
    tags: list[str]


class FailureList(TypedDict):
    model: str
    setting: str
    #: Fingerprint of its images: tags are those of an image, under any shift.
    dataset: str
    total: int
    images: list[Mistake]


class Failures(TypedDict):
    lists: list[FailureList]
    #: data: URLs of small WebP images; in the live viewer, addresses relative to the page.
    thumbnails: list[str]
    #: Where the live viewer accepts tags, relative to the page; "" where it does not.
    tagging: str


#: (original, as the model saw it); None if there is no such image.
ThumbnailPair = tuple[Thumbnail | None, Thumbnail | None]


@dataclass
class Draft:
    """One list of mistakes, before its thumbnails are made."""

    result: Result
    mistakes: FailureList
    #: One pair per mistake.
    thumbnails: list[ThumbnailPair]


#: A draft, and the index of one of its mistakes.
Turn = tuple[Draft, int]


def failures(data: ReportData) -> Failures | None:
    """The mistakes of every complete result; what the reader must know about them goes to the warnings."""
    results = data.complete
    most = data.options.failures
    if data.run is None or most == 0:
        return None
    if most is None:
        most = max(_LEAST, min(_MOST, _MOST_OF_ALL // max(1, len(results))))
        results = _shown(results, _MOST_OF_ALL // most, data.warnings)
    with data.bar("mistakes", len(results)) as advance:
        drafts, notes = draft_failures(results, data.finder, most=most, only=data.options.mistakes, advance=advance)
    with data.bar("images", sum(len(draft.mistakes["images"]) for draft in drafts)) as advance:
        notes += illustrate(drafts, data.album, advance)
    data.warnings += notes
    lists = [_renamed(data, draft.mistakes) for draft in drafts if draft.mistakes["images"]]
    if not lists:
        return None
    datasets = {draft.result.spec.dataset for draft in drafts}
    put_tags(lists, {dataset.fingerprint: read_tags(data.run.workspace, dataset) for dataset in datasets})
    return {"lists": lists, "thumbnails": data.album.urls, "tagging": data.options.tagging}


def _shown(results: Sequence[Result], most: int, notes: list[str]) -> list[Result]:
    """The results whose mistakes are listed: as many settings as the page has room for."""
    judged = [result for result in results if result.spec.judged_by_image]
    shown_settings = settings_with_room(judged, most)
    settings = {result.setting for result in judged}
    if len(shown_settings) < len(settings):
        notes.append(
            f"mistakes are listed for {len(shown_settings)} of {len(settings)} settings ({listed(shown_settings, 3)}), "
            "to keep the page small: --failures N lists N for each"
        )
    return [result for result in judged if result.setting in shown_settings]


def _renamed(data: ReportData, shown: FailureList) -> FailureList:
    """The list under the names that model and setting have on the page."""
    return {**shown, "model": data.model_name(shown["model"]), "setting": data.setting_name(shown["setting"])}


def put_tags(lists: Sequence[FailureList], tags: Mapping[str, Mapping[str, list[str]]]) -> None:
    """Replace the tags of the images of these datasets (by fingerprint); those of other datasets stay."""
    for failure_list in lists:
        tags_by_image = tags.get(failure_list["dataset"])
        if tags_by_image is not None:
            for mistake in failure_list["images"]:
                mistake["tags"] = tags_by_image.get(mistake["id"], [])


def draft_failures(
    results: Sequence[Result],
    finder: ImageFinder,
    *,
    most: int,
    only: Mapping[str, Container[str]] | None = None,
    advance: Advance = lambda count: None,
) -> tuple[list[Draft], list[str]]:
    """One list per result with mistakes, and notes for the reader."""
    drafts: list[Draft] = []
    notes: dict[str, None] = {}
    # Results of one setting on the same images, made the same way: their mistakes can be counted together.
    judged = [result for result in results if result.spec.judged_by_image]
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in judged:
        key = (result.setting, result.spec.dataset.fingerprint, result.spec.provenance)
        groups.setdefault(key, []).append(result)
    for group in groups.values():
        read = [finder.workspace.read(result, top_k=1, scores=False) for result in group]
        tally = _Tally.of(read)
        for result, predictions in zip(group, read, strict=True):
            rows = np.flatnonzero(_wrong(predictions))
            selected_ids = (only or {}).get(result.setting)
            if selected_ids is not None:
                rows = rows[[predictions.ids[row] in selected_ids for row in rows.tolist()]]
            draft = _draft(result, predictions, rows, tally, most=most)
            if draft.mistakes["images"]:
                pair = mistake_thumbnails(finder, result, notes)
                draft.thumbnails = [pair(mistake["id"]) for mistake in draft.mistakes["images"]]
                drafts.append(draft)
        advance(len(group))
    return drafts, [*finder.notes, *notes]


@dataclass(frozen=True)
class _Tally:
    """By image: how many models are wrong on it, and how many were judged."""

    wrong: IntArray
    judged: IntArray

    @classmethod
    def of(cls, predictions: Sequence[Predictions]) -> _Tally:
        wrong = np.sum([_wrong(model) for model in predictions], axis=0)
        return cls(wrong, np.sum([model.valid for model in predictions], axis=0))


def _wrong(predictions: Predictions) -> BoolArray:
    wrong: BoolArray = predictions.valid & (predictions.top[:, 0] != predictions.labels)
    return wrong


def _draft(result: Result, predictions: Predictions, rows: NDArray[np.intp], tally: _Tally, *, most: int) -> Draft:
    """The most confident mistakes among these rows, without thumbnails."""
    failure_list: FailureList = {
        "model": result.title,
        "setting": result.setting,
        "dataset": result.spec.dataset.fingerprint,
        "total": len(rows),
        "images": [],
    }
    names = predictions.space.names
    for row in most_confident(predictions, rows)[:most].tolist():
        confidence = round(float(predictions.confidence[row]), 4)
        failure_list["images"].append(
            {
                "id": predictions.ids[row],
                "label": names[predictions.labels[row]],
                "prediction": predictions.predicted_name(row),
                "confidence": None if np.isnan(confidence) else confidence,
                "original": None,
                "shifted": None,
                "wrong": int(tally.wrong[row]),
                "of": int(tally.judged[row]),
                "tags": [],
            }
        )
    return Draft(result, failure_list, [])


def most_confident(predictions: Predictions, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The most confident first; images without a confidence come last, equal ones in the order of the dataset."""
    return rows[np.argsort(-np.nan_to_num(predictions.confidence[rows], nan=-1.0), kind="stable")]


def illustrate(drafts: Sequence[Draft], album: Album, advance: Advance = lambda count: None) -> list[str]:
    """Put the images into the album until it is full; returns a note if it was.

    Settings without a shift come first. All take turns: the most confident mistake of each model in each setting
    before the second of any. A mistake whose image is available but does not fit is left out.
    """
    turns = _turns(drafts)
    while not album.full and (next_turns := list(islice(turns, _MADE_TOGETHER))):
        _place(next_turns, album)
        advance(len(next_turns))
    left = list(turns)
    advance(len(left))
    without_room = [(draft, i) for draft, i in left if any(draft.thumbnails[i])]
    for draft, i in reversed(without_room):
        del draft.mistakes["images"][i]
        del draft.thumbnails[i]
    return [_FEWER] if without_room else []


def _turns(drafts: Sequence[Draft]) -> Iterator[Turn]:
    unshifted = [draft for draft in drafts if draft.result.spec.shift.kind == "none"]
    shifted = [draft for draft in drafts if draft.result.spec.shift.kind != "none"]
    for group in (unshifted, shifted):
        longest = max((len(draft.thumbnails) for draft in group), default=0)
        for i in range(longest):
            for draft in group:
                if i < len(draft.thumbnails):
                    yield draft, i


def _place(turns: Sequence[Turn], album: Album) -> None:
    """Make the thumbnails of these mistakes together, and note their places in the album."""
    thumbnails: list[Thumbnail] = []
    for draft, i in turns:
        thumbnails += [thumbnail for thumbnail in draft.thumbnails[i] if thumbnail is not None]
    places = dict(zip(thumbnails, album.place(thumbnails), strict=True))
    for draft, i in turns:
        original, shifted = draft.thumbnails[i]
        mistake = draft.mistakes["images"][i]
        mistake["original"] = places[original] if original else None
        mistake["shifted"] = places[shifted] if shifted else None


def mistake_thumbnails(finder: ImageFinder, result: Result, notes: dict[str, None]) -> Callable[[str], ThumbnailPair]:
    """From an image's id to its thumbnails in this result."""
    source = finder.source(result.spec.dataset)
    if source is None:
        return lambda image_id: (None, None)
    if result.spec.classifier.recorded:  # what the model was shown elsewhere is unknown
        return lambda image_id: (Thumbnail(source, image_id), None)
    try:
        shift = _rebuilt_shift(finder, result)
        kept = {} if shift.per_image else finder.workspace.shifted_images(result)
        if not shift.per_image and not kept:
            raise ShiftError(f"{shift.name} gives no pixels without the model, and the run kept none")
    except ShiftbenchError as error:
        notes[f"{result.setting} is shown without the shifted images: {error.message}"] = None
        return lambda image_id: (Thumbnail(source, image_id), None)
    geometry = result.spec.geometry.rebuild()
    seed = result.spec.shift.seed

    def pair(image_id: str) -> ThumbnailPair:
        shifted = None
        if shift.per_image:
            shifted = Thumbnail(source, image_id, geometry, shift, seed)
        elif image_id in kept:
            shifted = Thumbnail(source, image_id, kept=kept[image_id])
        return Thumbnail(source, image_id), shifted

    return pair


def _rebuilt_shift(finder: ImageFinder, result: Result) -> Shift:
    """The shift as the run applied it; a design only chooses which images meet the shift."""
    record = finder.workspace.setting_record(result).shift
    images = finder.workspace.dataset(result.spec.dataset.name, result.spec.dataset.fingerprint)
    description = {key: value for key, value in result.spec.shift.description.items() if key != "assignment"}
    return rebuild_shift(record, description).for_images(images.ids, images.labels)


SECTION = Section("failures", failures)
