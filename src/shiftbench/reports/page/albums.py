"""Where the small pictures of a page are kept, each once: inside the file, or made when a reader asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from shiftbench.errors import ShiftbenchError
from shiftbench.reports.page.pictures import Recipe

#: Bytes of all pictures in a file; a page of some 3 MB opens at once and can be sent by mail.
BUDGET = 2_000_000
#: What the live viewer calls its pictures, relative to the page.
PICTURES = "pictures"


class Album(Protocol):
    #: In the order of their indices.
    urls: list[str]

    def place(self, recipes: Sequence[Recipe]) -> list[int | None]:
        """The indices of pictures; None for one that can't be made."""

    @property
    def full(self) -> bool:
        """Whether the page has grown as large as it may."""


@dataclass
class FileAlbum:
    """Pictures made at once and kept as data: URLs."""

    budget: float = BUDGET
    urls: list[str] = field(default_factory=list)
    _index: dict[tuple[object, ...], int | None] = field(default_factory=dict)
    _size: int = 0

    def place(self, recipes: Sequence[Recipe]) -> list[int | None]:
        keys = [recipe.key for recipe in recipes]
        new = {key: recipe for key, recipe in zip(keys, recipes, strict=True) if key not in self._index}
        with ThreadPoolExecutor() as pool:
            made = list(pool.map(_data_url, new.values()))
        for key, url in zip(new, made, strict=True):
            self._index[key] = None if url is None else len(self.urls)
            if url is not None:
                self.urls.append(url)
                self._size += len(url)
        return [self._index[key] for key in keys]

    @property
    def full(self) -> bool:
        return self._size >= self.budget


def _data_url(recipe: Recipe) -> str | None:
    try:
        return recipe.data_url()
    except ShiftbenchError:
        return None


@dataclass
class LiveAlbum:
    """Pictures under addresses of their own, made when a reader asks for one."""

    recipes: dict[str, Recipe] = field(default_factory=dict)
    urls: list[str] = field(default_factory=list)
    _index: dict[str, int] = field(default_factory=dict)
    full: bool = False

    def place(self, recipes: Sequence[Recipe]) -> list[int | None]:
        return [self._place(recipe) for recipe in recipes]

    def _place(self, recipe: Recipe) -> int:
        name = recipe.digest
        if name not in self._index:
            self._index[name], self.recipes[name] = len(self.urls), recipe
            self.urls.append(f"{PICTURES}/{name}.webp")
        return self._index[name]
