"""Frames of videos around anchors: ImageNet-Vid-Robust, YTBB-Robust, and any set of the same make.

An anchor is a frame with labels; its neighbours are the frames up to k before and after it that people found
similar to it. A classifier is pm-k right on an anchor if it is right on the anchor and on every valid neighbour
(``shiftbench.settings.video_suites.pm_k_score``).

A frame may have several labels, and the neighbours of YTBB-Robust are held against the labels of their anchor. So
that stored predictions alone give pm-k for any k, both are in the rows: a neighbour's id is its anchor's with the
offset (``val/ILSVRC2015_val_00000000/000442.JPEG@-10``), and a frame with several labels has a row for each, the
further ones numbered (``...@-10#2``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shiftbench.datasets.files import FileDataset
from shiftbench.errors import DatasetError
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import LabelSpace

_ROW = re.compile(r"(?P<anchor>.*?)(?:@(?P<offset>[+-]\d+))?(?:#(?P<copy>\d+))?")


@dataclass(frozen=True)
class Anchor:
    """An anchor frame with its valid neighbours, and the labels (indices) that count as right for each frame."""

    frame: str
    labels: tuple[int, ...]
    #: Offset in frames, not 0, to the neighbour and its labels.
    neighbours: Mapping[int, tuple[str, tuple[int, ...]]]


def row_id(anchor: str, offset: int = 0, copy: int = 1) -> str:
    """The id of a row.

    >>> row_id("v/000010.JPEG"), row_id("v/000010.JPEG", -2), row_id("v/000010.JPEG", 3, 2)
    ('v/000010.JPEG', 'v/000010.JPEG@-2', 'v/000010.JPEG@+3#2')
    """
    return anchor + (f"@{offset:+d}" if offset else "") + (f"#{copy}" if copy > 1 else "")


def parse_row_id(row: str) -> tuple[str, int]:
    """The anchor and the offset of a row.

    >>> parse_row_id("v/000010.JPEG@+3#2"), parse_row_id("v/000010.JPEG")
    (('v/000010.JPEG', 3), ('v/000010.JPEG', 0))
    """
    found = _ROW.fullmatch(row)
    assert found is not None  # every text fits
    return found["anchor"], int(found["offset"] or 0)


def frame_dataset(
    name: str,
    space: LabelSpace,
    root: Path,
    anchors: Sequence[Anchor],
    *,
    k: int | None = None,
    files: Mapping[str, str] | None = None,
) -> FileDataset:
    """The anchors and their neighbours up to ``k`` frames away (all that are listed, if None) as one data set.

    ``files`` says where a frame lies below ``root``, if not under its own name. Each frame that is listed must be
    there: a missing one would make its anchor look harder or easier than it is.
    """
    rows = [row for anchor in anchors for row in _rows(anchor, k)]
    if not rows:
        raise DatasetError(f"{name!r} has no anchors", expected="at least one anchor frame with a label")
    where = [(files or {}).get(frame, frame) for _, _, frame, _ in rows]
    _require_files(name, root, where)
    places = [parse_row_id(row) for row, _, _, _ in rows]
    return FileDataset(
        name,
        space,
        root,
        where,
        [label for _, label, _, _ in rows],
        ids=[row for row, _, _, _ in rows],
        metadata={
            "frame": [frame for _, _, frame, _ in rows],
            "anchor": [anchor for anchor, _ in places],
            "offset": [offset for _, offset in places],
            "labels": [labels for _, _, _, labels in rows],
        },
    )


def _rows(anchor: Anchor, k: int | None) -> Iterator[tuple[str, int, str, tuple[int, ...]]]:
    """(id, label, frame, all labels), the anchor first, then its neighbours in time."""
    near = {0: (anchor.frame, anchor.labels)}
    near |= {o: anchor.neighbours[o] for o in sorted(anchor.neighbours) if k is None or abs(o) <= k}
    for offset, (frame, labels) in near.items():
        if not labels:
            raise DatasetError(f"the frame {frame} has no label", expected="a label for each anchor and neighbour")
        for copy, label in enumerate(labels, start=1):
            yield row_id(anchor.frame, offset, copy), label, frame, labels


def _require_files(name: str, root: Path, files: Sequence[str]) -> None:
    wanted = sorted(set(files))
    missing = [file for file in wanted if not (root / file).is_file()]
    if missing:
        raise DatasetError(
            f"{name} lacks {len(missing)} of its {len(wanted)} frames",
            found=f"no {missing[0]} below {root}",
            expected="every anchor and every valid neighbour",
            hint="`shiftbench data check` on the folder says where the frames come from",
        )


def agreed_space(own: str, space: LabelSpace | str | None) -> LabelSpace:
    """The set's super-classes; a space that a classifier may have, such as imagenet-1k, does no harm."""
    target = label_space(own)
    asked = label_space(space) if isinstance(space, str) else space
    if asked is not None and asked.keys != target.keys:
        target.projection_from(asked)  # refuses spaces that have nothing to do with it
    return target


def distinct(values: Collection[int]) -> tuple[int, ...]:
    """Each label once, in order."""
    return tuple(dict.fromkeys(int(value) for value in values))
