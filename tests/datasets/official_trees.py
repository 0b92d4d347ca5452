"""Small trees in the layouts of the official archives, made of real pictures.

Each function fills a folder as the archive would and returns the truth: the path of every file that counts, and the
key of its class in the set's own label space.
"""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter, ImageOps

import shiftbench as sb
from shiftbench.datasets.demo import FOOLBOX
from shiftbench.datasets.registry_packages import extract
from tests.datasets.makers import planes

Pixels = NDArray[np.uint8]
Truth = dict[str, str]
Paint = Callable[[Image.Image], Image.Image]
Name = Callable[["Photograph"], str]
FULL = sb.label_space("imagenet-1k")


@dataclass(frozen=True, eq=False)
class Photograph:
    """A demo photograph with a short side of 256 pixels."""

    number: int
    image: Image.Image
    label: int

    @property
    def wnid(self) -> str:
        return FULL.keys[self.label]


@cache
def photographs() -> tuple[Photograph, ...]:
    demo = sb.open_dataset("demo")
    shrink = sb.Geometry(resize=256, crop=None)
    return tuple(
        Photograph(i, Image.fromarray(shrink(demo.read(i).pixels)), int(demo.labels[i])) for i in range(len(demo))
    )


def of_space(space: str, photos: Sequence[Photograph]) -> list[Photograph]:
    """Those whose class a label space has, as a class or as a member of one."""
    target = sb.label_space(space)
    found = target.relabel_from(FULL)
    return [photo for photo in photos if found[photo.label] >= 0]


def owner(space: str, wnid: str) -> str:
    """The class of a label space that a wnid belongs to."""
    target = sb.label_space(space)
    return target.keys[int(target.relabel_from(FULL)[FULL.index(wnid)])]


def save(image: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, "PNG" if path.suffix == ".png" else "JPEG", quality=95)


def _plain(image: Image.Image) -> Image.Image:
    return image


def class_tree(
    root: Path,
    photos: Sequence[Photograph],
    name: Name,
    *,
    folder: Callable[[Photograph], str] = lambda photo: photo.wnid,
    paint: Paint = _plain,
) -> Truth:
    """``<folder>/<name>`` for every photograph; what is true is the photograph's own class."""
    truth = {}
    for photo in photos:
        path = f"{folder(photo)}/{name(photo)}"
        save(paint(photo.image), root / path)
        truth[path] = photo.wnid
    return truth


def val_name(photo: Photograph) -> str:
    return f"ILSVRC2012_val_{photo.number + 1:08d}.JPEG"


def imagenet_val(root: Path, photos: Sequence[Photograph]) -> Truth:
    return class_tree(root, photos, val_name)


def imagenetv2(root: Path, photos: Sequence[Photograph], *, integers: bool = True) -> Truth:
    """As released in folders 0 to 999, or re-packed in wnid folders; 40 hexadecimal digits a name."""
    return class_tree(
        root,
        photos,
        lambda photo: hashlib.sha1(str(photo.number).encode()).hexdigest() + ".jpeg",
        folder=lambda photo: str(photo.label) if integers else photo.wnid,
    )


def imagenet_a(root: Path, photos: Sequence[Photograph]) -> Truth:
    """File names with spaces, as the set has them."""
    chosen = of_space("imagenet-a-200", photos)
    return class_tree(root, chosen, lambda photo: f"0.{photo.number:06d}_digital clock _ digital clock_0.86.jpg")


def imagenet_r(root: Path, photos: Sequence[Photograph]) -> Truth:
    styles = ("art", "cartoon", "sketch", "toy")
    chosen = of_space("imagenet-r-200", photos)
    return class_tree(root, chosen, lambda photo: f"{styles[photo.number % 4]}_{photo.number}.jpg")


def imagenet_o(root: Path, photos: Sequence[Photograph]) -> Truth:
    """Photographs of other classes, under the 200 in turn: no folder names what is to be seen."""
    inside = {photo.number for photo in of_space("imagenet-o-200", photos)}
    folders = sb.label_space("imagenet-o-200").keys
    outside = [photo for photo in photos if photo.number not in inside]
    class_tree(root, outside, lambda photo: f"{photo.number}.jpg", folder=lambda p: folders[p.number % 200])
    return {f"{folders[p.number % 200]}/{p.number}.jpg": folders[p.number % 200] for p in outside}


def imagenet_sketch(root: Path, photos: Sequence[Photograph]) -> Truth:
    """Grey files, as nearly all of the set are."""
    return class_tree(root, photos, lambda photo: f"sketch_{photo.number}.JPEG", paint=lambda image: image.convert("L"))


def real_blurry_images(root: Path, photos: Sequence[Photograph]) -> Truth:
    def blurred(image: Image.Image) -> Image.Image:
        return image.filter(ImageFilter.GaussianBlur(1.5))

    return class_tree(root, photos, lambda photo: f"blurry_{photo.number}.jpg", paint=blurred)


def stylized_imagenet(root: Path, photos: Sequence[Photograph]) -> Truth:
    """224 px already, under the names of val; flat colours in place of a painting's texture."""

    def painted(image: Image.Image) -> Image.Image:
        return ImageOps.posterize(ImageOps.fit(image, (224, 224)).filter(ImageFilter.ModeFilter(3)), 5)

    return class_tree(root, photos, val_name, paint=painted)


def objectnet(root: Path, photos: Sequence[Photograph]) -> Truth:
    """PNG files in a red frame of 2 pixels, and a folder of a class that ImageNet lacks."""
    truth = {}
    for photo in of_space("objectnet-113", photos):
        key = owner("objectnet-113", photo.wnid)
        path = f"images/{key}/{photo.number:015x}.png"
        save(ImageOps.expand(photo.image, 2, (255, 0, 0)), root / path)
        truth[path] = key
    save(photos[0].image, root / "images" / "air_freshener" / f"{0:015x}.png")
    return truth


def _pan(image: Image.Image, step: int) -> Image.Image:
    """What a camera sees that turns a little."""
    return Image.fromarray(np.roll(np.asarray(image), 12 * step, axis=1))


def imagenet_vid_robust(root: Path, photos: Sequence[Photograph], most: int = 4) -> Truth:
    """Each video an anchor, number 20, with neighbours 10 before and 1 and 2 after it."""
    pmsets: dict[str, list[str]] = {}
    labels: dict[str, list[int]] = {}
    truth = {}
    for i, photo in enumerate(of_space("vid-robust-30", photos)[:most]):
        key = owner("vid-robust-30", photo.wnid)
        frames = {step: f"val/ILSVRC2015_val_{i:08d}/{20 + step:06d}.JPEG" for step in (0, -10, 1, 2)}
        for step, frame in frames.items():
            save(_pan(photo.image, step), root / frame)
            labels[frame] = [sb.label_space("vid-robust-30").index(key)]
            truth[frame] = key
        pmsets[frames[0]] = [frame for step, frame in frames.items() if step]
    (root / "metadata").mkdir()
    (root / "metadata" / "pmsets.json").write_text(json.dumps(pmsets))
    (root / "metadata" / "labels.json").write_text(json.dumps(labels))
    return truth


def ytbb_robust(root: Path, photos: Sequence[Photograph], most: int = 4) -> Truth:
    """Frames below ``ytbb_videos``; of three neighbours one was found blurred, and one anchor was found bad."""
    names = ["good", "unsure", "bad"]
    marks = ["similar", "blur-increase"]
    anchors = []
    pairs = []
    rows = ["ytid,time_ms,label"]
    truth: Truth = {}
    for i, photo in enumerate(of_space("ytbb-robust-24", photos)[:most]):
        key = owner("ytbb-robust-24", photo.wnid)
        index = sb.label_space("ytbb-robust-24").index(key)
        video = f"video-{i}_{100 * i}"
        frames = {step: f"{video}/frame-{500 + step}.jpg" for step in (0, -9, 1, 2)}
        for step, frame in frames.items():
            save(_pan(photo.image, step), root / "ytbb_videos" / frame)
        bad = i == most - 1
        anchors.append({"key": frames[0], "notes": "", "labels": [names.index("bad" if bad else "good")]})
        pairs += [{"key": f"{frames[0]},{frames[step]}", "labels": [0, 1] if step == 2 else [0]} for step in (-9, 1, 2)]
        # YouTube-BB counts car and none the other way round than the set's own list.
        rows.append(f"video-{i},{100 * i},{ {22: 23, 23: 22}.get(index, index) }")
        truth |= {} if bad else {f"ytbb_videos/{frames[step]}": key for step in (0, -9, 1)}
    folder = root / "ytbb-robust_metadata"
    folder.mkdir()
    (folder / "anchor_labels.json").write_text(json.dumps({"annotations": anchors, "labels": names}))
    (folder / "pmk_labels.json").write_text(json.dumps({"annotations": pairs, "labels": marks}))
    (folder / "ytbb_robustness_test_anchors_full.csv").write_text("\n".join(rows) + "\n")
    return truth


# -- CIFAR: the arrays are the truth ---------------------------------------------------------------------


@cache
def cifar_10_test() -> tuple[Pixels, NDArray[np.int64]]:
    """The first 1,000 images of CIFAR-10's test set."""
    dataset = sb.open_dataset("cifar-10-test")
    return np.stack([dataset.read(i).pixels for i in range(1_000)]), dataset.labels[:1_000].astype(np.int64)


@cache
def cifar_100_pictures() -> tuple[Pixels, NDArray[np.int64]]:
    """The 20 pictures of CIFAR-100 that a registry package carries; their classes are in their names."""
    labels = [49, 33, 72, 51, 71, 92, 15, 14, 23, 0, 71, 75, 81, 69, 40, 43, 92, 97, 70, 53]
    names = [f"cifar100_{i:02d}_{label}.png" for i, label in enumerate(labels)]
    folder = extract(FOOLBOX, [f"foolbox/data/{name}" for name in names])
    images = [np.asarray(Image.open(folder / name).convert("RGB")) for name in names]
    return np.stack(images), np.array(labels)


def cifar_python(root: Path, images: Pixels, labels: NDArray[np.int64], *, hundred: bool = False) -> None:
    """``test_batch``, or CIFAR-100's ``test``: a pickled dictionary with keys of bytes, as Python 2 wrote it."""
    root.mkdir(parents=True, exist_ok=True)
    batch: dict[bytes, object] = {b"data": planes(images), b"filenames": [b"a.png"] * len(images)}
    batch[b"fine_labels" if hundred else b"labels"] = labels.tolist()
    (root / ("test" if hundred else "test_batch")).write_bytes(pickle.dumps(batch, protocol=2))
    (root / ("meta" if hundred else "batches.meta")).write_bytes(pickle.dumps({b"num_vis": 3072}, protocol=2))


def cifar_binary(root: Path, images: Pixels, labels: NDArray[np.int64], *, hundred: bool = False) -> None:
    """Records of one label byte (CIFAR-100: two, the coarse class first) and the three colour planes."""
    root.mkdir(parents=True, exist_ok=True)
    heads = [np.zeros_like(labels), labels] if hundred else [labels]
    records = np.concatenate([np.stack(heads, axis=1).astype(np.uint8), planes(images)], axis=1)
    records.tofile(root / ("test.bin" if hundred else "test_batch.bin"))


def cifar_10_1(root: Path, version: str, images: Pixels, labels: NDArray[np.int64]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    np.save(root / f"cifar10.1_{version}_data.npy", images)
    np.save(root / f"cifar10.1_{version}_labels.npy", labels.astype(np.int32))


def cifar_10_2(root: Path, images: Pixels, labels: NDArray[np.int64]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    names = np.array(sb.label_space("cifar-10").keys)
    indices = np.arange(len(labels))
    words = np.array(["word"] * len(labels))
    file = root / "cifar102_test.npz"
    np.savez(file, images=images, labels=labels, label_names=names, ti_indices=indices, keywords=words)


#: Role to maker, for all that a run on ImageNet's classes may find in one folder.
MAKERS: Mapping[str, Callable[[Path, Sequence[Photograph]], Truth]] = {
    "imagenet-val": imagenet_val,
    "imagenetv2-matched-frequency": imagenetv2,
    "imagenetv2-threshold0.7": imagenetv2,
    "imagenetv2-top-images": imagenetv2,
    "imagenetv2-matched-frequency-format-val": imagenetv2,
    "imagenetv2-threshold0.7-format-val": imagenetv2,
    "imagenetv2-top-images-format-val": lambda root, photos: imagenetv2(root, photos, integers=False),
    "imagenet-a": imagenet_a,
    "imagenet-o": imagenet_o,
    "imagenet-r": imagenet_r,
    "imagenet-sketch": imagenet_sketch,
    "objectnet": objectnet,
    "real-blurry-images": real_blurry_images,
    "stylized-imagenet": stylized_imagenet,
    "imagenet-vid-robust": imagenet_vid_robust,
    "ytbb-robust": ytbb_robust,
}


def make_all(root: Path, photos: Sequence[Photograph], roles: Sequence[str] = tuple(MAKERS)) -> dict[str, Truth]:
    """A folder of folders named after roles, and the truth of each."""
    return {role: MAKERS[role](root / role, photos) for role in roles}
