"""The two published video sets in their own files: ImageNet-Vid-Robust and YTBB-Robust (Shankar et al. 2021)."""

from __future__ import annotations

import csv
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from shiftbench.datasets.files import FileDataset
from shiftbench.datasets.videos import Anchor, agreed_space, distinct, frame_dataset
from shiftbench.errors import DatasetError
from shiftbench.labels.space import LabelSpace

_VID_FRAMES = ("", "Data/VID", "frames")
_YTBB_FRAMES = ("ytbb_videos", "", "frames")
_METADATA = ("metadata", "", "imagenet-vid-robust_metadata", "ytbb-robust_metadata")
VID_FILES = ("pmsets.json", "labels.json")
YTBB_FILES = ("anchor_labels.json", "pmk_labels.json", "ytbb_robustness_test_anchors_full.csv")
#: Marks of a pair of frames that disqualify the neighbour.
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


def find_metadata(root: Path, files: Sequence[str]) -> Path | None:
    """The folder at or below ``root`` that holds all of a set's annotation files."""
    for name in _METADATA:
        if all((root / name / file).is_file() for file in files):
            return root / name
    return None


def open_vid_robust(
    path: str | Path,
    *,
    space: LabelSpace | str | None = None,
    name: str | None = None,
    k: int | None = None,
    metadata: str | Path | None = None,
) -> FileDataset:
    """ImageNet-Vid-Robust: 1,109 anchors and 21,070 neighbours of the ImageNet VID validation videos, 30 classes.

    The folder holds ``metadata/pmsets.json`` and ``metadata/labels.json``, and the frames as
    ``val/<video>/<number>.JPEG`` or ``<video>/<number>.JPEG``. Each frame has its own labels.
    """
    root = Path(path)
    folder = _metadata(root, metadata, VID_FILES, "ImageNet-Vid-Robust")
    pmsets, labels = (_json(folder / file) for file in VID_FILES)
    anchors = []
    for anchor, near in pmsets.items():
        neighbours = {_number(f) - _number(anchor): (f, distinct(_labels_of(labels, f))) for f in near}
        neighbours.pop(0, None)
        anchors.append(Anchor(anchor, distinct(_labels_of(labels, anchor)), neighbours))
    frames, stripped = _vid_frames(root, anchors)
    files = {f: f.removeprefix("val/") for f in labels} if stripped else None
    target = agreed_space("vid-robust-30", space)
    return frame_dataset(name or "imagenet-vid-robust", target, frames, anchors, k=k, files=files)


def _vid_frames(root: Path, anchors: Sequence[Anchor]) -> tuple[Path, bool]:
    """Where the frames lie, and whether the leading ``val/`` of their names is left off there."""
    first = anchors[0].frame if anchors else ""
    for name in _VID_FRAMES:
        if (root / name / first).parent.is_dir():
            return root / name, False
        if (root / name / first.removeprefix("val/")).parent.is_dir():
            return root / name, True
    return root, False


def _number(frame: str) -> int:
    found = re.search(r"(\d+)$", PurePosixPath(frame).stem)
    if found is None:
        raise DatasetError(f"the frame {frame} has no number", expected="names such as 000442.JPEG")
    return int(found[1])


def _labels_of(labels: Mapping[str, Any], frame: str) -> Sequence[int]:
    try:
        found: Sequence[int] = labels[frame]
    except KeyError:
        raise DatasetError(f"labels.json has no labels for {frame}") from None
    return found


def open_ytbb_robust(
    path: str | Path,
    *,
    space: LabelSpace | str | None = None,
    name: str | None = None,
    k: int | None = 10,
    metadata: str | Path | None = None,
) -> FileDataset:
    """YTBB-Robust: anchors of YouTube-BB that people found good, and the neighbours they found similar.

    The folder holds the frames as ``ytbb_videos/<video>_<milliseconds>/frame-<number>.jpg`` (or without the first
    folder) and the three annotation files of the ImageNet testbed. Neighbours are held against the labels of their
    anchor. Anchors of the five classes that ImageNet lacks stay in, as published: no ImageNet classifier can be right
    on them. The testbed registers 2,530 anchors, but every published value is a multiple of 1/2030: 2,030 is the
    number to expect here.
    """
    root = Path(path)
    folder = _metadata(root, metadata, YTBB_FILES, "YTBB-Robust")
    target = agreed_space("ytbb-robust-24", space)
    reviewed, pairs = (_annotations(folder / file) for file in YTBB_FILES[:2])
    given = _first_labels(folder / YTBB_FILES[2])
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
        added = [target.index(key) for key in (mark.replace(" ", "_") for mark in sorted(marks)) if key in target]
        labels = distinct([_first_label(given, anchor), *added])
        neighbours = {offset: (frame, labels) for offset, frame in near[anchor].items() if offset}
        anchors.append(Anchor(anchor, labels, neighbours))
    first = anchors[0].frame if anchors else ""
    frames = next((root / name for name in _YTBB_FRAMES if (root / name / first).parent.is_dir()), root)
    return frame_dataset(name or "ytbb-robust", target, frames, anchors, k=k)


def _key(path: str) -> str:
    """``<video>_<milliseconds>/frame-<number>.jpg``, without the folders some annotations have before it."""
    parts = PurePosixPath(path).parts
    return "/".join(parts[-2:])


def _annotations(path: Path) -> dict[str, set[str]]:
    """Key to the marks given; of a key annotated twice the later counts."""
    value = _json(path)
    names = [str(name) for name in value["labels"]]
    return {str(row["key"]): {names[i] for i in row["labels"]} for row in value["annotations"]}


def _first_labels(path: Path) -> dict[str, int]:
    """The class of each anchor in YouTube-BB. There 22 is car and 23 none; in the set's own order it is reversed."""
    swapped = {22: 23, 23: 22}
    with path.open(encoding="utf-8", newline="") as file:
        return {
            f"{row['ytid']}_{row['time_ms']}": swapped.get(int(row["label"]), int(row["label"]))
            for row in csv.DictReader(file)
        }


def _first_label(given: Mapping[str, int], anchor: str) -> int:
    try:
        return given[anchor.split("/")[0]]
    except KeyError:
        raise DatasetError(f"{YTBB_FILES[2]} has no label for the anchor {anchor}") from None


def _metadata(root: Path, given: str | Path | None, files: Sequence[str], what: str) -> Path:
    folder = Path(given) if given is not None else find_metadata(root, files)
    missing = [file for file in files if folder is None or not (folder / file).is_file()]
    if folder is None or missing:
        raise DatasetError(
            f"{root} lacks the annotations of {what}",
            found=f"no {', '.join(missing)}",
            expected=f"{' and '.join(files)} in it or in {root / 'metadata'}",
            hint="they come with the ImageNet testbed's source, under src/eval_settings",
        )
    return folder


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DatasetError(f"{path} can't be read", found=error) from error
