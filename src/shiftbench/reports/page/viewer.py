"""The live viewer: the page of a workspace as it is now, rebuilt when files changed and somebody asks."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import msgspec
import numpy as np

from shiftbench.errors import ShiftbenchError, StoreError, UnknownNameError
from shiftbench.io.paths import Location
from shiftbench.reports.images import read_tags, set_tag
from shiftbench.reports.page.payload import Page, Progress
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.report_data import CalibrationCache, ReportData, ReportOptions, build_page, empty_page
from shiftbench.reports.page.sections.failures import SECTION, put_tags
from shiftbench.reports.page.thumbnails import LiveAlbum, Thumbnail
from shiftbench.reports.page.write import page_json
from shiftbench.runs.results import StoredResults
from shiftbench.store.models import NoResultsError
from shiftbench.store.prediction_files import PredictionBlock, read_block, read_spec
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import PartResult, Result, Workspace, block_range, blocks_in

#: After a build the viewer pauses this many times as long, so that the CPUs belong to the run.
_REST = 3.0
_KEPT_THUMBNAILS = 512
#: A written block never changes.
_KEPT_BLOCKS = 65_536

#: Where the page posts tags, relative to itself.
TAGGING = "tags"

#: The folders of a workspace and when each last changed.
Stamp = tuple[tuple[str, int], ...]


class TagChange(msgspec.Struct, forbid_unknown_fields=True):
    """What the page posts when somebody tags an image."""

    dataset: str
    id: str
    tag: str
    on: bool


class Snapshot(NamedTuple):
    """The page's data as it is sent, and a tag that changes when it does."""

    body: bytes
    etag: str

    @classmethod
    def of(cls, page: Page) -> Snapshot:
        body = page_json(page).encode("utf-8", "replace")
        return cls(body, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"')


class Viewer:
    """Builds the page of a workspace. Thread-safe; at most one build runs at a time. Writes nothing but tags."""

    def __init__(
        self,
        workspace: Location | None,
        published: Published | None = None,
        options: ReportOptions | None = None,
        *,
        classifiers: Sequence[str] = (),
        settings: Sequence[str] = (),
        read_only: bool = False,
    ) -> None:
        self.workspace = workspace
        self.published = published
        tagging = "" if read_only or workspace is None else TAGGING
        self.options = replace(options or ReportOptions(), tagging=tagging)
        self.classifiers = tuple(classifiers)
        self.settings = tuple(settings)
        self._lock = threading.Lock()
        self._building: threading.Thread | None = None
        self._stamp: Stamp | None = None
        self._rest_until = 0.0
        self._thumbnails: dict[str, Thumbnail] = {}
        self._calibration: CalibrationCache = {}
        #: Tags by dataset as they are since the last build started: a build may take long, its page shows them at once.
        self._tags: dict[str, dict[str, list[str]]] = {}
        self._publish(self._waiting("reading the workspace ..."))

    def snapshot(self) -> Snapshot:
        """The current data; if the workspace has changed since, a rebuild starts in the background."""
        stamp = workspace_stamp(self.workspace)
        with self._lock:
            idle = self._building is None and time.monotonic() >= self._rest_until
            if idle and stamp != self._stamp:
                self._tags = {}
                self._building = threading.Thread(target=self._build, args=(stamp,), daemon=True)
                self._building.start()
            return self._snapshot

    def thumbnail(self, name: str) -> bytes | None:
        """A thumbnail of the current page, as WebP; None if the page has none of that name."""
        thumbnail = self._thumbnails.get(name)
        if thumbnail is None:
            return None
        try:
            return _webp(thumbnail)
        except ShiftbenchError:
            return None

    def tag(self, change: TagChange) -> list[str]:
        if not self.options.tagging or self.workspace is None:
            raise StoreError("this viewer is read-only")
        workspace = GrowingWorkspace(self.workspace)
        datasets = {result.spec.dataset.fingerprint: result.spec.dataset for result in workspace.results()}
        if change.dataset not in datasets:
            raise StoreError("no dataset of the workspace has this fingerprint", found=change.dataset)
        dataset = datasets[change.dataset]
        tags_of_image = set_tag(workspace, dataset, change.id, change.tag, on=change.on)
        with self._lock:
            self._tags[change.dataset] = read_tags(workspace, dataset)
            self._publish(self._shown_page)
        return tags_of_image

    def _publish(self, page: Page) -> None:
        failures = SECTION.of(page)
        if failures:
            put_tags(failures["lists"], self._tags)
        self._shown_page = page
        self._snapshot = Snapshot.of(page)

    def _build(self, stamp: Stamp) -> None:
        started = time.monotonic()
        page: Page | None = None
        thumbnails: dict[str, Thumbnail] = {}
        try:
            page, thumbnails = self._page()
        # The viewer must survive whatever it finds in a folder that changes while it reads.
        except Exception as error:
            if stamp == workspace_stamp(self.workspace):
                page = self._waiting(f"can't read the workspace: {error}")
        with self._lock:
            if page is not None:  # otherwise a file vanished while it was read: the next request sees another state
                self._publish(page)
                self._thumbnails = thumbnails
                self._stamp = stamp
            self._rest_until = time.monotonic() + _REST * (time.monotonic() - started)
            self._building = None

    def _page(self) -> tuple[Page, dict[str, Thumbnail]]:
        """The page as it is now, and the thumbnails that it shows, by name."""
        album = LiveAlbum()
        workspace: GrowingWorkspace | None = None
        if self.workspace is not None:
            try:
                workspace = GrowingWorkspace(self.workspace)
            except StoreError:
                if self.published is None:
                    return self._waiting(f"waiting for a run to write to {self.workspace}"), {}
        if workspace is None:
            return build_page(ReportData(None, self.published, self.options, album)), {}
        try:
            run = StoredResults.open(workspace, self.classifiers, self.settings)
        except (NoResultsError, UnknownNameError) as error:
            return self._waiting(f"waiting for its first result: {error.message}"), {}
        if not run.results and self.published is None:
            return self._waiting(f"waiting for the first results in {self.workspace}"), {}
        data = ReportData(
            run,
            self.published,
            self.options,
            album,
            progress=workspace.progress(run.results),
            calibration_cache=self._calibration,
        )
        return build_page(data), album.thumbnails

    def _waiting(self, text: str) -> Page:
        progress: Progress = {"results_done": 0, "results_total": None, "text": text}
        return empty_page(self.options.title, progress)


@lru_cache(maxsize=_KEPT_THUMBNAILS)
def _webp(thumbnail: Thumbnail) -> bytes:
    return thumbnail.webp()


def workspace_stamp(root: Location | None) -> Stamp:
    """Changes whenever a prediction is added: files are renamed into their folders, which the folders remember."""
    if not isinstance(root, Path):  # folders in an object store have no times
        return ()
    times = list(_times(root, 0))
    for name in ("predictions", "shards", "datasets"):
        times += _times(root / name, 3)
    return tuple(times)


def _times(folder: Path, depth: int) -> Iterator[tuple[str, int]]:
    try:
        yield str(folder), folder.stat().st_mtime_ns
        if not depth:
            return
        subfolders = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir())
    except OSError:  # removed meanwhile
        return
    for path in subfolders:
        yield from _times(Path(path), depth - 1)


class GrowingWorkspace(Workspace):
    """A workspace that a run writes to: unfinished results count with the blocks they have so far. Read-only."""

    def __init__(self, root: str | Location) -> None:
        super().__init__(root, create=False)

    def results(self, classifiers: Iterable[str] = (), settings: Iterable[str] = ()) -> Iterator[Result]:
        yield from super().results(classifiers, settings)
        yield from self.unfinished(classifiers, settings)

    def unfinished(self, classifiers: Iterable[str] = (), settings: Iterable[str] = ()) -> Iterator[Result]:
        """Results with at least one block that are not complete."""
        wanted_models = set(classifiers)
        wanted_settings = set(settings)
        for folder in self.block_folders():
            classifier = unquote(folder.parent.parent.name)
            setting = unquote(folder.parent.name)
            blocks = blocks_in(folder)
            if not blocks or (wanted_models and classifier not in wanted_models):
                continue
            if wanted_settings and setting not in wanted_settings:
                continue
            result = Result(classifier, setting, read_spec(blocks[0]))
            if not self.predictions_path(result).is_file():
                yield result

    def read(
        self, result: Result, *, top_k: int | None = None, confidence: bool = True, scores: bool = True
    ) -> Predictions:
        """The predictions of a complete result, or those made so far."""
        if isinstance(result, PartResult) or self.predictions_path(result).is_file():
            return super().read(result, top_k=top_k, confidence=confidence, scores=scores)
        paths = blocks_in(self.blocks_folder(result))
        if not paths:
            raise StoreError(f"{result.classifier} in {result.setting} is just being completed", hint="try again")
        ids, space, used = self._images_of(result.spec)
        blocks: list[PredictionBlock] = []
        rows: list[int] = []
        reached = 0
        for path in paths:
            # A block is named by its first row in the dataset; its predictions are the setting's from there on.
            first = int(np.searchsorted(used.rows, block_range(path)[0]))
            # Runs with other numbers of workers may have stored the same images in other blocks.
            if first < reached:
                continue
            block = _block(path, top_k, confidence, scores)
            reached = first + len(block)
            blocks.append(block)
            rows += range(first, reached)
        joined = PredictionBlock.concatenate(blocks)
        label_sets = None if used.label_sets is None else [used.label_sets[row] for row in rows]
        return Predictions(
            result.title,
            result.setting,
            space,
            [ids[row] for row in rows],
            used.labels[rows],
            joined.top,
            joined.confidence,
            result.spec,
            joined.scores,
            label_sets,
        )

    def progress(self, results: Sequence[Result]) -> Progress | None:
        """Progress of a run that goes on, or was stopped; None if all results are complete.

        Results that a run has not started leave no trace, so the totals count only those started.
        """
        results = list({result.relative: result for result in results}.values())  # a design's parts share files
        unfinished = [result for result in results if not self.predictions_path(result).is_file()]
        if not unfinished:
            return None
        done = 0
        for result in unfinished:
            done += sum(len(_block(path, 1, False, False)) for path in blocks_in(self.blocks_folder(result)))
        total = sum(result.spec.images for result in unfinished)
        complete = len(results) - len(unfinished)
        text = f"{complete} of {len(results)} results are complete; "
        text += f"{done:,} of {total:,} predictions of the others are made"
        return {"results_done": complete, "results_total": len(results), "text": text}


@lru_cache(maxsize=_KEPT_BLOCKS)
def _block(path: Location, top_k: int | None, confidence: bool, scores: bool) -> PredictionBlock:
    return read_block(path, top_k=top_k, confidence=confidence, scores=scores)
