"""Data that was released as pickles, read without running anything of theirs."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np


class ArraysOnly(pickle.Unpickler):
    """Makes plain values and NumPy arrays; a pickle that names anything else is refused before it acts."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.empty(0).__reduce__()[0]
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            import _codecs

            return _codecs.encode
        raise pickle.UnpicklingError(f"it names {module}.{name}, which plain data has no use for")
