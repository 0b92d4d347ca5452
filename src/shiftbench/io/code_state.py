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
from collections.abc import Container, Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np

from shiftbench.io.hashing import digest, file_digest

#: Folders of code that is not the user's: of Python, of installed packages, and of this package.
_LIBRARIES = (
    Path(sysconfig.get_path("stdlib")).resolve(),
    Path(sysconfig.get_path("purelib")).resolve(),
    Path(sysconfig.get_path("platlib")).resolve(),
    Path(__file__).parents[1].resolve(),
)
#: Packages of another environment, of the user or of the system are in folders of these names, wherever they are.
_PACKAGES = {"site-packages", "dist-packages"}
_PLAIN = (type(None), bool, int, float, complex, str, types.EllipsisType, range, slice)
_CALLABLES = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial, type, np.ufunc)
#: Deeper values are compared by their kind alone.
_DEEPEST = 40


def code_state(function: object, covered: Path | None = None) -> dict[str, str]:
    """Hashes of all that a function, partial, method or callable object uses.

    The keys are places: a closure's variable, a global name, an attribute. The result is empty for a function that uses
    nothing but its arguments and libraries. ``covered`` is a file of code that the caller has hashed as a whole.
    """
    state: dict[str, str] = {}
    _Walk(covered).add_callable(function, "", state)
    return state


def value_digest(value: object) -> str:
    """A hash of a value that a model holds."""
    return digest(_Walk(None).value(value))


def is_data(value: object) -> bool:
    """Whether a value is data: numbers, texts, arrays, tensors and functions, and collections of them.

    A trainer or a data loader is not.
    """
    if isinstance(value, Mapping):
        return all(is_data(entry) for entry in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return all(is_data(entry) for entry in value)
    return isinstance(value, (*_PLAIN, bytes, np.ndarray, np.generic, *_CALLABLES)) or type(value).__name__ == "Tensor"


class _FirstState(NamedTuple):
    """The state that a callable had when it was first seen, and the places that calling it has changed since."""

    state: dict[str, str]
    changed: set[str]


_first_states: weakref.WeakKeyDictionary[object, _FirstState] = weakref.WeakKeyDictionary()


def known_state(function: object, covered: Path | None = None) -> dict[str, str]:
    """``code_state``; counters and caches that calls of it changed are as they were when it was first seen."""
    state = code_state(function, covered)
    try:
        first = _first_states.setdefault(function, _FirstState(state, set()))
    except TypeError:  # The callable is not hashable, or there are no weak references to it.
        return state
    unchanged = {place: value for place, value in state.items() if place not in first.changed}
    restored = {place: first.state[place] for place in first.changed if place in first.state}
    return {**unchanged, **restored}


def note_changes(function: object, before: Mapping[str, str], covered: Path | None = None) -> None:
    """Note after a call which places it changed: they do not distinguish one model from another."""
    try:
        changed = _first_states[function].changed
    except (KeyError, TypeError):
        return
    after = code_state(function, covered)
    for place in after.keys() | before.keys():
        if after.get(place) != before.get(place):
            changed.add(place)


def is_own(module: str | None) -> bool:
    """Whether a module is the user's, and not part of Python, of an installed library or of this package."""
    loaded = sys.modules.get(module or "")
    file = getattr(loaded, "__file__", None)
    # The file of torch.ops is "_ops.py", which does not exist.
    if loaded is None or file is None or not Path(file).is_absolute():
        return module == "__main__"  # Code of a notebook or prompt has no file, and is the user's.
    return not _is_installed(Path(file).absolute(), loaded.__name__)


@functools.cache
def _is_installed(file: Path, module: str) -> bool:
    path = file.resolve()
    if not _PACKAGES.isdisjoint(path.parts) or any(path.is_relative_to(folder) for folder in _LIBRARIES):
        return True
    # The number of folders between the file and the one that its top-level package was installed into.
    depth = module.count(".")
    if file.stem == "__init__":
        depth += 1
    return depth < len(file.parents) and _is_recorded(file.parents[depth], module.partition(".")[0])


@functools.cache
def _is_recorded(folder: Path, package: str) -> bool:
    """Whether pip has installed the package into a folder of any name (`pip install --target FOLDER`)."""
    start = re.compile(rf"^{re.escape(package)}[/.]", re.MULTILINE)
    return any(start.search(record.read_text("utf-8")) for record in folder.glob("*.dist-info/RECORD"))


class _Walk:
    """A walk through what a callable uses, which visits every object once.

    Objects are remembered together with their ids, as the id of an object that is gone may be used again.
    """

    def __init__(self, covered: Path | None) -> None:
        self.covered = None if covered is None else covered.resolve()
        self.visited: dict[int, object] = {}
        #: By id: the object and its description.
        self.values: dict[int, tuple[object, object]] = {}

    def add_callable(self, function: object, prefix: str, state: dict[str, str]) -> None:
        """Add to ``state`` what one callable uses, each under a name that begins with ``prefix``."""
        if id(function) in self.visited:
            return
        self.visited[id(function)] = function
        if isinstance(function, functools.partial):
            arguments = {"function": function.func, "arguments": function.args, "keywords": function.keywords}
            self.add(arguments, prefix, state)
        elif isinstance(function, types.MethodType):
            self.add_callable(function.__func__, prefix, state)
            self.add({"self": function.__self__}, prefix, state)
        elif isinstance(function, types.FunctionType):
            self.add_code(function, prefix, state)
            self.add(dict(_used(function)), prefix, state)
        elif isinstance(function, type):
            self.add_class(function, prefix, state)
        elif is_own(type(function).__module__):
            self.add_callable(type(function), prefix, state)
            self.add(_attributes(function), prefix, state)

    def add_class(self, cls: type, prefix: str, state: dict[str, str]) -> None:
        """Add the code of the user's own base classes, and what the methods of the class and of these use."""
        for base in cls.__mro__:
            if not is_own(base.__module__):
                continue
            # The text of the first class is known to the caller.
            if prefix or base is not cls:
                self.add_code(base, f"{prefix}{base.__name__}.", state)
            for name, member in vars(base).items():
                method = getattr(member, "__func__", member)
                if isinstance(method, types.FunctionType):
                    self.add(dict(_used(method)), f"{prefix}{name}().", state)

    def add(self, values: Mapping[str, object], prefix: str, state: dict[str, str]) -> None:
        """Add values by name; those that are callables of the user with all that they use."""
        for name, value in values.items():
            if not isinstance(value, _CALLABLES):
                state[prefix + name] = digest(self.value(value))
            elif not _of_library(value):
                self.add_callable(value, f"{prefix}{name}.", state)

    def add_code(self, function: Any, prefix: str, state: dict[str, str]) -> None:
        """Add the text of a function or class, or its compiled code where the text is missing or ambiguous.

        The text of the first one, which has no prefix, is known to the caller.
        """
        code = getattr(function, "__code__", None)
        source = source_of(function)
        # The text of a lambda is its whole line, which may hold several.
        is_ambiguous = not source or (function.__name__ == "<lambda>" and source.count("lambda") > 1)
        if code is not None and is_ambiguous:
            state[f"{prefix}code"] = _code_digest(code)
        elif prefix and source:
            file = inspect.getsourcefile(function)
            if self.covered is None or file is None or Path(file).resolve() != self.covered:
                state[f"{prefix}code"] = digest(source)

    def value(self, value: object, depth: int = 0) -> object:
        """A description of any value that JSON can write: values and hashes."""
        if isinstance(value, PurePath):
            return ["path"]  # The same model may be in another folder.
        if isinstance(value, _PLAIN):
            return [type(value).__name__, repr(value)]
        if isinstance(value, bytes | bytearray | memoryview):
            return digest(bytes(value))
        if isinstance(value, np.ndarray | np.generic) and value.dtype != object:
            return [str(value.dtype), list(value.shape), digest(np.ascontiguousarray(value).tobytes())]
        if depth > _DEEPEST:
            return [type(value).__name__]
        if id(value) not in self.values:
            # A value that contains itself meets this entry.
            self.values[id(value)] = value, ["itself"]
            try:
                self.values[id(value)] = value, self.inside(value, depth + 1)
            except Exception:  # The attributes of an object may be properties that raise anything.
                self.values[id(value)] = value, [type(value).__qualname__]
        return self.values[id(value)][1]

    def inside(self, value: Any, depth: int) -> object:
        """A description of a collection or object by what it contains."""
        kind = type(value)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if isinstance(value, Mapping):
            return [name, [[self.value(key, depth), self.value(entry, depth)] for key, entry in value.items()]]
        if isinstance(value, set | frozenset):
            return sorted(digest(self.value(entry, depth)) for entry in value)
        if isinstance(value, list | tuple | np.ndarray):
            return [name, [self.value(entry, depth) for entry in value]]
        if isinstance(value, types.ModuleType):
            return [value.__name__, self.module_file_digest(value)]
        if name in ("torch.Tensor", "torch.nn.parameter.Parameter"):
            return _tensor_description(value)
        if hasattr(value, "state_dict") and hasattr(value, "named_modules"):
            return [name, module_digest(value)]
        if isinstance(value, _CALLABLES) or is_own(kind.__module__):
            state: dict[str, str] = {}
            self.add_callable(value, "own.", state)
            return [name, str(getattr(value, "__qualname__", "")), state]
        attributes = _attributes(value)
        if attributes:
            return [name, self.value(attributes, depth)]
        return [name, digest(pickle.dumps(value, protocol=4))]

    def module_file_digest(self, module: types.ModuleType) -> str:
        """The digest of the file of one of the user's modules; "" for other modules and for the covered file."""
        file = getattr(module, "__file__", None)
        if file is None or not is_own(module.__name__) or Path(file).resolve() == self.covered:
            return ""
        return file_digest(str(file))


def _tensor_description(tensor: object) -> list[object]:
    description: list[object] = []
    for entry in tensors_of({"": tensor}):
        description.append(entry if isinstance(entry, list) else digest(entry))
    return description


def _used(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """The names and values that a function's code refers to: closure, defaults, attributes, and the user's globals."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # The variable is not bound yet.
            continue
    if function.__defaults__ or function.__kwdefaults__:
        yield "defaults", [function.__defaults__, function.__kwdefaults__]
    if function.__dict__:
        yield "attributes", dict(function.__dict__)
    yield from _used_globals(function)


def _used_globals(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """The user's own modules and global values that a function's code mentions."""
    names = sorted(name for name in set(_names(function.__code__)) if not name.startswith("__"))
    for name in names:
        # A function may import a module of the user's when it is called.
        value = function.__globals__.get(name, sys.modules.get(name))
        if isinstance(value, types.ModuleType):
            if is_own(value.__name__):
                yield name, value
                for attribute in names:
                    if attribute in vars(value):
                        yield f"{name}.{attribute}", vars(value)[attribute]
        elif name in function.__globals__ and not _of_library(value):
            yield name, value


def _of_library(value: object) -> bool:
    """Whether a value is a function or class that a library defines."""
    is_definition = isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | np.ufunc)
    return is_definition and not is_own(getattr(value, "__module__", None))


# -- torch modules -------------------------------------------------------------------------------------------------

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
#: The source of a class, as first read: its file may change while the process runs, but the code that runs does not.
_sources: weakref.WeakKeyDictionary[type, str] = weakref.WeakKeyDictionary()


def module_digest(module: Any) -> str:
    """A digest of what decides the scores of a torch module.

    It covers the tensors in order, the structure, the forward code of every class that is not torch's own, hooks and
    replaced methods. Of the user's own classes it also covers plain attributes, buffers that are not saved, and what
    the code refers to; those of libraries show in the structure or the weights.
    """
    state = module.state_dict()
    # Functions among the attributes print their address, which differs in every process.
    parts: list[object] = [type(module).__qualname__, re.sub(r" at 0x[0-9a-f]+", "", repr(module))]
    parts += tensors_of(state)
    kinds = {type(submodule) for submodule in module.modules()}
    parts += sorted([kind.__qualname__, _source(kind)] for kind in kinds if not kind.__module__.startswith("torch."))
    held: dict[str, str] = {}
    for kind in kinds:
        if is_own(kind.__module__):
            held |= {f"{kind.__qualname__}.{place}": value for place, value in code_state(kind).items()}
    for name, submodule in module.named_modules():
        for key, value in _held_values(name, submodule, saved=state).items():
            if is_data(value):
                held[f"{name}.{key}"] = value_digest(value)
    # Nothing is added where nothing is held, so that the digests of plain modules stay as they always were.
    if held:
        parts.append([list(entry) for entry in sorted(held.items())])
    return digest(*parts)


def _held_values(name: str, module: Any, *, saved: Container[str]) -> dict[str, object]:
    """What one submodule holds beside its saved tensors."""
    values: dict[str, object] = {}
    for hooks in _HOOKS:
        if module.__dict__.get(hooks):
            values[hooks] = list(module.__dict__[hooks].values())
    if "forward" in module.__dict__:
        values["forward"] = module.__dict__["forward"]
    if is_own(type(module).__module__):
        for key, buffer in module._buffers.items():
            if f"{name}.{key}".lstrip(".") not in saved:
                values[key] = buffer
        for key, value in module.__dict__.items():
            if key[0] != "_" and key != "training":
                values[key] = value
    return values


def tensors_of(state: Mapping[str, object]) -> Iterator[object]:
    """Name, type and shape of each tensor, then its bytes; other values as text."""
    torch: Any = sys.modules["torch"]
    for key, value in state.items():
        if not isinstance(value, torch.Tensor):
            yield [key, repr(value)]
            continue
        tensor = value.detach().cpu().contiguous()
        yield [key, str(tensor.dtype), list(tensor.shape)]
        if tensor.numel():
            yield tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
        else:
            yield b""


def _source(kind: type) -> str:
    """The source code of a class; empty if it has none, as classes written in C and in a console."""
    # A model may hold thousands of objects of one class, and finding its source takes milliseconds.
    if kind not in _sources:
        try:
            _sources[kind] = inspect.getsource(kind)
        except (OSError, TypeError):
            _sources[kind] = ""
    return _sources[kind]


# -- source text ---------------------------------------------------------------------------------------------------


def source_of(function: Any) -> str:
    """The text of a function, or of the class of a callable object; "" where there is none to read."""
    for definition in (function, type(function)):
        try:
            return inspect.getsource(definition)
        except (OSError, TypeError):
            continue
    return ""


def _names(code: types.CodeType) -> Iterator[str]:
    """The global names and attributes that compiled code mentions, with those of the functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _code_digest(code: types.CodeType) -> str:
    """A digest of compiled code without its place in a file."""
    constants = []
    for constant in code.co_consts:
        constants.append(_code_digest(constant) if isinstance(constant, types.CodeType) else repr(constant))
    return digest(code.co_code, constants, list(code.co_names), list(code.co_varnames))


def _attributes(instance: object) -> dict[str, object]:
    """The attributes of an object itself, not those of its class; in slots or in its ``__dict__``."""
    attributes: dict[str, object] = {}
    for kind in type(instance).__mro__:
        slots = vars(kind).get("__slots__", ())
        if isinstance(slots, str):
            slots = (slots,)
        for name in slots:
            if name not in ("__dict__", "__weakref__") and hasattr(instance, name):
                attributes[name] = getattr(instance, name)
    return {**attributes, **getattr(instance, "__dict__", {})}
