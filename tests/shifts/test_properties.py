"""Properties that hold for every picture."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shiftbench.arrays import Pixels
from shiftbench.shifts.corruptions.api import Corruption, corrupt
from shiftbench.shifts.corruptions.catalogue import corruptions
from shiftbench.shifts.seeds import derive_key

SIDES = st.integers(8, 40)
IMAGES = st.tuples(SIDES, SIDES).flatmap(lambda size: hnp.arrays(np.uint8, (*size, 3)))
QUIET = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@QUIET
@given(IMAGES, st.sampled_from(corruptions("all")), st.floats(1, 5), st.integers(-(2**70), 2**70), st.text())
def test_shape_type_and_input_are_kept(image: Pixels, name: str, severity: float, seed: int, image_id: str) -> None:
    options = {"frost_textures": "procedural"} if name == "frost" else {}
    before = image.copy()
    out = Corruption(name, severity, options)(image, image_id=image_id, seed=seed)
    assert out.shape == image.shape
    assert out.dtype == np.uint8
    assert (image == before).all()
    assert (Corruption(name, severity, options)(image, image_id=image_id, seed=seed) == out).all()


@QUIET
@given(IMAGES, st.floats(1, 5))
def test_brightness_never_darkens(image: Pixels, severity: float) -> None:
    assert (corrupt(image, "brightness", severity).max(axis=2) >= image.max(axis=2)).all()


@QUIET
@given(IMAGES, st.sampled_from(("motion_blur", "gaussian_blur", "zoom_blur", "pixelate", "jpeg_compression")))
def test_blurs_stay_within_the_range(image: Pixels, name: str) -> None:
    """Up to the level that truncation takes; JPEG may overshoot and is only kept to 8 bits."""
    out = corrupt(image, name, 3).astype(int)
    if name != "jpeg_compression":
        assert out.max() <= image.max()
        assert out.min() >= int(image.min()) - 1


@QUIET
@given(st.lists(st.text(), max_size=3), st.lists(st.text(), max_size=3), st.integers())
def test_keys_tell_parts_apart(a: list[str], b: list[str], seed: int) -> None:
    assert (derive_key(seed, *a) == derive_key(seed, *b)) == (a == b)
