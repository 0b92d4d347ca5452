"""One kind of registry for every extension point: a decorated object under the name the CLI shows.

Built-in modules and third parties' plugins (entry points of the group ``shiftbench.plugins``, each a module
that registers what it brings) are imported on the first look-up, never at ``import shiftbench``.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from shiftbench.errors import ShiftbenchError, UnknownNameError

T = TypeVar("T")
PLUGIN_GROUP = "shiftbench.plugins"


class Registry(Generic[T]):
    """Names to objects, in the order of registration.

    >>> greetings: Registry[str] = Registry("greeting")
    >>> _ = greetings.add("hello", "Hello!")
    >>> greetings.get("hello")
    'Hello!'
    """

    def __init__(self, kind: str, builtin: tuple[str, ...] = ()) -> None:
        self.kind = kind
        self._builtin = builtin
        self._items: dict[str, T] = {}
        self._loaded = False
        self._loading = threading.RLock()

    def add(self, name: str, item: T) -> T:
        if name in self._items and self._items[name] is not item:
            raise ShiftbenchError(f"the {self.kind} {name!r} is registered twice")
        self._items[name] = item
        return item

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: ``@registry.register("fog")``."""
        return lambda item: self.add(name, item)

    def get(self, name: str) -> T:
        self._load()
        try:
            return self._items[name]
        except KeyError:
            raise UnknownNameError(self.kind, name, self._items) from None

    def names(self) -> list[str]:
        self._load()
        return list(self._items)

    def __contains__(self, name: str) -> bool:
        self._load()
        return name in self._items

    def __iter__(self) -> Iterator[tuple[str, T]]:
        self._load()
        return iter(list(self._items.items()))

    def _load(self) -> None:
        if self._loaded:
            return
        with self._loading:
            if self._loaded:
                return
            for module in self._builtin:
                importlib.import_module(module)
            self._loaded = True
            load_plugins()


_plugins_loaded = False


def load_plugins() -> None:
    """Import every third-party plugin once; a broken one is named, not swallowed."""
    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True
    # Imported here: it costs as much as the rest of the package together.
    import importlib.metadata

    for entry in importlib.metadata.entry_points(group=PLUGIN_GROUP):
        try:
            entry.load()
        except Exception as error:
            raise ShiftbenchError(
                f"the plugin {entry.name!r} ({entry.value}) failed to load: {error}",
                hint="update or uninstall the package that brings it",
            ) from error
