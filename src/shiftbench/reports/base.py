"""What every table can do: show itself in a terminal, and become Markdown, CSV, LaTeX or JSON."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbench.errors import ShiftbenchError

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType


class Report(ABC):
    """Printed by ``console.print(report)``; written by ``report.write("scores.tex")``."""

    @abstractmethod
    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        """The pieces a Rich console shows, fitted to a width."""

    @abstractmethod
    def to_markdown(self) -> str: ...

    @abstractmethod
    def to_csv(self) -> str:
        """Tidy long form: one row a number, all digits."""

    @abstractmethod
    def to_latex(self) -> str:
        """For the package ``booktabs``."""

    @abstractmethod
    def as_data(self) -> dict[str, Any]:
        """All numbers as JSON-able data; None where a number is not defined."""

    def to_json(self) -> str:
        return json.dumps(self.as_data(), indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield from self.renderables(options.max_width, ascii_only=options.ascii_only)

    def to_text(self, width: int = 100, *, ascii_only: bool = False) -> str:
        """What a terminal of that width shows, without colours."""
        from rich.console import Console, Group

        console = Console(width=width, file=io.StringIO(), color_system=None, legacy_windows=False)
        with console.capture() as capture:
            console.print(Group(*self.renderables(width, ascii_only=ascii_only)))
        return "\n".join(line.rstrip() for line in capture.get().splitlines()).strip("\n") + "\n"

    def write(self, path: str | Path) -> Path:
        """Write the file in the format that its suffix names: .md, .csv, .tex, .json or .txt."""
        path = Path(path)
        formats = {
            ".md": self.to_markdown,
            ".csv": self.to_csv,
            ".tex": self.to_latex,
            ".json": self.to_json,
            ".txt": self.to_text,
        }
        if path.suffix.lower() not in formats:
            raise ShiftbenchError(
                "a table can't be written in that format",
                found=path.name,
                expected=f"a file name that ends in {', '.join(formats)}",
            )
        path.write_text(formats[path.suffix.lower()](), encoding="utf-8")
        return path
