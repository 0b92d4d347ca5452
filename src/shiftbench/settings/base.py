"""Settings (what is evaluated, under one name) and suites (named lists of settings)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, get_args

from shiftbench.errors import SettingError, argument, check_names
from shiftbench.io import html
from shiftbench.registry import Registry
from shiftbench.shifts.base import NoShift, Shift

if TYPE_CHECKING:
    from shiftbench.datasets.factors import Protocol

#: How shifted images come to be. Their numbers differ, so a table keeps them apart.
Source = Literal["in-memory", "jpeg-85", "on-disk"]
#: Number of settings that a notebook lists.
_MOST_LISTED = 20


@dataclass(frozen=True)
class Member:
    """The place of a setting in a family: ImageNet-C's fog at severity 3, or frame 7 of rotate in ImageNet-P."""

    family: str
    #: The corruption or perturbation, as the family calls it.
    name: str
    #: Severity, or number of the frame.
    level: float


@dataclass(frozen=True)
class SettingMean:
    """A mean that a setting is a part of: tables show it for models that have all of its settings."""

    name: str
    settings: tuple[str, ...]


@dataclass(frozen=True)
class DesignPart:
    """A setting that a design evaluates on some of the images."""

    setting: str
    member: Member | None = None


@dataclass(frozen=True)
class Setting:
    """A dataset, a shift, a label space and a metric, under one name such as ``imagenet-c.fog.3``.

    Attributes:
        name: The name that tables show.
        dataset: A role that the user's ``--data`` fills (``imagenet-val``), or one and a path (``imagenet-c/fog/3``).
        shift: What is done to the images.
        space: Label space that scores are restricted to before softmax and argmax; None: the dataset's own.
        metric: Name of the metric.
        reference: Name of the setting that it is compared with.
        crop_only: Released files are already cropped: they are centre-cropped and never resized.
        uncropped: Perturbation sequences move the resized image and crop it themselves, frame by frame.
        optional: Skipped with a message if no data is given for it.
        source: How shifted images come to be; None where nothing is done to them.
        protocol: For a set that is split by factors: its data is a table, and ``dataset`` one of the protocol's
            sets of it.
        note: What a reader must know to compare the number with one published elsewhere.
        default: The dataset that fills its role where the user names none: a name, a path or ``kind:path``.
        member: Its place in a family of corruptions or perturbations.
        parts: Of a design: the settings that its images are shared among, in the order of the shift's members.
        chosen_to_fool: Its images were selected because models mistake them: accuracy near chance is no sign of an
            error.
        mean: A mean over several settings that this one is a part of.
        listed: The ImageNet testbed evaluated it on its list of images, which ``--subset testbed-10percent`` takes.
    """

    name: str
    dataset: str
    shift: Shift = field(default_factory=NoShift)
    space: str | None = None
    metric: str = "top1"
    reference: str | None = None
    crop_only: bool = False
    uncropped: bool = False
    optional: bool = False
    source: Source | None = None
    protocol: Protocol | None = field(default=None, hash=False, repr=False)
    note: str = ""
    default: str | None = None
    member: Member | None = None
    parts: tuple[DesignPart, ...] = ()
    chosen_to_fool: bool = False
    mean: SettingMean | None = None
    listed: bool = False

    def __repr__(self) -> str:
        shift = "" if self.shift.kind == "none" else f" under {self.shift.name}"
        return f"<Setting {self.name!r}: {self.metric} on {self.dataset}{shift}>"

    @property
    def shifted(self) -> bool:
        """Whether the images are changed on the way; released files were changed before."""
        return self.shift.kind != "none"


@dataclass(frozen=True)
class LeftOut:
    """A setting of a suite that a run does not evaluate.

    Attributes:
        setting: Name of the setting.
        reason: Why it is left out, for people.
        model: The model that is not evaluated in it; None: no model is, because the setting has no data.
        missing_classes: Number of the setting's classes that the model lacks; 0 if the reason is another one.
    """

    setting: str
    reason: str
    model: str | None = None
    missing_classes: int = 0

    @property
    def title(self) -> str:
        """The setting, and the model if the others are evaluated in it."""
        if self.model is None:
            return self.setting
        return f"{self.setting} ({self.model})"

    def as_dict(self) -> dict[str, object]:
        """As JSON-able data."""
        return asdict(self)


@dataclass(frozen=True)
class ShiftOptions:
    """Which corruptions are evaluated, and how corrupted images come to be: the argument ``shifts`` of ``evaluate``.

    Each field is also a keyword argument of ``evaluate`` (``ShiftKeywords``), which takes single values, too.

    Attributes:
        severities: Severities of corruptions, from 1 to 5.
        corruptions: Names of corruptions or perturbations; empty: those of the suite.
        source: ``"in-memory"``: images are corrupted as they are needed; ``"jpeg-85"``: then compressed like the
            released files; ``"on-disk"``: the released files are read.
        frost_textures: Folder with the original frost images, or ``"procedural"``; None takes what the machine has.
        style_network: Weights of an AdaIN network, for ``style_transfer``.
        styles: Folder of paintings, for ``style_transfer``; None takes those that the network remembers.

    Example:
        >>> ShiftOptions(severities=(1, 5), corruptions=("fog", "frost"), frost_textures="procedural").severities
        (1, 5)
    """

    severities: tuple[float, ...] = (1, 2, 3, 4, 5)
    corruptions: tuple[str, ...] = ()
    source: Source = "in-memory"
    frost_textures: str | None = None
    style_network: str | None = None
    styles: str | None = None

    def __post_init__(self) -> None:
        check_names("source of corrupted images", [self.source], get_args(Source))
        for name in ("severities", "corruptions"):
            value = getattr(self, name)
            if not isinstance(value, tuple):
                raise SettingError(
                    f"{name} of ShiftOptions is not a tuple",
                    found=f"{name}={value!r}",
                    expected=f"a tuple, such as {_TUPLE_EXAMPLES[name]}",
                )


class ShiftKeywords(TypedDict, total=False):
    """The fields of ``ShiftOptions`` as keyword arguments: one value or several, and texts or paths."""

    severities: float | Sequence[float]
    corruptions: str | Sequence[str]
    source: Source
    frost_textures: str | Path | None
    style_network: str | Path | None
    styles: str | Path | None


#: How a tuple with one value is written in Python.
_TUPLE_EXAMPLES = {"severities": "(3,)", "corruptions": "('fog',)"}


def shift_options(keywords: ShiftKeywords) -> ShiftOptions:
    """The options of keyword arguments, with single values in tuples and paths as texts."""
    fields_of_options: dict[str, object] = {}
    for name, value in keywords.items():
        if name == "severities":
            fields_of_options[name] = _severities(value)
        elif name == "corruptions":
            fields_of_options[name] = tuple(split_names(value))
        elif isinstance(value, Path):
            fields_of_options[name] = str(value)
        else:
            fields_of_options[name] = value
    make: Callable[..., ShiftOptions] = ShiftOptions
    return make(**fields_of_options)


def _severities(value: object) -> tuple[float, ...]:
    if isinstance(value, int | float):
        return (value,)
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise SettingError("severities are numbers", found=repr(value), expected="3, or (1, 3, 5)")
    return tuple(value)


def split_names(names: object) -> list[str]:
    """Names in a list, or in a text with commas between them."""
    if isinstance(names, str):
        return [name for name in names.split(",") if name]
    if isinstance(names, Iterable):
        return list(names)
    raise SettingError("not a list of names", found=repr(names), expected="'fog,snow', or ['fog', 'snow']")


@dataclass(frozen=True)
class SuiteOptions(ShiftOptions):
    """What a suite may depend on: the options of its shifts, and the name of the user's data.

    Attributes:
        severities: As in ``ShiftOptions``.
        corruptions: As in ``ShiftOptions``.
        source: As in ``ShiftOptions``.
        frost_textures: As in ``ShiftOptions``.
        style_network: As in ``ShiftOptions``.
        styles: As in ``ShiftOptions``.
        data_name: The name of the user's own dataset, for suites that work on any.
    """

    data_name: str = "data"

    @classmethod
    def of(cls, shifts: ShiftOptions, data_name: str) -> SuiteOptions:
        """The options of ``evaluate`` for the user's data."""
        values = {field.name: getattr(shifts, field.name) for field in fields(ShiftOptions)}
        return cls(**values, data_name=data_name)


SuiteBuilder = Callable[[SuiteOptions], list[Setting]]


@dataclass(frozen=True)
class Suite:
    """A named list of settings.

    Attributes:
        name: Name of the suite.
        settings: Its settings, the one without shift first.
    """

    name: str
    settings: tuple[Setting, ...]

    @property
    def roles(self) -> list[str]:
        """The datasets it needs, in order."""
        return list(dict.fromkeys(setting.dataset.split("/")[0] for setting in self.settings))

    def __repr__(self) -> str:
        return f"<Suite {self.name!r}: {len(self.settings)} settings on {', '.join(self.roles)}>"

    def _repr_html_(self) -> str:
        rows = []
        for setting in self.settings[:_MOST_LISTED]:
            cells = (setting.name, setting.dataset, setting.shift.name, setting.metric, setting.reference or "")
            rows.append(tuple(map(html.text, cells)))
        notes = []
        if len(self.settings) > _MOST_LISTED:
            notes.append(f"and {len(self.settings) - _MOST_LISTED} more")
        return html.block(
            html.title(f"suite {self.name}", f"{len(self.settings)} settings on {', '.join(self.roles)}"),
            html.table(("setting", "dataset", "shift", "metric", "reference"), rows, left=5),
            html.notes(notes),
        )

    def default_data(self, role: str) -> str | None:
        """What fills a role where the user names nothing."""
        for setting in self.settings:
            if setting.dataset == role and setting.default is not None:
                return setting.default
        return None

    def __getitem__(self, name: str) -> Setting:
        for setting in self.settings:
            if setting.name == name:
                return setting
        raise SettingError(f"suite {self.name!r} has no setting {name!r}")


suites: Registry[SuiteBuilder] = Registry("suite", builtin=("shiftbench.settings.builtin",))


def suite(name: str) -> Callable[[SuiteBuilder], SuiteBuilder]:
    """Register a suite: a function from options to settings; its docstring is what ``shiftbench list`` shows.

    Args:
        name: The name on the command line.
    """
    return suites.register(name)


def optional(settings: Iterable[Setting]) -> list[Setting]:
    """The same settings, to be left out with a message if their data is missing."""
    return [replace(setting, optional=True) for setting in settings]


def build_suite(names: str | Sequence[str | Setting], options: SuiteOptions | None = None) -> Suite:
    """The settings of one suite, or the union of several suites and single settings.

    Args:
        names: One suite (several with commas), or a list of suites and settings.
        options: What the suites may depend on.

    Raises:
        SettingError: Two different settings have one name, or no setting has a corruption of the options.
    """
    items = names.split(",") if isinstance(names, str) else names
    if not isinstance(items, Sequence) or not all(isinstance(item, str | Setting) for item in items):
        raise SettingError(f"invalid {argument('suite')}", found=repr(names), expected="a name, or a list of names")
    options = options or SuiteOptions()
    collected: dict[str, Setting] = {}
    for item in items:
        settings = [item] if isinstance(item, Setting) else suites.get(item.strip())(options)
        for setting in settings:
            earlier = collected.setdefault(setting.name, setting)
            if replace(earlier, optional=setting.optional) != setting:
                raise SettingError(
                    f"two different settings are called {setting.name!r}", hint="ask for one suite at a time"
                )
            if not setting.optional:  # what one of the suites can't do without is needed
                collected[setting.name] = replace(earlier, optional=False)
    title = ",".join(item if isinstance(item, str) else item.name for item in items)
    _check_corruptions(title, collected.values(), options.corruptions)
    return Suite(title, tuple(collected.values()))


def _check_corruptions(title: str, settings: Iterable[Setting], corruptions: Iterable[str]) -> None:
    """Raise SettingError if no setting of the suite has one of these corruptions."""
    available = dict.fromkeys(setting.member.name for setting in settings if setting.member is not None)
    absent = [name for name in corruptions if name not in available]
    if absent:
        expected = ", ".join(available) or "no corruption: it has none"
        raise SettingError(f"suite {title!r} has no such corruption", found=", ".join(absent), expected=expected)
