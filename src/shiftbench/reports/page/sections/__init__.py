"""The sections of the report page. A module here that defines ``SECTION`` adds one to the payload; nothing lists it.

Its script in ``assets/script`` calls ``defineSection`` and reads ``page.sections.<name>``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, TypeVar, cast

if TYPE_CHECKING:
    from shiftbench.reports.page.payload import Page
    from shiftbench.reports.page.report_data import ReportData

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
