"""Which models a workspace holds: one id per version, what each version is called, and finding them by name.

A version is a model with everything that decides its scores: weights, preprocessing, engine, classes. Its id is
``name@hash``. Where a workspace holds one version of a name, the name is enough; where it holds several, each is shown
under its id, so that two versions never share a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from shiftbench.errors import StoreError, UnknownNameError, check_names, listed
from shiftbench.grouping import by_key
from shiftbench.io.locks import file_lock
from shiftbench.store.sealed import explained
from shiftbench.store.spec import ClassifierRecord, canonical_json

if TYPE_CHECKING:
    from shiftbench.store.workspace import Result, Workspace

_NAMES = "names.json"
#: Fewer characters of a hash are not enough to name a version.
_SHORTEST_HASH = 4


@dataclass(frozen=True)
class ModelVersion:
    """One version of a model."""

    name: str
    record: ClassifierRecord
    stored_as: str  #: The name it was evaluated under: that of its folder.
    #: Hashes of the version in ids of versions up to 0.2, one for each name that its label space had.
    former_hashes: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        return f"{self.name}@{self.record.version}"

    def matches(self, start: str) -> bool:
        """Whether its hash starts with ``start``; the hash that it had in versions up to 0.2 is accepted as well."""
        hashes = (self.record.version, *self.former_hashes)
        return any(version_hash.startswith(start) for version_hash in hashes)


class ModelVersions:
    """The versions of models in a workspace, and what each is called."""

    def __init__(self, versions: Iterable[ModelVersion]) -> None:
        self._versions = {(version.stored_as, version.record.version): version for version in versions}
        self._by_name = by_key((version.name, version) for version in self._versions.values())

    @classmethod
    def of(cls, workspace: Workspace, results: Iterable[Result]) -> ModelVersions:
        """The versions behind these results, under the names that people gave them."""
        names = renamed_models(workspace)
        records = by_key((_version_key(result), result.spec.classifier) for result in results)
        versions = []
        for (stored_as, version), same_version in records.items():
            former_hashes = dict.fromkeys(record.former_version for record in same_version)
            # A version that was renamed by shiftbench up to 0.2 is listed under the hash it had then.
            renamed = next((names[key] for key in (version, *former_hashes) if key in names), {})
            name = renamed.get("name", stored_as)
            versions.append(ModelVersion(name, same_version[0], stored_as, frozenset(former_hashes)))
        return cls(versions)

    def __iter__(self) -> Iterator[ModelVersion]:
        return iter(self._versions.values())

    @cached_property
    def titles(self) -> dict[str, ModelVersion]:
        """What tables call each version: its name, or its id where the name has several."""
        return {self.title(version): version for version in self}

    @property
    def current_hashes(self) -> dict[str, str]:
        """By the hash of a version in ids up to version 0.2: its hash now."""
        current_hashes = {}
        for version in self:
            for former_hash in version.former_hashes:
                current_hashes[former_hash] = version.record.version
        return current_hashes

    def title(self, version: ModelVersion) -> str:
        """What tables call a version."""
        return version.name if len(self._by_name[version.name]) == 1 else version.id

    def named(self, result: Result) -> Result:
        """The result with its model's name and title."""
        version = self._versions[_version_key(result)]
        return replace(result, name=version.name, title=self.title(version))

    def find(self, name: str) -> list[ModelVersion]:
        """The version with this id (its hash may be shortened), or all versions of this name."""
        if name in self._by_name:
            return self._by_name[name]
        base_name, _, start = name.rpartition("@")
        versions = [version for version in self._by_name.get(base_name, ()) if version.matches(start)]
        if not versions or len(start) < _SHORTEST_HASH:
            raise UnknownNameError("model", name, self.titles)
        return versions

    def select(self, results: Iterable[Result], models: Sequence[str], settings: Sequence[str]) -> list[Result]:
        """The results of these models, by name or id, in these settings; empty arguments mean all."""
        results = list(results)
        if not results and (models or settings):
            raise NoResultsError("the workspace holds no results yet", expected=listed([*models, *settings]))
        version_keys: set[tuple[str, str]] = set()
        for name in models:
            version_keys |= {(version.stored_as, version.record.version) for version in self.find(name)}
        check_names("setting", settings, dict.fromkeys(result.setting for result in results))
        selected = []
        for result in results:
            is_of_models = not version_keys or _version_key(result) in version_keys
            is_in_settings = not settings or result.setting in settings
            if is_of_models and is_in_settings:
                selected.append(result)
        if not selected and (models or settings):
            raise NoResultsError(f"no results of {listed(models)} in {listed(settings)} yet")
        return selected


def _version_key(result: Result) -> tuple[str, str]:
    """Name that the model was evaluated under, and hash of its version."""
    return result.classifier, result.spec.classifier.version


class NoResultsError(StoreError):
    """The requested results do not exist yet."""


class AmbiguousModelError(StoreError):
    """A name that several versions of a model share."""

    def __init__(self, name: str, versions: Sequence[ModelVersion], dates: Mapping[str, str]) -> None:
        descriptions = []
        for version in versions:
            date = dates.get(version.record.version, "date not recorded")
            descriptions.append(f"{version.id} ({date})")
        super().__init__(
            f"{len(versions)} versions of {name!r} match; they differ in {', '.join(differences(versions))}",
            found=", ".join(descriptions),
            expected="one of these ids",
        )


def differences(versions: Sequence[ModelVersion]) -> list[str]:
    """In what versions of a model differ: "preprocessing", "weights or code", "engine", ...

    A model's fingerprint covers the normalisation, too. So different fingerprints mean different weights only between
    versions with equal preprocessing and outputs.
    """
    records = [version.record for version in versions]

    def differ(*keys: str) -> bool:
        values = set()
        for record in records:
            values.add(canonical_json([record.decisive.get(key) for key in keys]))
        return len(values) > 1

    fingerprints: dict[str, set[object]] = {}
    for record in records:
        reading = canonical_json([record.values.get("preprocessing"), record.values.get("outputs")])
        fingerprints.setdefault(reading, set()).add(record.values.get("fingerprint"))
    aspects = {
        "preprocessing": differ("preprocessing"),
        "weights or code": any(len(equal_reading) > 1 for equal_reading in fingerprints.values()),
        "engine": differ("engine"),
        "label space": differ("labels", "classes"),
        "kind of outputs": differ("outputs"),
        "input defences": differ("defences"),
        "being stateful, or the batch size": differ("stateful"),
    }
    return [aspect for aspect, differs in aspects.items() if differs] or ["name"]


def renamed_models(workspace: Workspace) -> dict[str, dict[str, str]]:
    """By hash of the version: the name that it was given, and the one it was evaluated under."""
    path = workspace.root / _NAMES
    try:
        stored = workspace.files.read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    names = {}
    with explained(path):
        for version_hash, entry in stored.items():
            names[str(version_hash)] = {str(key): str(value) for key, value in entry.items()}
    return names


def rename_model(workspace: Workspace, version: ModelVersion, name: str, taken: Collection[str]) -> None:
    """Give one version another name. Files stay where they are: the name is shown, not stored in them."""
    if not name.strip() or "@" in name or name in taken:
        problem = f"another model is called {name!r}" if name in taken else "invalid model name"
        raise StoreError(
            problem,
            found=repr(name),
            expected="a name that no other model has, without @",
        )
    with file_lock(workspace.lock_path("names"), wait=True):
        names = renamed_models(workspace)
        for former_hash in version.former_hashes:
            names.pop(former_hash, None)
        names[version.record.version] = {"name": name, "stored_as": version.stored_as}
        workspace.write_json(workspace.root / _NAMES, names)
