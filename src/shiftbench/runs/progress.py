"""Progress for people: what is done, how fast, how long it will take. Silent when nobody watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _RateColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.0f}/s" if speed else "", style="dim")


@contextmanager
def prediction_progress(
    total: int, done: int, *, show: bool, console: Console | None = None
) -> Iterator[Callable[[int], None]]:
    """Yields a function that is told how many predictions were added."""
    if not show or total == 0:
        yield lambda count: None
        return
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeElapsedColumn(),
        TextColumn("left", style="dim"),
        TimeRemainingColumn(),
        console=console or Console(stderr=True),
        expand=True,
    )
    with progress:
        task = progress.add_task("predictions", total=total + done, completed=done)
        yield lambda count: progress.advance(task, count)
