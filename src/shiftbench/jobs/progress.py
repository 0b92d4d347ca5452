"""Progress bars: items done, rate, time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

#: Progress callback: number of newly finished items. May raise to stop the work between two writes.
Advance = Callable[[int], None]


@contextmanager
def progress_bar(
    what: str, total: int, done: int = 0, *, show: bool = True, console: Console | None = None, at_most: bool = False
) -> Iterator[Advance]:
    """Yields a callback for the number of newly finished items of ``total``.

    Args:
        what: What is counted.
        total: Number of all items.
        done: Number of items that were finished before.
        show: Whether the bar is shown.
        console: Where it is printed; default: standard error.
        at_most: Whether ``total`` is an upper limit, so that fewer items are all of them.
    """
    if not show or total == done:
        yield lambda count: None
        return
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

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text(f"{speed:,.0f}/s" if speed else "", style="dim")

    console = console or Console(stderr=True)
    if console.is_jupyter and find_spec("ipywidgets") is None:  # Rich would warn in every cell
        console = Console(stderr=True, force_jupyter=False)
    elif not console.is_jupyter and not console.file.isatty():
        # FORCE_COLOR, which CI systems and notebooks set, would fill the log with every state of the bar.
        console = Console(file=console.file, force_terminal=False, width=console.width)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        Rate(),
        TimeElapsedColumn(),
        TextColumn("left", style="dim"),
        TimeRemainingColumn(),
        console=console,
        expand=True,
    )
    with progress:
        task = progress.add_task(what, total=total, completed=done)
        yield lambda count: progress.advance(task, count)
        if at_most:
            progress.update(task, completed=total)
