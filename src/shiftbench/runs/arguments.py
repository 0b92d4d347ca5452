"""The arguments of ``evaluate`` that belong together, and the keywords that are short for their fields.

``shifts``, ``design`` and ``shard`` are objects. Each of their fields is also a keyword of its own, so that
``severities=3`` need not be written as ``shifts=ShiftOptions(severities=(3,))``. A record of a run, a configuration
file and the command line name all arguments by these keywords.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypedDict, cast

from shiftbench.errors import SettingError, UnknownNameError, argument, listed
from shiftbench.jobs.base import Shard
from shiftbench.settings.base import ShiftKeywords, ShiftOptions, shift_options
from shiftbench.settings.designs import Design, DesignKeywords, DesignName


class ModelKeywords(TypedDict, total=False):
    """Options of models that are loaded, as in ``load_classifier``, for one model or several."""

    preprocessing: object
    name: str | Sequence[str] | None
    device: str
    batch_size: int | None
    threads: int | None
    trust: bool


class RunModelKeywords(ModelKeywords, total=False):
    """Options of models that are loaded for a run."""

    defences: str | Sequence[str]
    stateful: bool


class ShardKeywords(TypedDict, total=False):
    """The field of ``Shard`` that its text (``"3/8"``) does not state, as a keyword argument."""

    rebalance: bool


class EvaluateKeywords(RunModelKeywords, ShiftKeywords, DesignKeywords, ShardKeywords, total=False):
    """The keyword arguments of ``evaluate`` that its signature does not list one by one."""


#: What a run does if these options of models are not given.
_MODEL_DEFAULTS = RunModelKeywords(
    preprocessing=None,
    name=None,
    device="auto",
    batch_size=None,
    threads=None,
    trust=False,
    defences=(),
    stateful=False,
)
#: The keywords of each group.
MODEL_KEYWORDS = tuple(RunModelKeywords.__annotations__)
SHIFT_KEYWORDS = tuple(ShiftKeywords.__annotations__)
DESIGN_KEYWORDS = tuple(DesignKeywords.__annotations__)
KEYWORDS = tuple(EvaluateKeywords.__annotations__)


@dataclass(frozen=True)
class GroupedArguments:
    """The arguments of ``evaluate`` that belong together, with the keywords in their places."""

    models: RunModelKeywords
    shifts: ShiftOptions
    design: Design
    #: None: the work is not shared by several jobs.
    shard: Shard | None

    @classmethod
    def of(
        cls,
        shifts: ShiftOptions | None = None,
        design: Design | DesignName = "full",
        shard: Shard | str | None = None,
        keywords: EvaluateKeywords | None = None,
    ) -> GroupedArguments:
        """Group the arguments.

        Raises:
            UnknownNameError: A keyword is none of ``evaluate``.
            SettingError: A value is stated twice, by an object and by a keyword.
        """
        given: Mapping[str, object] = keywords or {}
        for name in given:
            if name not in KEYWORDS:
                raise UnknownNameError("argument of evaluate():", name, KEYWORDS)
        shift_keywords = {name: given[name] for name in SHIFT_KEYWORDS if name in given}
        if shifts is None:
            shifts = shift_options(cast(ShiftKeywords, shift_keywords))
        else:
            _refuse_twice("shifts", shift_keywords)
        design_keywords = {name: given[name] for name in DESIGN_KEYWORDS if name in given}
        if isinstance(design, Design):
            _refuse_twice("design", design_keywords)
        else:
            design = Design(design, **cast(DesignKeywords, design_keywords))
        if isinstance(shard, Shard):
            _refuse_twice("shard", {name: given[name] for name in ShardKeywords.__annotations__ if name in given})
        elif shard is not None:
            shard = replace(Shard.parse(shard), rebalance=bool(given.get("rebalance", False)))
        models = dict(_MODEL_DEFAULTS) | {name: given[name] for name in MODEL_KEYWORDS if name in given}
        return cls(cast(RunModelKeywords, models), shifts, design, shard)

    def flat(self) -> dict[str, object]:
        """All values by the name of their keyword, for the record of a run."""
        values: dict[str, object] = dict(self.models)
        for options in (self.shifts, self.design):
            values |= {field.name: getattr(options, field.name) for field in fields(options)}
        values["name"] = self.models["name"]
        values["design"] = self.design.name
        values["shard"] = None if self.shard is None else str(self.shard)
        values["rebalance"] = self.shard is not None and self.shard.rebalance
        return values


def _refuse_twice(name: str, keywords: Mapping[str, object]) -> None:
    """Raise SettingError if there are keywords besides the object of whose fields they are short forms."""
    if keywords:
        raise SettingError(
            f"{argument(name)} states all of its values",
            found=f"also {listed(list(keywords))}",
            expected="the object, or the keyword arguments",
        )
