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
from shiftbench.errors import (
    ShiftbenchError,
    StoreError,
    command_without_credentials,
    listed,
    warn_user,
    without_credentials,
)
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import Location, UnreachableError, UnwritableError, is_object

if TYPE_CHECKING:
    from shiftbench.store.workspace import Result, Workspace

#: The command line behind the present call; empty where Python was called.
command_line: ContextVar[tuple[str, ...]] = ContextVar("command_line", default=())
#: "running" is also what a killed run leaves; ``is_alive`` tells the two apart.
Status = Literal["running", "complete", "incomplete", "interrupted", "failed"]
Kind = Literal["evaluate", "import", "remove"]
#: Library to module: the libraries on the way from an image file to a score.
_CORE = {"numpy": "numpy", "pillow": "PIL", "opencv": "cv2", "scipy": "scipy"}
#: Library to what Pillow calls it: the libraries that decode image files.
_DECODERS = {
    "libjpeg-turbo": "libjpeg_turbo",
    "libjpeg": "jpg",
    "zlib": "zlib",
    "libwebp": "webp",
    "libtiff": "libtiff",
}
#: Library to module: the libraries that run models.
_ENGINES = {
    "onnxruntime": "onnxruntime",
    "torch": "torch",
    "torchvision": "torchvision",
    "timm": "timm",
    "transformers": "transformers",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "scikit-learn": "sklearn",
    "keras": "keras",
    "openvino": "openvino",
    "ai-edge-litert": "ai_edge_litert",
    "open_clip": "open_clip",
    "executorch": "executorch",
}
#: Arguments that decide only what is shown during the run.
_SILENT = ("progress", "bar", "check")


class Software(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """Versions, Python, and the machine."""

    #: Version of this package, and of the libraries that a run loaded or can load.
    versions: dict[str, str] = {}
    python: str = ""
    platform: str = ""
    cpu: str = ""
    #: Vector instructions in use; with other ones, sums are added in another order and rounded differently.
    cpu_features: list[str] = []

    @classmethod
    def present(cls) -> Software:
        """The software of this process.

        An engine counts if it is loaded; the core's libraries always count, as workers may load them.
        """
        import numpy as np

        versions = {"shiftbench": __version__}
        for name, module in (_CORE | _ENGINES).items():
            if module not in sys.modules and name not in _CORE:
                continue
            # The name of a release, which pip can install; a module may state a build instead, as OpenVINO's does.
            version = _installed_version(name) or getattr(sys.modules.get(module), "__version__", "")
            if version:
                versions[name] = str(version)
        versions |= _decoder_versions()
        umath = getattr(getattr(np, "_core", None), "_multiarray_umath", None)
        cpu_features: dict[str, bool] = getattr(umath, "__cpu_features__", {})
        return cls(
            versions=versions,
            python=platform.python_version(),
            platform=platform.platform(),
            cpu=_cpu(),
            cpu_features=sorted(name for name, is_present in cpu_features.items() if is_present),
        )


def _decoder_versions() -> dict[str, str]:
    """Versions of the libraries that Pillow decodes images with: two builds of one Pillow may have others.

    They are known once Pillow is loaded, as in every process that reads images.
    """
    if "PIL.Image" not in sys.modules:
        return {}
    from PIL import features

    versions: dict[str, str] = {}
    for library, feature in _DECODERS.items():
        version = features.version(feature)
        if version:
            versions[library] = version
    return versions


@cache
def _installed_version(library: str) -> str:
    package = "opencv-python-headless" if library == "opencv" else library
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


@cache
def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def mixed_versions(software: Iterable[Software]) -> dict[str, list[str]]:
    """What differs between results in a way that can change scores: library to its versions; "CPU features" too.

    A library that only some runs loaded is not a difference: models of one table may need different engines.
    """
    seen: dict[str, dict[str, None]] = {}
    for run_software in software:
        for name, version in run_software.versions.items():
            seen.setdefault(name, {})[version] = None
        if run_software.cpu_features:
            seen.setdefault("CPU features", {})[" ".join(run_software.cpu_features)] = None
    return {name: list(versions) for name, versions in seen.items() if len(versions) > 1}


class ModelRun(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a run did with one model; results by key."""

    id: str
    #: Path or spec that it was loaded from; the kind of object where it was passed as an object.
    source: str = ""
    fingerprint: str = ""
    #: Facts about its preprocessing or outputs that nobody gave and no file states.
    assumed: list[str] = []
    #: Facts that someone stated; empty in records from before they were kept.
    stated: list[str] = []
    #: By result: how many of its images the model was trained on, where that is known.
    training_images: dict[str, int] = {}
    #: What test sets measure and the model's training had, too: names of corruptions, or ``imagenet-21k``.
    trained_with: list[str] = []
    computed: list[str] = []
    #: Results that this run computed in part: other blocks are of earlier runs, or of other jobs of an array.
    shared: list[str] = []
    reused: list[str] = []  #: Complete before the run.
    #: What a server counted for its answers in the process that began the run: requests, tokens, cost.
    usage: dict[str, float] = {}
    removed: list[str] = []  #: Deleted, by ``store remove``.

    @property
    def version(self) -> str:
        """The hash in the id."""
        return self.id.rpartition("@")[2]

    def with_hash(self, current_hashes: Mapping[str, str]) -> ModelRun:
        """The same entry under the id that the model has now."""
        name = self.id.rpartition("@")[0]
        return msgspec.structs.replace(self, id=f"{name}@{current_hashes.get(self.version, self.version)}")

    @property
    def results(self) -> list[str]:
        """The keys of all results that the run had to do with."""
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
    #: Defaults of arguments that the function's signature does not list.
    defaults: Mapping[str, object] = field(default_factory=dict)


@contextmanager
def recorded_run(workspace: Workspace, call: Call, models: Sequence[ModelRun]) -> Iterator[RunRecord]:
    """Keep a record of what happens inside: it is written now, and again at the end, however that comes.

    Changes that the caller makes to the record inside are written at the end.
    """
    started = datetime.now(UTC)
    call_text, configuration = describe_call(call)
    record = RunRecord(
        id=_new_id(started),
        kind=call.kind,
        started=_timestamp(started),
        command=command_without_credentials(command_line.get()),
        call=call_text,
        folder=str(Path.cwd()),
        configuration=configuration,
        data={role: without_credentials(path) for role, path in call.data.items()},
        software=Software.present(),
        models=list(models),
    )
    with ExitStack() as locks:
        if not is_object(workspace.root):
            clear_locks(workspace)
            locks.enter_context(file_lock(workspace.lock_path(f"run-{record.id}"), wait=True))
        _write(workspace, record)
        try:
            yield record
            if record.status == "running":
                record.status = "complete"
        except BaseException as error:
            record.status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            if isinstance(error, ShiftbenchError):
                record.error = error.message
            else:
                record.error = without_credentials(f"{type(error).__name__}: {error}")
            raise
        finally:
            record.ended = _timestamp(datetime.now(UTC))
            record.software = Software.present()  # Libraries that were loaded since the start count, too.
            _write(workspace, record)


def record_worker(workspace: Workspace, run: RunRecord) -> None:
    """Write a record of a worker whose libraries or processor differ from those of the process that began the run.

    The results are then shared between the two records, so that the difference is reported with them.
    """
    software = Software.present()
    if not mixed_versions([run.software, software]):
        return
    models = []
    for model in run.models:
        models.append(msgspec.structs.replace(model, computed=[], shared=[*model.computed, *model.shared]))
    now = datetime.now(UTC)
    record = msgspec.structs.replace(
        run,
        id=_new_id(now),
        started=_timestamp(now),
        ended=_timestamp(now),
        status="complete",
        software=software,
        models=models,
    )
    _write(workspace, record)


def _timestamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")


def _new_id(moment: datetime) -> str:
    """The UTC time, by which records are sorted, and a random end for runs that start at the same moment."""
    return f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03d}Z-{secrets.token_hex(4)}"


def _write(workspace: Workspace, record: RunRecord) -> None:
    path = workspace.root / "runs" / f"{record.id}.json"
    try:
        workspace.check_present()
        workspace.write_json(path, msgspec.to_builtins(record))
    except UnwritableError:
        # A read-only workspace can still be read; a run that has to compute results fails when it writes them.
        warnings.warn(f"the run is not recorded: {path} can't be written", stacklevel=2)


def clear_locks(workspace: Workspace) -> int:
    """Remove the lock files that killed runs left; returns their number."""
    removed = 0
    for path in workspace.glob("locks/*.lock"):
        # A lock that is granted has no living owner, and its file is removed when it is released.
        with file_lock(path, wait=False) as is_free:
            if is_free:
                removed += 1
    return removed


def read_runs(workspace: Workspace) -> tuple[list[RunRecord], list[Location]]:
    """The records in order of their start, and the files that are damaged."""
    files = workspace.glob("runs/*.json")
    with ThreadPoolExecutor() as pool:
        # In an object store every file is a request, so they are requested side by side.
        map_files = pool.map if is_object(workspace.root) else map
        records_or_none = list(map_files(partial(read_run, workspace), files))
    records = []
    damaged = []
    for file, record in zip(files, records_or_none, strict=True):
        if record is None:
            damaged.append(file)
        else:
            records.append(record)
    records.sort(key=lambda record: (record.started, record.id))
    return records, damaged


def read_run(workspace: Workspace, path: Location) -> RunRecord | None:
    """The record in a file; None if it is damaged or gone."""
    try:
        return msgspec.convert(workspace.files.read_json(path), RunRecord)
    except UnreachableError:
        raise
    except (OSError, StoreError, msgspec.MsgspecError):
        return None


def is_alive(workspace: Workspace, run: str) -> bool | None:
    """Whether the run with this id still goes on; None where there are no locks to tell."""
    if is_object(workspace.root):
        return None
    lock = workspace.lock_path(f"run-{run}")
    if not lock.exists():
        return False
    with file_lock(lock, wait=False) as is_free:
        return not is_free


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
        #: By hash of the version: what test sets measure and the model's training had, too.
        self.trained_with: dict[str, tuple[str, ...]] = {}
        #: By hash of the version: when it was first run (ISO 8601, UTC).
        self.first_runs: dict[str, str] = {}
        #: By hash of the version: what servers counted for its answers, in all runs.
        self.usage: dict[str, dict[str, float]] = {}
        #: By key of a result: the runs that computed it.
        self._makers: dict[str, list[RunRecord]] = {}
        for record in self.records:
            for model in record.models:
                self._add(record, model)

    @classmethod
    def of(cls, workspace: Workspace, current_hashes: Mapping[str, str] | None = None) -> RunHistory:
        """The history of a workspace.

        ``current_hashes`` are those of ``ModelVersions``: records of older versions state models under other hashes.
        """
        records, damaged = read_runs(workspace)
        for record in records:
            record.models = [model.with_hash(current_hashes or {}) for model in record.models]
        if damaged:
            names = listed([path.name for path in damaged])
            warn_user(f"{len(damaged)} damaged records of runs are ignored, so provenance may be missing: {names}")
        return cls(records)

    def _add(self, record: RunRecord, model: ModelRun) -> None:
        """Enter what one run did for one model: who made each result, and what is known of the version."""
        for key in model.removed:
            self._makers.pop(key, None)
        if record.kind == "remove":
            return
        self.training_images |= model.training_images
        if model.trained_with:
            self.trained_with[model.version] = tuple(model.trained_with)
        spent = self.usage.setdefault(model.version, {})
        for what, count in model.usage.items():
            spent[what] = spent.get(what, 0) + count
        self.first_runs.setdefault(model.version, record.started)
        self._add_facts(model)
        for key in model.computed:
            # Runs at the same time may share the work. A run that ended before this one started did not share it: its
            # result was computed again.
            earlier = self._makers.get(key, ())
            sharing = [run for run in earlier if not run.ended or run.ended > record.started]
            self._makers[key] = [*sharing, record]
        for key in model.shared:
            self._makers.setdefault(key, []).append(record)

    def _add_facts(self, model: ModelRun) -> None:
        """Bring the assumed and stated facts of a version up to date: a fact is assumed until a run states it.

        Records of older versions have no stated facts, and took an unstated filter or order of channels for stated.
        They confirm the assumptions of each other, as they always did, but not those of later runs.
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
        """``first_runs`` as dates for people."""
        return {version: shown_date(first) for version, first in self.first_runs.items()}

    def makers(self, result: Result) -> list[RunRecord]:
        """The runs that computed a result; none if that was not recorded."""
        return self._makers.get(result.relative.name, [])

    def commands(self, keys: Iterable[str]) -> list[str]:
        """The commands or calls that computed results, once each."""
        commands: dict[str, None] = {}
        for key in keys:
            for record in self._makers.get(key, []):
                commands[record.text] = None
        return list(commands)


def shown_date(moment: str) -> str:
    """An ISO 8601 moment as tables show it.

    >>> shown_date("2026-11-16T19:30:39.123+00:00")
    '2026-11-16 19:30'
    """
    return moment[:16].replace("T", " ")


def describe_call(call: Call) -> tuple[str, dict[str, object]]:
    """The call as a line, without arguments that are defaults, and all its arguments as JSON."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(call.function).parameters.items()}
    defaults |= call.defaults
    configuration = {}
    words = []
    for name, argument in call.arguments.items():
        if name in _SILENT or name not in defaults:
            continue
        value = as_json(argument)
        configuration[name] = value
        if value != as_json(defaults[name]):
            words.append(f"{name}={value!r}")
    return f"{call.function.__name__}({', '.join(words)})", configuration


def as_json(value: object) -> Any:
    """A value as JSON: plain values as they are, other objects by their name or kind.

    That is enough to repeat the call, or to know what was passed to it.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | PurePath) or is_object(value):
        return without_credentials(str(value))
    if isinstance(value, Mapping):
        return {str(key): as_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(entry) for entry in value]
    if is_dataclass(value) and not isinstance(value, type) and not hasattr(value, "name"):
        names = [attribute.name for attribute in fields(value) if not attribute.name.startswith("_")]
        return {name: as_json(getattr(value, name)) for name in names}
    name = getattr(value, "name", None) or getattr(value, "__qualname__", None)
    return str(name) if name else f"<{type(value).__qualname__}>"
