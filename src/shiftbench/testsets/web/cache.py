"""A short memory of which pictures belong to a task, so that a grid asks the database once and not 48 times."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path

from anyio import to_thread

Pictures = dict[str, Path]


class Shelf:
    """The bytes of pictures that were read a moment ago; those longest unused make room. Safe with threads."""

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
        """Those of one grid, in one go; a file that can't be read is the worry of who asks for it."""
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


class RecentTasks:
    """The pictures of tasks that were asked for a moment ago, by session and task.

    Who signs out or is excluded on these pages is forgotten at once; who is excluded from the command line, or by
    another process that serves the same project, sees pictures of a task that was theirs for some seconds more.
    """

    def __init__(self, seconds: float = 20.0, most: int = 1000) -> None:
        self._seconds, self._most = seconds, most
        self._known: OrderedDict[tuple[str, str], tuple[float, asyncio.Future[Pictures]]] = OrderedDict()
        self.shelf = Shelf()

    def picture(self, session: str, task: str, image: str) -> tuple[Path, bytes] | None:
        """What can be answered at once, from memory."""
        until, found = self._known.get((session, task), (0.0, None))
        if found is None or until < time.monotonic() or not found.done() or found.cancelled() or found.exception():
            return None
        path = found.result().get(image)
        data = None if path is None else self.shelf.get(path)
        return None if path is None or data is None else (path, data)

    async def pictures(self, session: str, task: str, find: Callable[[], Pictures]) -> Pictures:
        """Those remembered, or what ``find`` finds. Browsers ask for several pictures at once: they wait for one."""
        key = (session, task)
        until, found = self._known.get(key, (0.0, None))
        if found is None or until < time.monotonic():
            found = asyncio.ensure_future(to_thread.run_sync(self._found, find))
            self._known[key] = (time.monotonic() + self._seconds, found)
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        try:
            return await asyncio.shield(found)  # one browser that goes away does not take the others' answer with it
        except Exception:
            self._known.pop(key, None)  # a refusal is not remembered
            raise

    def forget(self, session: str) -> None:
        """Who has signed out."""
        for key in [key for key in list(self._known) if key[0] == session]:
            self._known.pop(key, None)

    def clear(self) -> None:
        """When rights have changed: whoever asks next is looked up again."""
        self._known.clear()

    def _found(self, find: Callable[[], Pictures]) -> Pictures:
        pictures = find()
        self.shelf.fill(pictures.values())
        return pictures
