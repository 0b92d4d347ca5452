from __future__ import annotations

import io
import math
import multiprocessing
import pickle
import resource
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from shiftbench.datasets import from_arrays
from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import sample
from shiftbench.errors import BadImageError
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Recipe
from shiftbench.hardening.training.batches import Batch, Batches, Order, PartIndex
from shiftbench.hardening.training.data import open_training_set, prepare_training
from tests.raised import raises

Tiny = Callable[..., Recipe]


def batches_of(recipe: Recipe, views: int = 1) -> Batches:
    images, ready = prepare_training(recipe)
    return Batches(images, ready, views)


def equal(one: Batch, other: Batch) -> bool:
    views = all(torch.equal(a, b) for a, b in zip(one.views, other.views, strict=True))
    return views and torch.equal(one.targets, other.targets)


def test_workers_and_a_start_in_the_middle_change_no_pixel(tiny: Tiny) -> None:
    batches = batches_of(tiny('copies=["speckle"]', "train.equal_steps=true", recipe="cifar-augmix"), views=3)
    alone = list(batches.epoch(1))
    assert len(alone) == 3
    assert equal(next(iter(batches.epoch(1, 2))), alone[2])
    for epoch, start in ((1, 0), (1, 2)):  # the second time with the same workers
        together = list(batches.epoch(epoch, start, workers=2))
        assert all(equal(a, b) for a, b in zip(alone[start:], together, strict=True))


@pytest.mark.parametrize("uncropped", ["true", "false"])
def test_files_are_decoded_as_the_preprocessing_says(tiny: Tiny, tmp_path: Path, uncropped: str) -> None:
    """A model that is fine-tuned sees its training images as the images that it is evaluated on."""
    exif = Image.Exif()
    exif[0x0112] = 3
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        picture = Image.new("RGB", (32, 32), "red")
        picture.paste("blue", (0, 0, 32, 16))
        picture.save(tmp_path / name / "0.png", exif=exif)
    changes = ("data.sample=0", "data.labels=folders", f"data.uncropped={uncropped}", "data.preprocessing.size=32")
    for treatment, colour in (("ignore", (0, 0, 255)), ("apply", (255, 0, 0))):
        recipe = tiny(*changes, f"data.preprocessing.exif={treatment}")
        images, _ = prepare_training(recipe, str(tmp_path))
        assert tuple(images.read(0)[0, 0]) == colour


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_a_worker_is_raised_as_it_is(tiny: Tiny, workers: int) -> None:
    batches = batches_of(tiny("data.size=40", "data.uncropped=true", "augmentations=[]"))
    with pytest.raises(TrainingError) as caught:
        list(batches.epoch(0, workers=workers))
    batches.close()
    error = caught.value
    assert (error.found, error.expected) == ("32 x 32", "40 x 40") and "DataLoader" not in str(error)


def test_workers_that_are_stopped_within_an_epoch_end_well(tiny: Tiny) -> None:
    """One that is still sending a large batch used to abort, which torch raised in this process."""
    photographs = from_arrays(np.zeros((640, 256, 256, 3), np.uint8), np.arange(640) % 10, space="cifar-10")
    recipe = tiny("data.sample=0", "data.size=256", "train.batch_size=64", "augmentations=[]")
    batches = Batches(*prepare_training(recipe, photographs), 1)
    others = multiprocessing.active_children()  # of other tests
    next(batches.epoch(0, workers=2))
    workers = set(multiprocessing.active_children()).difference(others)
    assert batches.close() is None
    assert [worker.exitcode for worker in workers] == [0, 0]


def test_full_shared_memory_is_an_error_not_a_wait(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on file sizes stands for a full /dev/shm, and this process for a worker."""
    batches = batches_of(tiny())
    monkeypatch.setattr("shiftbench.hardening.training.batches.get_worker_info", lambda: True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        found = batches[PartIndex(0, range(32), 1.0)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert isinstance(found, TrainingError) and "/dev/shm" in str(found.hint)
    assert isinstance(batches[PartIndex(0, range(32), 1.0)], Batch)


def test_epochs_and_seeds_differ_in_order_and_pixels(tiny: Tiny) -> None:
    batches = batches_of(tiny())
    first = next(iter(batches.epoch(0)))
    second = next(iter(batches.epoch(1)))
    assert not equal(first, second)
    assert not equal(first, next(iter(batches_of(tiny("train.seed=1")).epoch(0))))


def test_every_image_comes_once_an_epoch_and_views_show_the_same_part(tiny: Tiny) -> None:
    batches = batches_of(tiny("augmentations=[]"))
    seen = torch.cat([batch.views[0] for batch in batches.epoch(0)])
    assert batches.images.pixels is not None
    known = sorted(picture.sum() for picture in batches.images.pixels.astype(int))
    assert sorted(seen.flatten(1).long().sum(1).tolist()) == known
    views = next(iter(batches_of(tiny('views=["flip"]', 'scheme={name="jsd"}'), views=3).epoch(0))).views
    flipped = [torch.equal(a, b) or torch.equal(a, b.flip(1)) for a, b in zip(views[0], views[1], strict=True)]
    assert all(flipped)


def test_a_last_batch_of_one_is_left_out(tiny: Tiny) -> None:
    sizes = {
        count: [len(b.targets) for b in batches_of(tiny(f"data.sample={count}")).epoch(0)] for count in (64, 65, 66)
    }
    assert sizes == {64: [32, 32], 65: [32, 32], 66: [32, 32, 2]}


def test_a_batch_is_not_divided_into_more_parts_than_images(tiny: Tiny) -> None:
    with pytest.raises(TrainingError) as caught:
        batches_of(tiny("data.sample=8", "data.empty_classes=true", "train.splits=16"))
    assert caught.value.found == "train.splits = 16, batches of 8"
    even = batches_of(tiny("data.sample=8", "data.empty_classes=true", "train.splits=8"))
    assert len(list(even.epoch(0))) == 8


def test_copies_triple_the_data_and_equal_steps_keep_the_length(tiny: Tiny) -> None:
    copies = 'copies=[{name="speckle", probability=1.0}, {name="gaussian-noise", probability=1.0}]'
    longer = batches_of(tiny(copies))
    assert (len(longer.images), len(longer.images.ids), longer.count) == (288, 96, 9)
    equal_steps = batches_of(tiny(copies, "train.equal_steps=true"))
    assert (len(equal_steps.images), equal_steps.count) == (288, 3)
    clean = longer.images.read(5)
    noisy = longer.images.read(96 + 5)
    assert longer.images.targets[5] == longer.images.targets[96 + 5]
    difference = np.abs(clean.astype(int) - noisy).mean()
    assert 1 < difference < 60
    # Kept in the cache, and the same for every seed.
    assert np.array_equal(noisy, batches_of(tiny(copies, "train.seed=4")).images.read(96 + 5))


def test_pictures_beyond_the_bound_are_read_in_every_epoch(tiny: Tiny) -> None:
    kept = batches_of(tiny())
    read = batches_of(tiny("data.memory_gb=0.0"))
    assert kept.images.pixels is not None and read.images.pixels is None
    assert all(equal(a, b) for a, b in zip(kept.epoch(0), read.epoch(0), strict=True))


def test_an_augmentation_that_changes_the_size_is_named(tiny: Tiny) -> None:
    batches = batches_of(tiny('augmentations=[{name="resized-crop", size=24}]'))
    with raises(TrainingError, found="24 x 24"):
        next(iter(batches.epoch(0)))


class Damaged(Dataset):
    """Real pixels, but every seventh image cannot be read."""

    def __init__(self) -> None:
        images = np.random.default_rng(0).integers(0, 256, (70, 32, 32, 3), dtype=np.uint8)
        self.inner = from_arrays(images, np.arange(70) % 10, space="cifar-10", name="damaged")
        self.name = self.inner.name
        self.space = self.inner.space
        self.ids = self.inner.ids
        self.labels = self.inner.labels

    @property
    def fingerprint(self) -> str:
        return self.inner.fingerprint

    def read(self, index: int) -> DecodedImage:
        if index % 7 == 0:
            raise BadImageError("torn")
        return self.inner.read(index)


@pytest.mark.parametrize("memory", ["4.0", "0.0"])
def test_bad_pictures_are_named_and_left_out(tiny: Tiny, memory: str) -> None:
    recipe = tiny("data.sample=0", f"data.memory_gb={memory}")
    with pytest.warns(UserWarning, match="torn"):
        images, ready = prepare_training(recipe, Damaged())
        seen = sum(len(batch.targets) for batch in Batches(images, ready, 1).epoch(0))
    assert seen == 60


def test_classes_without_and_with_one_image(tiny: Tiny) -> None:
    images = np.random.default_rng(0).integers(0, 256, (11, 32, 32, 3), dtype=np.uint8)
    lonely = from_arrays(images, [*range(9), 0, 1], space="cifar-10", name="lonely")
    with raises(TrainingError, found="truck"):
        prepare_training(tiny(), lonely)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prepare_training(tiny("data.empty_classes=true"), lonely)
    assert "one training image" in str(caught[0].message) and "bird" in str(caught[0].message)


def test_missing_folders_and_labels(tiny: Tiny) -> None:
    from shiftbench.errors import DatasetError

    with raises(DatasetError, found="no file or folder of that name"):
        prepare_training(tiny("data.train=no/such/folder"))
    with pytest.raises(TrainingError, match="nothing to train on"):
        prepare_training(tiny('data.train=""'))
    images = np.zeros((4, 32, 32, 3), np.uint8)
    with raises(TrainingError, found="00002"):
        prepare_training(tiny(), from_arrays(images, [0, 1, -1, 2], space="cifar-10"))


def test_validation_data_of_other_classes_is_refused(tiny: Tiny) -> None:
    from shiftbench.datasets.catalogue import open_named
    from shiftbench.errors import LabelError
    from shiftbench.hardening.training.data import prepare_validation
    from shiftbench.labels import label_space

    with pytest.raises(LabelError, match="cifar-10"):
        prepare_validation(tiny(), open_named("demo"), label_space("cifar-10"))


def test_ranks_and_parts_divide_the_same_batches(tiny: Tiny) -> None:
    recipe = tiny("train.splits=4", "data.sample=75")
    images, ready = prepare_training(recipe)
    whole = batches_of(tiny("data.sample=75"))
    ranks = [list(Batches(images, ready, 1, rank=rank, world=2).epoch(1)) for rank in range(2)]
    for i, batch in enumerate(whole.epoch(1)):
        parts = [*ranks[0][2 * i : 2 * i + 2], *ranks[1][2 * i : 2 * i + 2]]
        assert torch.equal(torch.cat([part.targets for part in parts]), batch.targets)
        assert torch.equal(torch.cat([part.views[0] for part in parts]), batch.views[0])
        assert sum(part.share for part in parts) == pytest.approx(1)
        assert [part.share * len(batch.targets) for part in parts] == pytest.approx([len(p.targets) for p in parts])
    assert [len(rank) for rank in ranks] == [6, 6]


def test_validation_is_divided_among_ranks_without_loss(tiny: Tiny) -> None:
    images, ready = prepare_training(tiny("data.sample=67"))
    seen = [
        batch.targets
        for rank in range(3)
        for batch in Batches(images, ready, 1, rank=rank, world=3, shuffled=False).epoch(0)
    ]
    assert sorted(torch.cat(seen).tolist()) == sorted(images.targets.tolist())


def test_a_window_keeps_neighbours_together_and_repeats_differ(tiny: Tiny) -> None:
    windowed = batches_of(tiny("data.window=16")).order
    order = windowed.indices()
    assert sorted(order.tolist()) == list(range(96))
    assert all(sorted(order[i : i + 16].tolist()) == list(range(i, i + 16)) for i in range(0, 96, 16))
    repeated = batches_of(tiny("train.repeats=3", 'augmentations=["flip", {name="speckle", probability=1.0}]'))
    order = repeated.order.indices() % 96
    assert len(order) == 96 and len(set(order.tolist())) == 32
    first = next(iter(repeated.epoch(0)))
    assert torch.equal(first.targets[0::3][:10], first.targets[1::3][:10])
    assert not torch.equal(first.views[0][0], first.views[0][1])


@pytest.mark.parametrize("rows", [100, 1000])
@pytest.mark.parametrize("window", [0, 1024])
def test_every_row_group_of_parquet_is_read_once_in_an_epoch(
    rows: int, window: int, tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 6050
    with io.BytesIO() as file:
        Image.new("RGB", (32, 32)).save(file, "PNG")
        data = file.getvalue()
    columns = {"image": [{"bytes": data} for _ in range(count)], "label": [number % 10 for number in range(count)]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "train.parquet", row_group_size=rows)
    recipe = tiny("data.labels=cifar-10", "data.memory_gb=0", f"data.window={window}", "data.sample=0")
    reads: list[int] = []
    iter_batches = pyarrow.parquet.ParquetFile.iter_batches

    def counted(table: Any, *arguments: Any, row_groups: list[int], columns: list[str], **options: Any) -> Any:
        if columns == ["image"]:
            reads.extend(row_groups)
        return iter_batches(table, *arguments, row_groups=row_groups, columns=columns, **options)

    dataset = open_training_set(str(tmp_path / "train.parquet"), recipe.data)
    monkeypatch.setattr(pyarrow.parquet.ParquetFile, "iter_batches", counted)
    groups = dataset.storage_groups()
    assert groups is not None
    orders = [Order(count, count, recipe, 0, 1, shuffled=True, storage_groups=lambda: groups) for _ in range(2)]
    orders[1].epoch = 1
    first, second = (order.indices() for order in orders)
    assert sorted(first.tolist()) == sorted(second.tolist()) == list(range(count))
    assert not np.array_equal(first, second)
    assert np.array_equal(first, orders[0].indices())
    # Neighbours in the order are of several groups, unless one group fills the window.
    assert len(set(groups.numbers[first[:200]].tolist())) > 1 or rows > window // 2 > 0
    for index in first.tolist():
        dataset.read(index)
    assert sorted(reads) == list(range(math.ceil(count / rows)))


@pytest.mark.parametrize("kind", ["webdataset", "parquet"])
def test_shards_are_streamed_to_a_worker_as_they_are_here(tiny: Tiny, tmp_path: Path, kind: str) -> None:
    images = sample(open_named("cifar-10-test"), 40)
    files = []
    for number in range(len(images)):
        with io.BytesIO() as file:
            Image.fromarray(images.read(number).pixels).save(file, "PNG")
            files.append(file.getvalue())
    if kind == "webdataset":
        path = tmp_path / "train-000000.tar"
        with tarfile.open(path, "w") as archive:
            for number, data in enumerate(files):
                for suffix, content in (("png", data), ("cls", str(images.labels[number]).encode())):
                    entry = tarfile.TarInfo(f"{number:06}.{suffix}")
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
    else:
        path = tmp_path / "train.parquet"
        columns = {"image": [{"bytes": data} for data in files], "label": images.labels.tolist()}
        pyarrow.parquet.write_table(pyarrow.table(columns), path)
    recipe = tiny("data.labels=cifar-10", "data.memory_gb=0", "data.window=16", "data.sample=0", "train.batch_size=16")
    batches = Batches(*prepare_training(recipe, str(path)), 1)
    assert batches.images.pixels is None and batches.count == 3
    # A worker gets the dataset by pickle, as here.
    here, there = (list(one.epoch(0)) for one in (batches, pickle.loads(pickle.dumps(batches))))
    assert len(here) == 3 and all(equal(a, b) for a, b in zip(here, there, strict=True))
    seen = torch.cat([batch.targets for batch in here])
    assert sorted(seen.tolist()) == sorted(images.labels.tolist())
