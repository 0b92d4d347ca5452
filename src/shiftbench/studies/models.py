"""What is known about models: a small table that users edit.

Our own format is a CSV file with a column ``model`` and any of these:

| column | meaning |
|---|---|
| category | ``standard``, ``lp_adversarial``, ``robustness_intervention``, ``more_data``, ``low_accuracy``, or yours |
| base_model | the model it was made from, for relative robustness |
| intervention | what was changed: ``augmix``, ``adversarial training``, ... |
| size | millions of parameters, or your own description |
| training_data | ``imagenet``, ``jft-300m``, ... |
| baseline | 1 or 0: whether the line may go through it (else all of the baseline category may) |
| changes | what it changes, for hypotheses: tags separated by ``;`` |

``low_accuracy`` are controls: they are shown, but no correlation counts them. A list with the columns
``category_detail``, ``base_model_derived`` and ``used_in_line_fit`` is understood as it is. Other columns are kept in
``extra``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shiftbench.arrays import BoolArray
from shiftbench.errors import listed
from shiftbench.studies.base import StudyError
from shiftbench.studies.results import NAME_COLUMNS, find_column, read_rows

STANDARD, LOW_ACCURACY = "standard", "low_accuracy"

#: Names for our columns in the tables one meets.
_ALIASES = {
    "base_model": ("base_model", "base", "base_model_derived"),
    "training_data": ("training_data", "data", "pretrain"),
    "size": ("size", "parameters", "param_count"),
    "baseline": ("baseline", "used_in_line_fit"),
    "category": ("category", "type"),
    "intervention": ("intervention",),
    "changes": ("changes", "tags"),
}
_YES, _NO = {"1", "true", "yes", "y"}, {"0", "false", "no", "n"}


@dataclass(frozen=True)
class ModelInfo:
    """One model; an empty string where something is not known.

    Attributes:
        model: Name of the model.
        category: ``standard``, ``robustness intervention``, ``more data``, or another.
        base_model: The model it was made from.
        intervention: What was done to make it robust.
        size: Size of the network.
        training_data: What it was trained on.
        baseline: None: the category decides.
        changes: What distinguishes it from its base.
        extra: Further columns of the table.
    """

    model: str
    category: str = ""
    base_model: str = ""
    intervention: str = ""
    size: str = ""
    training_data: str = ""
    baseline: bool | None = None
    changes: tuple[str, ...] = ()
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Models(Mapping[str, ModelInfo]):
    """Models by name.

    Attributes:
        rows: The models by name.
    """

    rows: Mapping[str, ModelInfo]

    def __getitem__(self, name: str) -> ModelInfo:
        return self.rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def category(self, name: str) -> str:
        """The category of a model; empty if it is not known."""
        return self.rows[name].category if name in self.rows else ""

    @property
    def bases(self) -> dict[str, str]:
        """Model to base model, where one is known."""
        return {name: row.base_model for name, row in self.rows.items() if row.base_model}

    def baseline(self, names: Sequence[str], category: str = STANDARD, *, exclude: Sequence[str] = ()) -> BoolArray:
        """Which of these models the line may go through.

        Those of the category, unless their ``baseline`` mark is 0 or their lower-cased name contains one of
        ``exclude``.
        """
        parts = [part.lower() for part in exclude]
        return np.array([self._fits(name, category, parts) for name in names], dtype=bool)

    def _fits(self, name: str, category: str, parts: Sequence[str]) -> bool:
        info = self.rows.get(name)
        if info is None or info.category.lower() != category.lower() or info.baseline is False:
            return False
        return not any(part in name.lower() for part in parts)

    def others(self, names: Sequence[str], category: str = STANDARD, *, exclude: Sequence[str] = ()) -> BoolArray:
        """The models known to be of another category, except controls of low accuracy and those whose lower-cased
        name contains one of ``exclude``; models that the table does not list are not counted."""
        parts, left_out = [part.lower() for part in exclude], {category.lower(), LOW_ACCURACY}
        return np.array(
            [
                name in self.rows
                and self.category(name).lower() not in left_out
                and not any(part in name.lower() for part in parts)
                for name in names
            ],
            dtype=bool,
        )

    def column(self, name: str, column: str) -> str:
        """What the table says about a model in one of its columns, empty if nothing."""
        info = self.rows.get(name)
        return "" if info is None else str(getattr(info, column, info.extra.get(column, "")))


def read_models(path: str | Path) -> Models:
    """The table of models from a .csv or .parquet file; see the top of this module for its columns.

    Args:
        path: The file.
    """
    path = Path(path)
    header, rows = read_rows(path)
    lowered = [name.strip().lower() for name in header]
    name_at = find_column(lowered, NAME_COLUMNS)
    if name_at is None:
        raise StudyError(f"{path.name} has no column 'model'", found=listed(header))
    at = {ours: find_column(lowered, aliases) for ours, aliases in _ALIASES.items()}
    found: dict[str, ModelInfo] = {}
    for number, row in enumerate(rows, start=2):
        cells = ["" if cell is None else str(cell).strip() for cell in row]
        name = cells[name_at]
        if name in found:
            raise StudyError(f"{path.name} has a duplicate model", found=f"{name!r}, the second in line {number}")
        known = {ours: cells[i] if i is not None else "" for ours, i in at.items()}
        used = {name_at, *(i for i in at.values() if i is not None)}
        extra = {lowered[i]: cell for i, cell in enumerate(cells) if i not in used}
        found[name] = ModelInfo(
            name, known["category"], known["base_model"], known["intervention"], known["size"],
            known["training_data"], _mark(path, number, known["baseline"]),
            tuple(word.strip() for word in known["changes"].split(";") if word.strip()), extra,
        )  # fmt: skip
    return Models(found)


def _mark(path: Path, line: int, text: str) -> bool | None:
    if not text:
        return None
    if text.lower() in _YES | _NO:
        return text.lower() in _YES
    raise StudyError(f"{path.name}, line {line}: invalid baseline mark", found=repr(text), expected="1 or 0")
