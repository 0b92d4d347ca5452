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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
    #: For each offset in frames, which is never 0, the neighbour and its labels.
    neighbours: Mapping[int, tuple[str, tuple[int, ...]]]

    def frames_within(self, k: int | None) -> Iterator[tuple[int, str, tuple[int, ...]]]:
        """Offset, frame and labels of the anchor, then of its neighbours in time, up to ``k`` frames away."""
        yield 0, self.frame, self.labels
        for offset in sorted(self.neighbours):
            if k is None or abs(offset) <= k:
                frame, labels = self.neighbours[offset]
                yield offset, frame, labels


def row_id(anchor: str, offset: int = 0, copy: int = 1) -> str:
    """The id of a row, such as ``v/000010.JPEG@+3#2``."""
    text = anchor
    if offset:
        text += f"@{offset:+d}"
    if copy > 1:
        text += f"#{copy}"
    return text


def parse_row_id(row: str) -> tuple[str, int]:
    """The anchor and the offset of a row, from its id."""
    match = _ROW.fullmatch(row)
    assert match is not None  # every text fits
    return match["anchor"], int(match["offset"] or 0)


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
    ids = []
    row_labels = []
    metadata: dict[str, list[Any]] = {"frame": [], "anchor": [], "offset": [], "labels": []}
    for anchor in anchors:
        for offset, frame, labels in anchor.frames_within(k):
            if not labels:
                raise DatasetError(f"the frame {frame} has no label", expected="a label for each anchor and neighbour")
            for copy, label in enumerate(labels, start=1):
                ids.append(row_id(anchor.frame, offset, copy))
                row_labels.append(label)
                metadata["frame"].append(frame)
                metadata["anchor"].append(anchor.frame)
                metadata["offset"].append(offset)
                metadata["labels"].append(labels)
    if not ids:
        raise DatasetError(f"{name!r} has no anchors", expected="at least one anchor frame with a label")
    paths = metadata["frame"]
    if files is not None:
        paths = [files.get(frame, frame) for frame in paths]
    _require_files(name, root, paths)
    dataset = FileDataset(name, space, root, paths, row_labels, ids=ids, metadata=metadata)
    dataset.repeats_files = True
    return dataset


def _require_files(name: str, root: Location, files: Sequence[str]) -> None:
    unique_files = sorted(set(files))
    missing = [file for file in unique_files if not (root / file).is_file()]
    if missing:
        raise DatasetError(
            f"{name} lacks {len(missing)} of its {len(unique_files)} frames",
            found=f"no {missing[0]} below {root}",
            expected="every anchor and every valid neighbour",
            hint="`shiftbench data check` on the folder shows where to get the frames",
        )


def distinct(values: Collection[int]) -> tuple[int, ...]:
    """The values as integers in their order, without repetitions."""
    return tuple(dict.fromkeys(int(value) for value in values))


_VID_FRAMES = ("", "Data/VID", "frames")
_YTBB_FRAMES = ("ytbb_videos", "", "frames")
_METADATA = ("metadata", "", "imagenet-vid-robust_metadata", "ytbb-robust_metadata")
VID_FILES = ("pmsets.json", "labels.json")
YTBB_FILES = ("anchor_labels.json", "pmk_labels.json", "ytbb_robustness_test_anchors_full.csv")
#: Annotations of a pair of frames that disqualify the neighbour.
_PROBLEMS = {
    "dissimilar",
    "problematic",
    "incorrect",
    "dont know",
    "deformation",
    "background-change",
    "occlusion-increased",
    "blur-increase",
    "bad-anchor",
}


def find_metadata(root: Location, files: Sequence[str]) -> Location | None:
    """The folder at or below ``root`` that holds all of a dataset's annotation files; None if there is none."""
    for name in _METADATA:
        folder = root / name
        if not _absent_files(folder, files):
            return folder
    return None


def _absent_files(folder: Location, files: Sequence[str]) -> list[str]:
    return [file for file in files if not (folder / file).is_file()]


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
    for anchor, frames in pmsets.items():
        neighbours = {_number(frame) - _number(anchor): (frame, labels_of(frame)) for frame in frames}
        neighbours.pop(0, None)  # an anchor may be listed as its own neighbour
        anchors.append(Anchor(anchor, labels_of(anchor), neighbours))
    frames_root, prefix = _find_vid_frames(root, anchors)
    files = {frame: frame.removeprefix(prefix) for frame in labels}
    target = own_space("vid-robust-30", space, projectable=True)
    return frame_dataset(name or "imagenet-vid-robust", target, frames_root, anchors, k=k, files=files)


def _find_vid_frames(root: Location, anchors: Sequence[Anchor]) -> tuple[Location, str]:
    """The folder of the frames, and the prefix that their names lack there.

    Some copies of the videos lack the leading ``val/`` of the names.
    """
    first = anchors[0].frame if anchors else ""
    for name in _VID_FRAMES:
        for prefix in ("", "val/"):
            if (root / name / first.removeprefix(prefix)).parent.is_dir():
                return root / name, prefix
    return root, ""


def _number(frame: str) -> int:
    """The number of a frame in its video, from its file name."""
    match = re.search(r"(\d+)$", PurePosixPath(frame).stem)
    if match is None:
        raise DatasetError(f"the frame {frame} has no number", expected="names such as 000442.JPEG")
    return int(match[1])


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
    reviews, pairs = (_ytbb_annotations(folder / file) for file in YTBB_FILES[:2])
    video_labels = _ytbb_labels(folder / YTBB_FILES[2])
    bad_anchors = {_key(pair.split(",")[0]) for pair, marks in pairs.items() if "bad-anchor" in marks}
    similar_frames = _similar_frames(pairs)
    anchors = []
    for frame, marks in reviews.items():
        anchor = _key(frame)
        if "good" not in marks or marks & {"bad", "unsure"} or anchor in bad_anchors:
            continue
        video = anchor.split("/")[0]
        if video not in video_labels:
            raise DatasetError(f"{YTBB_FILES[2]} has no label for the anchor {anchor}")
        # Marks that are names of classes are further labels, which people have seen in the frame.
        seen_classes = [mark.replace(" ", "_") for mark in sorted(marks)]
        seen_labels = [target.index(key) for key in seen_classes if key in target]
        labels = distinct([video_labels[video], *seen_labels])
        neighbours = {offset: (frame, labels) for offset, frame in similar_frames[anchor].items() if offset}
        anchors.append(Anchor(anchor, labels, neighbours))
    return frame_dataset(name or "ytbb-robust", target, _find_ytbb_frames(root, anchors), anchors, k=k)


def _similar_frames(pairs: Mapping[str, set[str]]) -> dict[str, dict[int, str]]:
    """For each anchor the neighbours that people judged similar, by their distance from it in frames."""
    similar_frames: dict[str, dict[int, str]] = defaultdict(dict)
    for pair, marks in pairs.items():
        if "similar" in marks and not marks & _PROBLEMS:
            anchor, neighbour = map(_key, pair.split(","))
            similar_frames[anchor][_number(neighbour) - _number(anchor)] = neighbour
    return similar_frames


def _ytbb_annotations(path: Location) -> dict[str, set[str]]:
    """For each frame or pair of frames the marks that people gave it; a later annotation replaces an earlier one."""
    document = _json(path)
    names = [str(name) for name in document["labels"]]
    annotations = {}
    for row in document["annotations"]:
        annotations[str(row["key"])] = {names[i] for i in row["labels"]}
    return annotations


def _ytbb_labels(path: Location) -> dict[str, int]:
    """For each video the class of its anchor, as an index into the dataset's label space.

    In YouTube-BB 22 is car and 23 none; in the label space it is the other way round.
    """
    swapped = {22: 23, 23: 22}
    labels = {}
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
        label = int(row["label"])
        labels[f"{row['ytid']}_{row['time_ms']}"] = swapped.get(label, label)
    return labels


def _find_ytbb_frames(root: Location, anchors: Sequence[Anchor]) -> Location:
    """The folder of the frames, at or below ``root``."""
    first = anchors[0].frame if anchors else ""
    for name in _YTBB_FRAMES:
        if (root / name / first).parent.is_dir():
            return root / name
    return root


def _key(path: str) -> str:
    """Reduce a path to ``<video>_<milliseconds>/frame-<number>.jpg``: some annotations have folders before it."""
    return "/".join(PurePosixPath(path).parts[-2:])


def _metadata(root: Location, folder: str | Location | None, files: Sequence[str], title: str) -> Location:
    """The folder of the annotations: ``folder`` if it is given, else one at or below ``root``."""
    location = find_metadata(root, files) if folder is None else place(folder)
    missing = files if location is None else _absent_files(location, files)
    if location is None or missing:
        raise DatasetError(
            f"{root} lacks the annotations of {title}",
            found=f"no {', '.join(missing)}",
            expected=f"{' and '.join(files)} in it or in {root / 'metadata'}",
            hint="they come with the ImageNet testbed's source, under src/eval_settings",
        )
    return location


def _json(path: Location) -> Any:
    with raising(DatasetError, f"{path} can't be read", OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class VideoDataset:
    """A published dataset of videos: how it is recognised, and what a complete copy holds."""

    title: str
    role: str
    #: Names of the annotation files.
    files: tuple[str, ...]
    open: Callable[..., FileDataset]
    #: Number of anchors in the published dataset.
    anchors: int
    #: Where to get the frames.
    frames: str

    def recognise(self, path: Location) -> str | None:
        """Recognise the dataset by its annotation files, or by the folder's name if they are missing."""
        if not path.is_dir():
            return None
        has_title = path.resolve().name.casefold().replace("_", "-") == self.role
        if has_title or find_metadata(path, self.files) is not None:
            return f"the frames of {self.title}"
        return None

    def check(self, path: Location) -> DataReport:
        """Report what is missing: all annotations and every frame that they list must be present."""
        report = DataReport(str(path), self.title, "frames and annotations", self.role, self.role)
        report.home = f"{self.frames}; annotations: GitHub, modestyachts/imagenet-testbed, below src/eval_settings"
        try:
            dataset = self.open(path)
        except ShiftbenchError as error:
            message = error.message
            if error.found:
                message += f" ({error.found})"
            report.missing.append(message)
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
