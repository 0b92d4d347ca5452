"""What is known about models: a small table that users edit (``read_models``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shiftbench.arrays import BoolArray
from shiftbench.errors import check_names
from shiftbench.studies.base import StudyError
from shiftbench.studies.results import NAME_COLUMNS, TableFile

STANDARD = "standard"
LOW_ACCURACY = "low_accuracy"

#: Our columns, and the names that they have in the tables of users.
_ALIASES = {
    "base_model": ("base_model", "base", "base_model_derived"),
    "training_data": ("training_data", "data", "pretrain"),
    "size": ("size", "parameters", "param_count"),
    "baseline": ("baseline", "used_in_line_fit"),
    "category": ("category", "type"),
    "intervention": ("intervention",),
    "changes": ("changes", "tags"),
}
#: What a cell of the column ``baseline`` may contain.
_MARKS = {
    "": None,
    **dict.fromkeys(("1", "true", "yes", "y"), True),
    **dict.fromkeys(("0", "false", "no", "n"), False),
}


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


class Models(dict[str, ModelInfo]):
    """Models by name."""

    def category(self, name: str) -> str:
        """The category of a model; empty if it is not known."""
        return self[name].category if name in self else ""

    @property
    def bases(self) -> dict[str, str]:
        """Model to base model, where one is known."""
        return {name: row.base_model for name, row in self.items() if row.base_model}

    def baseline(self, names: Sequence[str], category: str = STANDARD, *, exclude: Sequence[str] = ()) -> BoolArray:
        """Which of these models the line may go through.

        Those of the category, unless their ``baseline`` mark is 0 or their lower-cased name contains one of
        ``exclude``.
        """

        def may_be_fitted(info: ModelInfo) -> bool:
            return info.category.lower() == category.lower() and info.baseline is not False

        return self._mask(names, exclude, may_be_fitted)

    def others(self, names: Sequence[str], category: str = STANDARD, *, exclude: Sequence[str] = ()) -> BoolArray:
        """The models known to be of another category, except controls of low accuracy.

        Those whose lower-cased name contains one of ``exclude`` and models that the table does not list do not count.
        """
        not_others = (category.lower(), LOW_ACCURACY)
        return self._mask(names, exclude, lambda info: info.category.lower() not in not_others)

    def _mask(self, names: Sequence[str], exclude: Sequence[str], accepts: Callable[[ModelInfo], bool]) -> BoolArray:
        """The models of the table that ``accepts`` holds for and whose name contains none of ``exclude``."""
        excluded_words = [word.lower() for word in exclude]
        mask = np.zeros(len(names), dtype=bool)
        for i, name in enumerate(names):
            excluded = any(word in name.lower() for word in excluded_words)
            mask[i] = name in self and not excluded and accepts(self[name])
        return mask

    def column(self, name: str, column: str) -> str:
        """What the table says about a model in one of its columns, empty if nothing."""
        if name not in self:
            return ""
        info = self[name]
        value = getattr(info, column, info.extra.get(column))
        if value is None:
            return ""
        return "; ".join(value) if isinstance(value, tuple) else str(value)

    def check_column(self, column: str) -> None:
        """Raise the error for a column in which the table has nothing about any model."""
        columns = dict.fromkeys(_ALIASES)
        for info in self.values():
            columns.update(dict.fromkeys(info.extra))
        check_names("column", [column], [name for name in columns if self._has_entries(name)])

    def _has_entries(self, column: str) -> bool:
        return any(self.column(model, column) for model in self)


def read_models(path: str | Path) -> Models:
    """The table of models from a .csv or .parquet file.

    It has a column ``model`` and any of these:

    | column | meaning |
    |---|---|
    | category | ``standard``, ``lp_adversarial``, ``robustness_intervention``, ``more_data``, ``low_accuracy``, yours |
    | base_model | the model it was made from, for relative robustness |
    | intervention | what was changed: ``augmix``, ``adversarial training``, ... |
    | size | millions of parameters, or your own description |
    | training_data | ``imagenet``, ``jft-300m``, ... |
    | baseline | 1 or 0: whether the line may go through it (else all of the baseline category may) |
    | changes | what it changes, for hypotheses: tags separated by ``;`` |

    ``low_accuracy`` are controls: they are shown, but no correlation counts them. A list with the columns
    ``category_detail``, ``base_model_derived`` and ``used_in_line_fit`` is understood as it is. Other columns are kept
    in ``extra``.

    Args:
        path: The file.
    """
    table = TableFile.read(path)
    name_at = table.column("'model'", NAME_COLUMNS)
    columns = {ours: table.find(aliases) for ours, aliases in _ALIASES.items()}
    titles = table.lowered
    extra_columns = sorted(set(range(len(titles))) - {name_at, *columns.values()})
    models: dict[str, ModelInfo] = {}
    for line, row in enumerate(table.rows, start=2):
        cells = ["" if cell is None else str(cell).strip() for cell in row]
        name = cells[name_at]
        if name in models:
            raise StudyError(f"{table.name} has a duplicate model", found=f"{name!r}, the second in line {line}")
        entries = dict.fromkeys(columns, "")
        for field_name, i in columns.items():
            if i is not None:
                entries[field_name] = cells[i]
        mark = entries.pop("baseline").lower()
        if mark not in _MARKS:
            wrong = f"{table.name}, line {line}: invalid baseline mark"
            raise StudyError(wrong, found=repr(mark), expected="1 or 0")
        tags = [tag.strip() for tag in entries.pop("changes").split(";")]
        models[name] = ModelInfo(
            name,
            **entries,
            baseline=_MARKS[mark],
            changes=tuple(filter(None, tags)),
            extra={titles[i]: cells[i] for i in extra_columns},
        )
    return Models(models)
