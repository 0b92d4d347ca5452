"""The arguments of a run from a file, from the record of an earlier run, or from a baseline."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from shiftbench.errors import SettingError, UnknownNameError, listed
from shiftbench.io.schema import decode, read_toml

if TYPE_CHECKING:  # imported when used: shell completion loads this module
    from shiftbench.store.run_records import RunRecord
    from shiftbench.store.workspace import Result

#: What is evaluated, whatever the model.
SHARED = (
    "suite", "labels", "severities", "corruptions", "source", "frost_textures", "seed", "select", "design", "passes",
)  # fmt: skip
_PATHS = ("classifiers", "data", "labels", "frost_textures", "preprocessing", "workspace")
#: Recorded, but of the machine or of the process that ran.
_NOT_REPEATED = ("executor", "workers", "console", "progress")
#: Argument of ``evaluate``: the command-line options behind it, where they are called otherwise.
_OPTIONS = {
    "severities": ("severity",),
    "corruptions": ("corruption",),
    "select": ("per_class", "sample"),
    "preprocessing": ("preprocess",),
    "defences": ("defence",),
    "executor": ("executor_name", "workers", "address", "cpus", "gpus", "memory", "resources", "reader_cpus"),
}


def given_arguments(context: typer.Context, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Those that the user typed, not those that are defaults."""

    def typed(option: str) -> bool:
        source = context.get_parameter_source(option)
        return source is not None and source.name == "COMMANDLINE"

    return {name: value for name, value in arguments.items() if any(map(typed, _OPTIONS.get(name, (name,))))}


def read_configuration(file: Path) -> tuple[dict[str, Any], RunRecord | None]:
    """The arguments of ``evaluate`` from a TOML file, or from the record of a run: ``WORKSPACE/runs/ID.json``."""
    if not file.is_file():
        raise SettingError(f"no configuration file {file}", hint="a TOML file, or WORKSPACE/runs/ID.json of a run")
    if file.suffix != ".json":
        return evaluate_arguments(read_toml(file, SettingError), file), None
    try:
        from shiftbench.store.run_records import RunRecord

        record = msgspec.json.decode(file.read_bytes(), type=RunRecord)
    except msgspec.MsgspecError as error:
        raise SettingError(f"{file} is not the record of a run", found=error) from error
    objects = [model.id for model in record.models if model.source.startswith("<")]
    if objects or record.kind != "evaluate":
        raise SettingError(
            f"{file} can't be repeated from the command line",
            found=f"models given as Python objects: {listed(objects)}" if objects else f"a run of {record.kind!r}",
            hint="repeat it from Python" if objects else "name the record of an evaluation",
        )
    arguments = evaluate_arguments(record.configuration, file)
    return {**arguments, **{name: _from(record.folder, arguments[name]) for name in _PATHS}}, record


def evaluate_arguments(document: Mapping[str, Any], source: object) -> dict[str, Any]:
    """Checked by name; values are checked where they are used."""
    from shiftbench.api import evaluate
    from shiftbench.settings.roles import Selection

    known = [name for name in inspect.signature(evaluate).parameters if name not in _NOT_REPEATED]
    for name in document:
        if name not in (*known, *_NOT_REPEATED):
            raise UnknownNameError(f"argument in {source}:", name, known)
    found = {name: value for name, value in document.items() if name in known}
    hidden = [name for name, value in found.items() if any("***" in text for text in _texts(value))]
    if hidden:
        raise SettingError(f"{source} does not hold the credentials of {listed(hidden)}", hint="give them as options")
    if found.get("select") is not None:
        found["select"] = decode(found["select"], Selection, str(source), SettingError, "select")
    return found


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(one)


def _from(folder: str, value: Any) -> Any:
    """Paths of a record are relative to the folder where its run started."""
    if isinstance(value, Mapping):
        return {key: _from(folder, one) for key, one in value.items()}
    if isinstance(value, list):
        return [_from(folder, one) for one in value]
    # model.py:factory, unlabelled:folder
    parts = value.split(":") if isinstance(value, str) else []
    return str(Path(folder) / value) if parts and (Path(folder) / parts[0]).exists() else value


def with_configuration(
    path: Path | None, context: typer.Context, arguments: dict[str, Any]
) -> tuple[dict[str, Any], RunRecord | None]:
    """Arguments from a file, under those that the user typed; and the record, if it is repeated as it was."""
    if path is None:
        return arguments, None
    known, record = read_configuration(path)
    given = given_arguments(context, arguments)
    return {**arguments, **known, **given}, None if given.keys() - {"workspace", "executor"} else record


def changes_since(record: RunRecord, results: Iterable[Result]) -> list[Warning]:
    """A warning if results are not those of the record: data, models or shifts have changed since."""
    before = {key for model in record.models for key in model.results}
    new = [result.setting for result in results if result.key not in before]
    text = f"not the recorded run: data, model, preprocessing or shift have changed in {listed(new)}"
    return [UserWarning(text)] if new else []
