"""Icons-50 as released, in small: the file names are of the kind that the archive has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from shiftbench.labels import label_space

CLASSES = label_space("icons-50").keys
#: (class, style, rendition, subtype): every style draws every subtype, Google three times.
NAMES = [
    (label, style, rendition, subtype)
    for label in CLASSES
    for style, renditions in (("apple", 1), ("google", 3), ("microsoft", 1), ("emoji-one", 2))
    for rendition in range(renditions)
    for subtype in (
        {"bird": ["duck", "eagle"], "books": ["books", "blue_book"], "monkey": ["monkey", "monkey_face"]}.get(label)
        or [f"{label}_one", f"{label}_two"]
    )
]


def picture(number: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)


def original_folder(root: Path) -> Path:
    for number, (label, style, rendition, subtype) in enumerate(NAMES):
        (root / label).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(number)).save(root / label / f"{style}_{rendition}_{subtype}.png")
    (root / "README.txt").write_text("as in the archive")
    return root


def original_npy(path: Path, **changes: Any) -> Path:
    value = {
        "class": np.array([CLASSES.index(name[0]) for name in NAMES]),
        "style": [name[1] for name in NAMES],
        "rendition": [str(name[2]) for name in NAMES],
        "subtype": [name[3] for name in NAMES],
        "image": np.stack([picture(number).transpose(2, 0, 1) for number in range(len(NAMES))]),
    }
    np.save(path, {**value, **changes}, allow_pickle=True)  # type: ignore[arg-type]
    return path
