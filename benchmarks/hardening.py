"""AugMix in images per second against plain Pillow and timm, loaders against timm's and torchvision's, and what each
intervention costs in training.

python -m benchmarks.hardening [--quick] [--part augmix|loader|storage|training]

AugMix: one process and one thread each, the same photographs at 32 and 224 pixels, rounds that alternate, the best of
each counts. Training: processor time of the quickest epoch but the first of the real loop with a ResNet-20 on real
CIFAR-10, standard training and an intervention in turn. Networks that an intervention needs are trained before,
for a moment: their speed does not depend on what they learnt.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from benchmarks.page import machine, save, saved, table
from shiftbench.arrays import Pixels
from shiftbench.datasets.catalogue import open_dataset, open_named
from shiftbench.datasets.subset import sample
from shiftbench.hardening.augmentations.base import ImageAugmentation, make_image_augmentation, stream
from shiftbench.hardening.augmentations.gallery import square

SIDES = (32, 224)
OURS, PILLOW, TIMM = "shiftbench", "Pillow, as published", "timm"
#: Trained for so many steps: enough to be timed, not to be used.
NETWORK_STEPS = 50
COPIES = "copies, as many steps"


def _after_the_crop(name: str, **options: Any) -> dict[str, Any]:
    """The standard recipe with one more augmentation of each picture, drawn anew in every epoch."""
    return {"augmentations": [{"name": "flip"}, {"name": "crop", "padding": 4}, {"name": name, **options}]}


#: What is compared with the first: a recipe of the package, and what is changed in it.
INTERVENTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "standard": ("cifar-standard", {}),
    "uniform noise": ("cifar-noise", {}),
    "Gaussian noise": ("cifar-standard", _after_the_crop("gaussian-noise")),
    "speckle noise": ("cifar-speckle", {}),
    "Cutout": ("cifar-cutout", {}),
    "random erasing": ("cifar-standard", _after_the_crop("erase")),
    "Mixup": ("cifar-mixup", {}),
    "CutMix": ("cifar-cutmix", {}),
    "AugMix, one view": ("cifar-standard", _after_the_crop("augmix")),
    "AugMix with the Jensen-Shannon loss": ("cifar-augmix", {}),
    "Noise2Net": (
        "cifar-standard",
        {"batch_augmentations": [{"name": "noise2net", "mean": [0.5] * 3, "std": [0.5] * 3}]},
    ),
    f"DeepAugment, {COPIES}": ("cifar-deepaugment", {"train.equal_steps": True}),
    "DeepAugment, anew in every epoch": ("cifar-standard", _after_the_crop("deepaugment")),
    "AdaIN style, anew in every epoch": ("cifar-standard", _after_the_crop("stylize")),
    "stability training": ("cifar-stability", {}),
    "FGSM": ("cifar-fgsm", {}),
    "PGD, 10 steps": ("cifar-pgd", {}),
}
#: What copies are written with before training.
COPIED = ("augmix", "deepaugment-edsr", "deepaugment-cae", "stylize")
Augment = Callable[[Pixels], object]

_BILINEAR, _AFFINE = Image.Resampling.BILINEAR, Image.Transform.AFFINE


def _signed(value: float, rng: np.random.Generator) -> float:
    return -value if rng.random() > 0.5 else value


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, _AFFINE, matrix, resample=_BILINEAR)


#: AugMix's operations as the paper's code has them: picture, level, numbers.
PLAIN: list[Callable[[Image.Image, float, np.random.Generator], Image.Image]] = [
    lambda image, level, rng: ImageOps.autocontrast(image),
    lambda image, level, rng: ImageOps.equalize(image),
    lambda image, level, rng: ImageOps.posterize(image, 4 - int(level * 4 / 10)),
    lambda image, level, rng: image.rotate(_signed(int(level * 30 / 10), rng), resample=_BILINEAR),
    lambda image, level, rng: ImageOps.solarize(image, 256 - int(level * 256 / 10)),
    lambda image, level, rng: _affine(image, 1, _signed(level * 0.3 / 10, rng), 0, 0, 1, 0),
    lambda image, level, rng: _affine(image, 1, 0, 0, _signed(level * 0.3 / 10, rng), 1, 0),
    lambda image, level, rng: _affine(image, 1, 0, _signed(int(level * image.width / 30), rng), 0, 1, 0),
    lambda image, level, rng: _affine(image, 1, 0, 0, 0, 1, _signed(int(level * image.height / 30), rng)),
]


def plain_augmix(image: Pixels, generator: np.random.Generator, severity: float = 3) -> Pixels:
    """The published loop: Pillow for the operations, float arrays for the mixture."""
    picture = Image.fromarray(image)
    weights, share = generator.dirichlet([1.0] * 3).astype(np.float32), np.float32(generator.beta(1, 1))
    mixed = np.zeros(image.shape, np.float32)
    for i in range(3):
        chain = picture
        for _ in range(generator.integers(1, 4)):
            chain = PLAIN[generator.integers(len(PLAIN))](chain, generator.uniform(0.1, severity), generator)
        mixed += weights[i] * np.asarray(chain, np.float32)
    out: Pixels = ((1 - share) * image + share * mixed).astype(np.uint8)
    return out


def contenders() -> dict[str, Augment]:
    from shiftbench.classifiers.zoo import import_torchvision

    import_torchvision()
    from timm.data.auto_augment import augment_and_mix_transform

    ours, generator = make_image_augmentation("augmix"), stream(0, "benchmark")
    plain = np.random.default_rng(0)
    theirs = augment_and_mix_transform("augmix-m3-w3", {"translate_pct": 0.1})
    return {
        OURS: lambda pixels: ours(pixels, generator),
        PILLOW: lambda pixels: plain_augmix(pixels, plain),
        TIMM: lambda pixels: np.asarray(theirs(Image.fromarray(pixels))),
    }


def photographs(side: int, count: int = 8) -> list[Pixels]:
    demo = open_named("demo")
    return [square(demo.read(i).pixels, side) for i in range(count)]


def augmix_rates(quick: bool) -> dict[str, dict[str, float]]:
    """Images per second by side and contender."""
    seconds, rounds = (0.15, 2) if quick else (1.0, 5)
    rates: dict[str, dict[str, float]] = {}
    for side in SIDES:
        pictures, sides = photographs(side), contenders()
        rates[str(side)] = dict.fromkeys(sides, 0.0)
        for augment in sides.values():
            _rate(augment, pictures, 0.05)  # compiled and loaded
        for _ in range(rounds):
            for name, augment in sides.items():
                rates[str(side)][name] = max(rates[str(side)][name], _rate(augment, pictures, seconds))
    return rates


def thread_rates(quick: bool) -> dict[str, dict[str, float]]:
    """Ours and plain Pillow at 224 pixels with one thread and with two: Pillow's share of Python does not scale."""
    pictures = photographs(224)
    sides: dict[str, ImageAugmentation] = {
        OURS: make_image_augmentation("augmix"),
        PILLOW: plain_augmix,
    }
    seconds = 0.2 if quick else 1.5
    out: dict[str, dict[str, float]] = {}
    for name, augment in sides.items():
        out[name] = {}
        for threads in (1, 2):
            with ThreadPoolExecutor(threads) as pool:
                workers = [partial(augment, generator=stream(number, "threads")) for number in range(threads)]
                jobs = [pool.submit(_rate, worker, pictures, seconds) for worker in workers]
                out[name][str(threads)] = sum(job.result() for job in jobs)
    return out


def _rate(augment: Augment, pictures: list[Pixels], seconds: float) -> float:
    begin, done = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        augment(pictures[done % len(pictures)])
        done += 1
    return done / (time.perf_counter() - begin)


def loader_rates(quick: bool) -> dict[str, float]:
    """Training images per second of CPU time from JPEG files to uint8 batches of 224 pixels: a random resized crop and
    a flip, in one process and one thread; timm's loader and torchvision's reference do the same."""
    import torch

    from shiftbench.classifiers.zoo import import_timm
    from shiftbench.hardening.recipe import load_recipe
    from shiftbench.hardening.training.batches import Batches
    from shiftbench.hardening.training.data import prepare_training

    import_timm()
    data = importlib.import_module("timm.data")
    from torchvision import datasets
    from torchvision.transforms import v2

    torch.set_num_threads(1)
    demo = open_named("demo")
    rates = {OURS: 0.0, TIMM: 0.0, "torchvision": 0.0}
    with tempfile.TemporaryDirectory() as name:
        for i in range(len(demo)):
            folder = Path(name) / demo.space.keys[int(demo.labels[i])]
            folder.mkdir(exist_ok=True)
            Image.fromarray(demo.read(i).pixels).save(folder / f"{i:05}.jpeg", quality=90)
        changes = ["data.empty_classes=true", "data.labels=folders", "train.batch_size=32"]
        ours = Batches(*prepare_training(load_recipe("imagenet-standard", changes), name), 1)
        theirs = data.create_loader(
            data.create_dataset("", name), (3, 224, 224), 32, is_training=True, num_workers=0, use_prefetcher=True,
            color_jitter=None, interpolation="bilinear", device=torch.device("cpu"), persistent_workers=False,
        )  # fmt: skip
        steps = [v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), v2.PILToTensor()]
        reference = torch.utils.data.DataLoader(datasets.ImageFolder(name, v2.Compose(steps)), 32, shuffle=True)
        epochs: dict[str, Callable[[], int]] = {
            OURS: lambda: sum(len(batch.targets) for batch in ours.epoch(0)),
            TIMM: lambda: sum(len(labels) for _, labels in theirs),
            "torchvision": lambda: sum(len(labels) for _, labels in reference),
        }
        for _ in range(1 if quick else 12):
            for loader, epoch in epochs.items():
                begin = time.process_time()
                images = epoch()
                rates[loader] = max(rates[loader], images / (time.process_time() - begin))
    return rates


#: Photographs in the storage benchmark, and their side: about 60 kB each, as in ImageNet when it is resized.
STORED = 2000
STORED_SIDE = 400
#: Rows of a Parquet row group.
GROUPS = (100, 1000)


def storage_rates(quick: bool) -> dict[str, dict[str, float]]:
    """Training images per second of CPU time from one set of photographs in each kind of storage, for each loader.

    ``bytes`` reads the encoded files in the order of an epoch; the others decode to batches of 224 pixels with a random
    resized crop and a flip. All in one process and one thread, in rounds that alternate; the best round counts.
    """
    import torch

    from shiftbench.classifiers.zoo import import_timm

    import_timm()
    torch.set_num_threads(1)
    count = 400 if quick else STORED
    with tempfile.TemporaryDirectory() as folder:
        places = _store(Path(folder), count)
        readers: dict[str, dict[str, Callable[[], int]]] = {}
        for title, place in places.items():
            readers[title] = _our_readers(place)
        readers["folder"] |= _folder_readers(places["folder"])
        readers["tar"] |= _tar_readers(places["tar"])
        for rows in GROUPS:
            title = _parquet_title(rows)
            readers[title] |= _parquet_readers(places[title])
        rates: dict[str, dict[str, float]] = {title: dict.fromkeys(epochs, 0.0) for title, epochs in readers.items()}
        for _ in range(1 if quick else 2):
            for title, epochs in readers.items():
                for name, epoch in epochs.items():
                    begin = time.process_time()
                    images = epoch()
                    rate = images / (time.process_time() - begin)
                    rates[title][name] = max(rates[title][name], rate)
                    print(f"storage: {title}, {name}: {rate:,.0f}", flush=True)
    return rates


def _parquet_title(rows: int) -> str:
    return f"Parquet, row groups of {rows:,}"


def _store(root: Path, count: int) -> dict[str, Path]:
    """The demo's photographs, again and again, as class folders, a tar shard, and Parquet files."""
    import pyarrow
    import pyarrow.parquet

    demo = open_named("demo")
    encoded = []
    for number in range(len(demo)):
        with io.BytesIO() as file:
            Image.fromarray(square(demo.read(number).pixels, STORED_SIDE)).save(file, "JPEG", quality=90)
            encoded.append(file.getvalue())
    # Two classes, so that any label space fits.
    labels = [number % 2 for number in range(count)]
    for number, label in enumerate(labels):
        folder = root / "folder" / f"class-{label}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:05}.jpg").write_bytes(encoded[number % len(encoded)])
    (root / "tar").mkdir()
    with tarfile.open(root / "tar" / "photos-000000.tar", "w") as archive:
        for number, label in enumerate(labels):
            members = (("jpg", encoded[number % len(encoded)]), ("cls", str(label).encode()))
            for ending, content in members:
                entry = tarfile.TarInfo(f"{number:05}.{ending}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    places = {"folder": root / "folder", "tar": root / "tar"}
    images = [{"bytes": encoded[number % len(encoded)]} for number in range(count)]
    for rows in GROUPS:
        path = root / f"groups-{rows}.parquet"
        table_of_images = pyarrow.table({"image": images, "label": labels})
        pyarrow.parquet.write_table(table_of_images, path, row_group_size=rows, compression="none")
        places[_parquet_title(rows)] = path
    return places


def _our_readers(place: Path) -> dict[str, Callable[[], int]]:
    from shiftbench.hardening.recipe import load_recipe
    from shiftbench.hardening.training.batches import Batches
    from shiftbench.hardening.training.data import prepare_training

    changes = ["data.labels=folders", "train.batch_size=32", "data.memory_gb=0"]
    batches = Batches(*prepare_training(load_recipe("imagenet-standard", changes), str(place)), 1)
    dataset: Any = open_dataset(str(place), space="folders")

    def read_bytes() -> int:
        order = batches.order.indices()
        for index in order.tolist():
            dataset._bytes(index)
        return len(order)

    return {"bytes": read_bytes, OURS: lambda: sum(len(batch.targets) for batch in batches.epoch(0))}


def _transform() -> Any:
    from torchvision.transforms import v2

    return v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), v2.PILToTensor()])


def _folder_readers(folder: Path) -> dict[str, Callable[[], int]]:
    import torch
    from torchvision import datasets

    data = importlib.import_module("timm.data")
    theirs = data.create_loader(
        data.create_dataset("", str(folder)), (3, 224, 224), 32, is_training=True, num_workers=0, use_prefetcher=True,
        color_jitter=None, interpolation="bilinear", device=torch.device("cpu"), persistent_workers=False,
    )  # fmt: skip
    reference = torch.utils.data.DataLoader(datasets.ImageFolder(str(folder), _transform()), 32, shuffle=True)
    return {
        TIMM: lambda: sum(len(labels) for _, labels in theirs),
        "torchvision": lambda: sum(len(labels) for _, labels in reference),
    }


def _tar_readers(folder: Path) -> dict[str, Callable[[], int]]:
    try:
        webdataset: Any = importlib.import_module("webdataset")
    except ImportError:
        return {}
    transform = _transform()
    shards = [str(path) for path in sorted(folder.glob("*.tar"))]

    def epoch() -> int:
        stream = webdataset.WebDataset(shards, shardshuffle=False, empty_check=False).shuffle(1000).decode("pil")
        stream = stream.to_tuple("jpg", "cls").map_tuple(transform, int).batched(32)
        return sum(len(labels) for _, labels in stream)

    return {"webdataset": epoch}


def _parquet_readers(path: Path) -> dict[str, Callable[[], int]]:
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError:
        return {}
    transform = _transform()

    def epoch() -> int:
        rows = datasets.load_dataset("parquet", data_files=str(path), split="train", streaming=True)
        done = 0
        for row in rows.shuffle(seed=0, buffer_size=1000):
            transform(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB"))
            done += 1
        return done

    return {"datasets": epoch}


def training_seconds(quick: bool) -> dict[str, tuple[float, float]]:
    """Processor time of an epoch of each intervention, and of standard training just before it: a machine that is
    shared is faster at one time than at another."""
    import torch

    torch.set_num_threads(1)
    seconds: dict[str, tuple[float, float]] = {}
    for title in INTERVENTIONS:
        print(f"training: {title}", flush=True)
        standard = _epoch_seconds("standard", quick)
        seconds[title] = _epoch_seconds(title, quick), standard
    return seconds


def _epoch_seconds(title: str, quick: bool) -> float:
    from shiftbench.hardening.recipe import load_recipe
    from shiftbench.hardening.training.train import train

    name, own = INTERVENTIONS[title]
    changes: dict[str, Any] = {
        "architecture": {"name": "resnet-20"},
        "data.sample": _pictures(quick),
        "data.validation": "",
        "data.network_steps": NETWORK_STEPS,
        "train.epochs": 2 if quick else 3,
    }
    ends: list[float] = []

    def ended(epochs: int) -> None:
        ends.append(time.process_time())

    with tempfile.TemporaryDirectory() as folder:
        train(load_recipe(name, changes | own), Path(folder) / "run", progress=False, report=ended)
    return min(end - begin for begin, end in pairwise(ends))


def _pictures(quick: bool) -> int:
    return 128 if quick else 512


def copy_rates(quick: bool) -> dict[str, float]:
    """Pictures of CIFAR-10 that ``harden augment`` writes in a second of CPU time, one worker and one thread."""
    import torch

    from shiftbench.hardening.augmentations.copies import augment_folder
    from shiftbench.hardening.augmentations.networks import network_for

    torch.set_num_threads(1)
    pictures = sample(open_named("cifar-10-train"), _pictures(quick))
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        for number in range(len(pictures)):
            Image.fromarray(pictures.read(number).pixels).save(source / f"{number:05}.png")
        for name in COPIED:
            print(f"copies: {name}", flush=True)
            options = network_for(name, train_on=pictures, steps=NETWORK_STEPS, show=False)
            begin = time.process_time()
            done = augment_folder(source, Path(folder) / name, name, options=options, workers=1)
            rates[name] = done.written / (time.process_time() - begin)
    return rates


def report(found: dict[str, Any]) -> str:
    parts = []
    if "augmix" in found:
        parts += [*_busy(found["load"]["augmix"]), _augmix_report(found)]
    if "loader" in found:
        rates = found["loader"]
        rows = [(name, f"{rate:,.0f}", f"{rates[OURS] / rate:.2f}x") for name, rate in rates.items()]
        parts += [
            "Loading for training: JPEG photographs to batches of 224 pixels (random resized crop and flip), images "
            "per second of CPU time, one process, best of alternating rounds. timm's batches are normalised too; ours "
            "are checked to be the files that were opened (hashed, as in all datasets of up to 200,000 images).\n\n"
            + table(("loader", "images/s and core", "ours / it"), rows),
            f"Machine of this table: {found['loader_machine']}.",
        ]
    if "storage" in found:
        parts += _busy(found["load"]["storage"])
        parts += [_storage_report(found["storage"]), f"Machine of this table: {found['storage_machine']}."]
    if "training" in found:
        parts += [*_busy(found["load"]["training"]), _training_report(found["training"], found["copies"])]
    return "\n\n".join(parts)


def _storage_report(rates: dict[str, dict[str, float]]) -> str:
    rows = []
    for title, epochs in rates.items():
        others = [f"{name} {rate:,.0f}" for name, rate in epochs.items() if name not in ("bytes", OURS)]
        share = epochs["bytes"] / rates["tar"]["bytes"]
        rows.append((title, f"{epochs['bytes']:,.0f}", f"{share:.2f}", f"{epochs[OURS]:,.0f}", ", ".join(others)))
    header = ("storage", "bytes only", "of tar's", "ours to batches", "others")
    return (
        f"Storage: {STORED:,} JPEG photographs of {STORED_SIDE} pixels in the order of an epoch, images per second "
        "of CPU time, one process. *Bytes only* reads the encoded images; the next columns decode them to 224 pixels "
        "(random resized crop and flip). webdataset and datasets shuffle within a buffer of 1,000.\n\n"
        + table(header, rows)
    )


def _busy(load: Sequence[float]) -> list[str]:
    """A warning, if others worked on the machine while this was measured."""
    if max(load) - 1 <= 0.7:
        return []
    return [
        f"**The machine was busy with other work meanwhile (load {max(load):.1f} on {os.cpu_count()} cores): large "
        "ratios are still telling; small ones, absolute numbers and the scaling to two threads are not.**"
    ]


def _augmix_report(found: dict[str, Any]) -> str:
    names = list(found["augmix"][str(SIDES[0])])
    rows = []
    for side in SIDES:
        rates = found["augmix"][str(side)]
        ratios = [f"{rates[OURS] / rates[name]:.1f}x" for name in names[1:]]
        rows.append((f"{side} x {side}", *(f"{rates[name]:,.0f}" for name in names), *ratios))
    text = (
        "AugMix (severity 3, width 3) in images per second, one thread. Pillow, as published, gives the same pixels as "
        "ours up to rounding; timm's variant has other operations and fills with grey.\n\n"
    )
    text += table(("pixels", *names, *(f"ours / {name}" for name in names[1:])), rows)
    threads = found["threads"]
    scaling = [
        (name, *(f"{rates[count]:,.0f}" for count in ("1", "2")), f"{rates['2'] / rates['1']:.2f}x")
        for name, rates in threads.items()
    ]
    text += "\n\nThreads at 224 pixels:\n\n" + table(("", "1 thread", "2 threads", "gain"), scaling)
    return text


def _training_report(seconds: dict[str, tuple[float, float]], copies: dict[str, float]) -> str:
    rows = [(name, f"{own:.1f}", f"{base:.1f}", f"{own / base:.2f}x") for name, (own, base) in seconds.items()]
    written = [(f"`{name}`", f"{rate:,.0f}") for name, rate in copies.items()]
    return (
        "What an intervention costs: an epoch of the training loop with a ResNet-20 on 512 CIFAR-10 images, "
        "CPU time of one thread, against standard training just before it. Augmentations of single images "
        "(noise, erasing, AugMix, DeepAugment, AdaIN) can run in parallel to the network (`harden train --workers`), "
        "which hides their cost; what the loss, the scheme or Noise2Net costs is paid in every step. The larger the "
        "network, the smaller the share of an augmentation.\n\n"
        + table(("", "seconds per epoch", "standard", "ratio"), rows)
        + f'\n\nDeepAugment by its recipe ("{COPIES}") draws, from images and copies, as many as there are '
        "images. That is the work of standard training, so the distance from 1.00x of its row, and of the first, is "
        "the error of this measurement. Its cost is paid once, before training, and so is AdaIN's where its copies "
        "are written to a folder. `harden augment` on those images, one worker, AugMix for comparison:\n\n"
        + table(("augmentation", "images per second of CPU time"), written)
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--quick", action="store_true", help="a few seconds; the numbers are rough")
    arguments.add_argument(
        "--part", choices=("augmix", "loader", "storage", "training"), help="only this; the rest is kept as it was"
    )
    chosen = arguments.parse_args()
    found: dict[str, Any] = saved("hardening") if chosen.part else {}
    load = found.setdefault("load", {})
    if chosen.part in (None, "loader"):
        found |= {"loader": loader_rates(chosen.quick), "loader_machine": machine()}
    if chosen.part in (None, "storage"):
        before = os.getloadavg()[0]
        found |= {"storage": storage_rates(chosen.quick), "storage_machine": machine()}
        load["storage"] = [before, os.getloadavg()[0]]
    if chosen.part in (None, "augmix"):
        before = os.getloadavg()[0]
        found |= {"augmix": augmix_rates(chosen.quick), "threads": thread_rates(chosen.quick)}
        load["augmix"] = [before, os.getloadavg()[0]]
    if chosen.part in (None, "training"):
        before = os.getloadavg()[0]
        found |= {"copies": copy_rates(chosen.quick), "training": training_seconds(chosen.quick)}
        load["training"] = [before, os.getloadavg()[0]]
    markdown = report(found)
    if not chosen.quick:
        save("hardening", "Hardening", found, markdown)
    print(markdown)


if __name__ == "__main__":
    main()
