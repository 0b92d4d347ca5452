"""Filling the roles of a suite (``imagenet-val``, ``data``, ...) with the datasets that the user named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import dataset_kinds, listed_path, open_dataset, open_named
from shiftbench.datasets.manifest import SUFFIXES as MANIFESTS
from shiftbench.datasets.subset import TESTBED_LIST, per_class, proportional, sample, testbed_tenth
from shiftbench.errors import SettingError, argument, check_integer, check_names
from shiftbench.io.downloads import file_name, is_web_address, without_secrets
from shiftbench.io.hub import is_hub_address
from shiftbench.io.paths import Location, local, place
from shiftbench.labels.space import AskedSpace
from shiftbench.settings.base import Setting, Suite

DataSource = str | Location | Dataset
Data = DataSource | Mapping[str, DataSource] | None

#: Roles that need no folder: registry packages carry these images.
_BUILT_IN = {"demo": "demo", "cifar-10": "cifar-10-test"}
#: Number of images on the ImageNet testbed's list.
_TESTBED_LIST_IMAGES = 5_000


@dataclass(frozen=True)
class Selection:
    """A smaller dataset: a number of images per class, or a seeded sample.

    Attributes:
        per_class: Maximum number of images per class.
        sample: Size of a random sample.
        seed: Seed of all random numbers.
        balanced: Whether each class has the same share in the sample as in the dataset, as designs need it.
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
        if self.subset is None or not any(setting.listed for setting in suite.settings):
            return suite
        complete_datasets = {setting.dataset for setting in suite.settings if not setting.listed}
        settings: list[Setting] = []
        for setting in suite.settings:
            if setting.listed and setting.dataset in complete_datasets:
                setting = replace(setting, dataset=f"{setting.dataset}/{TESTBED_LIST}")
            settings.append(setting)
        return replace(suite, settings=tuple(settings))

    def of(self, dataset: Dataset) -> Dataset:
        """The chosen part of a dataset."""
        if self.subset is not None:
            dataset = testbed_tenth(dataset) or dataset
        if self.per_class is not None:
            dataset = per_class(dataset, self.per_class, seed=self.seed)
        if self.sample is not None:
            take_sample = proportional if self.balanced else sample
            dataset = take_sample(dataset, self.sample, seed=self.seed)
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
    return path_of_split(str(source), split)


def path_of_split(path: str, split: str | None) -> str:
    """The path of a split, which a folder of that name or a set of tables can have; ``path`` itself without a split."""
    if split is None:
        return path
    return f"{path.rstrip('/')}/{split}"


def data_name(data: Data) -> str:
    """The name of the user's own data: that of the dataset, file or folder."""
    source = data.get("data") if isinstance(data, Mapping) else data
    if source is None:
        return "data"
    if isinstance(source, Dataset):
        return source.name
    if is_web_address(source):
        return file_name(str(source))
    kind, _, path_of_kind = str(source).partition(":")
    path = Path(path_of_kind if path_of_kind and kind in dataset_kinds else str(source))
    if not path.name.strip("."):  # "." and ".." have the name of the folder that they stand for
        path = path.resolve()
    return path.name or "data"


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
    selection = selection or Selection()
    # In a suite with settings on the testbed's list, the other settings take all images.
    unlisted_selection = selection
    if any(setting.listed for setting in suite.settings):
        unlisted_selection = replace(selection, subset=None)
    opened: dict[str, Dataset] = {}
    left_out: dict[str, str] = {}
    missing_roles: dict[str, None] = {}
    splits: dict[str, dict[str, Dataset]] = {}
    for setting in suite.settings:
        if setting.dataset in opened:
            continue
        dataset_or_reason = _find(setting, suite, data, space, allow_outside, splits)
        if isinstance(dataset_or_reason, Dataset):
            setting_selection = selection if setting.listed else unlisted_selection
            opened[setting.dataset] = setting_selection.of(dataset_or_reason)
            continue
        reason = dataset_or_reason
        if setting.optional:
            left_out[setting.name] = reason
        elif reason == _NOT_GIVEN:
            # One error names all the missing roles, so that the user need not find them one by one.
            missing_roles[setting.dataset.split("/")[0]] = None
        else:
            raise SettingError(f"{setting.name!r} can't be evaluated: {reason}")
    if selection.subset:
        _check_list(selection.subset, opened)
    if missing_roles:
        raise _missing_data(suite, data, list(missing_roles))
    if left_out and isinstance(data, Mapping):  # perhaps because of a misspelt role
        check_names(f"role of {suite.name!r}", data, [*suite.roles, *(setting.dataset for setting in suite.settings)])
    return opened, left_out


def _check_list(subset: str, datasets: Mapping[str, Dataset]) -> None:
    """Raise SettingError if no dataset has the images of the testbed's list."""
    sizes = {name: len(dataset) for name, dataset in datasets.items()}
    if sizes and _TESTBED_LIST_IMAGES not in sizes.values():
        raise SettingError(
            f"no images for the list {subset}",
            found=", ".join(f"{name} ({size})" for name, size in sizes.items()),
            expected="50 validation images of each of ImageNet's classes",
        )


def _missing_data(suite: Suite, data: Data, roles: Sequence[str]) -> SettingError:
    """The error of a suite whose ``roles`` have no data."""
    if suite.roles == ["data"] and not data:
        return SettingError(f"suite {suite.name!r} needs your data", hint=argument("data", "FOLDER"))
    tables = {setting.dataset.split("/")[0] for setting in suite.settings if setting.protocol is not None}
    example = argument("data", {role: "TABLE" if role in tables else "FOLDER" for role in roles})
    if data is None:
        given_text = "nothing"
    elif isinstance(data, Mapping):
        given_text = ", ".join(data)
    else:
        given_text = str(data)
    return SettingError(
        f"suite {suite.name!r} needs data for {', '.join(roles)}",
        found=given_text,
        expected=", ".join(suite.roles),
        hint=f"{example}, or one folder that holds folders of these names",
    )


def data_sources(suite: Suite, data: Data) -> dict[str, tuple[str, str]]:
    """Role and address of each dataset of the suite (``Setting.dataset``) that can be opened again later.

    Datasets that the user opened have no address. Of a table that a protocol splits, the address alone does not say
    which part is meant. Both are left out.
    """
    sources: dict[str, tuple[str, str]] = {}
    for setting in suite.settings:
        role, source = _source(setting, suite, data)
        if source is None or isinstance(source, Dataset) or setting.protocol is not None:
            continue
        sources[setting.dataset] = (role, _lasting_address(str(source)))
    return sources


def _lasting_address(source: str) -> str:
    """An address that still holds in another working directory, and that tells no secrets."""
    if is_web_address(source):
        return without_secrets(source)
    path = Path(source).expanduser()
    if _is_local(path):
        return str(path.absolute())
    return source


def _is_local(path: Path) -> bool:
    """Whether a path is a file, a folder, or a split of tables, which has a folder but no path of its own."""
    return path.exists() or (len(path.parts) > 1 and path.parent.is_dir())


def _source(setting: Setting, suite: Suite, data: Data) -> tuple[str, DataSource | None]:
    """The key of a setting's data (its dataset, or the role of it), and what the user or the suite names for it."""
    role = setting.dataset.split("/")[0]
    key = role
    if isinstance(data, Mapping) and setting.dataset in data:
        key = setting.dataset
    source = _role_source(key, suite, data)
    if source is None:
        source = suite.default_data(role)
    return key, source


def _located(source: str | Location) -> Location:
    """The path of a source; what is on the web or on a hub is fetched, and kept in the cache."""
    if is_web_address(source) or is_hub_address(source):
        return listed_path(source)
    return place(source)


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
        needed = "a folder" if setting.protocol is None else "a table"
        raise SettingError(f"{setting.dataset!r} needs {needed}, not an opened dataset")
    if setting.protocol is not None:
        if key not in splits:
            from shiftbench.datasets.factors import open_splits

            splits[key] = open_splits(local(_located(source)), setting.protocol, space=space)
        return splits[key].get(setting.dataset, f"{source} has no image for it")
    # "fog/3" below a role is a folder of released files, or a corruption's array at a severity.
    below = setting.dataset.removeprefix(f"{key}/")
    corruption, _, severity = below.partition("/")
    path = _located(source) / below
    array = _located(source) / f"{corruption}.npy"
    if severity.isdigit() and array.is_file():
        return open_dataset(f"cifar-c:{array}", space=space, name=setting.dataset, severity=int(severity))
    if setting.optional and not path.exists():
        return f"there is no {path}"
    return open_dataset(path, space=space, name=setting.dataset)


def _role_source(role: str, suite: Suite, data: Data) -> DataSource | None:
    """What the user named for a role, or the images that the package brings along for it."""
    if data is None or (isinstance(data, Mapping) and role not in data):
        return open_named(_BUILT_IN[role]) if role in _BUILT_IN else None
    if isinstance(data, Mapping):
        return data[role]
    if not isinstance(data, Dataset) and suite.roles != ["data"]:
        folder = _located(data)
        if (folder / role).exists():
            return folder / role
        if any((folder / other_role).exists() for other_role in suite.roles):
            return None
    return data if role == _main_role(suite) else None


def _main_role(suite: Suite) -> str:
    """The role that a single ``--data`` fills: that of the first setting which can't be left out."""
    for setting in suite.settings:
        if not setting.optional:
            return setting.dataset.split("/")[0]
    return suite.roles[0]
