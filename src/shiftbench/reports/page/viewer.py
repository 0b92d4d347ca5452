"""The page of a workspace as it is now, for the live viewer: built anew when files changed, and only when asked for."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from shiftbench.errors import ShiftbenchError, StoreError
from shiftbench.reports.page.albums import LiveAlbum
from shiftbench.reports.page.build import Choices, Remembered, build_page, empty_page
from shiftbench.reports.page.payload import Page, Progress
from shiftbench.reports.page.pictures import Recipe
from shiftbench.reports.page.published import Published
from shiftbench.reports.page.unfinished import GrowingWorkspace, run_progress
from shiftbench.reports.page.write import page_json
from shiftbench.runs.results import StoredResults

#: After a build the processors belong to the run for so many times as long.
_REST = 3.0
_KEPT_PICTURES = 512

#: The folders of a workspace and when each last changed.
Stamp = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Snapshot:
    """The page's data as it is sent, and a tag that changes when it does."""

    body: bytes
    etag: str

    @classmethod
    def of(cls, page: Page) -> Snapshot:
        body = page_json(page).encode("utf-8", "replace")
        return cls(body, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"')


class Viewer:
    """Read-only. May be asked from several threads; at most one build goes on at a time."""

    def __init__(
        self,
        workspace: Path | None,
        published: Published | None = None,
        choices: Choices | None = None,
        *,
        classifiers: Sequence[str] = (),
        settings: Sequence[str] = (),
    ) -> None:
        self.workspace, self.published, self.choices = workspace, published, choices or Choices()
        self.classifiers, self.settings = tuple(classifiers), tuple(settings)
        self._lock = threading.Lock()
        self._building: threading.Thread | None = None
        self._stamp: Stamp | None = None
        self._rest_until = 0.0
        self._recipes: dict[str, Recipe] = {}
        self._remembered: Remembered = {}
        self._snapshot = Snapshot.of(self._waiting("reading the workspace ..."))

    @property
    def title(self) -> str:
        return self.choices.title

    def snapshot(self) -> Snapshot:
        """What is known now; a change since then is looked into meanwhile."""
        stamp = workspace_stamp(self.workspace)
        with self._lock:
            idle = self._building is None and time.monotonic() >= self._rest_until
            if idle and stamp != self._stamp:
                self._building = threading.Thread(target=self._build, args=(stamp,), daemon=True)
                self._building.start()
            return self._snapshot

    def picture(self, name: str) -> bytes | None:
        """A picture of the current page, as WebP; None where the page has none of that name."""
        recipe = self._recipes.get(name)
        if recipe is None:
            return None
        try:
            return _webp(recipe)
        except ShiftbenchError:
            return None

    def _build(self, stamp: Stamp) -> None:
        started = time.monotonic()
        found: tuple[Page, dict[str, Recipe]] | None = None
        try:
            found = self._page()
        # A viewer that people look at must outlive whatever it finds in a folder that changes under its hands.
        except Exception as error:
            if stamp == workspace_stamp(self.workspace):
                found = self._waiting(f"the workspace can't be read: {error}"), {}
        snapshot = Snapshot.of(found[0]) if found else None
        with self._lock:
            if found and snapshot:  # otherwise a file went while it was read: the next look is at another state
                self._snapshot, self._recipes, self._stamp = snapshot, found[1], stamp
            self._rest_until = time.monotonic() + _REST * (time.monotonic() - started)
            self._building = None

    def _page(self) -> tuple[Page, dict[str, Recipe]]:
        album = LiveAlbum()
        try:
            workspace = None if self.workspace is None else GrowingWorkspace(self.workspace)
        except StoreError:
            if self.published is None:
                return self._waiting(f"waiting for a run to write to {self.workspace}"), {}
            workspace = None
        if workspace is None:
            return build_page(None, self.published, self.choices, album), {}
        run = StoredResults.open(workspace, self.classifiers, self.settings)
        if not run.results and self.published is None:
            return self._waiting(f"waiting for the first results in {self.workspace}"), {}
        progress = run_progress(workspace, run.results)
        page = build_page(run, self.published, self.choices, album, progress=progress, remembered=self._remembered)
        return page, album.recipes

    def _waiting(self, text: str) -> Page:
        progress: Progress = {"cells_done": 0, "cells_total": None, "text": text}
        return empty_page(self.title, progress)


@lru_cache(maxsize=_KEPT_PICTURES)
def _webp(recipe: Recipe) -> bytes:
    return recipe.webp()


def workspace_stamp(root: Path | None) -> Stamp:
    """Changes whenever a prediction is added: files are renamed into their folders, which the folders remember."""
    if root is None:
        return ()
    inside = (root / name for name in ("predictions", "shards", "datasets"))
    return (*_times(root, 0), *(time for folder in inside for time in _times(folder, 3)))


def _times(folder: Path, depth: int) -> Iterator[tuple[str, int]]:
    try:
        yield str(folder), folder.stat().st_mtime_ns
        inside = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir()) if depth else []
    except OSError:  # gone while we look
        return
    for path in inside:
        yield from _times(Path(path), depth - 1)
