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

# What fields accept. msgspec wants finite bounds; this one refuses infinity and NaN.
_LARGEST = sys.float_info.max
Probability = Annotated[float, Meta(ge=0, le=1)]
NonNegative = Annotated[float, Meta(ge=0, le=_LARGEST)]
Positive = Annotated[float, Meta(gt=0, le=_LARGEST)]
Count = Annotated[int, Meta(ge=1)]

#: How msgspec names a type, and how TOML's users do.
_WORDS = {
    "object": "table", "array": "list", "str": "string", "int": "integer", "float": "number", "bool": "boolean",
    "null": "nothing",
}  # fmt: skip


def parse_toml(text: str, source: object, error: type[ShiftbenchError] = ShiftbenchError) -> dict[str, Any]:
    """The tables of a TOML document; ``source`` names it in errors."""
    with raising(error, f"{source} is not valid TOML", tomllib.TOMLDecodeError):
        return tomllib.loads(text)


def read_toml(path: Path, error: type[ShiftbenchError] = ShiftbenchError) -> dict[str, Any]:
    """The tables of a TOML file. A missing file raises ``FileNotFoundError``."""
    with raising(error, f"{path} is not valid TOML", UnicodeDecodeError):
        return parse_toml(path.read_text(encoding="utf-8"), path, error)


def to_toml(tables: Mapping[str, object]) -> str:
    """A TOML document of plain values, lists and tables. Needs tomlkit."""
    import tomlkit

    return tomlkit.dumps(tables)


def decode(
    document: object, kind: type[T], what: str, error: type[ShiftbenchError] = ShiftbenchError, path: str = ""
) -> T:
    """``document`` as a ``kind``; ``what`` names the document in errors, ``path`` is its position in a larger one.

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
    _check_names(_shape(kind), document, path, what, error)
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as problem:
        raise _explained(problem, document, path, what, error) from problem


def check_keys(
    found: Iterable[str],
    known: Iterable[str],
    what: str,
    error: type[ShiftbenchError] = ShiftbenchError,
    path: str = "",
) -> None:
    """Refuse an unknown key and suggest the nearest known one."""
    allowed = list(known)
    for key in found:
        if key not in allowed:
            raise error(
                f"unknown key in {what}",
                found=_join(path, str(key)),
                expected=", ".join(allowed) or "no keys",
                hint=_nearest(str(key), allowed),
            )


def check_options(
    options: Mapping[str, object],
    factory: Callable[..., object],
    what: str,
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
    return dict(options) if arguments is None else msgspec.structs.asdict(decode(options, arguments, what, error))


@functools.cache
def _arguments(factory: Callable[..., object], given: tuple[str, ...]) -> type[msgspec.Struct] | None:
    """The parameters of a factory as a record; None where it takes any."""
    parameters = inspect.signature(factory).parameters.values()
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters):
        return None
    function: Any = factory.func if isinstance(factory, functools.partial) else factory
    described = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    hints = get_type_hints(described, include_extras=True)
    fields: list[Any] = []
    for one in parameters:
        if one.name not in given:
            default = () if one.default is one.empty else (one.default,)
            fields.append((one.name, _decodable(hints.get(one.name, Any)), *default))
    return msgspec.defstruct("Options", fields, kw_only=True)


def _decodable(hint: object) -> Any:
    """The hint, or ``Any`` where msgspec knows no such type, such as a union of two classes of ours."""
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [get_origin(one) for one in get_args(hint)]
        lengths = [one for one in get_args(hint) if get_origin(one) is tuple and Ellipsis not in get_args(one)]
        # msgspec 0.22 crashes on a union of a bounded value and a tuple of fixed length.
        if Annotated in kinds and lengths:
            return Any
    try:
        shapes.type_info(hint)
    except TypeError:
        return Any
    return hint


_shape: Callable[[Any], shapes.Type] = functools.cache(shapes.type_info)


def _check_names(shape: shapes.Type, value: object, path: str, what: str, error: type[ShiftbenchError]) -> None:
    """Check keys and choices at all levels: msgspec does not name the known ones."""
    if isinstance(shape, shapes.StructType | shapes.DataclassType) and isinstance(value, Mapping):
        known = {field.encode_name: field.type for field in shape.fields}
        check_keys(value, known, f"[{path}] of {what}" if path else what, error, path)
        for key, below in value.items():
            _check_names(known[key], below, _join(path, key), what, error)
    elif isinstance(shape, shapes.ListType | shapes.VarTupleType) and isinstance(value, list | tuple):
        for i, below in enumerate(value):
            _check_names(shape.item_type, below, f"{path}[{i}]", what, error)
    elif isinstance(shape, shapes.DictType) and isinstance(value, Mapping):
        for key, below in value.items():
            if isinstance(shape.value_type, shapes.StructType):  # msgspec would not name the key
                decode(below, shape.value_type.cls, what, error, _join(path, str(key)))
            else:
                _check_names(shape.value_type, below, _join(path, str(key)), what, error)
    elif isinstance(shape, shapes.UnionType) and value is not None:
        kinds = [one for one in shape.types if not isinstance(one, shapes.NoneType)]
        if len(kinds) == 1:
            _check_names(kinds[0], value, path, what, error)
    elif isinstance(shape, shapes.LiteralType) and value not in shape.values:
        raise error(
            f"invalid value of {path} in {what}",
            found=repr(value),
            expected=" or ".join(map(str, shape.values)),
            hint=_nearest(str(value), [str(one) for one in shape.values]),
        )


def _explained(
    problem: msgspec.ValidationError, document: object, path: str, what: str, error: type[ShiftbenchError]
) -> ShiftbenchError:
    message, _, place = str(problem).partition(" - at `$")
    where = _join(path, place.removesuffix("`"))
    if missing := re.fullmatch(r"Object missing required field `(.+)`", message):
        return error(f"missing key in {what}", found=f"no {_join(where, missing[1])}", expected=missing[1])
    # "Expected `int`, got `str`", "Expected `int` >= 1", "Expected `array` of length 2, got 1"
    expected = re.sub(r", got .*|^Expected ", "", message)
    expected = re.sub(
        r"`([^`]*)`", lambda kinds: " or ".join(_WORDS.get(k, k) for k in kinds[1].split(" | ")), expected
    )
    expected = expected.replace(f"number <= {_LARGEST}", "finite number")
    title = f"invalid value of {where} in {what}" if where else f"invalid {what}"
    # What is at msgspec's ``.train.milestones[1]``; values under any key (``[...]``) are not distinguished.
    for key, position in re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", place.removesuffix("`")):
        if position == "...":
            break
        document = document[key or int(position)]  # type: ignore[index]
    return error(title, found=repr(document), expected=expected)


def _join(path: str, key: str) -> str:
    return f"{path}.{key.lstrip('.')}" if path and not key.startswith("[") and key else path + key.lstrip(".")


def _nearest(name: str, known: Sequence[str]) -> str | None:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else None
