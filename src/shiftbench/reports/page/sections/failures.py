"""The failures section: the most confident mistakes per model and setting, with images where they are available."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from shiftbench.errors import ShiftbenchError, ShiftError
from shiftbench.grouping import by_key
from shiftbench.jobs.progress import Advance
from shiftbench.reports.images import read_tags
from shiftbench.reports.page.sections import Section
from shiftbench.reports.page.thumbnails import Album, ImageFinder, Thumbnail
from shiftbench.shifts.base import rebuild_shift
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData

#: Mistakes per model and setting: at most, at least; and the limit for the whole page.
_MOST, _LEAST, _MOST_OF_ALL = 12, 3, 3000
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
    shown: FailureList
    #: One pair per mistake.
    thumbnails: list[ThumbnailPair]


def failures(data: ReportData) -> Failures | None:
    """The mistakes of every complete result; what the reader must know about them goes to the warnings."""
    most, results = data.options.failures, data.complete
    if data.run is None or most == 0:
        return None
    if most is None:
        most = max(_LEAST, min(_MOST, _MOST_OF_ALL // max(1, len(results))))
    with data.bar("mistakes", len(results)) as advance:
        drafts, notes = draft_failures(results, data.finder, most=most, only=data.options.mistakes, advance=advance)
    with data.bar("images", sum(len(draft.shown["images"]) for draft in drafts)) as advance:
        notes += illustrate(drafts, data.album, advance)
    data.warnings += notes
    lists: list[FailureList] = [
        {**one, "model": data.model_name(one["model"]), "setting": data.setting_name(one["setting"])}
        for one in (draft.shown for draft in drafts)
        if one["images"]
    ]
    datasets = {draft.result.spec.dataset for draft in drafts}
    put_tags(lists, {one.fingerprint: read_tags(data.run.workspace, one) for one in datasets})
    return {"lists": lists, "thumbnails": data.album.urls, "tagging": data.options.tagging} if lists else None


def put_tags(lists: Sequence[FailureList], tags: Mapping[str, Mapping[str, list[str]]]) -> None:
    """Replace the tags of the images of these datasets (by fingerprint); those of other datasets stay."""
    for shown in lists:
        if (known := tags.get(shown["dataset"])) is not None:
            for mistake in shown["images"]:
                mistake["tags"] = known.get(mistake["id"], [])


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
    judged = [one for one in results if one.spec.judged_by_image]
    groups = by_key(((one.setting, one.spec.dataset.fingerprint, one.spec.provenance), one) for one in judged)
    for same in groups.values():
        read = [finder.workspace.read(result, top_k=1, scores=False) for result in same]
        wrong = [one.valid & (one.top[:, 0] != one.labels) for one in read]
        counts = np.sum(wrong, axis=0), np.sum([one.valid for one in read], axis=0)
        for result, predictions, own in zip(same, read, wrong, strict=True):
            rows, chosen = np.flatnonzero(own), (only or {}).get(result.setting)
            if chosen is not None:
                rows = rows[[predictions.ids[row] in chosen for row in rows.tolist()]]
            names, pair, found = predictions.space.names, mistake_thumbnails(finder, result, notes), list[Mistake]()
            for row in most_confident(predictions, rows)[:most].tolist():
                sure = round(float(predictions.confidence[row]), 4)
                found.append(
                    {"id": predictions.ids[row], "label": names[predictions.labels[row]],
                     "prediction": names[predictions.top[row, 0]], "confidence": None if np.isnan(sure) else sure,
                     "original": None, "shifted": None, "wrong": int(counts[0][row]), "of": int(counts[1][row]),
                     "tags": []}
                )  # fmt: skip
            if found:
                pairs = [pair(one["id"]) for one in found]
                dataset = result.spec.dataset.fingerprint
                shown: FailureList = {"model": result.title, "setting": result.setting, "total": len(rows),
                                      "images": found, "dataset": dataset}  # fmt: skip
                drafts.append(Draft(result, shown, pairs))
        advance(len(same))
    return drafts, [*finder.notes, *notes]


def most_confident(predictions: Predictions, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The most confident first; images without a confidence come last, equal ones in the order of the dataset."""
    return rows[np.argsort(-np.nan_to_num(predictions.confidence[rows], nan=-1.0), kind="stable")]


def illustrate(drafts: Sequence[Draft], album: Album, advance: Advance = lambda count: None) -> list[str]:
    """Put the images into the album until it is full; returns a note if it was.

    Settings without a shift come first. All take turns: the most confident mistake of each model in each setting
    before the second of any. A mistake whose image is available but does not fit is left out.
    """
    longest = max((len(draft.thumbnails) for draft in drafts), default=0)
    all_turns = (
        (draft, i)
        for shifted in (False, True)
        for i in range(longest)
        for draft in drafts
        if (draft.result.spec.shift.kind != "none") is shifted and i < len(draft.thumbnails)
    )
    while not album.full and (turns := list(islice(all_turns, _MADE_TOGETHER))):
        wanted = [thumbnail for draft, i in turns for thumbnail in draft.thumbnails[i] if thumbnail is not None]
        places = iter(album.place(wanted))
        for draft, i in turns:
            original, seen = (None if thumbnail is None else next(places) for thumbnail in draft.thumbnails[i])
            draft.shown["images"][i].update({"original": original, "shifted": seen})
        advance(len(turns))
    left = list(all_turns)
    advance(len(left))
    without_room = [(draft, i) for draft, i in left if any(draft.thumbnails[i])]
    for draft, i in reversed(without_room):
        del draft.shown["images"][i], draft.thumbnails[i]
    return [_FEWER] if without_room else []


def mistake_thumbnails(finder: ImageFinder, result: Result, notes: dict[str, None]) -> Callable[[str], ThumbnailPair]:
    """From an image's id to its thumbnails in this result."""
    source = finder.source(result.spec.dataset)
    if source is None:
        return lambda image_id: (None, None)
    if result.spec.classifier.recorded:  # what it was shown elsewhere is not known
        return lambda image_id: (Thumbnail(source, image_id), None)
    try:
        record = finder.workspace.setting_record(result).shift
        images = finder.workspace.dataset(result.spec.dataset.name, result.spec.dataset.fingerprint)
        # A design only chooses which images meet the shift.
        about = {key: value for key, value in result.spec.shift.description.items() if key != "assignment"}
        shift = rebuild_shift(record, about).for_images(images.ids, images.labels)
        kept = {} if shift.per_image else finder.workspace.shifted_images(result)
        if not shift.per_image and not kept:
            raise ShiftError(f"{shift.name} gives no pixels without the model, and the run kept none")
    except ShiftbenchError as error:
        notes[f"{result.setting} is shown without the shifted images: {error.message}"] = None
        return lambda image_id: (Thumbnail(source, image_id), None)
    geometry, seed = result.spec.geometry.rebuild(), result.spec.shift.seed

    def pair(image_id: str) -> ThumbnailPair:
        shifted = None
        if shift.per_image:
            shifted = Thumbnail(source, image_id, geometry, shift, seed)
        elif image_id in kept:
            shifted = Thumbnail(source, image_id, kept=kept[image_id])
        return Thumbnail(source, image_id), shifted

    return pair


SECTION = Section("failures", failures)
