"""Frames of videos around anchors: ImageNet-Vid-Robust and YTBB-Robust (Shankar et al. 2021), and similar datasets.

An anchor is a labelled frame; its neighbours are the frames up to k before and after it that people judged similar. A
model is pm-k correct on an anchor if it is correct on the anchor and on every valid neighbour
(``pm_k_score``).

A frame may have several labels, and the neighbours of YTBB-Robust are compared with the labels of their anchor. So
that stored predictions alone give pm-k for any k, both are encoded in the rows: a neighbour's id is its anchor's with
the offset (``val/ILSVRC2015_val_00000000/000442.JPEG@-10``), and a frame with several labels has one row per label,
numbered from the second on (``...@-10#2``).
"""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from shiftbench.datasets.base import DataReport, DatasetKind, own_space
from shiftbench.datasets.stored import FileDataset
from shiftbench.errors import DatasetError, ShiftbenchError, raising
from shiftbench.io.paths import Location, place
from shiftbench.labels.space import AskedSpace, LabelSpace

_ROW = re.compile(r"(?P<anchor>.*?)(?:@(?P<offset>[+-]\d+))?(?:#(?P<copy>\d+))?")


@dataclass(frozen=True)
class Anchor:
    """An anchor frame with its valid neighbours, and the labels (indices) that count as correct for each frame."""

    frame: str
    labels: tuple[int, ...]
    #: Offset in frames, not 0, to the neighbour and its labels.
    neighbours: Mapping[int, tuple[str, tuple[int, ...]]]


def row_id(anchor: str, offset: int = 0, copy: int = 1) -> str:
    """Such as ``v/000010.JPEG@+3#2``."""
    return anchor + (f"@{offset:+d}" if offset else "") + (f"#{copy}" if copy > 1 else "")


def parse_row_id(row: str) -> tuple[str, int]:
    found = _ROW.fullmatch(row)
    assert found is not None  # every text fits
    return found["anchor"], int(found["offset"] or 0)


def frame_dataset(
    name: str,
    space: LabelSpace,
    root: Location,
    anchors: Sequence[Anchor],
    *,
    k: int | None = None,
    files: Mapping[str, str] | None = None,
) -> FileDataset:
    """The anchors and their neighbours up to ``k`` frames away (all that are listed, if None) as one dataset.

    ``files`` maps frames to their paths below ``root``, if they differ. Every listed frame must exist: a missing one
    would make its anchor look harder or easier than it is.
    """
    rows: list[tuple[str, str, int, str, int, tuple[int, ...]]] = []
    for anchor in anchors:  # the anchor first, then its neighbours in time
        near = {0: (anchor.frame, anchor.labels)}
        near |= {o: anchor.neighbours[o] for o in sorted(anchor.neighbours) if k is None or abs(o) <= k}
        for offset, (frame, labels) in near.items():
            if not labels:
                raise DatasetError(f"the frame {frame} has no label", expected="a label for each anchor and neighbour")
            for copy, label in enumerate(labels, start=1):
                rows.append((row_id(anchor.frame, offset, copy), anchor.frame, offset, frame, label, labels))
    if not rows:
        raise DatasetError(f"{name!r} has no anchors", expected="at least one anchor frame with a label")
    ids, anchor_frames, offsets, frames, single, sets = (list(column) for column in zip(*rows, strict=True))
    paths = [(files or {}).get(frame, frame) for frame in frames]
    _require_files(name, root, paths)
    metadata = {"frame": frames, "anchor": anchor_frames, "offset": offsets, "labels": sets}
    return FileDataset(name, space, root, paths, single, ids=ids, metadata=metadata)


def _require_files(name: str, root: Location, files: Sequence[str]) -> None:
    wanted = sorted(set(files))
    missing = [file for file in wanted if not (root / file).is_file()]
    if missing:
        raise DatasetError(
            f"{name} lacks {len(missing)} of its {len(wanted)} frames",
            found=f"no {missing[0]} below {root}",
            expected="every anchor and every valid neighbour",
            hint="`shiftbench data check` on the folder shows where to get the frames",
        )


def distinct(values: Collection[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(int(value) for value in values))


_VID_FRAMES = ("", "Data/VID", "frames")
_YTBB_FRAMES = ("ytbb_videos", "", "frames")
_METADATA = ("metadata", "", "imagenet-vid-robust_metadata", "ytbb-robust_metadata")
VID_FILES = ("pmsets.json", "labels.json")
YTBB_FILES = ("anchor_labels.json", "pmk_labels.json", "ytbb_robustness_test_anchors_full.csv")
#: Annotations of a pair of frames that disqualify the neighbour.
_PROBLEMS = {
    "dissimilar", "problematic", "incorrect", "dont know", "deformation", "background-change", "occlusion-increased",
    "blur-increase", "bad-anchor",
}  # fmt: skip


def find_metadata(root: Location, files: Sequence[str]) -> Location | None:
    """The folder at or below ``root`` that holds all of a set's annotation files."""
    return next((root / name for name in _METADATA if all((root / name / file).is_file() for file in files)), None)


def open_vid_robust(
    path: str | Location,
    *,
    space: AskedSpace = None,
    name: str | None = None,
    k: int | None = None,
    metadata: str | Location | None = None,
) -> FileDataset:
    """ImageNet-Vid-Robust: anchor frames and their neighbours, with metadata/pmsets.json and labels.json.

    1,109 anchors and 21,070 neighbours of the ImageNet VID validation videos, in 30 classes. The folder also holds
    the frames as ``val/<video>/<number>.JPEG`` or ``<video>/<number>.JPEG``. Each frame has its own labels.
    """
    root = place(path)
    folder = _metadata(root, metadata, VID_FILES, "ImageNet-Vid-Robust")
    pmsets, labels = (_json(folder / file) for file in VID_FILES)

    def labels_of(frame: str) -> tuple[int, ...]:
        if frame not in labels:
            raise DatasetError(f"labels.json has no labels for {frame}")
        return distinct(labels[frame])

    anchors = []
    for anchor, near in pmsets.items():
        neighbours = {_number(frame) - _number(anchor): (frame, labels_of(frame)) for frame in near}
        neighbours.pop(0, None)
        anchors.append(Anchor(anchor, labels_of(anchor), neighbours))
    first = anchors[0].frame if anchors else ""
    found = [
        (root / name, prefix)  # the leading val/ of the names is missing in some packings
        for name in _VID_FRAMES
        for prefix in ("", "val/")
        if (root / name / first.removeprefix(prefix)).parent.is_dir()
    ]
    frames, prefix = found[0] if found else (root, "")
    files = {frame: frame.removeprefix(prefix) for frame in labels}
    target = own_space("vid-robust-30", space, projectable=True)
    return frame_dataset(name or "imagenet-vid-robust", target, frames, anchors, k=k, files=files)


def _number(frame: str) -> int:
    found = re.search(r"(\d+)$", PurePosixPath(frame).stem)
    if found is None:
        raise DatasetError(f"the frame {frame} has no number", expected="names such as 000442.JPEG")
    return int(found[1])


def open_ytbb_robust(
    path: str | Location,
    *,
    space: AskedSpace = None,
    name: str | None = None,
    k: int | None = 10,
    metadata: str | Location | None = None,
) -> FileDataset:
    """YTBB-Robust: anchor frames and their neighbours, with the three annotation files in metadata/.

    Anchors of YouTube-BB that people judged good, and the neighbours they judged similar. The folder holds the frames
    as ``ytbb_videos/<video>_<milliseconds>/frame-<number>.jpg`` (or without the first folder) and the three annotation
    files of the ImageNet testbed. Neighbours are compared with the labels of their anchor. Anchors of the five classes
    that ImageNet lacks stay in, as published: no ImageNet model can be correct on them. The testbed registers 2,530
    anchors, but every published value is a multiple of 1/2030: 2,030 is the number to expect here.
    """
    root = place(path)
    folder = _metadata(root, metadata, YTBB_FILES, "YTBB-Robust")
    target = own_space("ytbb-robust-24", space, projectable=True)
    annotations: list[dict[str, set[str]]] = []
    for file in YTBB_FILES[:2]:
        value = _json(folder / file)
        names = [str(name) for name in value["labels"]]
        # if a key is annotated twice, the later one counts
        annotations.append({str(row["key"]): {names[i] for i in row["labels"]} for row in value["annotations"]})
    reviewed, pairs = annotations
    # The class of each anchor in YouTube-BB. There 22 is car and 23 none; in the set's own order it is reversed.
    swapped = {22: 23, 23: 22}
    given = {
        f"{row['ytid']}_{row['time_ms']}": swapped.get(int(row["label"]), int(row["label"]))
        for row in csv.DictReader((folder / YTBB_FILES[2]).read_text(encoding="utf-8").splitlines())
    }
    bad = {_key(key.split(",")[0]) for key, marks in pairs.items() if "bad-anchor" in marks}
    near: dict[str, dict[int, str]] = defaultdict(dict)
    for key, marks in pairs.items():
        if "similar" in marks and not marks & _PROBLEMS:
            anchor, neighbour = map(_key, key.split(","))
            near[anchor][_number(neighbour) - _number(anchor)] = neighbour
    anchors = []
    for raw, marks in reviewed.items():
        anchor = _key(raw)
        if "good" not in marks or marks & {"bad", "unsure"} or anchor in bad:
            continue
        video = anchor.split("/")[0]
        if video not in given:
            raise DatasetError(f"{YTBB_FILES[2]} has no label for the anchor {anchor}")
        added = [target.index(key) for key in (mark.replace(" ", "_") for mark in sorted(marks)) if key in target]
        labels = distinct([given[video], *added])
        neighbours = {offset: (frame, labels) for offset, frame in near[anchor].items() if offset}
        anchors.append(Anchor(anchor, labels, neighbours))
    first = anchors[0].frame if anchors else ""
    frames = next((root / name for name in _YTBB_FRAMES if (root / name / first).parent.is_dir()), root)
    return frame_dataset(name or "ytbb-robust", target, frames, anchors, k=k)


def _key(path: str) -> str:
    """``<video>_<milliseconds>/frame-<number>.jpg``, without the folders some annotations have before it."""
    return "/".join(PurePosixPath(path).parts[-2:])


def _metadata(root: Location, given: str | Location | None, files: Sequence[str], what: str) -> Location:
    folder = place(given) if given is not None else find_metadata(root, files)
    if folder is None or not all((folder / file).is_file() for file in files):
        missing = [file for file in files if folder is None or not (folder / file).is_file()]
        raise DatasetError(
            f"{root} lacks the annotations of {what}",
            found=f"no {', '.join(missing)}",
            expected=f"{' and '.join(files)} in it or in {root / 'metadata'}",
            hint="they come with the ImageNet testbed's source, under src/eval_settings",
        )
    return folder


def _json(path: Location) -> Any:
    with raising(DatasetError, f"{path} can't be read", OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class VideoDataset:
    title: str
    role: str
    files: tuple[str, ...]
    open: Callable[..., FileDataset]
    anchors: int
    frames: str

    def recognise(self, path: Location) -> str | None:
        """By its annotation files, or by the folder's name if they are missing."""
        named = path.resolve().name.casefold().replace("_", "-") == self.role
        found = path.is_dir() and (named or find_metadata(path, self.files) is not None)
        return f"the frames of {self.title}" if found else None

    def check(self, path: Location) -> DataReport:
        """All annotations and every frame that they list must be present."""
        report = DataReport(str(path), self.title, "frames and annotations", self.role, self.role)
        report.home = f"{self.frames}; annotations: GitHub, modestyachts/imagenet-testbed, below src/eval_settings"
        try:
            dataset = self.open(path)
        except ShiftbenchError as error:
            report.missing.append(f"{error.message} ({error.found})" if error.found else error.message)
            return report
        report.count(dataset)
        report.images = len(set(dataset.metadata["frame"]))
        anchors = len(set(dataset.metadata["anchor"]))
        report.notes.append(f"{anchors:,} anchors, {report.images - anchors:,} neighbours")
        if anchors < self.anchors:
            report.missing.append(f"{self.anchors - anchors:,} of {self.anchors:,} anchors in the annotations")
        return report


_VID = VideoDataset(
    "ImageNet-Vid-Robust",
    "imagenet-vid-robust",
    VID_FILES,
    open_vid_robust,
    1_109,
    "the VID validation videos of ILSVRC 2015 at image-net.org",
)
_YTBB = VideoDataset(
    "YTBB-Robust",
    "ytbb-robust",
    YTBB_FILES,
    open_ytbb_robust,
    2_030,
    "frames of YouTube-BB's validation videos, to be cut from YouTube",
)
VID_ROBUST = DatasetKind(_VID.recognise, open_vid_robust, _VID.check)
YTBB_ROBUST = DatasetKind(_YTBB.recognise, open_ytbb_robust, _YTBB.check)
