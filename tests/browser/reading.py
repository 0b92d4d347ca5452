"""What tests read off a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Locator
    from playwright.sync_api import Page as Tab


def floats(text: str | None) -> list[float]:
    return [float(word) for word in (text or "").split()]


def column(tab: Tab, place: int, section: str = "robustness") -> list[str]:
    """The texts of a table's column, counted from 1."""
    return tab.locator(f"#panel-{section} .table-box tbody tr > :nth-child({place})").all_inner_texts()


def hover(tab: Tab, name: str) -> Locator:
    """The tooltip of a model in the scatter plot."""
    # By its place, for a neighbour may lie on top.
    tab.locator(f'[data-model="{name}"]').hover(force=True)
    return tab.locator("#tooltip")
