"""The registry behind every extension point: decorated objects under the names that the CLI shows.

Built-in modules and third parties' plugins (entry points of the group ``shiftbench.plugins``, each a module
that registers what it brings) are imported on the first look-up, never at ``import shiftbench``.
"""

from __future__ import annotations

import importlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from shiftbench.errors import ShiftbenchError, UnknownNameError

T = TypeVar("T")
PLUGIN_GROUP = "shiftbench.plugins"


@dataclass(frozen=True)
class Family(Generic[T]):
    """Names of one pattern, too many to list; the object is built from the matched part of the name."""

    #: What listings show: "pmK".
    name: str
    pattern: re.Pattern[str]
    make: Callable[[str], T]


class Registry(Generic[T]):
    """Names to objects, in the order of registration.

    >>> greetings: Registry[str] = Registry("greeting")
    >>> _ = greetings.add("hello", "Hello!")
    >>> greetings.get("hello")
    'Hello!'

    Args:
        kind: What the names are called in messages.
        builtin: Modules that register the built-in objects.
        aliases: Other names that people type, in lower case; listings do not show them.
        elsewhere: Names that people look for here, in lower case, and where to find what they mean.
    """

    def __init__(
        self,
        kind: str,
        builtin: tuple[str, ...] = (),
        *,
        aliases: Mapping[str, str] = MappingProxyType({}),
        elsewhere: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.kind = kind
        self._builtin = builtin
        self._aliases = aliases
        self._elsewhere = elsewhere
        self._items: dict[str, T] = {}
        self._families: list[Family[T]] = []
        self._loading = False
        self._loaded = False

    def add(self, name: str, item: T) -> T:
        """Register an object, and return it; ShiftbenchError if another one has the name."""
        if name in self._items and self._items[name] is not item:
            raise ShiftbenchError(f"the {self.kind} {name!r} is registered twice")
        self._items[name] = item
        return item

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: ``@registry.register("fog")``."""
        return lambda item: self.add(name, item)

    def family(self, name: str, pattern: str) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
        """Decorator: what the pattern's one group finds in a name becomes an object when it is asked for.

        >>> powers: Registry[int] = Registry("power")
        >>> @powers.family("2**K", "2[*][*]([0-9]+)")
        ... def power_of_two(exponent: str) -> int:
        ...     return 2 ** int(exponent)
        >>> powers.get("2**10"), powers.names()
        (1024, [])
        """

        def add(make: Callable[[str], T]) -> Callable[[str], T]:
            self._families.append(Family(name, re.compile(pattern), make))
            return make

        return add

    def get(self, name: str) -> T:
        """The object of this name, of a family's pattern, or of an alias; UnknownNameError if there is none."""
        self._load()
        if name in self._items:
            return self._items[name]
        for family in self._families:
            match = family.pattern.fullmatch(name)
            if match is not None:
                return family.make(match[1])
        alias = self._aliases.get(name.lower())
        if alias is not None:
            return self._items[alias]
        names = [*self._items, *(family.name for family in self._families)]
        raise UnknownNameError(self.kind, name, names, hint=self._elsewhere.get(name.lower()))

    def names(self) -> list[str]:
        """All names, without aliases and those of families."""
        self._load()
        return list(self._items)

    def families(self) -> list[Family[T]]:
        self._load()
        return list(self._families)

    def __contains__(self, name: str) -> bool:
        self._load()
        return name in self._items

    def __iter__(self) -> Iterator[tuple[str, T]]:
        self._load()
        return iter(list(self._items.items()))

    def _load(self) -> None:
        """Import the built-in modules and the plugins, once."""
        if self._loaded:
            return
        with _load_lock:
            if self._loading or self._loaded:  # looked up by what is being imported, or loaded by another thread
                return
            self._loading = True
            try:
                for module in self._builtin:
                    importlib.import_module(module)
                load_plugins()
            finally:
                self._loading = False
            self._loaded = True


#: One for all registries: a plugin may bring pieces of any kind. The thread that holds it may look names up meanwhile.
_load_lock = threading.RLock()
_plugins_loaded = False


def load_plugins() -> None:
    """Import every third-party plugin once; the error of a broken one names it."""
    global _plugins_loaded
    with _load_lock:
        if not _plugins_loaded:
            _plugins_loaded = True
            _import_plugins()


def _import_plugins() -> None:
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
