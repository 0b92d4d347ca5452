"""How the kernels are compiled, in one place.

- ``cache``: machine code is kept on disk (beside the source, or in NUMBA_CACHE_DIR or the user's cache folder
  when that is read-only), so only the first call after an installation compiles.
- ``nogil``: threads run side by side.
- ``fastmath`` stays off: without it LLVM neither re-orders nor fuses floating-point operations, and the same
  image gives the same pixels on every processor. For the same reason the kernels use no threads of their own
  and call no transcendental functions where a last-bit difference could reach a pixel.
- ``error_model="numpy"``: no division checks inside the loops, which would prevent vectorisation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile a function on its first call; its Python types stay visible to type checkers."""
    try:
        return cast(F, numba.njit(cache=True, nogil=True, fastmath=False, error_model="numpy")(function))
    except RuntimeError:  # no folder on this machine can be written to
        return cast(F, numba.njit(nogil=True, fastmath=False, error_model="numpy")(function))
