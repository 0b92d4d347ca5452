"""Inner loops in C, compiled ahead of time: nothing is compiled where a wheel is installed.

A kernel is declared in Python by its signature and docstring, beside the code that uses it, and written in a C file of
this folder under the same name. Calls release Python's lock, so threads run side by side.
"""

from __future__ import annotations

import ctypes
import inspect
import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import ParamSpec, get_args, get_type_hints

import numpy as np

from shiftbench.errors import ShiftbenchError, raising
from shiftbench.native.build import FOLDER, build, libraries, sources

P = ParamSpec("P")
#: Functions of Python's stable interface that call.c uses, in its order.
_PYTHON = (
    "PyObject_GetBuffer", "PyBuffer_Release", "PyTuple_GetItem", "PyLong_AsUnsignedLongLongMask", "PyFloat_AsDouble",
    "PyErr_Occurred", "PyEval_SaveThread", "PyEval_RestoreThread",
)  # fmt: skip
#: Threads whose first calls come together compile once.
_building = threading.Lock()
_SCALARS = {int: "w", bool: "w", np.uint64: "w", float: "r"}


def kernel(declaration: Callable[P, None]) -> Callable[P, None]:
    """Bind a declaration to the C function of the same name (leading underscores aside), at its first call.

    Parameters are ``int``, ``bool``, ``float``, ``np.uint64`` or C-contiguous arrays ``NDArray[...]`` of at most three
    axes; arguments are positional. Other arguments are a ``TypeError`` or ``BufferError``: the C code could not tell.
    """
    name, names = declaration.__name__, list(inspect.signature(declaration).parameters)

    @cache
    def bound() -> tuple[int, bytes]:
        """The address of the C function, and a letter for the type of each parameter (see call.c)."""
        hints = get_type_hints(declaration)
        types = [_SCALARS.get(hints[one]) or np.dtype(get_args(get_args(hints[one])[1])[0]).char for one in names]
        address = ctypes.cast(getattr(_library(), name.lstrip("_")), ctypes.c_void_p).value
        assert address is not None
        return address, "".join(types).encode()

    @wraps(declaration)
    def call(*arguments: P.args, **unused: P.kwargs) -> None:
        result = _library().call(*bound(), arguments)
        if result > 0:
            raise MemoryError
        if result:
            index = -1 - result
            found = arguments[index] if index < len(arguments) else None
            if isinstance(found, np.ndarray):
                found = f"an array of {found.dtype} {found.shape}"
            raise TypeError(
                f"{name}: {names[index]} must be {declaration.__annotations__[names[index]]}, found {found}"
            )

    return call


@cache
def _library() -> ctypes.PyDLL:
    """The compiled kernels; in a source checkout they are compiled when missing or out of date (a few seconds)."""
    files = [FOLDER / name for name in libraries()]
    changed = max((path.stat().st_mtime for path in sources()), default=0.0)
    with _building:
        if changed and not all(path.exists() and path.stat().st_mtime >= changed for path in files):
            message = "cannot compile the kernels of this source checkout"
            with raising(ShiftbenchError, message, RuntimeError, OSError):
                build()
    library = ctypes.PyDLL(str(files[0]))
    library = ctypes.PyDLL(str(files[min(library.processor_version(), len(files) - 1)]))
    addresses = [ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in _PYTHON]
    library.use_python((ctypes.c_void_p * len(_PYTHON))(*addresses))
    library.call.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.py_object]
    return library
