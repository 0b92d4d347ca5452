"""Filling the roles of a suite (``imagenet-val``, ``data``, ...) with the datasets that the user named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import dataset_kinds, open_dataset, open_named
from shiftbench.datasets.manifest import SUFFIXES as MANIFESTS
from shiftbench.datasets.subset import TESTBED_LIST, balanced, per_class, sample, testbed_tenth
from shiftbench.errors import SettingError, argument, check_integer, check_names
from shiftbench.io.downloads import file_name, is_web_address, web_copy, without_secrets
from shiftbench.io.paths import Location, local, place
from shiftbench.labels.space import AskedSpace
from shiftbench.settings.base import Setting, Suite

DataSource = str | Location | Dataset
Data = DataSource | Mapping[str, DataSource] | None

#: Roles that need no folder: registry packages carry these images.
_BUILT_IN = {"demo": "demo", "cifar-10": "cifar-10-test"}


_LISTED = 5_000


@dataclass(frozen=True)
class Selection:
    """A smaller dataset: a number of images per class, or a seeded sample.

    Attributes:
        per_class: Maximum number of images per class.
        sample: Size of a random sample.
        seed: Seed of all random numbers.
        balanced: Whether the sample has as many images of each class as of any other, as designs need it.
        subset: ``"testbed-10percent"``: of ImageNet's validation images, corrupted or not, the ImageNet testbed's list;
            in the suite ``testbed-213``, as there, for corruptions and attacks only.
    """

    per_class: int | None = None
    sample: int | None = None
    seed: int = 0
    balanced: bool = False
    subset: str | None = None

    def __post_init__(self) -> None:
        for name in ("per_class", "sample"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name))
        check_integer("seed", self.seed, None)
        if self.subset not in (None, TESTBED_LIST):
            raise SettingError("unknown list of images", found=self.subset, expected=TESTBED_LIST)

    def settings(self, suite: Suite) -> Suite:
        """The suite with the list as a dataset of its own, where some settings are evaluated on it and others not."""
        whole = {setting.dataset for setting in suite.settings if not setting.listed}
        if self.subset is None or not any(setting.listed for setting in suite.settings):
            return suite
        settings = (
            replace(one, dataset=f"{one.dataset}/{TESTBED_LIST}") if one.listed and one.dataset in whole else one
            for one in suite.settings
        )
        return replace(suite, settings=tuple(settings))

    def of(self, dataset: Dataset) -> Dataset:
        """The chosen part of a dataset."""
        if self.subset is not None:
            dataset = testbed_tenth(dataset) or dataset
        if self.per_class is not None:
            dataset = per_class(dataset, self.per_class, seed=self.seed)
        if self.sample is not None:
            dataset = (balanced if self.balanced else sample)(dataset, self.sample, seed=self.seed)
        return dataset


def of_split(data: Data, split: str | None) -> Data:
    """The data with the name of a split behind every path: ``FOLDER/test`` is a folder or a split of tables."""
    if split is None or data is None:
        return data
    if isinstance(data, Mapping):
        return {role: _split_source(source, split) for role, source in data.items()}
    return _split_source(data, split)


def _split_source(source: DataSource, split: str) -> DataSource:
    if isinstance(source, Dataset):
        raise SettingError(
            f"{argument('split', split)} needs a path",
            found=f"the opened dataset {source.name!r}",
            hint=f"open_dataset(..., split={split!r})",
        )
    return f"{str(source).rstrip('/')}/{split}"


def data_name(data: Data) -> str:
    own = data.get("data") if isinstance(data, Mapping) else data
    if own is None:
        return "data"
    if isinstance(own, Dataset):
        return own.name
    if is_web_address(own):
        return file_name(str(own))
    kind, _, rest = str(own).partition(":")
    path = Path(rest if rest and kind in dataset_kinds else str(own))
    return (path if path.name.strip(".") else path.resolve()).name or "data"  # of "." and "..", too


def open_data(
    suite: Suite,
    data: Data,
    *,
    space: AskedSpace = None,
    selection: Selection | None = None,
    allow_outside: bool = False,
) -> tuple[dict[str, Dataset], dict[str, str]]:
    """The datasets of a suite by ``Setting.dataset``, and why optional settings have none.

    Args:
        suite: The suite.
        data: A path, dataset, or a mapping from roles to them.
        space: Label space of the data, if it is not recognised.
        selection: Take a part of every dataset.
        allow_outside: Let manifests name images outside their folder.

    Returns:
        Datasets by name, and the reasons why optional settings have none.
    """
    chosen = selection or Selection()
    opened: dict[str, Dataset] = {}
    left_out: dict[str, str] = {}
    missing: dict[str, None] = {}
    splits: dict[str, dict[str, Dataset]] = {}
    some_listed = any(setting.listed for setting in suite.settings)
    for setting in suite.settings:
        if setting.dataset in opened:
            continue
        found = _find(setting, suite, data, space, allow_outside, splits)
        if isinstance(found, Dataset):
            part = chosen if setting.listed or not some_listed else replace(chosen, subset=None)
            opened[setting.dataset] = part.of(found)
        elif setting.optional:
            left_out[setting.name] = found
        elif found == _NOT_GIVEN:
            missing[setting.dataset.split("/")[0]] = None
        else:
            raise SettingError(f"{setting.name!r} can't be evaluated: {found}")
    if chosen.subset and opened and not any(len(one) == _LISTED for one in opened.values()):
        raise SettingError(
            f"no images for the list {chosen.subset}",
            found=", ".join(f"{name} ({len(one)})" for name, one in opened.items()),
            expected="50 validation images of each of ImageNet's classes",
        )
    if missing and suite.roles == ["data"] and not data:
        raise SettingError(f"suite {suite.name!r} needs your data", hint=argument("data", "FOLDER"))
    if missing:
        tables = {setting.dataset.split("/")[0] for setting in suite.settings if setting.protocol is not None}
        example = argument("data", {role: "TABLE" if role in tables else "FOLDER" for role in missing})
        raise SettingError(
            f"suite {suite.name!r} needs data for {', '.join(missing)}",
            found="nothing" if data is None else ", ".join(data) if isinstance(data, Mapping) else str(data),
            expected=", ".join(suite.roles),
            hint=f"{example}, or one folder that holds folders of these names",
        )
    if left_out and isinstance(data, Mapping):  # perhaps because of a misspelt role
        check_names(f"role of {suite.name!r}", data, [*suite.roles, *(setting.dataset for setting in suite.settings)])
    return opened, left_out


def data_sources(suite: Suite, data: Data) -> dict[str, tuple[str, str]]:
    """By ``Setting.dataset``: its role, and what the user named for it, where that can be opened again later.

    Opened datasets, and tables that a protocol splits, can't.
    """
    found = {}
    for setting in suite.settings:
        key, source = _source(setting, suite, data)
        if source is not None and not isinstance(source, Dataset) and setting.protocol is None:
            given = str(source)
            path = Path(given).expanduser()
            if is_web_address(given):
                given = without_secrets(given)
            elif _is_local(path):
                given = str(path.absolute())
            found[setting.dataset] = (key, given)
    return found


def _is_local(path: Path) -> bool:
    """Whether a path is a file, a folder, or a split of tables, which has a folder but no path of its own."""
    return path.exists() or (len(path.parts) > 1 and path.parent.is_dir())


def _source(setting: Setting, suite: Suite, data: Data) -> tuple[str, DataSource | None]:
    """The key of a setting's data (its dataset, or the role of it), and what the user or the suite names for it."""
    role = setting.dataset.split("/")[0]
    key = setting.dataset if isinstance(data, Mapping) and setting.dataset in data else role
    source = _role_source(key, suite, data)
    return key, suite.default_data(role) if source is None else source


def _located(source: str | Location) -> Location:
    """A file on the web is fetched, and kept in the cache."""
    return web_copy(str(source)) if is_web_address(source) else place(source)


_NOT_GIVEN = "no data was given for it"


def _find(
    setting: Setting,
    suite: Suite,
    data: Data,
    space: AskedSpace,
    allow_outside: bool,
    splits: dict[str, dict[str, Dataset]],
) -> Dataset | str:
    """The setting's dataset, or why there is none. ``splits`` keeps tables that several settings are split from."""
    key, source = _source(setting, suite, data)
    if source is None:
        return _NOT_GIVEN
    if key == setting.dataset or setting.dataset == f"{key}/{TESTBED_LIST}":
        if allow_outside and not isinstance(source, Dataset) and _located(source).suffix in MANIFESTS:
            return open_dataset(source, space=space, allow_outside=True)
        return open_dataset(source, space=space)
    if isinstance(source, Dataset):
        what = "a folder" if setting.protocol is None else "a table"
        raise SettingError(f"{setting.dataset!r} needs {what}, not an opened dataset")
    if setting.protocol is not None:
        if key not in splits:
            from shiftbench.datasets.factors import open_splits

            splits[key] = open_splits(local(_located(source)), setting.protocol, space=space)
        return splits[key].get(setting.dataset, f"{source} has no image for it")
    # fog/3 below a role is a folder of released files, or a corruption's array at a severity
    below = setting.dataset.removeprefix(f"{key}/")
    corruption, _, severity = below.partition("/")
    path, array = _located(source) / below, _located(source) / f"{corruption}.npy"
    if severity.isdigit() and array.is_file():
        return open_dataset(f"cifar-c:{array}", space=space, name=setting.dataset, severity=int(severity))
    if setting.optional and not path.exists():
        return f"there is no {path}"
    return open_dataset(path, space=space, name=setting.dataset)


def _role_source(role: str, suite: Suite, data: Data) -> DataSource | None:
    if data is None or (isinstance(data, Mapping) and role not in data):
        return open_named(_BUILT_IN[role]) if role in _BUILT_IN else None
    if isinstance(data, Mapping):
        return data[role]
    if not isinstance(data, Dataset) and suite.roles != ["data"]:
        folder = _located(data)
        if (folder / role).exists():
            return folder / role
        if any((folder / one).exists() for one in suite.roles):
            return None
    return data if role == _main_role(suite) else None


def _main_role(suite: Suite) -> str:
    """The role that a single ``--data`` fills: that of the first setting which can't be left out."""
    needed = (s.dataset.split("/")[0] for s in suite.settings if not s.optional)
    return next(needed, suite.roles[0])
