"""The same (seed, image id, corruption, severity) gives the same pixels: in any order, batch, thread, process."""

from __future__ import annotations

import hashlib
import json
import pickle
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from shiftbench.shifts.corruptions.api import Corruption, corrupt
from shiftbench.shifts.corruptions.catalogue import corruptions
from tests.shifts.pictures import cut_out, landscape

ALL = corruptions("all")
DIGESTS = Path(__file__).with_name("digests.json")


def shift(name: str, severity: float = 3) -> Corruption:
    return Corruption(name, severity, {"frost_textures": "procedural"} if name == "frost" else {})


def digests() -> dict[str, str]:
    """A fingerprint of every corruption's pixels at two sizes and a whole and a fractional severity."""
    found = {}
    for name in ALL:
        digest = hashlib.blake2b(digest_size=8)
        for side, severity in ((64, 3), (50, 4.5)):
            digest.update(shift(name, severity)(landscape(side), image_id="a", seed=1).tobytes())
        found[name] = digest.hexdigest()
    return found


@pytest.mark.parametrize("name", ALL)
def test_order_and_batch_do_not_matter(name: str) -> None:
    images = np.stack([landscape(48), cut_out(48), landscape(48)[::-1].copy()])
    ids = ["a", "b", "c"]
    batch = shift(name).batch(images, image_ids=ids, seed=7)
    for i in (2, 0, 1):
        assert (shift(name)(images[i], image_id=ids[i], seed=7) == batch[i]).all()
    back = shift(name).batch(images[::-1].copy(), image_ids=ids[::-1], seed=7)
    assert (back[::-1] == batch).all()


DRAWN = [
    *("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "glass_blur", "motion_blur"),
    *("snow", "frost", "fog", "spatter", "elastic_transform"),
]


@pytest.mark.parametrize("name", DRAWN)
def test_ids_and_seeds_name_different_numbers(name: str) -> None:
    image = landscape(64)
    first = shift(name)(image, image_id="a", seed=0)
    assert (shift(name)(image, image_id="b", seed=0) != first).any()
    assert (shift(name)(image, image_id="a", seed=1) != first).any()


def test_threads_give_the_same_pixels() -> None:
    image = landscape(64)
    jobs = [(name, str(i)) for name in ALL for i in range(4)]

    def run(job: tuple[str, str]) -> bytes:
        return shift(job[0])(image, image_id=job[1], seed=0).tobytes()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(run, jobs)) == [run(job) for job in jobs]


def test_another_process_gives_the_same_pixels() -> None:
    """And so does another machine: the fingerprints are kept with the tests."""
    code = "import json; from tests.shifts.test_determinism import digests; print(json.dumps(digests()))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    assert json.loads(done.stdout) == digests()


def test_pixels_are_those_of_this_generator_version() -> None:
    """A change here changes published pixels: raise GENERATOR_VERSION and write the fingerprints anew.

    JPEG and spatter depend on OpenCV's and libjpeg's own versions and are left out.
    """
    known = json.loads(DIGESTS.read_text())
    found = digests()
    for name in ALL:
        if name not in ("jpeg_compression", "spatter"):
            assert found[name] == known[name], name


@pytest.mark.parametrize("name", ALL)
def test_global_generators_are_left_alone(name: str) -> None:
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    before = pickle.dumps((np.random.get_state(), random.getstate()))  # noqa: NPY002
    first = shift(name)(landscape(32), image_id="a", seed=0)
    assert pickle.dumps((np.random.get_state(), random.getstate())) == before  # noqa: NPY002
    np.random.seed(6)  # noqa: NPY002
    assert (shift(name)(landscape(32), image_id="a", seed=0) == first).all()


def test_default_ids_are_positions() -> None:
    images = np.stack([landscape(32), cut_out(32)])
    batch = corrupt(images, "gaussian_noise", 2)
    assert (batch[0] == corrupt(images[0], "gaussian_noise", 2)).all()
    assert (batch[1] == corrupt(images[1], "gaussian_noise", 2, image_id="1")).all()
    assert (batch == corrupt(images, "gaussian_noise", 2, image_id=["0", "1"])).all()


def test_a_shift_can_be_pickled() -> None:
    for name in ("frost", "glass_blur", "fog"):
        again = pickle.loads(pickle.dumps(shift(name)))
        assert again == shift(name)
        assert again.describe() == shift(name).describe()
