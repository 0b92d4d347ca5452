"""What loader workers share: pickled once, with its long lists of names and its large arrays in memory-mapped files.

A spawned worker unpickles its dataset. At 1.28 million images that would be a copy of every id and label per worker; so
``save`` writes each such list or array to a file, and ``load`` maps it: all workers of a machine read the same pages.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

#: Shorter lists and smaller arrays are pickled as they are.
_ENTRIES, _BYTES = 10_000, 1 << 16


class Strings(Sequence[str]):
    """A list of strings as one array of bytes and the places where each begins.

    >>> names = Strings.of(["a", "bc", ""])
    >>> names[1], names[-1], list(names[:2]), len(names)
    ('bc', '', ['a', 'bc'], 3)
    """

    def __init__(self, text: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
        self.text, self.starts = text, starts

    @classmethod
    def of(cls, strings: Sequence[str]) -> Strings:
        encoded = [one.encode("utf-8", "surrogateescape") for one in strings]
        starts = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        places = range(len(self))[index]
        if not isinstance(places, int):
            return [self[place] for place in places]
        return self.text[self.starts[places] : self.starts[places + 1]].tobytes().decode("utf-8", "surrogateescape")


class _Pickler(pickle.Pickler):
    def __init__(self, folder: Path, file: Any) -> None:
        super().__init__(file)
        self.folder, self.written = folder, dict[int, tuple[str, ...]]()

    def persistent_id(self, found: object) -> tuple[str, ...] | None:
        if id(found) in self.written:
            return self.written[id(found)]
        arrays: list[NDArray[Any]] = []
        if isinstance(found, np.ndarray) and found.nbytes > _BYTES and found.dtype.kind in "biuf":
            arrays = [found]
        elif type(found) is list and len(found) > _ENTRIES and all(type(one) is str for one in found):
            strings = Strings.of(found)
            arrays = [strings.text, strings.starts]
        if not arrays:
            return None
        names = tuple(f"{len(self.written)}-{part}.npy" for part in range(len(arrays)))
        for name, array in zip(names, arrays, strict=True):
            np.save(self.folder / name, array, allow_pickle=False)
        self.written[id(found)] = names
        return names


class _Unpickler(pickle.Unpickler):
    def __init__(self, folder: Path, file: Any) -> None:
        super().__init__(file)
        self.folder = folder

    def persistent_load(self, names: Any) -> object:
        arrays = [np.load(self.folder / name, mmap_mode="r", allow_pickle=False) for name in names]
        return Strings(*arrays) if len(arrays) == 2 else arrays[0]


def save(folder: Path, content: object) -> None:
    with (folder / "content.pkl").open("wb") as file:
        _Pickler(folder, file).dump(content)


def load(folder: Path) -> Any:
    """Only what ``save`` of this process's parent has just written: it is a pickle."""
    with (folder / "content.pkl").open("rb") as file:
        return _Unpickler(folder, file).load()
