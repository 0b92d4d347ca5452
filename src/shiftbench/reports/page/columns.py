"""One setting of the page's grid, wherever it comes from: what it is, and its number for every model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from shiftbench.reports.page.payload import Estimate, SettingEntry

#: The source of a setting that the workspace evaluated.
OWN = "own"


@dataclass(frozen=True)
class GridColumn:
    """``cells`` by model; a model that was not evaluated in the setting is missing."""

    name: str
    cells: Mapping[str, Estimate]
    source: str
    metric: str = "accuracy"
    unit: str = "%"
    higher_is_better: bool = True
    reference: str | None = None
    note: str = ""
    provenance: str = ""
    #: The label space that the numbers are over (``space_key``); "" where a table does not say.
    space: str = ""

    def entry(self) -> SettingEntry:
        return {
            "name": self.name,
            "reference": self.reference,
            "metric": self.metric,
            "unit": self.unit,
            "higher_is_better": self.higher_is_better,
            "source": self.source,
            "note": self.note,
            "provenance": self.provenance,
        }

    def renamed(self, names: Mapping[str, str]) -> GridColumn:
        """Itself and its reference under new names."""
        reference = self.reference and names.get(self.reference, self.reference)
        return replace(self, name=names.get(self.name, self.name), reference=reference)

    def models_renamed(self, names: Mapping[str, str]) -> GridColumn:
        return replace(self, cells={names.get(model, model): value for model, value in self.cells.items()})

    @property
    def sizes(self) -> set[float]:
        """The numbers of images behind its numbers, as far as they are known."""
        return {value[3] for value in self.cells.values() if value[3] is not None}
