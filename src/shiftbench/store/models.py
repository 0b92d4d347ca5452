"""Which models a workspace holds: one id per version, what each version is called, and finding them by name.

A version is a model with everything that decides its scores: weights, preprocessing, engine, classes. Its id is
``name@hash``. Where a workspace holds one version of a name, the name is enough; where it holds several, each is shown
under its id, so that two versions never share a row.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
        """Whether the hash of its id begins so; the hash that it had in versions up to 0.2 is accepted as well."""
        return any(known.startswith(start) for known in (self.record.version, *self.former_hashes))


class ModelVersions:
    """The versions of models in a workspace, and what each is called."""

    def __init__(self, versions: Iterable[ModelVersion]) -> None:
        self._versions = {(one.stored_as, one.record.version): one for one in versions}
        self._by_name = by_key((one.name, one) for one in self._versions.values())

    @classmethod
    def of(cls, workspace: Workspace, results: Iterable[Result]) -> ModelVersions:
        """The versions behind these results, under the names that people gave them."""
        names = renamed_models(workspace)
        records = by_key(
            ((result.classifier, result.spec.classifier.version), result.spec.classifier) for result in results
        )
        versions = []
        for (stored_as, version), same_version in records.items():
            former_hashes = dict.fromkeys(record.former_version for record in same_version)
            renamed = next((names[key] for key in (version, *former_hashes) if key in names), {})
            name = renamed.get("name", stored_as)
            versions.append(ModelVersion(name, same_version[0], stored_as, frozenset(former_hashes)))
        return cls(versions)

    def __iter__(self) -> Iterator[ModelVersion]:
        return iter(self._versions.values())

    @property
    def titles(self) -> dict[str, ModelVersion]:
        """What tables call each version: its name, or its id where the name has several."""
        return {self.title(one): one for one in self}

    @property
    def current_hashes(self) -> dict[str, str]:
        """By the hash of a version in ids up to version 0.2: its hash now."""
        return {former: one.record.version for one in self for former in one.former_hashes}

    def title(self, version: ModelVersion) -> str:
        return version.name if len(self._by_name[version.name]) == 1 else version.id

    def named(self, result: Result) -> Result:
        """The result with its model's name and title."""
        version = self._versions[result.classifier, result.spec.classifier.version]
        return replace(result, name=version.name, title=self.title(version))

    def find(self, name: str) -> list[ModelVersion]:
        """The version with this id (its hash may be shortened), or all versions of this name."""
        if name in self._by_name:
            return self._by_name[name]
        own, _, start = name.rpartition("@")
        found = [one for one in self._by_name.get(own, ()) if one.matches(start)]
        if not found or len(start) < _SHORTEST_HASH:
            raise UnknownNameError("model", name, self.titles)
        return found

    def select(self, results: Iterable[Result], models: Sequence[str], settings: Sequence[str]) -> list[Result]:
        """The results of these models, by name or id, in these settings; empty arguments mean all."""
        given = list(results)
        if not given and (models or settings):
            raise NoResultsError("the workspace holds no results yet", expected=listed([*models, *settings]))
        wanted = {(one.stored_as, one.record.version) for name in models for one in self.find(name)}
        known = dict.fromkeys(result.setting for result in given)
        check_names("setting", settings, known)
        found = [
            result
            for result in given
            if (not wanted or (result.classifier, result.spec.classifier.version) in wanted)
            and result.setting in (settings or known)
        ]
        if not found and (models or settings):
            raise NoResultsError(f"no results of {listed(models)} in {listed(settings)} yet")
        return found


class NoResultsError(StoreError):
    """The requested results do not exist yet."""


class AmbiguousModelError(StoreError):
    """A name that several versions of a model share."""

    def __init__(self, name: str, versions: Sequence[ModelVersion], dates: Mapping[str, str]) -> None:
        super().__init__(
            f"{len(versions)} versions of {name!r} match; they differ in {', '.join(differences(versions))}",
            found=", ".join(f"{one.id} ({dates.get(one.record.version, 'date not recorded')})" for one in versions),
            expected="one of these ids",
        )


def differences(versions: Sequence[ModelVersion]) -> list[str]:
    """In what versions of a model differ: "preprocessing", "weights or code", "engine", ...

    A model's fingerprint covers the normalisation, too: only if the preprocessing agrees do other weights show in it.
    """
    records = [one.record for one in versions]

    def differ(*keys: str) -> bool:
        return len({canonical_json([one.decisive.get(key) for key in keys]) for one in records}) > 1

    alike: dict[str, set[object]] = {}
    for one in records:
        read_alike = canonical_json([one.values.get(key) for key in ("preprocessing", "outputs")])
        alike.setdefault(read_alike, set()).add(one.values.get("fingerprint"))
    found = {
        "preprocessing": differ("preprocessing"),
        "weights or code": any(len(fingerprints) > 1 for fingerprints in alike.values()),
        "engine": differ("engine"),
        "label space": differ("labels", "classes"),
        "kind of outputs": differ("outputs"),
        "input defences": differ("defences"),
        "being stateful, or the batch size": differ("stateful"),
    }
    return [what for what, differs in found.items() if differs] or ["name"]


def renamed_models(workspace: Workspace) -> dict[str, dict[str, str]]:
    """By hash of the version: the name that it was given, and the one it was evaluated under."""
    path = workspace.root / _NAMES
    try:
        found = workspace.files.read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    with explained(path):
        return {str(key): {str(k): str(v) for k, v in value.items()} for key, value in found.items()}


def rename_model(workspace: Workspace, version: ModelVersion, name: str, taken: Collection[str]) -> None:
    """Give one version another name. Files stay where they are: the name is shown, not stored in them."""
    if not name.strip() or "@" in name or name in taken:
        raise StoreError(
            "invalid model name" if name not in taken else f"another model is called {name!r}",
            found=repr(name),
            expected="a name that no other model has, without @",
        )
    with file_lock(workspace.lock_path("names"), wait=True):
        names = renamed_models(workspace)
        for former in version.former_hashes:
            names.pop(former, None)
        names[version.record.version] = {"name": name, "stored_as": version.stored_as}
        workspace.write_json(workspace.root / _NAMES, names)
