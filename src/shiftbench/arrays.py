"""Types of NumPy arrays that all layers share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: RGB images: height x width x 3, or a batch of them.
Pixels = NDArray[np.uint8]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
