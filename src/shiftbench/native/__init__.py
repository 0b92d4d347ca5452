"""Inner loops in C, compiled ahead of time: nothing is compiled where a wheel is installed.

A kernel is declared in Python with the types of its parameters and a docstring, beside the code that uses it, and
written in a C file of this folder under the same name::

    @kernel("uint8[]", "float32[]")
    def to_unit(image: Bytes, out: Singles) -> None:
        \"\"\"Divide grey levels by 255, in float32; the arrays are flat.\"\"\"

Calls release Python's lock, so threads run side by side.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import ParamSpec

import numpy as np

from shiftbench.errors import ShiftbenchError, raising
from shiftbench.native.build import FOLDER, Target, build, sources

P = ParamSpec("P")
#: The types of parameters, and the kind and size in bytes by which call.c knows them. Kinds of arrays are NumPy's.
TYPES = {
    "int": b"w8",
    "bool": b"w8",
    "uint64": b"w8",
    "float": b"r8",
    "bool[]": b"b1",
    "uint8[]": b"u1",
    "uint16[]": b"u2",
    "uint32[]": b"u4",
    "int32[]": b"i4",
    "int64[]": b"i8",
    "float32[]": b"f4",
    "float64[]": b"f8",
}
#: The functions of Python's stable interface that call.c uses, in its order.
_PYTHON_FUNCTIONS = (
    "PyObject_GetBuffer",
    "PyBuffer_Release",
    "PyTuple_GetItem",
    "PyLong_AsUnsignedLongLongMask",
    "PyFloat_AsDouble",
    "PyErr_Occurred",
    "PyEval_SaveThread",
    "PyEval_RestoreThread",
)
#: Threads whose first calls come together compile once.
_building = threading.Lock()


def kernel(*types: str) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Bind a declaration to the C function of the same name (leading underscores aside), at its first call.

    ``types`` names the type of each parameter as in ``TYPES``; ``[]`` stands for a C-contiguous array of at most three
    axes. Arguments are positional. An argument of another type is a ``TypeError`` or ``BufferError``, because the C
    code could not tell.

    Raises:
        TypeError: The declaration has another number of parameters, or a type is not one of ``TYPES``.
    """
    unknown = [name for name in types if name not in TYPES]
    if unknown:
        raise TypeError(f"unknown type of a parameter: found {unknown[0]!r}, expected one of {', '.join(TYPES)}")
    encoded_types = b"".join(TYPES[name] for name in types)

    def bind(declaration: Callable[P, None]) -> Callable[P, None]:
        name = declaration.__name__
        parameters = list(inspect.signature(declaration).parameters)
        if len(parameters) != len(types):
            raise TypeError(f"{name}: found {len(types)} types for {len(parameters)} parameters")

        @wraps(declaration)
        def call(*arguments: P.args, **unused: P.kwargs) -> None:
            # call.c reads each argument as its declared type, and only then calls the function at the address. It
            # returns 0, 1 if memory ran out, or -1 - i if argument i has another type.
            result = _library().call(_address(name), encoded_types, arguments)
            if result > 0:
                raise MemoryError
            if result < 0:
                index = -1 - result
                description = _description(arguments[index])
                raise TypeError(f"{name}: {parameters[index]} must be {types[index]}, found {description}")

        return call

    return bind


@cache
def _address(declared_name: str) -> int:
    """Where the C function of a declaration is in memory."""
    function = getattr(_library(), declared_name.lstrip("_"))
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def _description(argument: object) -> str:
    """An argument in an error message; of an array its type and shape, because its values may be very many."""
    if isinstance(argument, np.ndarray):
        return f"an array of {argument.dtype} {argument.shape}"
    return repr(argument)


@cache
def _library() -> ctypes.PyDLL:
    """The compiled kernels; in a source checkout they are compiled when missing or out of date (a few seconds)."""
    files = [FOLDER / name for name in Target.here().libraries()]
    with _building:
        if _out_of_date(files):
            message = "cannot compile the kernels of this source checkout"
            with raising(ShiftbenchError, message, RuntimeError, OSError):
                build()
    # The first library runs on every processor. It says which of the libraries, the faster the later, this one can run.
    library_for_all = ctypes.PyDLL(str(files[0]))
    newest = min(library_for_all.processor_version(), len(files) - 1)
    library = ctypes.PyDLL(str(files[newest]))
    # The libraries are not linked with Python, so that one file serves all of its versions: they get the addresses of
    # the functions that they call.
    addresses = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _PYTHON_FUNCTIONS]
    library.use_python((ctypes.c_void_p * len(addresses))(*addresses))
    library.call.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.py_object]
    return library


def _out_of_date(files: list[Path]) -> bool:
    """Whether a library is missing or older than its sources, which an installed wheel does not have."""
    if not sources():
        return False
    last_change = max(path.stat().st_mtime for path in sources())
    return any(not path.exists() or path.stat().st_mtime < last_change for path in files)
