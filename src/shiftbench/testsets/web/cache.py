"""A short-lived cache of the images of a task, so that a grid needs one database query instead of 48."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

from anyio import to_thread

ImagePaths = dict[str, Path]


class ByteCache:
    """A thread-safe LRU cache of file contents."""

    def __init__(self, megabytes: float = 64) -> None:
        self._most, self._size = int(megabytes * 2**20), 0
        self._held: OrderedDict[Path, bytes] = OrderedDict()
        self._turn = threading.Lock()

    def get(self, path: Path) -> bytes | None:
        with self._turn:
            data = self._held.get(path)
            if data is not None:
                self._held.move_to_end(path)
            return data

    def read(self, path: Path) -> bytes:
        return self.get(path) or self._put(path, path.read_bytes())

    def fill(self, paths: Iterable[Path]) -> None:
        """Read the files of a grid; errors are reported when a file is requested."""
        for path in paths:
            try:
                self.read(path)
            except OSError:
                continue

    def _put(self, path: Path, data: bytes) -> bytes:
        with self._turn:
            self._size += len(data) - len(self._held.pop(path, b""))
            self._held[path] = data
            while self._size > self._most:
                self._size -= len(self._held.popitem(last=False)[1])
        return data


class TaskImageCache:
    """The images of recently requested tasks, by session and task.

    Sign-out and exclusion on these pages take effect at once. After an exclusion from the command line or another
    server process, images of the annotator's own task stay visible for a few seconds.
    """

    def __init__(self, seconds: float = 20.0, most: int = 1000) -> None:
        self._seconds, self._most = seconds, most
        self._known: OrderedDict[tuple[str, str], tuple[float, asyncio.Future[ImagePaths]]] = OrderedDict()
        self.shelf = ByteCache()

    def image(self, session: str, task: str, image: str) -> tuple[Path, bytes] | None:
        """The image, if it is in memory."""
        until, found = self._known.get((session, task), (0.0, None))
        if found is None or until < time.monotonic() or not found.done() or found.cancelled() or found.exception():
            return None
        path = found.result().get(image)
        data = None if path is None else self.shelf.get(path)
        return None if path is None or data is None else (path, data)

    async def images(self, session: str, task: str, find: Callable[[], ImagePaths]) -> ImagePaths:
        """The cached images, or the result of ``find``. Concurrent requests share one lookup."""
        key = (session, task)
        until, found = self._known.get(key, (0.0, None))
        if found is None or until < time.monotonic():
            found = asyncio.ensure_future(to_thread.run_sync(self._found, find))
            self._known[key] = (time.monotonic() + self._seconds, found)
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        try:
            return await asyncio.shield(found)  # a cancelled request must not cancel the shared lookup
        except Exception:
            self._known.pop(key, None)  # errors are not cached
            raise

    def forget(self, session: str) -> None:
        """Drop the images of a session that has ended."""
        for key in [key for key in list(self._known) if key[0] == session]:
            self._known.pop(key, None)

    def clear(self) -> None:
        """Drop everything after a change of permissions."""
        self._known.clear()

    def _found(self, find: Callable[[], ImagePaths]) -> ImagePaths:
        images = find()
        self.shelf.fill(images.values())
        return images
