"""The kinds of path that are known from the start, and the named data sets.

The special come before the general: class folders with a tar file left beside them are no shards.

Recognition looks at names only and imports nothing heavy; the module of a kind is imported when one is
opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import dataset_openers, named_datasets, opener
from shiftbench.io.paths import is_object
from shiftbench.labels.space import LabelSpace

Space = LabelSpace | str | None


def _names(path: Path, most: int = 4096) -> Iterator[str]:
    """Entries of a folder; a few thousand are enough to see what it is."""
    if is_object(path):
        yield from (entry.name for entry in islice(path.iterdir(), most))
        return
    try:
        with os.scandir(path) as entries:
            for _, entry in zip(range(most), entries, strict=False):
                yield entry.name
    except OSError:  # not a folder, or one that may not be listed: opening it will say so
        return


def _seen_cifar(path: Path) -> str | None:
    if {"test_batch", "test_batch.bin", "data_batch_1", "data_batch_1.bin"} & set(_names(path, 64)):
        return "the files of CIFAR-10"
    names = {name for name in _names(path, 64) if (path / name).is_file()}
    if ({"test", "train"} & names and "meta" in names) or {"test.bin", "train.bin"} & names:
        return "the files of CIFAR-100"
    return None


@dataset_openers.register("cifar")
@opener(_seen_cifar)
def open_cifar(path: str | Path, *, space: Space = None, name: str | None = None, split: str = "test") -> Dataset:
    """The official files of CIFAR-10 or CIFAR-100, Python or binary version."""
    from shiftbench.datasets import cifar

    return cifar.open_cifar(path, split=split, space=space, name=name)


def _seen_cifar10_1(path: Path) -> str | None:
    found = path.is_file() and path.name.startswith("cifar10.1_") and path.name.endswith("_data.npy")
    return "CIFAR-10.1" if found else None


@dataset_openers.register("cifar-10.1")
@opener(_seen_cifar10_1, by_url=True)
def open_cifar10_1(path: str | Path, *, space: Space = None, name: str | None = None) -> Dataset:
    """CIFAR-10.1: cifar10.1_v4_data.npy or _v6_, with its labels beside it."""
    from shiftbench.datasets import cifar

    return cifar.open_cifar10_1(path, space=space, name=name)


def _seen_cifar_c(path: Path) -> str | None:
    """A corruption's file, or the folder of them; known by the names that such a folder always holds."""
    folder = path.parent if path.suffix == ".npy" and path.is_file() else path
    if not folder.is_dir() or path.name == "labels.npy":
        return None
    corruptions = {"gaussian_noise.npy", "fog.npy", "jpeg_compression.npy", "brightness.npy"}
    names = set(_names(folder, 256))
    return "CIFAR-C" if "labels.npy" in names and corruptions & names else None


@dataset_openers.register("cifar-c")
@opener(_seen_cifar_c, by_url=True)
def open_cifar_c(
    path: str | Path,
    *,
    space: Space = None,
    name: str | None = None,
    severity: int | None = None,
    corruption: str | None = None,
) -> Dataset:
    """CIFAR-C: one npy file a corruption, and labels.npy."""
    from shiftbench.datasets import cifar

    return cifar.open_cifar_c(path, severity=severity, corruption=corruption, space=space, name=name)


def _seen_cifar10_2(path: Path) -> str | None:
    found = path.is_file() and path.name.startswith("cifar102_") and path.suffix == ".npz"
    return "CIFAR-10.2" if found else None


@dataset_openers.register("cifar-10.2")
@opener(_seen_cifar10_2, by_url=True)
def open_cifar10_2(path: str | Path, *, space: Space = None, name: str | None = None) -> Dataset:
    """CIFAR-10.2: cifar102_test.npz or cifar102_train.npz."""
    from shiftbench.datasets import cifar102

    return cifar102.open_cifar10_2(path, space=space, name=name)


def _seen_icons(path: Path) -> str | None:
    from shiftbench.datasets.icons.opening import seen_icons

    return seen_icons(path)


@dataset_openers.register("icons")
@opener(_seen_icons)
def open_icons(path: str | Path, *, space: Space = None, name: str | None = None) -> Dataset:
    """Icons-50, original or rebuilt, or a part of it such as PATH/style.train."""
    from shiftbench.datasets.icons import opening

    return opening.open_icons(path, space=space, name=name)


def _seen_subtypes(path: Path) -> str | None:
    from shiftbench.datasets.subtypes import seen_subtypes

    return seen_subtypes(path)


@dataset_openers.register("subtypes")
@opener(_seen_subtypes)
def open_subtypes(path: str | Path, *, space: Space = None, name: str | None = None) -> Dataset:
    """Seen or unseen subtypes: PATH/subtypes-1.unseen of CIFAR-100, PATH/subtypes.unseen of ImageNet-22K."""
    from shiftbench.datasets import subtypes

    return subtypes.open_subtypes(path, space=space, name=name)


def _seen_array(path: Path) -> str | None:
    if {"images.npy", "labels.npy"} <= set(_names(path, 64)):
        return "a folder with images.npy and labels.npy"
    return f"a {path.suffix} file" if path.suffix in (".npy", ".npz") and path.is_file() else None


@dataset_openers.register("array")
@opener(_seen_array, by_url=True)
def open_array(
    path: str | Path, *, space: Space = None, name: str | None = None, labels: str | Path | None = None
) -> Dataset:
    """Images and labels as npy or npz."""
    from shiftbench.datasets import arrays

    return arrays.open_array(path, space=space, name=name, labels=labels)


def _seen_tables(path: Path) -> str | None:
    if path.suffix in (".parquet", ".arrow") and path.is_file():
        return f"a {path.suffix[1:].capitalize()} file"
    names = set(_names(path))
    if "dataset_dict.json" in names or {"state.json", "dataset_info.json"} <= names:
        return "a Hugging Face data set saved to disk"
    if any(name.endswith(".parquet") for name in [*names, *_names(path / "data")]):
        return "a folder of Parquet files"
    return None


@dataset_openers.register("huggingface")
@opener(_seen_tables)
def open_huggingface(
    path: str | Path,
    *,
    space: Space = None,
    name: str | None = None,
    split: str | None = None,
    image: str | None = None,
    label: str | None = None,
) -> Dataset:
    """Parquet files, or a Hugging Face data set saved to disk."""
    from shiftbench.datasets import huggingface

    return huggingface.open_huggingface(path, split=split, space=space, name=name, image=image, label=label)


def _seen_objectnet(path: Path) -> str | None:
    from shiftbench.datasets.objectnet import find_objectnet

    return "the class folders of ObjectNet" if path.is_dir() and find_objectnet(path) else None


@dataset_openers.register("objectnet")
@opener(_seen_objectnet, by_url=True)
def open_objectnet(path: str | Path, *, space: Space = None, name: str | None = None, border: int = 2) -> Dataset:
    """ObjectNet: the 113 classes that ImageNet has too, without the red border."""
    from shiftbench.datasets import objectnet

    return objectnet.open_objectnet(path, space=space, name=name, border=border)


def _seen_vid_robust(path: Path) -> str | None:
    from shiftbench.datasets import video_sets

    found = path.is_dir() and video_sets.find_metadata(path, video_sets.VID_FILES)
    return "the frames of ImageNet-Vid-Robust" if found else None


@dataset_openers.register("vid-robust")
@opener(_seen_vid_robust)
def open_vid_robust(
    path: str | Path,
    *,
    space: Space = None,
    name: str | None = None,
    k: int | None = None,
    metadata: str | Path | None = None,
) -> Dataset:
    """ImageNet-Vid-Robust: anchor frames and their neighbours, with metadata/pmsets.json and labels.json."""
    from shiftbench.datasets import video_sets

    return video_sets.open_vid_robust(path, space=space, name=name, k=k, metadata=metadata)


def _seen_ytbb_robust(path: Path) -> str | None:
    from shiftbench.datasets import video_sets

    found = path.is_dir() and video_sets.find_metadata(path, video_sets.YTBB_FILES)
    return "the frames of YTBB-Robust" if found else None


@dataset_openers.register("ytbb-robust")
@opener(_seen_ytbb_robust)
def open_ytbb_robust(
    path: str | Path,
    *,
    space: Space = None,
    name: str | None = None,
    k: int | None = 10,
    metadata: str | Path | None = None,
) -> Dataset:
    """YTBB-Robust: anchor frames and their neighbours, with the three annotation files in metadata/."""
    from shiftbench.datasets import video_sets

    return video_sets.open_ytbb_robust(path, space=space, name=name, k=k, metadata=metadata)


def _seen_imagenetv2(path: Path) -> str | None:
    from shiftbench.datasets.imagenetv2 import packing_of

    packing = packing_of(path)
    return f"ImageNetV2, {'folders 0 to 999' if packing == 'integers' else 'wnid folders'}" if packing else None


@dataset_openers.register("imagenetv2")
@opener(_seen_imagenetv2, by_url=True)
def open_imagenetv2(path: str | Path, *, space: Space = None, name: str | None = None) -> Dataset:
    """ImageNetV2: folders 0 to 999 as released, or a re-packing in wnid folders."""
    from shiftbench.datasets import imagenetv2

    return imagenetv2.open_imagenetv2(path, space=space, name=name)


def _seen_folder(path: Path) -> str | None:
    from shiftbench.datasets.folder import EXTENSIONS

    if not path.is_dir():
        return None
    folders = [path / n for n in _names(path) if not n.startswith(".") and (path / n).is_dir()]
    for folder in folders:
        if any(name.lower().endswith(EXTENSIONS) and not name.startswith(".") for name in _names(folder)):
            return f"a folder of {len(folders)} class folders"
    return None


@dataset_openers.register("folder")
@opener(_seen_folder, by_url=True)
def open_folder(path: str | Path, *, space: Space = None, name: str | None = None) -> Dataset:
    """One folder a class: integers 0..K-1, wnids or class names."""
    from shiftbench.datasets import folder

    return folder.open_folder(path, space=space, name=name)


@dataset_openers.register("unlabelled")
@opener(lambda path: None, by_url=True)  # never guessed: a forgotten label is more likely than none
def open_unlabelled(path: str | Path, *, space: Space = None, name: str | None = None) -> Dataset:
    """Any pictures below a folder, without labels: unknown kinds, for detection."""
    from shiftbench.datasets import folder

    return folder.open_unlabelled(path, space=space, name=name)


def _seen_shards(path: Path) -> str | None:
    if "{" in path.name and path.suffix == ".tar":
        return "a pattern of tar shards"
    if path.suffix == ".tar" and path.is_file():
        return "a tar shard"
    count = sum(name.endswith(".tar") for name in _names(path))
    return f"{count} tar shards" if count else None


@dataset_openers.register("webdataset")
@opener(_seen_shards, by_url=True)
def open_webdataset(
    path: str | Path,
    *,
    space: Space = None,
    name: str | None = None,
    image: str | None = None,
    label: str | None = None,
) -> Dataset:
    """WebDataset tar shards."""
    from shiftbench.datasets import webdataset

    return webdataset.open_webdataset(path, space=space, name=name, image=image, label=label)


def _seen_manifest(path: Path) -> str | None:
    found = path.suffix.lower() in (".csv", ".tsv", ".jsonl", ".ndjson") and path.is_file()
    return "a manifest" if found else None


@dataset_openers.register("manifest")
@opener(_seen_manifest, by_url=True)
def open_manifest(
    path: str | Path,
    *,
    space: Space = None,
    name: str | None = None,
    root: str | Path | None = None,
    label: str | None = None,
    allow_outside: bool = False,
) -> Dataset:
    """A CSV or JSONL list of image paths and labels, with any further columns as metadata."""
    from shiftbench.datasets import manifest

    return manifest.open_manifest(path, space=space, name=name, root=root, label=label, allow_outside=allow_outside)


@named_datasets.register("demo")
def open_demo(*, name: str | None = None) -> Dataset:
    """114 labelled photographs that registry packages carry."""
    from shiftbench.datasets import demo

    return demo.open_demo(name=name)


@named_datasets.register("cifar-10-test")
def open_cifar_10_test(*, name: str | None = None) -> Dataset:
    """The 10,000 test images of CIFAR-10, from a registry package."""
    from shiftbench.datasets import cifar

    return cifar.open_packed_cifar10("test", name=name)


@named_datasets.register("cifar-10-train")
def open_cifar_10_train(*, name: str | None = None) -> Dataset:
    """The 50,000 training images of CIFAR-10, from a registry package."""
    from shiftbench.datasets import cifar

    return cifar.open_packed_cifar10("train", name=name)
