"""Opening by name and by path, third parties' openers, descriptions, the conformance suite."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shiftbench.datasets import (
    Dataset,
    DatasetKind,
    DecodedImage,
    check_dataset,
    dataset_kinds,
    describe_path,
    from_arrays,
    named_datasets,
    open_dataset,
    take,
)
from shiftbench.errors import BadImageError, DatasetError
from shiftbench.labels import LabelSpace, label_space
from tests.datasets.makers import class_folders, small_images
from tests.raised import raises


@pytest.fixture
def third_party() -> Iterator[None]:
    def open_raw(path: str | Path, *, space: str | None = None, name: str | None = None, gain: int = 1) -> Dataset:
        images = np.frombuffer(Path(path).read_bytes(), np.uint8).reshape(-1, 32, 32, 3) * np.uint8(gain)
        return from_arrays(images, np.zeros(len(images), int), space=space or "cifar-10", name=name or "raw")

    dataset_kinds.add("raw", DatasetKind(lambda path: "a raw file" if path.suffix == ".raw" else None, open_raw))

    @named_datasets.register("mine")
    def open_mine(*, name: str | None = None) -> Dataset:
        return from_arrays(small_images(2), [0, 1], space="cifar-10", name=name or "mine")

    yield
    del dataset_kinds._items["raw"], named_datasets._items["mine"]


def test_a_third_partys_kind_and_name(tmp_path: Path, third_party: None) -> None:
    (tmp_path / "x.raw").write_bytes(small_images(3).tobytes())
    assert len(open_dataset(tmp_path / "x.raw")) == 3
    assert open_dataset(tmp_path / "x.raw", gain=0).read(0).pixels.max() == 0
    (tmp_path / "other").write_bytes(small_images(3).tobytes())
    assert len(open_dataset(f"raw:{tmp_path / 'other'}")) == 3
    assert open_dataset("mine").name == "mine"


def test_a_data_set_is_passed_through() -> None:
    dataset = from_arrays(small_images(2), [0, 1], space="cifar-10")
    assert open_dataset(dataset) is dataset


def test_unknown_options_and_specs(tmp_path: Path) -> None:
    class_folders(tmp_path / "set", ["n01440764"])
    with raises(DatasetError, expected="one of space, name"):
        open_dataset(tmp_path / "set", severity=3)
    with raises(DatasetError, found="no file or folder of that name", hint="did you mean 'demo'?"):
        open_dataset("dmeo")
    (tmp_path / "x.xyz").write_text("?")
    with pytest.raises(DatasetError) as refused:
        open_dataset(tmp_path / "x.xyz")
    assert refused.value.found == "a file"


def test_a_folder_of_that_name_wins_over_a_named_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    class_folders(Path("demo"), ["n01440764"])
    assert len(open_dataset("demo")) == 2


def test_a_named_data_set_in_another_space(third_party: None) -> None:
    assert open_dataset("mine", space="cifar-10").space.name == "cifar-10"
    part = open_dataset("mine", space=LabelSpace("vehicles", ("automobile", "truck")))
    assert len(part) == 1 and part.labels.tolist() == [0]


def test_hints_for_folders(tmp_path: Path) -> None:
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.jpg").write_bytes(b"x")
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays" / "cifar10.1_v6_data.npy", small_images(1))
    with raises(DatasetError, found="a.jpg"):
        open_dataset(tmp_path / "flat")
    with pytest.raises(DatasetError, match=r"cifar10\.1_v6_data\.npy"):
        open_dataset(tmp_path / "arrays")


def test_a_folder_of_arrays(tmp_path: Path) -> None:
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays" / "images.npy", small_images(2))
    np.save(tmp_path / "arrays" / "labels.npy", np.array([1, 2]))
    dataset = open_dataset(tmp_path / "arrays", space="cifar-10")
    assert dataset.name == "arrays" and dataset.labels.tolist() == [1, 2]


def test_descriptions(tmp_path: Path) -> None:
    class_folders(tmp_path / "good", ["n01440764", "n01443537"])
    good = describe_path(tmp_path / "good")
    assert good.ok and (good.kind, good.images, good.classes, good.space) == ("folder", 4, 2, "imagenet-1k")
    assert "998 of 1000 classes have no image" in good.notes
    (tmp_path / "good" / "n01440764" / "notes.txt").write_text("x")
    (tmp_path / "good" / "n01484850").mkdir()
    notes = " ".join(describe_path(tmp_path / "good").notes)
    assert "notes.txt" in notes and "n01484850" in notes
    class_folders(tmp_path / "bad", ["n01440764", "what"])
    bad = describe_path(tmp_path / "bad")
    assert not bad.ok and "what" in bad.missing[0]
    nothing = describe_path(tmp_path / "nothing")
    assert not nothing.ok and nothing.kind is None


def _first_pixels(datasets: list[Dataset]) -> list[bytes]:
    return [dataset.read(0).pixels.tobytes() for dataset in datasets]


def test_every_kind_is_opened_again_by_another_process(tmp_path: Path) -> None:
    class_folders(tmp_path / "folder", ["n01440764"])
    (tmp_path / "list.csv").write_text("path,label\nfolder/n01440764/0.png,n01440764\n")
    with tarfile.open(tmp_path / "shard.tar", "w") as archive:
        archive.add(tmp_path / "folder" / "n01440764" / "0.png", "a.png")
        (tmp_path / "a.cls").write_text("n01440764")
        archive.add(tmp_path / "a.cls", "a.cls")
    data = (tmp_path / "folder" / "n01440764" / "0.png").read_bytes()
    pq.write_table(pa.table({"image": [data], "label": ["n01440764"]}), tmp_path / "t.parquet")
    pixels = open_dataset(tmp_path / "folder").read(0).pixels
    np.savez_compressed(tmp_path / "a.npz", images=pixels[None], labels=np.array(["n01440764"]))
    datasets = [open_dataset(tmp_path / n) for n in ("folder", "list.csv", "shard.tar", "t.parquet", "a.npz")]
    datasets.append(take(datasets[0], [0]))
    _first_pixels(datasets)  # opened here first, so that handles would have to travel
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(_first_pixels, datasets).result() == [pixels.tobytes()] * 6


def test_importing_stays_light_and_recognising_folders_imports_no_other_kind(tmp_path: Path) -> None:
    class_folders(tmp_path, ["n01440764", "n01443537"])
    code = (
        "import sys, shiftbench.labels, shiftbench.datasets\nfrom pathlib import Path\n"
        "from shiftbench.datasets.catalogue import _KINDS, recognise_path\n"
        "heavy = {'PIL', 'pyarrow', 'scipy', 'torch', 'cv2', 'numba', 'pandas'} & set(sys.modules)\n"
        "print(sorted(heavy))\n"
        f"print(recognise_path(Path({str(tmp_path)!r}))[0])\n"
        "modules = {'shiftbench.datasets.' + home.partition(':')[0] for _, home, _ in _KINDS}\n"
        "print(sorted(modules & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "folder", "['shiftbench.datasets.folder']"]


def test_every_kind_can_be_loaded_and_has_a_one_line_description() -> None:
    for name, kind in dataset_kinds:
        assert callable(kind.recognise) and callable(kind.check)
        assert (kind.open.__doc__ or "").strip().split("\n")[0].endswith("."), name


class Faulty(Dataset):
    """Breaks one rule at a time."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.name = "faulty"
        self.space = label_space("cifar-10")
        self.ids = ["a", "a"] if fault == "ids" else ["/a", "b"] if fault == "absolute" else ["a", "b"]
        last = 10 if fault == "labels" else 1
        self.labels = np.array([0, last], dtype=np.int64 if fault == "dtype" else np.int32)
        self.calls = 0
        self.kept = np.zeros((2, 4, 4, 3), dtype=np.uint8)
        self.unpicklable = (lambda: None) if fault == "pickle" else None

    @property
    def fingerprint(self) -> str:
        self.calls += 1
        return f"{self.calls:032d}" if self.fault == "fingerprint" else "0" * 32

    def read(self, index: int) -> DecodedImage:
        if index >= 2 and self.fault != "outside":
            raise IndexError(index)
        if self.fault == "raises":
            raise ValueError("not a BadImageError")
        if self.fault == "all bad":
            raise BadImageError("bad")
        if self.fault == "random":
            return DecodedImage(np.random.default_rng().integers(0, 256, (4, 4, 3), dtype=np.uint8))
        if self.fault == "seeds":
            np.random.seed(0)  # noqa: NPY002
        if self.fault == "float":
            return DecodedImage(np.zeros((4, 4, 3)))  # type: ignore[arg-type]
        if self.fault == "shared":
            return DecodedImage(self.kept[index])
        return DecodedImage(np.zeros((4, 4, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("ids", "ids are unique text"),
        ("absolute", "ids are unique text"),
        ("labels", "labels fit the label space"),
        ("dtype", "labels fit the label space"),
        ("fingerprint", "fingerprint is stable text"),
        ("raises", "images are uint8 (H, W, 3)"),
        ("all bad", "images are uint8 (H, W, 3)"),
        ("float", "images are uint8 (H, W, 3)"),
        ("random", "two reads are equal"),
        ("seeds", "the global random numbers are left alone"),
        ("shared", "reads do not share memory"),
        ("outside", "an index out of range is an error"),
        ("pickle", "can be pickled"),
    ],
)
def test_the_suite_finds_each_fault(fault: str, check: str) -> None:
    results = {result.name: result for result in check_dataset(Faulty(fault))}
    assert not results[check].ok and results[check].message


def test_the_suite_passes_a_sound_data_set() -> None:
    assert all(result.ok for result in check_dataset(Faulty("none"), reopen=lambda: Faulty("none")))


def test_the_suite_notices_another_data_set() -> None:
    other = from_arrays(small_images(2), [0, 1], space="cifar-10")
    failed = [r.name for r in check_dataset(Faulty("none"), reopen=lambda: other) if not r.ok]
    assert failed == ["opens again as the same"]
