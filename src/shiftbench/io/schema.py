"""Typed records from TOML documents and from keyword options, checked by msgspec.

A record is a ``msgspec.Struct`` (or a dataclass); ``Annotated[int, Meta(ge=1)]`` and ``Literal`` state what its fields
accept. Every error names the key by its path in the document (``train.epochs``), what was found there and what was
expected; an unknown key or choice comes with the nearest known one.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import sys
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from msgspec import inspect as shapes

from shiftbench.errors import ShiftbenchError, raising

T = TypeVar("T")

# Types of fields with bounds. msgspec needs finite bounds; the largest float as a bound refuses infinity and NaN.
_LARGEST = sys.float_info.max
Probability = Annotated[float, Meta(ge=0, le=1)]
NonNegative = Annotated[float, Meta(ge=0, le=_LARGEST)]
Positive = Annotated[float, Meta(gt=0, le=_LARGEST)]
Count = Annotated[int, Meta(ge=1)]

#: Tables inside each other that a TOML document may have.
_DEEPEST = 100
#: What msgspec calls a type, and what errors call it for people who write TOML.
_WORDS = {
    "object": "table",
    "array": "list",
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "null": "nothing",
}


def parse_toml(text: str, source: object, error: type[ShiftbenchError] = ShiftbenchError) -> dict[str, Any]:
    """The tables of a TOML document; ``source`` names it in errors."""
    with raising(error, f"{source} is not valid TOML", tomllib.TOMLDecodeError):
        tables = tomllib.loads(text)
    # Keys with many dots are read without recursion, and would end whatever goes through the tables later.
    if _depth_of_tables(tables) > _DEEPEST:
        raise error(f"{source} is nested too deeply", expected=f"at most {_DEEPEST} tables inside each other")
    return tables


def _depth_of_tables(tables: dict[str, Any]) -> int:
    """How many tables are inside each other."""
    depth = 0
    level = [tables]
    while level and depth <= _DEEPEST:
        depth += 1
        level = [value for table in level for value in table.values() if isinstance(value, dict)]
    return depth


def read_toml(path: Path, error: type[ShiftbenchError] = ShiftbenchError) -> dict[str, Any]:
    """The tables of a TOML file. A missing file raises ``FileNotFoundError``."""
    with raising(error, f"{path} is not valid TOML", UnicodeDecodeError):
        return parse_toml(path.read_text(encoding="utf-8"), path, error)


def to_toml(tables: Mapping[str, object]) -> str:
    """A TOML document of plain values, lists and tables. Needs tomlkit."""
    import tomlkit

    return tomlkit.dumps(tables)


def decode(
    document: object, kind: type[T], title: str, error: type[ShiftbenchError] = ShiftbenchError, path: str = ""
) -> T:
    """``document`` as a ``kind``; ``title`` names the document in errors, ``path`` is its position in a larger one.

    >>> class Train(msgspec.Struct):
    ...     epochs: Count = 100
    >>> decode({"epochs": 3}, Train, "the recipe")
    Train(epochs=3)
    >>> decode({"epoch": 3}, Train, "the recipe")
    Traceback (most recent call last):
    shiftbench.errors.ShiftbenchError: unknown key in the recipe
      found:    epoch
      expected: epochs
      try:      did you mean 'epochs'?
    >>> decode({"epochs": 0}, Train, "the recipe")
    Traceback (most recent call last):
    shiftbench.errors.ShiftbenchError: invalid value of epochs in the recipe
      found:    0
      expected: integer >= 1
    """
    _check_names(_shape(kind), document, path, title, error)
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as problem:
        raise _explained(problem, document, path, title, error) from problem


def check_keys(
    keys: Iterable[str],
    allowed_keys: Iterable[str],
    title: str,
    error: type[ShiftbenchError] = ShiftbenchError,
    path: str = "",
) -> None:
    """Refuse an unknown key and suggest the nearest known one."""
    allowed = list(allowed_keys)
    for key in keys:
        if key not in allowed:
            raise error(
                f"unknown key in {title}",
                found=_join(path, str(key)),
                expected=", ".join(allowed) or "no keys",
                hint=_nearest(str(key), allowed),
            )


def check_options(
    options: Mapping[str, object],
    factory: Callable[..., object],
    title: str,
    error: type[ShiftbenchError] = ShiftbenchError,
    *,
    given: Sequence[str] = (),
) -> dict[str, Any]:
    """Keyword arguments for ``factory``: its defaults and the options over them, converted to the annotated types.

    ``given`` are parameters that the caller fills in. A factory with ``**options`` takes them as they are.

    >>> def noise(strength: Probability = 0.5, copies: Count = 1) -> None: ...
    >>> check_options({"strength": 1}, noise, "the augmentation 'noise'")
    {'strength': 1.0, 'copies': 1}
    """
    arguments = _arguments(factory, tuple(given))
    if arguments is None:
        return dict(options)
    return msgspec.structs.asdict(decode(options, arguments, title, error))


@functools.cache
def _arguments(factory: Callable[..., object], given: tuple[str, ...]) -> type[msgspec.Struct] | None:
    """The parameters of a factory as a record; None where it accepts any keyword."""
    parameters = inspect.signature(factory).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    function: Any = factory.func if isinstance(factory, functools.partial) else factory
    described = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    hints = get_type_hints(described, include_extras=True)
    fields: list[Any] = []
    for parameter in parameters:
        if parameter.name in given:
            continue
        hint = _decodable(hints.get(parameter.name, Any))
        if parameter.default is parameter.empty:
            fields.append((parameter.name, hint))
        else:
            fields.append((parameter.name, hint, parameter.default))
    return msgspec.defstruct("Options", fields, kw_only=True)


def _decodable(hint: object) -> Any:
    """The hint, or ``Any`` where msgspec can't decode the type, such as a union of two classes of this package."""
    if get_origin(hint) in (Union, types.UnionType):
        members = get_args(hint)
        has_bounds = any(get_origin(member) is Annotated for member in members)
        # msgspec 0.22 crashes on a union of a bounded value and a tuple of fixed length.
        if has_bounds and any(_is_fixed_tuple(member) for member in members):
            return Any
    try:
        shapes.type_info(hint)
    except TypeError:
        return Any
    return hint


def _is_fixed_tuple(hint: object) -> bool:
    return get_origin(hint) is tuple and Ellipsis not in get_args(hint)


_shape: Callable[[Any], shapes.Type] = functools.cache(shapes.type_info)


def _check_names(shape: shapes.Type, value: object, path: str, title: str, error: type[ShiftbenchError]) -> None:
    """Check keys and choices at all levels, as the errors of msgspec do not list the known ones."""
    if isinstance(shape, shapes.StructType | shapes.DataclassType) and isinstance(value, Mapping):
        _check_record(shape, value, path, title, error)
    elif isinstance(shape, shapes.ListType | shapes.VarTupleType) and isinstance(value, list | tuple):
        for i, entry in enumerate(value):
            _check_names(shape.item_type, entry, f"{path}[{i}]", title, error)
    elif isinstance(shape, shapes.DictType) and isinstance(value, Mapping):
        for key, entry in value.items():
            _check_entry(shape.value_type, entry, _join(path, str(key)), title, error)
    elif isinstance(shape, shapes.UnionType) and value is not None:
        members = [member for member in shape.types if not isinstance(member, shapes.NoneType)]
        if len(members) == 1:
            _check_names(members[0], value, path, title, error)
    elif isinstance(shape, shapes.LiteralType) and value not in shape.values:
        choices = [str(choice) for choice in shape.values]
        raise error(
            f"invalid value of {path} in {title}",
            found=repr(value),
            expected=" or ".join(choices),
            hint=_nearest(str(value), choices),
        )


def _check_entry(shape: shapes.Type, entry: object, path: str, title: str, error: type[ShiftbenchError]) -> None:
    """Check a value of a table whose keys are free."""
    if isinstance(shape, shapes.StructType):
        # The error of msgspec would not name the key, so each entry is decoded by itself.
        decode(entry, shape.cls, title, error, path)
    else:
        _check_names(shape, entry, path, title, error)


def _check_record(
    shape: shapes.StructType | shapes.DataclassType,
    value: Mapping[str, object],
    path: str,
    title: str,
    error: type[ShiftbenchError],
) -> None:
    """Check the keys of a table that has fixed ones, then the values under them."""
    fields = {field.encode_name: field.type for field in shape.fields}
    table = f"[{path}] of {title}" if path else title
    check_keys(value, fields, table, error, path)
    for key, entry in value.items():
        _check_names(fields[key], entry, _join(path, key), title, error)


def _explained(
    problem: msgspec.ValidationError, document: object, path: str, title: str, error: type[ShiftbenchError]
) -> ShiftbenchError:
    """The error for what msgspec found, with the key, the value and the expected type in plain words."""
    message, _, position = str(problem).partition(" - at `$")
    position = position.removesuffix("`")
    key = _join(path, position)
    if missing := re.fullmatch(r"Object missing required field `(.+)`", message):
        return error(f"missing key in {title}", found=f"no {_join(key, missing[1])}", expected=missing[1])
    summary = f"invalid value of {key} in {title}" if key else f"invalid {title}"
    return error(summary, found=repr(_value_at(document, position)), expected=_expected_type(message))


def _expected_type(message: str) -> str:
    """The type that a message of msgspec states, in the words of TOML.

    Messages are "Expected `int`, got `str`", "Expected `int` >= 1" or "Expected `array` of length 2, got 1".
    """

    def in_words(kinds: re.Match[str]) -> str:
        return " or ".join(_WORDS.get(kind, kind) for kind in kinds[1].split(" | "))

    expected = re.sub(r", got .*|^Expected ", "", message)
    expected = re.sub(r"`([^`]*)`", in_words, expected)
    return expected.replace(f"number <= {_LARGEST}", "finite number")


def _value_at(document: Any, position: str) -> Any:
    """The value at a position as msgspec states it, such as ``.train.milestones[1]``.

    msgspec writes ``[...]`` for any key of a mapping, so the value below it is not known: the mapping is returned.
    """
    for key, index in re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", position):
        if index == "...":
            break
        document = document[key or int(index)]
    return document


def _join(path: str, key: str) -> str:
    """The path of a key below another path; indices in brackets follow without a dot."""
    if path and key and not key.startswith("["):
        return f"{path}.{key.lstrip('.')}"
    return path + key.lstrip(".")


def _nearest(name: str, names: Sequence[str]) -> str | None:
    """A hint with the most similar of the names; None if none is similar."""
    matches = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {matches[0]!r}?" if matches else None
