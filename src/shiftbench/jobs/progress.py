"""Progress bars: items done, rate, time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec

#: Progress callback: number of newly finished items. May raise to stop the work between two writes.
Advance = Callable[[int], None]


@contextmanager
def progress_bar(
    what: str, total: int, done: int = 0, *, show: bool = True, at_most: bool = False
) -> Iterator[Advance]:
    """A bar on standard error; yields a callback for the number of newly finished items of ``total``.

    Args:
        what: What is counted.
        total: Number of all items.
        done: Number of items that were finished before.
        show: Whether the bar is shown.
        at_most: Whether ``total`` is an upper limit, so that fewer items are all of them.
    """
    if not show or total == done:
        yield lambda count: None
        return
    from rich import progress as rich_progress
    from rich.console import Console
    from rich.text import Text

    class Rate(rich_progress.ProgressColumn):
        def render(self, task: rich_progress.Task) -> Text:
            speed = task.finished_speed or task.speed
            text = f"{speed:,.0f}/s" if speed else ""
            return Text(text, style="dim")

    console = Console(stderr=True)
    if console.is_jupyter and find_spec("ipywidgets") is None:
        # Rich would warn in every cell.
        console = Console(stderr=True, force_jupyter=False)
    elif not console.is_jupyter and not console.file.isatty():
        # FORCE_COLOR, which CI systems and notebooks set, would fill the log with every state of the bar.
        console = Console(stderr=True, force_terminal=False, width=console.width)
    progress = rich_progress.Progress(
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(bar_width=None),
        rich_progress.MofNCompleteColumn(),
        Rate(),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TextColumn("left", style="dim"),
        rich_progress.TimeRemainingColumn(),
        console=console,
        expand=True,
    )
    with progress:
        task = progress.add_task(what, total=total, completed=done)
        yield lambda count: progress.advance(task, count)
        if at_most:
            progress.update(task, completed=total)
