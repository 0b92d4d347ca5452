"""The sections of the report page. A module here that defines ``SECTION`` adds one to the payload; nothing lists it.

Its script in ``assets/script`` calls ``defineSection`` and reads ``page.sections.<name>``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from shiftbench.grouping import by_key

if TYPE_CHECKING:
    from shiftbench.reports.page.payload import Page
    from shiftbench.reports.page.report_data import ReportData
    from shiftbench.store.workspace import Result

Part = TypeVar("Part")


@dataclass(frozen=True)
class Section(Generic[Part]):
    """One part of the payload. ``build`` computes it; an empty part is left out, and its tab with it."""

    name: str
    build: Callable[[ReportData], Part | None]

    def of(self, page: Page) -> Part | None:
        return cast("Part | None", page["sections"].get(self.name))


@lru_cache(maxsize=1)
def all_sections() -> tuple[Section[object], ...]:
    modules = [importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__)]
    return tuple(module.SECTION for module in modules)


def settings_with_room(results: Sequence[Result], most: int) -> list[str]:
    """The settings whose results a section shows one by one, if it has room for ``most`` results.

    Whole settings are left out, so that models can be compared in those that are shown. Settings without a shift come
    first, and of these the ones that most others refer to. One setting is always shown.
    """
    settings = by_key((result.setting, result) for result in results)
    references = Counter(result.spec.reference for result in results)

    def rank(setting: str) -> tuple[bool, int]:
        return settings[setting][0].spec.shift.kind != "none", -references[setting]

    shown: list[str] = []
    count = 0
    for setting in sorted(settings, key=rank):
        count += len(settings[setting])
        if shown and count > most:
            break
        shown.append(setting)
    return shown
