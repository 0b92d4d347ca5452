"""Match the images of a package to icons."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shiftbench.datasets.icons.archives import read_members
from shiftbench.datasets.icons.classes import Icon, code_key, without_tone
from shiftbench.datasets.icons.rasterise import iconify_svg
from shiftbench.datasets.icons.sources import IconSource
from shiftbench.datasets.registry_packages import fetch
from shiftbench.errors import DatasetError

_FRAME = 512  # the default size of an iconify drawing


@dataclass(frozen=True)
class Drawing:
    """An icon as a package has it."""

    icon: Icon
    subtype: str
    codepoint: str
    data: bytes


def drawings(source: IconSource, wanted: Sequence[Icon], *, skin_tones: bool = False) -> Iterator[Drawing]:
    """The package's drawings of the wanted icons, each once; fetches the package if need be."""
    found = _READERS[source.naming](source, wanted, skin_tones)
    seen: set[str] = set()
    for drawing in found:
        if drawing.subtype not in seen:  # some packages have an image under two spellings of its name
            seen.add(drawing.subtype)
            yield drawing


def _by_codepoints(source: IconSource, wanted: Sequence[Icon], skin_tones: bool) -> Iterator[Drawing]:
    """``<folder>/1f468-200d-2708-fe0f.png``."""
    known = {icon.key: icon for icon in wanted if source.means(icon.subtype)}

    def found(name: str) -> tuple[Icon | None, str | None]:
        key, tone = without_tone(code_key(name))
        return (known.get(key), tone) if tone is None or skin_tones else (None, None)

    for name, data in _images(source, lambda name: found(name)[0] is not None):
        icon, tone = found(name)
        if icon is not None and tone is None:
            yield Drawing(icon, icon.subtype, icon.codepoint, data)
        elif icon is not None:
            yield Drawing(icon, f"{icon.subtype}_{tone}", name.upper(), data)


def _by_aliases(source: IconSource, wanted: Sequence[Icon], skin_tones: bool) -> Iterator[Drawing]:
    """``<folder>/airplane.png``; such packages are older than skin tones."""
    known = {icon.alias: icon for icon in wanted if source.means(icon.alias)}
    for name, data in _images(source, known.__contains__):
        icon = known[name]
        yield Drawing(icon, icon.subtype, icon.codepoint, data)


def _from_iconify(source: IconSource, wanted: Sequence[Icon], skin_tones: bool) -> Iterator[Drawing]:
    """One JSON file of drawings without their frames, under words run together (``articulatedlorry``)."""
    known = {_run_together(name): icon for icon in wanted for name in (icon.alias, icon.subtype)}
    for name, drawing in _iconify_drawings(source).items():
        icon = known.get(_run_together(name))
        if icon is not None and source.means(name):
            frame = (float(drawing.get(side, _FRAME)) for side in ("width", "height"))
            yield Drawing(icon, icon.subtype, icon.codepoint, iconify_svg(str(drawing["body"]), *frame))


_READERS = {"codepoints": _by_codepoints, "aliases": _by_aliases, "iconify": _from_iconify}


def _images(source: IconSource, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """The wanted images directly in the source's folder, by their names without the extension."""
    start, end = len(source.folder), -len(source.suffix)

    def is_wanted(member: str) -> bool:
        fits = member.startswith(source.folder) and member.endswith(source.suffix)
        return fits and "/" not in member[start:] and wanted(member[start:end])

    for member, data in read_members(fetch(source.package), is_wanted):
        yield member[start:end], data


def _iconify_drawings(source: IconSource) -> Mapping[str, Mapping[str, Any]]:
    for _, data in read_members(fetch(source.package), lambda member: member == source.folder):
        try:
            found = json.loads(data)["icons"]
            if isinstance(found, dict):
                return found
        except (ValueError, KeyError, TypeError):
            break
    raise DatasetError(f"{source.package} lacks its drawings", expected=f"drawings in {source.folder}")


def _run_together(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace("+", "")
