"""How figures for papers look: sizes of a column, fonts, and colours and marks that everybody can distinguish.

Colours are those of Okabe and Ito (2008), chosen for colour-blind readers; every colour comes with a mark or a line
of its own, so that a figure survives a black-and-white printer. Text stays text in SVG and PDF. The same numbers
give the same bytes: no date, no random ids.
"""

from __future__ import annotations

import functools
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec

import matplotlib
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import PlaceHolderLayoutEngine
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

from shiftbench.errors import ShiftbenchError, listed
from shiftbench.io.atomic import write_atomically
from shiftbench.reports.formatting import wrap_name

P = ParamSpec("P")

CM = 1 / 2.54
#: Widths in centimetres: one column and both columns of a two-column paper.
WIDTHS = {"single": 8.5, "double": 17.5}
#: Limits of a width that is given in centimetres.
NARROWEST = 5.0
WIDEST = 60.0

#: Sizes of text in points. Nothing in a figure is smaller than the notes.
TEXT = 7.0
SMALL = 6.0
NOTE = 5.5

BLUE = "#0072B2"
ORANGE = "#E69F00"
GREEN = "#009E73"
VERMILION = "#D55E00"
PURPLE = "#CC79A7"
SKY = "#56B4E9"
BLACK = "#000000"
YELLOW = "#F0E442"
GREY = "#767676"

#: In the order in which they are given to things that have no colour of their own.
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK, GREY)
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))

#: The diagonal y = x.
DIAGONAL: dict[str, Any] = {"color": GREY, "linestyle": (0, (1, 1.5)), "linewidth": 0.8}

FORMATS = (".svg", ".png", ".pdf")
PNG_DPI = 300

RULES: dict[Any, Any] = {
    # The first font comes with Matplotlib: the same on every machine. The others are for readers of an SVG without it.
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "Helvetica"],
    "font.size": TEXT,
    "axes.labelsize": TEXT,
    "axes.titlesize": TEXT,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.grid": True,
    "grid.color": "#EBEBEB",
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.0,
    "lines.markersize": 3.5,
    "text.parse_math": False,  # A model may be called $x$.
    # Laid out at the resolution of print, without hinting: at 100 dots per inch words have other widths.
    "figure.dpi": PNG_DPI,
    "text.hinting": "no_hinting",
    "svg.fonttype": "none",
    "svg.hashsalt": "shiftbench",
    "pdf.fonttype": 42,
    "figure.constrained_layout.w_pad": 0.04,
    "figure.constrained_layout.h_pad": 0.04,
    "figure.constrained_layout.hspace": 0.04,
    "figure.constrained_layout.wspace": 0.03,
}

#: Nothing that changes from one day or release to the next.
_METADATA: Mapping[str, dict[str, None]] = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}

#: A figure of one column is about 600 pixels wide in a notebook.
_NOTEBOOK_DPI = 180


class PaperFigure(Figure):
    """A Matplotlib figure that is written the same way every time, with notes."""

    #: Points at the edge, models left out and the like; also printed below the figure.
    notes: tuple[str, ...] = ()

    def savefig(self, fname: Any, *, transparent: bool | None = None, **options: Any) -> None:
        """Matplotlib's own, with text kept as text and without the date."""
        kind = options.get("format") or Path(str(fname)).suffix.removeprefix(".").lower() or "png"
        options = {"dpi": PNG_DPI, "metadata": _METADATA.get(kind), **options}
        with matplotlib.rc_context(RULES):
            super().savefig(fname, transparent=transparent, **options)

    def _repr_png_(self) -> bytes:
        """For notebooks: no pyplot, and so no backend, is needed to show it."""
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=_NOTEBOOK_DPI)
        return file.getvalue()

    def write(self, path: str | Path, *, dpi: float = PNG_DPI) -> Path:
        """Write the file that the suffix names, whole or not at all."""
        path = Path(path)
        check_format(path)
        kind = path.suffix.lower().removeprefix(".")
        write_atomically(path, lambda temporary: self.savefig(temporary, format=kind, dpi=dpi))
        return path


def in_style(draw: Callable[P, PaperFigure]) -> Callable[P, PaperFigure]:
    """Draw by these rules, whatever the user's own settings of Matplotlib are."""

    @functools.wraps(draw)
    def styled(*arguments: P.args, **options: P.kwargs) -> PaperFigure:
        with matplotlib.rc_context():
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(RULES)
            figure = draw(*arguments, **options)
            if not isinstance(figure.get_layout_engine(), PlaceHolderLayoutEngine | None):
                _set_labels(figure)
            _add_marks(figure)
            return figure

    return styled


#: Title and axis labels that replace a figure's own, where they are not empty.
_labels: ContextVar[tuple[str, str, str]] = ContextVar("labels", default=("", "", ""))
#: Marks behind the names of models, as in tables (``reports.models``), and the notes that explain them.
_marked: ContextVar[tuple[Mapping[str, str], tuple[str, ...]]] = ContextVar("marked", default=({}, ()))


@contextmanager
def labelled(title: str = "", x: str = "", y: str = "") -> Iterator[None]:
    """Figures drawn inside have this title and these labels of their axes."""
    token = _labels.set((title, x, y))
    try:
        yield
    finally:
        _labels.reset(token)


@contextmanager
def marking(models: Mapping[str, str], notes: Sequence[str]) -> Iterator[None]:
    """Figures drawn inside mark these models wherever they are named, and have the notes that explain the marks."""
    token = _marked.set((models, tuple(notes)))
    try:
        yield
    finally:
        _marked.reset(token)


def _set_labels(figure: Figure) -> None:
    title, x, y = _labels.get()
    if title and figure.legends:  # The title is the first line of the legend, which is at the top.
        figure.legends[0].set_title(title, prop=FontProperties(size=TEXT))
    elif title:
        figure.suptitle(title, fontsize=TEXT)
    for axes in figure.axes:
        axes.set_xlabel(x or axes.get_xlabel())
        axes.set_ylabel(y or axes.get_ylabel())


def _add_marks(figure: Figure) -> None:
    models, _ = _marked.get()
    marks = {_name_pattern(name): mark for name, mark in models.items()}
    for text in figure.findobj(Text):
        if not isinstance(text, Text):
            continue
        for pattern, mark in marks.items():
            name = pattern.match(text.get_text())
            if name:
                text.set_text(f"{name[0]}{mark}{text.get_text()[name.end() :]}")
                break


def _name_pattern(name: str) -> re.Pattern[str]:
    """Names may be broken into lines, and stand alone or before a setting or a number."""
    letters = "".join(name.split())
    return re.compile(r"\s*".join(map(re.escape, letters)) + r"(?=$|[\s,:(])")


def check_format(path: Path) -> None:
    if path.suffix.lower() not in FORMATS:
        raise ShiftbenchError(
            "unsupported figure format", found=path.name, expected=f"a file name that ends in {', '.join(FORMATS)}"
        )


def width_in_cm(width: str | float) -> float:
    if isinstance(width, str) and width in WIDTHS:
        return WIDTHS[width]
    try:
        cm = float(width)
    except ValueError:
        cm = float("nan")
    if not NARROWEST <= cm <= WIDEST:
        raise ShiftbenchError(
            "invalid width of a figure",
            found=width,
            expected=f"{', '.join(WIDTHS)}, or centimetres from {NARROWEST:g} to {WIDEST:g}",
        )
    return cm


@functools.lru_cache(maxsize=4096)
def text_width(text: str, size: float = TEXT) -> float:
    """Points that a line of text takes, with a little to spare: pixels round every letter's width."""
    font = FontProperties(family="DejaVu Sans", size=size)
    return 1.035 * float(text_to_path.get_text_width_height_descent(text, font, ismath=False)[0])


def wrapped(text: str, points: float, size: float) -> list[str]:
    """Lines of words, none wider than this many points; a word that is too wide is broken."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".lstrip()
        if text_width(joined, size) <= points:
            lines[-1] = joined
            continue
        lines.append("")
        for letter in word:
            if lines[-1] and text_width(lines[-1] + letter, size) > points:
                lines.append("")
            lines[-1] += letter
    return [line for line in lines if line]


def wrapped_name(name: str, points: float, size: float) -> str:
    """A setting's or model's name on as many lines as the width asks for, broken where names are."""
    for width in range(min(len(name), int(points / (0.3 * size))), 3, -1):
        lines = wrap_name(name, width)
        if max(text_width(line, size) for line in lines) <= points:
            return "\n".join(lines)
    return "\n".join(wrap_name(name, 4))


def axis_label(setting: str, points: float) -> str:
    """The name of the setting and what is measured there, on one line where there is room."""
    name = wrapped_name(setting, points, TEXT)
    quantity = "accuracy (%)"
    last_line = name.rsplit("\n", 1)[-1]
    if text_width(f"{last_line} {quantity}") <= points:
        return f"{name} {quantity}"
    return f"{name}\n{quantity}"


def shortened(name: str, points: float, size: float) -> str:
    """A name that fits on one line, with an ellipsis in its middle where it does not."""
    text = name
    for n_letters in range(len(name) - 1, 0, -1):
        if text_width(text, size) <= points:
            break
        text = f"{name[: (n_letters + 1) // 2]}…{name[len(name) - n_letters // 2 :]}"
    return text


class PanelGrid(NamedTuple):
    """How the panels of a figure are arranged."""

    rows: int
    columns: int
    #: The width of a panel.
    panel_cm: float


def panel_grid(panels: int, width: str | float, panel_cm: float) -> PanelGrid:
    """Panels of about this width, in rows of even length."""
    most = round(width_in_cm(width) / panel_cm)
    columns = math.ceil(panels / math.ceil(panels / max(1, most)))
    return PanelGrid(math.ceil(panels / columns), columns, width_in_cm(width) / columns)


def panel_letter(number: int) -> str:
    return f"({'abcdefghijklmnopqrstuvwxyz'[number % 26] * (1 + number // 26)})"


def new_figure(
    width: str | float, height_cm: float, notes: Sequence[str] = (), *, show_notes: bool = True
) -> PaperFigure:
    """An empty figure of a column's width, with the notes below and the rest of its height free for axes."""
    _, mark_notes = _marked.get()
    notes = [*notes, *mark_notes]
    width_cm = width_in_cm(width)
    lines = wrapped("; ".join(notes), width_cm * CM * 72 - 6, NOTE) if show_notes else []
    notes_cm = (len(lines) * NOTE * 1.25 + 4) / 72 / CM if lines else 0.0
    total_cm = height_cm + notes_cm
    figure = PaperFigure(figsize=(width_cm * CM, total_cm * CM))
    figure.set_layout_engine("constrained", rect=(0, notes_cm / total_cm, 1, 1 - notes_cm / total_cm))
    figure.notes = tuple(notes)
    if lines:
        figure.text(
            3 / (width_cm * CM * 72),
            3 / (total_cm * CM * 72),
            "\n".join(lines),
            fontsize=NOTE,
            color=GREY,
            va="bottom",
            ha="left",
            linespacing=1.25,
        )
    return figure


def add_legend(figure: PaperFigure, handles: Sequence[Any], labels: Sequence[str]) -> Legend | None:
    """A legend above the axes, in as many columns as the width holds."""
    if not handles:
        return None
    room = figure.get_figwidth() * 72 - 10
    handle = (1.6 + 0.8 + 1.2) * SMALL
    texts = [shortened(label, room - handle, SMALL) for label in labels]
    widest = max(text_width(text, SMALL) for text in texts) + handle
    columns = max(1, min(len(texts), int(room / widest)))
    return figure.legend(handles, texts, loc="outside upper center", ncols=columns, borderaxespad=0.2)


def legend_mark(colour: str, mark: str, *, large: bool = False) -> Line2D:
    return Line2D(
        [],
        [],
        linestyle="none",
        marker=mark,
        color=colour,
        markersize=7 if large else 4,
        markeredgecolor=BLACK if large else "white",
        markeredgewidth=0.4,
    )


def without_room(figure: PaperFigure, names: Sequence[str]) -> PaperFigure:
    """The same figure, with a note on the models that could not be named in it."""
    if names:
        figure.notes = (*figure.notes, f"no room for the names of {listed(dict.fromkeys(names), 8)}")
    return figure


def finish(figure: PaperFigure) -> PaperFigure:
    """Fix the layout, so that what is placed by hand afterwards stays where it belongs."""
    _set_labels(figure)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    figure.set_layout_engine("none")
    return figure
