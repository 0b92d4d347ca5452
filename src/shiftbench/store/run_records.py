"""How and when the results of a workspace were computed: one record per run, ``runs/<UTC time>-<id>.json``.

A record is written when the computation starts and again when it ends, so that a killed run leaves one, too. No
prediction depends on the records: a workspace without them, or of an older version, is read as ever.
"""

from __future__ import annotations

import inspect
import platform
import secrets
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from functools import cache, partial
from importlib import metadata
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from shiftbench._version import __version__
from shiftbench.errors import ShiftbenchError, StoreError, listed, warn_user
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location, UnreachableError, UnwritableError, is_object

if TYPE_CHECKING:
    from shiftbench.store.workspace import Result, Workspace

#: The command line behind the present call; empty where Python was called.
command_line: ContextVar[tuple[str, ...]] = ContextVar("command_line", default=())
#: "running" is also what a killed run leaves; ``is_alive`` tells the two apart.
Status = Literal["running", "complete", "incomplete", "interrupted", "failed"]
Kind = Literal["evaluate", "import", "remove"]
#: Library to module: those on the way from an image file to a score.
_CORE = {"numpy": "numpy", "pillow": "PIL", "opencv": "cv2", "scipy": "scipy"}
_ENGINES = {
    **{name: name for name in ("onnxruntime", "torch", "torchvision", "timm", "transformers", "tensorflow", "jax")},
    "scikit-learn": "sklearn",
}
#: Arguments that decide nothing but what is shown on the way.
_SILENT = ("progress", "bar", "check")


class Software(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Versions, Python, and the machine."""

    #: Version of this package, and of the libraries that a run loaded or can load.
    versions: dict[str, str] = {}
    python: str = ""
    platform: str = ""
    cpu: str = ""
    #: Vector instructions in use: sums are rounded in another order with others.
    cpu_features: list[str] = []

    @classmethod
    def present(cls) -> Software:
        """Those of this process. Engines count if they are loaded; the core's libraries may be loaded by workers."""
        import numpy as np

        versions = {"shiftbench": __version__}
        for name, module in (_CORE | _ENGINES).items():
            version = getattr(sys.modules.get(module), "__version__", "")
            if module in sys.modules or name in _CORE:
                version = str(version or _installed("opencv-python-headless" if name == "opencv" else name))
                versions |= {name: version} if version else {}
        umath = getattr(getattr(np, "_core", None), "_multiarray_umath", None)
        found: dict[str, bool] = getattr(umath, "__cpu_features__", {})
        return cls(
            versions=versions,
            python=platform.python_version(),
            platform=platform.platform(),
            cpu=_cpu(),
            cpu_features=sorted(name for name, there in found.items() if there),
        )


@cache
def _installed(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


@cache
def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def mixed_versions(software: Iterable[Software]) -> dict[str, list[str]]:
    """What differs between results in a way that can change scores: library to its versions; "CPU features" too.

    A library that only some loaded is no difference: models of one table may need different engines.
    """
    seen: dict[str, dict[str, None]] = {}
    for one in software:
        for name, version in one.versions.items():
            seen.setdefault(name, {})[version] = None
        if one.cpu_features:
            seen.setdefault("CPU features", {})[" ".join(one.cpu_features)] = None
    return {name: list(versions) for name, versions in seen.items() if len(versions) > 1}


class ModelRun(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a run did with one model; results by key."""

    id: str
    #: Path or spec that it was loaded from; the kind of object where it was passed as one.
    source: str = ""
    fingerprint: str = ""
    #: Facts about its preprocessing or outputs that nobody gave and no file states.
    assumed: list[str] = []
    #: Facts that someone stated; empty in records from before they were kept.
    stated: list[str] = []
    #: By result: how many of its images the model was trained on, where that is known.
    training_images: dict[str, int] = {}
    computed: list[str] = []
    #: Computed in part by this run: other blocks are of earlier runs, or of other jobs of an array.
    shared: list[str] = []
    reused: list[str] = []  #: Complete before the run.
    removed: list[str] = []  #: Deleted, by ``store remove``.

    @property
    def version(self) -> str:
        return self.id.rpartition("@")[2]

    def with_hash(self, current_hashes: Mapping[str, str]) -> ModelRun:
        """The same under the id that the model has now."""
        name = self.id.rpartition("@")[0]
        return msgspec.structs.replace(self, id=f"{name}@{current_hashes.get(self.version, self.version)}")

    @property
    def results(self) -> list[str]:
        return [*self.computed, *self.shared, *self.reused, *self.removed]


class RunRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One run: its arguments, the software, and its outcome."""

    id: str
    kind: Kind
    started: str
    ended: str = ""
    status: Status = "running"
    command: list[str] = []  #: As typed; empty for calls from Python. Credentials are left out.
    call: str = ""  #: The Python function, with the arguments that are not defaults.
    folder: str = ""
    configuration: dict[str, Any] = {}  #: All arguments of the call, resolved.
    data: dict[str, str] = {}  #: Role to path.
    software: Software
    models: list[ModelRun] = []
    error: str = ""

    @property
    def text(self) -> str:
        """The command or call, as a line."""
        return shlex.join(self.command) if self.command else self.call


@dataclass(frozen=True)
class Call:
    """A call of this package that is worth a record; ``data``: role to path."""

    kind: Kind
    function: Callable[..., object]
    arguments: Mapping[str, object]
    data: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def recorded_run(workspace: Workspace, call: Call, models: Sequence[ModelRun]) -> Iterator[RunRecord]:
    """Keep a record of what happens inside: written now, and when it ends in whatever way.

    What is done to the record inside is written at the end.
    """
    started = datetime.now(UTC)
    text, configuration = describe_call(call.function, call.arguments)
    record = RunRecord(
        id=_new_id(started),
        kind=call.kind,
        started=started.isoformat(timespec="milliseconds"),
        command=without_secrets(command_line.get()),
        call=text,
        folder=str(Path.cwd()),
        configuration=configuration,
        data={role: hidden(path) for role, path in call.data.items()},
        software=Software.present(),
        models=list(models),
    )
    with ExitStack() as held:
        if not is_object(workspace.root):
            clear_locks(workspace)
            held.enter_context(file_lock(workspace.lock_path(f"run-{record.id}"), wait=True))
        _write(workspace, record)
        try:
            yield record
            record.status = "complete" if record.status == "running" else record.status
        except BaseException as error:
            record.status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            record.error = error.message if isinstance(error, ShiftbenchError) else f"{type(error).__name__}: {error}"
            raise
        finally:
            record.ended = datetime.now(UTC).isoformat(timespec="milliseconds")
            record.software = Software.present()  # libraries that were loaded on the way count, too
            _write(workspace, record)


def record_worker(workspace: Workspace, run: RunRecord) -> None:
    """Of a worker whose libraries or processor differ from those of the process that began the run, which its results
    are of as well."""
    here, now = Software.present(), datetime.now(UTC)
    if mixed_versions([run.software, here]):
        models = [msgspec.structs.replace(one, computed=[], shared=[*one.computed, *one.shared]) for one in run.models]
        moment = now.isoformat(timespec="milliseconds")
        own: dict[str, Any] = {"id": _new_id(now), "software": here, "models": models, "status": "complete"}
        _write(workspace, msgspec.structs.replace(run, started=moment, ended=moment, **own))


def _new_id(moment: datetime) -> str:
    return f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03d}Z-{secrets.token_hex(4)}"


def _write(workspace: Workspace, record: RunRecord) -> None:
    path = workspace.root / "runs" / f"{record.id}.json"
    try:
        workspace.check_present()
        workspace.write_json(path, msgspec.to_builtins(record))
    except UnwritableError:
        # Complete results of a read-only workspace are read all the same; what can't be computed fails by itself.
        warnings.warn(f"the run is not recorded: {path} can't be written", stacklevel=2)


def clear_locks(workspace: Workspace) -> int:
    """Remove what killed runs left: whoever gets a lock removes its file. How many there were."""
    removed = 0
    for path in (workspace.root / "locks").glob("*.lock"):
        with file_lock(path, wait=False) as free:
            removed += free
    return removed


def read_runs(workspace: Workspace) -> tuple[list[RunRecord], list[Location]]:
    """The records in order of their start, and the files that are damaged."""
    files: list[Location] = sorted((workspace.root / "runs").glob("*.json"))
    with ThreadPoolExecutor() as pool:
        # In an object store each is a request, and they are waited for side by side.
        read = list((pool.map if is_object(workspace.root) else map)(partial(read_run, workspace), files))
    records = sorted((one for one in read if one is not None), key=lambda one: (one.started, one.id))
    return records, [file for file, one in zip(files, read, strict=True) if one is None]


def read_run(workspace: Workspace, path: Location) -> RunRecord | None:
    """None if it is damaged or gone."""
    try:
        return msgspec.convert(workspace.files.read_json(path), RunRecord)
    except UnreachableError:
        raise
    except (OSError, StoreError, msgspec.MsgspecError):
        return None


def is_alive(workspace: Workspace, record: RunRecord) -> bool | None:
    """Whether an unfinished run still goes on; None where there are no locks to tell."""
    if is_object(workspace.root):
        return None
    lock = workspace.lock_path(f"run-{record.id}")
    if not lock.exists():
        return False
    with file_lock(lock, wait=False) as free:
        return not free


class RunHistory:
    """What the records say about the results of a workspace."""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self.records = list(records)
        #: By hash of the version: facts that a run had to assume and that no run stated.
        self.assumed: dict[str, tuple[str, ...]] = {}
        #: By hash of the version: facts that a run stated.
        self.stated: dict[str, frozenset[str]] = {}
        #: By key of a result: how many of its images the model was trained on, where that is known.
        self.training_images: dict[str, int] = {}
        #: By hash of the version: when it was first run (ISO 8601, UTC).
        self.first_runs: dict[str, str] = {}
        self._makers: dict[str, list[RunRecord]] = {}
        for record in self.records:
            for model in record.models:
                self._add(record, model)

    @classmethod
    def of(cls, workspace: Workspace, current_hashes: Mapping[str, str] | None = None) -> RunHistory:
        """What the records of a workspace say; ``current_hashes`` as in ``ModelVersions``, for records of older
        versions, whose ids of models had other hashes."""
        records, damaged = read_runs(workspace)
        for record in records:
            record.models = [model.with_hash(current_hashes or {}) for model in record.models]
        if damaged:
            names = listed([path.name for path in damaged])
            warn_user(f"{len(damaged)} damaged records of runs are ignored, so provenance may be missing: {names}")
        return cls(records)

    def _add(self, record: RunRecord, model: ModelRun) -> None:
        for key in model.removed:
            self._makers.pop(key, None)
        if record.kind == "remove":
            return
        self.training_images |= model.training_images
        self.first_runs.setdefault(model.version, record.started)
        self._add_facts(model)
        for key in model.computed:
            # Runs at the same time may share the work; one that ended before did not: the result was made anew.
            before = self._makers.get(key, ())
            self._makers[key] = [*(one for one in before if not one.ended or one.ended > record.started), record]
        for key in model.shared:
            self._makers.setdefault(key, []).append(record)

    def _add_facts(self, model: ModelRun) -> None:
        """A fact is assumed until a run states it.

        Records from before stated facts were kept took a filter or an order of channels that nobody had stated for
        given. They confirm the assumptions of each other, as they always did, but not those of later runs.
        """
        so_far = self.assumed.get(model.version, tuple(model.assumed))
        stated = self.stated.get(model.version, frozenset()) | set(model.stated)
        if model.stated:
            assumed = tuple(fact for fact in dict.fromkeys([*so_far, *model.assumed]) if fact not in stated)
        else:
            assumed = tuple(fact for fact in so_far if fact in model.assumed)
        self.stated[model.version] = stated
        self.assumed[model.version] = assumed

    @property
    def dates(self) -> dict[str, str]:
        """``first_runs``, for people."""
        return {version: shown_date(first) for version, first in self.first_runs.items()}

    def makers(self, result: Result) -> list[RunRecord]:
        """The runs that computed a result; none if that was not recorded."""
        return self._makers.get(result.relative.name, [])

    def commands(self, keys: Iterable[str]) -> list[str]:
        """The commands or calls that computed results, once each."""
        return list(dict.fromkeys(one.text for key in keys for one in self._makers.get(key, [])))


def shown_date(moment: str) -> str:
    """
    >>> shown_date("2026-11-16T19:30:39.123+00:00")
    '2026-11-16 19:30'
    """
    return moment[:16].replace("T", " ")


def describe_call(call: Callable[..., object], arguments: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """The call as a line, without arguments that are defaults, and all its arguments as JSON."""
    parameters = inspect.signature(call).parameters
    configuration = {name: as_json(arguments[name]) for name in parameters if name in arguments and name not in _SILENT}
    given = [f"{name}={value!r}" for name, value in configuration.items() if value != as_json(parameters[name].default)]
    return f"{call.__name__}({', '.join(given)})", configuration


def as_json(value: object) -> Any:
    """Plain values as they are; other objects by their name or kind: enough to repeat the call, or to know what was."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | PurePath) or is_object(value):
        return hidden(str(value))
    if isinstance(value, Mapping):
        return {str(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(entry) for entry in value]
    if is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "name"):
        return {one.name: as_json(getattr(value, one.name)) for one in fields(value) if not one.name.startswith("_")}
    name = getattr(value, "name", None) or getattr(value, "__qualname__", None)
    return str(name) if name else f"<{type(value).__qualname__}>"


def without_secrets(arguments: Iterable[str]) -> list[str]:
    """The command line without credentials."""

    def is_secret(option: str) -> bool:
        return option.startswith("--") and any(word in option for word in ("token", "password", "secret", "credential"))

    shown: list[str] = []
    for argument in arguments:
        option, equals, _ = argument.partition("=")
        if equals and is_secret(option):
            shown.append(f"{option}=***")
        else:
            secret = shown[-1:] and is_secret(shown[-1]) and not argument.startswith("-")
            shown.append("***" if secret else hidden(argument))
    return shown


def hidden(text: str) -> str:
    """A text without the user, the password and the query of a URL in it."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return text
    host, slash, path = rest.partition("/")
    host = f"***@{host.rpartition('@')[2]}" if "@" in host else host
    whole, question, _ = f"{host}{slash}{path}".partition("?")
    return f"{scheme}://{whole}{'?***' if question else ''}"
