"""Files of baselines: what comes back is what was saved, and strangers' files are refused."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftbench.errors import ShiftbenchError
from shiftbench.hardening.architectures.baselines import fit_baseline, load_baseline, save_baseline
from shiftbench.hardening.architectures.baselines.classifier import BaselineClassifier
from shiftbench.hardening.architectures.baselines.fisher_vectors import FisherVectorOptions
from shiftbench.hardening.architectures.baselines.random_features import RandomFeatureOptions
from tests.hardening.architectures.baselines.conftest import Split


@pytest.fixture(scope="module", params=["random-features", "fisher-vectors"])
def classifier(request: pytest.FixtureRequest, cifar: Callable[[int, int], Split]) -> BaselineClassifier:
    if request.param == "random-features":
        return fit_baseline(RandomFeatureOptions(filters=6, patches=500), cifar(60, 1).data, name="ours")
    small = FisherVectorOptions(centres=3, components=5, cells=(4,), step=4, descriptors=600)
    return fit_baseline(small, cifar(60, 1).data, name="ours")


@pytest.fixture
def saved(classifier: BaselineClassifier, tmp_path: Path) -> Path:
    save_baseline(classifier, tmp_path / "baseline.npz")
    return tmp_path / "baseline.npz"


def test_it_comes_back_as_it_was(
    classifier: BaselineClassifier, saved: Path, cifar: Callable[[int, int], Split]
) -> None:
    again = load_baseline(saved)
    asked = cifar(1, 40).asked
    assert (again.name, again.space, again.fingerprint) == ("ours", classifier.space, classifier.fingerprint)
    np.testing.assert_array_equal(again.scores(asked), classifier.scores(asked))
    assert load_baseline(saved, name="another").name == "another"
    assert [path.name for path in saved.parent.iterdir()] == ["baseline.npz"]


def rewritten(path: Path, **changes: Any) -> Path:
    """The same file with some arrays changed, or left out where the change is None."""
    with np.load(path) as stored:
        arrays = {**{name: stored[name] for name in stored.files}, **changes}
    other = path.with_name("changed.npz")
    np.savez(other, **{name: array for name, array in arrays.items() if array is not None})
    return other


def about(path: Path, **changes: Any) -> Any:
    with np.load(path) as stored:
        words = json.loads(str(stored["about"]))
    return np.array(json.dumps({**words, **changes}))


def test_damaged_and_foreign_files_are_refused(saved: Path) -> None:
    def check(path: Path, word: str) -> None:
        with pytest.raises(ShiftbenchError, match=word):
            load_baseline(path)

    check(saved.with_name("absent.npz"), "no file")
    check(rewritten(saved, about=None), "not a saved baseline")
    check(rewritten(saved, about=np.array("[1, 2]")), "not a saved baseline")
    check(rewritten(saved, about=about(saved, version=2)), "version")
    check(rewritten(saved, about=about(saved, kind="deep")), "'deep'")
    check(rewritten(saved, about=about(saved, options={"size": 32})), "not a saved baseline")
    check(rewritten(saved, about=about(saved, keys=[1, 2])), "keys")
    check(rewritten(saved, about=about(saved, keys=["a"], names=["a"])), "head_weights")
    check(rewritten(saved, head_bias=np.full(10, np.nan, np.float32)), "head_bias")
    check(rewritten(saved, head_weights=None), "head_weights")
    check(rewritten(saved, head_bias=np.zeros(10)), "float64")
    check(rewritten(saved, head_bias=np.array([{}], dtype=object)), "not a saved baseline")
    cut = saved.with_name("cut.npz")
    cut.write_bytes(saved.read_bytes()[:-500])
    check(cut, "not a saved baseline")


def test_a_file_that_would_grow_in_memory_is_refused(saved: Path) -> None:
    bomb = saved.with_name("bomb.npz")
    with zipfile.ZipFile(saved) as source, zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    with pytest.raises(ShiftbenchError, match="compressed"):
        load_baseline(bomb)
