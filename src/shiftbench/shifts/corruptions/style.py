"""The place of style transfer among the corruptions (Hendrycks and Dietterich 2019, appendix E).

Stylised images need a trained style-transfer network and a collection of paintings, which this package does
not carry. Bring them as a function and the name works like every other corruption.
"""

from __future__ import annotations

from collections.abc import Callable

from shiftbench.arrays import Pixels
from shiftbench.errors import ShiftError
from shiftbench.shifts.corruptions.catalogue import corruption
from shiftbench.shifts.corruptions.randomness import Draws

Stylise = Callable[[Pixels, float, Draws], Pixels]


@corruption("style_transfer", group="style", options=("stylise",))
def style_transfer(image: Pixels, severity: float, draws: Draws, stylise: Stylise | None = None) -> Pixels:
    """``stylise(image, severity, draws)``: a function that paints a uint8 image in another style.

    ``draws.integer(0, n)`` picks one of n paintings reproducibly.

    >>> import numpy as np
    >>> from shiftbench.shifts.corruptions import corrupt
    >>> negative = lambda image, severity, draws: 255 - image
    >>> int(corrupt(np.zeros((8, 8, 3), np.uint8), "style_transfer", 1, stylise=negative)[0, 0, 0])
    255
    """
    if stylise is None:
        raise ShiftError(
            "style transfer needs a style-transfer model, which shiftbench does not carry",
            expected="the option stylise, a function (image, severity, draws) -> image",
            hint="wrap an AdaIN network and a folder of paintings; or evaluate Stylized-ImageNet from disk",
        )
    return stylise(image, severity, draws)
