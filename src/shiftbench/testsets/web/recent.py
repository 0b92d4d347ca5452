"""A short memory of which pictures belong to a task, so that a grid asks the database once and not 48 times."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from anyio import to_thread

Pictures = dict[str, Path]


class RecentTasks:
    """The pictures of tasks that were asked for a moment ago, by session and task.

    Who is signed out or excluded meanwhile sees pictures of a task that was theirs for some seconds more.
    """

    def __init__(self, seconds: float = 20.0, most: int = 1000) -> None:
        self._seconds, self._most = seconds, most
        self._known: OrderedDict[tuple[str, str], tuple[float, asyncio.Future[Pictures]]] = OrderedDict()

    async def pictures(self, session: str, task: str, find: Callable[[], Pictures]) -> Pictures:
        """Those remembered, or what ``find`` finds. Browsers ask for several pictures at once: they wait for one."""
        key = (session, task)
        until, found = self._known.get(key, (0.0, None))
        if found is None or until < time.monotonic():
            found = asyncio.ensure_future(to_thread.run_sync(find))
            self._known[key] = (time.monotonic() + self._seconds, found)
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        try:
            return await asyncio.shield(found)  # one browser that goes away does not take the others' answer with it
        except Exception:
            self._known.pop(key, None)  # a refusal is not remembered
            raise
