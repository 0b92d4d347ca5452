"""What workers share is mapped, not copied, and reads the same."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftbench.datasets import stored
from shiftbench.datasets.stored import FileDataset, identity
from shiftbench.datasets.subset import Subset
from shiftbench.hardening.training import batches as mapped
from shiftbench.hardening.training.data import TrainingImages
from shiftbench.labels import label_space


@settings(max_examples=30)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]))))
def test_strings_are_a_list(strings: list[str]) -> None:
    table = mapped.Strings.of(strings)
    assert list(table) == strings and table[::-1] == strings[::-1] and len(table) == len(strings)


def large(tmp_path: Path, count: int = 50_000) -> TrainingImages:
    space = label_space("imagenet-1k")
    paths = [f"{space.keys[i % 1000]}/image_{i:08}.JPEG" for i in range(count)]
    files = FileDataset("large", space, tmp_path, paths, [i % 1000 for i in range(count)])
    dataset = Subset(files, range(count - 1, -1, -1))
    return TrainingImages("large", space, "x", dataset.ids, dataset.labels, (dataset, None))


def test_names_and_labels_are_mapped_and_equal(tmp_path: Path) -> None:
    images = large(tmp_path)
    mapped.save_mapped(tmp_path, images)
    again = mapped.load_mapped(tmp_path)
    assert isinstance(again.ids, mapped.Strings) and again.ids[123] == images.ids[123]
    dataset = again.source[0]
    assert isinstance(dataset.base.paths, mapped.Strings) and dataset.base.ids[-1] == images.ids[0]
    assert np.array_equal(again.targets, images.targets)
    # A copy per worker would be this large; the pickle holds no name.
    assert (tmp_path / "content.pkl").stat().st_size < 0.05 * len(pickle.dumps(images))


def test_pixels_are_mapped_read_only(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (400, 32, 32, 3), dtype=np.uint8)
    mapped.save_mapped(tmp_path, {"one": pixels, "same": pixels})
    again = mapped.load_mapped(tmp_path)
    assert isinstance(again["one"], np.memmap) and np.array_equal(again["one"], pixels)
    assert not again["one"].flags.writeable
    assert len(list(tmp_path.glob("*.npy"))) == 1


def test_large_datasets_are_identified_by_names_and_labels(tmp_path: Path) -> None:
    space = label_space("cifar-10")
    one = FileDataset("a", space, tmp_path, ["x/1.png", "x/2.png"], [0, 1])
    names = FileDataset("a", space, tmp_path, ["x/1.png", "x/3.png"], [0, 1])
    labels = FileDataset("a", space, tmp_path, ["x/1.png", "x/2.png"], [0, 2])
    assert identity(one) == one.fingerprint
    limit = stored.HASHED
    stored.HASHED = 1
    try:
        found = [identity(dataset) for dataset in (one, names, labels)]
        assert identity(FileDataset("b", space, tmp_path / "elsewhere", one.paths, [0, 1])) == found[0]
    finally:
        stored.HASHED = limit
    assert len(set(found)) == 3 and all(text.startswith("names:") for text in found)
