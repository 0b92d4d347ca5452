"""What a Python callable computes with: its own code and the values that it holds or refers to, as hashes.

The values are those of closures, defaults, ``functools.partial``, attributes, and of the global names that the code
mentions, in the user's own modules: libraries count by name, as their versions are recorded with each run. What code
reads when it is called (a file, a server) is not seen.
"""

from __future__ import annotations

import functools
import inspect
import pickle
import re
import sys
import sysconfig
import types
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any

import numpy as np

from shiftbench.io.hashing import digest, file_digest

#: Folders of code that is not the user's: of Python, of installed packages, and of this one.
_LIBRARIES = tuple(
    folder.resolve()
    for folder in (*map(Path, map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))), Path(__file__).parents[1])
)
#: Packages of another environment, of the user or of the system are in folders of these names, wherever they are.
_PACKAGES = {"site-packages", "dist-packages"}
_PLAIN = (type(None), bool, int, float, complex, str, types.EllipsisType, range, slice)
_CALLABLES = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial, type, np.ufunc)
#: Deeper values are compared by their kind alone.
_DEEPEST = 40


def code_state(thing: object, covered: Path | None = None) -> dict[str, str]:
    """By place (a closure's variable, a global name, an attribute) in a function, partial, method or callable object:
    the hash of what is there. Empty for a function that uses nothing but its arguments and libraries. ``covered`` is a
    file of code that is hashed as a whole already."""
    found: dict[str, str] = {}
    _Walk(covered).places(thing, "", found)
    return found


def value_digest(value: object) -> str:
    """A hash of a value that a model holds."""
    return digest(_Walk(None).value(value))


def is_data(value: object) -> bool:
    """Numbers, texts, arrays, tensors and functions, and collections of them; not a trainer or a data loader."""
    if isinstance(value, Mapping):
        return all(map(is_data, value.values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(is_data, value))
    return isinstance(value, (*_PLAIN, bytes, np.ndarray, np.generic, *_CALLABLES)) or type(value).__name__ == "Tensor"


#: By callable: the state that it had when it was first seen, and the places that calling it changed since.
_first: weakref.WeakKeyDictionary[object, tuple[dict[str, str], set[str]]] = weakref.WeakKeyDictionary()


def known_state(thing: object, covered: Path | None = None) -> dict[str, str]:
    """``code_state``; counters and caches that calls of it changed are as they were when it was first seen."""
    found = code_state(thing, covered)
    try:
        first, changed = _first.setdefault(thing, (found, set()))
    except TypeError:  # neither hashable nor referable
        return found
    return {**{place: value for place, value in found.items() if place not in changed},
            **{place: first[place] for place in changed if place in first}}  # fmt: skip


def note_changes(thing: object, before: Mapping[str, str], covered: Path | None = None) -> None:
    """After a call: places that it changed are not what distinguishes one model from another."""
    try:
        _, changed = _first[thing]
    except (KeyError, TypeError):
        return
    now = code_state(thing, covered)
    changed |= {place for place in now.keys() | before.keys() if now.get(place) != before.get(place)}


def is_own(module: str | None) -> bool:
    """Whether a module is the user's, and not part of Python, of an installed library or of this package."""
    loaded = sys.modules.get(module or "")
    file = getattr(loaded, "__file__", None)
    if loaded is None or file is None or not Path(file).is_absolute():  # torch.ops has "_ops.py", which does not exist
        return module == "__main__"  # a notebook or prompt
    return not _is_installed(Path(file).absolute(), loaded.__name__)


@functools.cache
def _is_installed(file: Path, module: str) -> bool:
    path = file.resolve()
    if not _PACKAGES.isdisjoint(path.parts) or any(map(path.is_relative_to, _LIBRARIES)):
        return True
    depth = module.count(".") + (file.stem == "__init__")
    return depth < len(file.parents) and _is_recorded(file.parents[depth], module.partition(".")[0])


@functools.cache
def _is_recorded(folder: Path, package: str) -> bool:
    """Whether pip has installed the package into a folder of any name (`pip install --target FOLDER`)."""
    start = re.compile(rf"^{re.escape(package)}[/.]", re.MULTILINE)
    return any(start.search(record.read_text("utf-8")) for record in folder.glob("*.dist-info/RECORD"))


class _Walk:
    def __init__(self, covered: Path | None) -> None:
        self.covered = None if covered is None else covered.resolve()
        self.visited: dict[int, object] = {}  # with the objects: an id is free again when its object is gone
        self.values: dict[int, tuple[object, object]] = {}

    def places(self, thing: object, prefix: str, found: dict[str, str]) -> None:
        """What one callable uses, each under a name of its own."""
        if id(thing) in self.visited:
            return
        self.visited[id(thing)] = thing
        if isinstance(thing, functools.partial):
            self.add({"function": thing.func, "arguments": thing.args, "keywords": thing.keywords}, prefix, found)
        elif isinstance(thing, types.MethodType):
            self.places(thing.__func__, prefix, found)
            self.add({"self": thing.__self__}, prefix, found)
        elif isinstance(thing, types.FunctionType):
            self.add_code(thing, prefix, found)
            self.add(dict(_used(thing)), prefix, found)
        elif isinstance(thing, type):
            for kind in thing.__mro__:
                if is_own(kind.__module__):
                    if prefix or kind is not thing:
                        self.add_code(kind, f"{prefix}{kind.__name__}.", found)
                    for name, member in vars(kind).items():
                        method = getattr(member, "__func__", member)
                        if isinstance(method, types.FunctionType):
                            self.add(dict(_used(method)), f"{prefix}{name}().", found)
        elif is_own(type(thing).__module__):
            self.places(type(thing), prefix, found)
            self.add(_attributes(thing), prefix, found)

    def add(self, values: Mapping[str, object], prefix: str, found: dict[str, str]) -> None:
        for name, value in values.items():
            if isinstance(value, _CALLABLES):
                if not _of_library(value):
                    self.places(value, f"{prefix}{name}.", found)
            else:
                found[prefix + name] = digest(self.value(value))

    def add_code(self, thing: Any, prefix: str, found: dict[str, str]) -> None:
        """The text of a function or class, or its compiled code where text is missing or not enough; not of the first
        one, whose text is known already."""
        code, source = getattr(thing, "__code__", None), source_of(thing)
        if code is not None and (not source or (thing.__name__ == "<lambda>" and source.count("lambda") > 1)):
            found[f"{prefix}code"] = _code_digest(code)
        elif prefix and source:
            file = inspect.getsourcefile(thing)
            if self.covered is None or file is None or Path(file).resolve() != self.covered:
                found[f"{prefix}code"] = digest(source)

    def value(self, value: object, depth: int = 0) -> object:
        """Anything, as JSON-able values and hashes."""
        if isinstance(value, PurePath):
            return ["path"]  # where things lie does not count
        if isinstance(value, _PLAIN):
            return [type(value).__name__, repr(value)]
        if isinstance(value, bytes | bytearray | memoryview):
            return digest(bytes(value))
        if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
            return [str(value.dtype), list(value.shape), digest(np.ascontiguousarray(value).tobytes())]
        if depth > _DEEPEST:
            return [type(value).__name__]
        if id(value) not in self.values:
            self.values[id(value)] = value, ["itself"]  # what it is while it is being looked at
            try:
                self.values[id(value)] = value, self.inside(value, depth + 1)
            except Exception:  # objects may do anything when they are looked at
                self.values[id(value)] = value, [type(value).__qualname__]
        return self.values[id(value)][1]

    def inside(self, value: Any, depth: int) -> object:
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if isinstance(value, Mapping):
            return [name, [[self.value(key, depth), self.value(one, depth)] for key, one in value.items()]]
        if isinstance(value, set | frozenset):
            return sorted(digest(self.value(one, depth)) for one in value)
        if isinstance(value, list | tuple | np.ndarray):
            return [name, [self.value(one, depth) for one in value]]
        if isinstance(value, types.ModuleType):
            file = getattr(value, "__file__", None)
            own = file is not None and is_own(value.__name__) and Path(file).resolve() != self.covered
            return [value.__name__, file_digest(str(file)) if own else ""]
        if name in ("torch.Tensor", "torch.nn.parameter.Parameter"):
            return [one if isinstance(one, list) else digest(one) for one in tensors_of({"": value})]
        if hasattr(value, "state_dict") and hasattr(value, "named_modules"):
            return [name, module_digest(value)]
        if isinstance(value, _CALLABLES) or is_own(kind.__module__):
            found: dict[str, str] = {}
            self.places(value, "own.", found)
            return [name, str(getattr(value, "__qualname__", "")), found]
        attributes = _attributes(value)
        return [name, self.value(attributes, depth) if attributes else digest(pickle.dumps(value, protocol=4))]


def _used(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """What a function's code refers to: closure, defaults, attributes, and the user's own global names."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # not bound yet
            continue
    if function.__defaults__ or function.__kwdefaults__:
        yield "defaults", [function.__defaults__, function.__kwdefaults__]
    if function.__dict__:
        yield "attributes", dict(function.__dict__)
    names = sorted(name for name in set(_names(code)) if not name.startswith("__"))
    for name in names:
        # A function may import a module of the user's when it is called.
        value = function.__globals__.get(name, sys.modules.get(name))
        if isinstance(value, types.ModuleType):
            if is_own(value.__name__):
                yield name, value
                yield from ((f"{name}.{one}", vars(value)[one]) for one in names if one in vars(value))
        elif name in function.__globals__ and not _of_library(value):
            yield name, value


def _of_library(value: object) -> bool:
    """A function or class that a library defines."""
    known = isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | np.ufunc)
    return known and not is_own(getattr(value, "__module__", None))


# -- torch modules -------------------------------------------------------------------------------------------------

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
#: The file of a class may change while the process lives, and its code does not.
_sources: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()


def module_digest(module: Any) -> str:
    """Over the tensors in order, the structure, the forward code of every class that is not torch's own, and what else
    decides the scores: hooks, replaced methods, and in the user's own classes plain attributes, buffers that are not
    saved, and what the code refers to. Those of libraries show in the structure or the weights.
    """
    state = module.state_dict()
    # Functions among the attributes print their address, which is another one in every process.
    parts: list[object] = [type(module).__qualname__, re.sub(r" at 0x[0-9a-f]+", "", repr(module))]
    parts += tensors_of(state)
    kinds = {type(part) for part in module.modules()}
    parts += sorted([kind.__qualname__, _source(kind)] for kind in kinds if not kind.__module__.startswith("torch."))
    held: dict[str, str] = {}
    for kind in kinds:
        if is_own(kind.__module__):
            held |= {f"{kind.__qualname__}.{place}": value for place, value in code_state(kind).items()}
    for name, part in module.named_modules():
        values = {hook: list(own.values()) for hook in _HOOKS if (own := part.__dict__.get(hook))}
        values |= {key: part.__dict__[key] for key in ("forward",) if key in part.__dict__}
        if is_own(type(part).__module__):
            values |= {key: value for key, value in part._buffers.items() if f"{name}.{key}".lstrip(".") not in state}
            values |= {key: value for key, value in part.__dict__.items() if key[0] != "_" and key != "training"}
        held |= {f"{name}.{key}": value_digest(value) for key, value in values.items() if is_data(value)}
    return digest(*parts, *([[list(entry) for entry in sorted(held.items())]] if held else []))


def tensors_of(state: Mapping[str, object]) -> Iterator[object]:
    torch: Any = sys.modules["torch"]
    for key, value in state.items():
        if not isinstance(value, torch.Tensor):
            yield [key, repr(value)]
            continue
        tensor = value.detach().cpu().contiguous()
        yield [key, str(tensor.dtype), list(tensor.shape)]
        yield tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def _source(kind: type) -> str:
    if kind not in _sources:
        try:
            _sources[kind] = inspect.getsource(kind)
        except (OSError, TypeError):
            _sources[kind] = ""
    return _sources[kind]


# -- source text ---------------------------------------------------------------------------------------------------


def source_of(thing: Any) -> str:
    """The text of a function, or of the class of a callable object; "" where there is none to read."""
    for one in (thing, type(thing)):
        try:
            return inspect.getsource(one)
        except (OSError, TypeError):
            continue
    return ""


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _code_digest(code: types.CodeType) -> str:
    """Compiled code without its place in a file."""
    constants = [_code_digest(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts]
    return digest(code.co_code, constants, list(code.co_names), list(code.co_varnames))


def _attributes(thing: object) -> dict[str, object]:
    """Those of the object itself."""
    found: dict[str, object] = {}
    for kind in type(thing).__mro__:
        own = vars(kind).get("__slots__", ())
        for name in (own,) if isinstance(own, str) else own:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                found[name] = getattr(thing, name)
    return {**found, **getattr(thing, "__dict__", {})}
