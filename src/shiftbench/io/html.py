"""HTML for notebooks: tables, facts and small images.

Colours are inherited, so that it is readable in light and dark notebooks; nothing is loaded from other sites.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from shiftbench.arrays import Pixels
from shiftbench.errors import visible

#: Longest side of a small image, in pixels.
LONGEST = 112
_STYLE = """<style>
.shiftbench{line-height:1.4;overflow-x:auto}
.shiftbench table{border-collapse:collapse;margin:.3em 0 .6em;font-variant-numeric:tabular-nums;color:inherit}
.shiftbench th,.shiftbench td{padding:.15em .7em;text-align:right;white-space:nowrap;border:0;vertical-align:top}
.shiftbench thead th{border-bottom:1px solid rgba(128,128,128,.6);vertical-align:bottom}
.shiftbench tbody td{border-bottom:1px solid rgba(128,128,128,.18)}
.shiftbench th.l,.shiftbench td.l{text-align:left}
.shiftbench small{opacity:.72;font-size:88%;font-weight:normal}
.shiftbench .title{font-weight:600;margin-top:.4em}
.shiftbench .warning{border-left:3px solid #d08700;padding-left:.6em;margin:.4em 0}
.shiftbench .grid{display:flex;flex-wrap:wrap;gap:.6em;margin:.4em 0}
.shiftbench figure{margin:0;width:112px}
.shiftbench figure img{display:block;margin:0;max-width:112px;max-height:112px;min-width:64px;object-fit:contain}
.shiftbench figcaption{font-size:85%;overflow-wrap:anywhere}
.shiftbench pre{line-height:1.2;background:none;color:inherit}
</style>"""


def block(*parts: str) -> str:
    """Everything that one object shows in a notebook, with its style."""
    return f'<div class="shiftbench">{_STYLE}{"".join(parts)}</div>'


def text(value: object) -> str:
    """A value as escaped text, which cannot change the direction of the text around it."""
    return escape(visible(str(value)))


def title(name: str, details: str = "") -> str:
    """A heading, followed by smaller text."""
    suffix = f" {small(details)}" if details else ""
    return f'<div class="title">{text(name)}{suffix}</div>'


def small(words: str) -> str:
    return f"<small>{text(words)}</small>"


def notes(lines: Iterable[str]) -> str:
    """Small lines below each other."""
    return "".join(f"<div>{small(line)}</div>" for line in lines)


def warning(message: str) -> str:
    return f'<div class="warning">{text(message)}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A table of cells that are HTML; the first ``left`` columns are text, the others numbers."""
    header = ""
    if any(head):
        header = f"<thead>{_table_row('th', head, left)}</thead>"
    body = "".join(_table_row("td", row, left) for row in rows)
    return f"<table>{header}<tbody>{body}</tbody></table>"


def _table_row(tag: str, cells: Sequence[str], left: int) -> str:
    html_cells = []
    for i, cell in enumerate(cells):
        style = ' class="l"' if i < left else ""
        html_cells.append(f"<{tag}{style}>{cell}</{tag}>")
    return f"<tr>{''.join(html_cells)}</tr>"


def facts(entries: Mapping[str, object]) -> str:
    """Names and values below each other; empty values are left out."""
    rows = [(small(name), text(value)) for name, value in entries.items() if value not in (None, "")]
    return table(("", ""), rows, left=2)


def grid(figures: Iterable[str]) -> str:
    return f'<div class="grid">{"".join(figures)}</div>'


def figure(pixels: Pixels, caption: str, tooltip: str = "") -> str:
    """A small image with its caption."""
    image = f'<img src="{image_url(thumbnail(pixels))}" alt="{text(caption)}" title="{text(tooltip)}">'
    return f"<figure>{image}<figcaption>{text(caption)}</figcaption></figure>"


def missing_figure(caption: str, tooltip: str = "") -> str:
    """A figure in place of an image that can't be shown."""
    return f'<figure title="{text(tooltip)}">{small("not readable")}<figcaption>{text(caption)}</figcaption></figure>'


def image_grid(images: Iterable[tuple[Pixels | None, str]]) -> str:
    """Small images with their captions; None stands for an image that can't be read."""
    figures = []
    for pixels, caption in images:
        if pixels is None:
            figures.append(missing_figure(caption))
        else:
            figures.append(figure(pixels, caption))
    return grid(figures)


def image_url(webp: bytes) -> str:
    """The image as a URL that contains it."""
    return f"data:image/webp;base64,{base64.b64encode(webp).decode()}"


def thumbnail(pixels: Pixels, **options: object) -> bytes:
    """WebP of at most ``LONGEST`` pixels per side; a small image is not enlarged. ``options`` are those of Pillow."""
    from PIL import Image

    image = Image.fromarray(pixels)
    image.thumbnail((LONGEST, LONGEST), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    image.save(file, "WEBP", **(options or {"quality": 50, "method": 4}))
    return file.getvalue()
