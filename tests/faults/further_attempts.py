"""More attempts at a silently wrong number: arrays, shards, tables of images, functions, and image formats.

They join those of `attempts` in one list; the good folder and its true accuracy are the same.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from tests.faults.attempts import ATTEMPTS, CLASSES, Words, evaluating, rows

Array = NDArray[Any]


def _images(folder: Path) -> Array:
    return np.stack([np.asarray(Image.open(folder / "data" / image)) for image, _, _ in rows()])


def _labels() -> Array:
    return np.array([CLASSES.index(key) for _, key, _ in rows()])


# -- arrays of images ----------------------------------------------------------------------------------------------


def arrays(name: str, change: Callable[[Array, Array], dict[str, Array]]) -> None:
    """An attempt with an archive that holds these arrays, made of the right images and labels."""

    def run(folder: Path) -> Words:
        np.savez(folder / "test.npz", **change(_images(folder), _labels()))  # type: ignore[arg-type]
        return evaluating(data="test.npz")

    ATTEMPTS[f"arrays of images: {name}"] = run


def _of(images: Array, labels: Array) -> dict[str, Array]:
    return {"images": images, "labels": labels}


arrays("as they should be", _of)
arrays("channels first", lambda images, labels: _of(images.transpose(0, 3, 1, 2), labels))
arrays("width before height", lambda images, labels: _of(images.transpose(0, 2, 1, 3), labels))
arrays("fractions from zero to one", lambda images, labels: _of(images / 255, labels))
arrays("fractions from zero to 255", lambda images, labels: _of(images.astype(np.float32), labels))
arrays("fractions from -1 to 1", lambda images, labels: _of(images / 127.5 - 1, labels))
arrays("whole numbers of 64 bits", lambda images, labels: _of(images.astype(np.int64), labels))
arrays("signed bytes", lambda images, labels: _of((images.astype(np.int16) - 128).astype(np.int8), labels))
arrays("truth values", lambda images, labels: _of(images > 100, labels))
arrays("one channel", lambda images, labels: _of(images[..., 0], labels))
arrays("four channels", lambda images, labels: _of(np.concatenate([images, images[..., :1]], 3), labels))
arrays("a dimension too many", lambda images, labels: _of(images[:, None], labels))
arrays("images in rows", lambda images, labels: _of(images.reshape(12, -1), labels))
arrays("in the order of Fortran", lambda images, labels: _of(np.asfortranarray(images), labels))
arrays("labels from one", lambda images, labels: _of(images, labels + 1))
arrays("labels as fractions", lambda images, labels: _of(images, labels.astype(np.float32)))
arrays("labels between classes", lambda images, labels: _of(images, labels + 0.5))
arrays("labels as a column", lambda images, labels: _of(images, labels[:, None]))
arrays("labels as one of three", lambda images, labels: _of(images, np.eye(3, dtype=np.int64)[labels]))
arrays("labels as names", lambda images, labels: _of(images, np.array(CLASSES)[labels]))
arrays("labels as names of bytes", lambda images, labels: _of(images, np.array(CLASSES)[labels].astype("S5")))
arrays("a label too few", lambda images, labels: _of(images, labels[:-1]))
arrays("a label too many", lambda images, labels: _of(images, np.append(labels, 0)))
arrays("a label of -1", lambda images, labels: _of(images, np.where(np.arange(12) == 0, -1, labels)))
arrays("a label beyond the classes", lambda images, labels: _of(images, np.where(np.arange(12) == 0, 3, labels)))
arrays("labels in the other byte order", lambda images, labels: _of(images, labels.astype(">i8")))
arrays("two sets of images", lambda images, labels: {**_of(images, labels), "images_b": images[::-1]})
arrays("two sets of labels", lambda images, labels: {**_of(images, labels), "labels_b": labels[::-1]})
arrays("no labels", lambda images, labels: {"images": images})
arrays("training and test", lambda i, k: {"x_train": i[::-1], "y_train": k, "x_test": i, "y_test": k})


# -- shards of WebDataset --------------------------------------------------------------------------------------------

#: A member of a shard: its name and content.
Member = tuple[str, bytes]


def shards(name: str, members: Callable[[int, str, bytes], list[Member]], **options: Any) -> None:
    """An attempt with shards; each image has the members that a function makes of its number, class and bytes."""

    def run(folder: Path) -> Words:
        per_image = []
        for number, (image, key, _) in enumerate(rows()):
            per_image.append(members(number, str(CLASSES.index(key)), (folder / "data" / image).read_bytes()))
        for part in range(options.get("parts", 1)):
            chosen = [member for image in per_image[part :: options.get("parts", 1)] for member in image]
            _write_shard(folder / f"test-{part:06d}.tar", chosen)
        change = options.get("change")
        if change is not None:
            change(folder)
        return evaluating(data="test-000000.tar" if options.get("parts", 1) == 1 else "test-{000000..000001}.tar")

    ATTEMPTS[f"a shard {name}"] = run


def _write_shard(path: Path, members: list[Member]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def _cut(folder: Path) -> None:
    path = folder / "test-000000.tar"
    path.write_bytes(path.read_bytes()[:20_000])


def _sample(key: object, label: str | None, image: bytes, kind: str = "png") -> list[Member]:
    members = [(f"{key}.{kind}", image)]
    if label is not None:
        members.append((f"{key}.cls", label.encode()))
    return members


shards("as it should be", lambda n, label, image: _sample(n, label, image))
shards("with the end of a line after labels", lambda n, label, image: _sample(n, f"{label}\n", image))
shards("with labels as fractions", lambda n, label, image: _sample(n, f"{label}.0", image))
shards("with labels of two digits", lambda n, label, image: _sample(n, f"0{label}", image))
shards("with labels from one", lambda n, label, image: _sample(n, str(int(label) + 1), image))
shards("with labels as names", lambda n, label, image: _sample(n, CLASSES[int(label)], image))
shards("without one label", lambda n, label, image: _sample(n, None if n == 5 else label, image))
shards("with an empty label", lambda n, label, image: _sample(n, "" if n == 5 else label, image))
shards("without one image", lambda n, label, image: _sample(n, label, image)[n == 5 :])
shards("with two images per sample", lambda n, label, image: [(f"{n}.jpg", b"x"), *_sample(n, label, image)])
shards("with a sample twice", lambda n, label, image: _sample(n // 2 * 2, label, image))
shards("with extensions in capitals", lambda n, label, image: _sample(n, label, image, "PNG"))
shards("with points in keys", lambda n, label, image: _sample(f"a.{n}", label, image))
shards("with labels before images", lambda n, label, image: _sample(n, label, image)[::-1])
shards("that was cut", lambda n, label, image: _sample(n, label, image), change=_cut)
shards(
    "with labels that its JSON contradicts",
    lambda n, label, image: [*_sample(n, label, image), (f"{n}.json", json.dumps({"label": 0}).encode())],
)
shards("of two", lambda n, label, image: _sample(n, label, image), parts=2)
shards(
    "of two, of which one is missing",
    lambda n, label, image: _sample(n, label, image),
    parts=2,
    change=lambda folder: (folder / "test-000001.tar").unlink(),
)


# -- tables of images ------------------------------------------------------------------------------------------------


def image_tables(
    name: str, columns: Callable[[list[bytes], list[int]], dict[str, object]], names: Sequence[str] = ()
) -> None:
    """An attempt with a Parquet table of images, as the datasets library writes it."""

    def run(folder: Path) -> Words:
        content = [(folder / "data" / image).read_bytes() for image, _, _ in rows()]
        table = pa.table(columns(content, _labels().tolist()))
        if names:
            features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": list(names)}}
            table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pq.write_table(table, folder / "test.parquet")
        return evaluating(data="test.parquet")

    ATTEMPTS[f"a table of images {name}"] = run


def _cells(content: list[bytes]) -> list[dict[str, object]]:
    return [{"bytes": image, "path": None} for image in content]


def _set(values: list[Any], place: int, value: object) -> list[Any]:
    return [*values[:place], value, *values[place + 1 :]]


image_tables("as it should be", lambda c, k: {"image": _cells(c), "label": k}, CLASSES)
image_tables("without names of classes", lambda c, k: {"image": _cells(c), "label": k})
image_tables("with classes in another order", lambda c, k: {"image": _cells(c), "label": k}, CLASSES[::-1])
image_tables("with a class too many", lambda c, k: {"image": _cells(c), "label": k}, (*CLASSES, "yellow"))
image_tables("with a null label", lambda c, k: {"image": _cells(c), "label": _set(k, 5, None)}, CLASSES)
image_tables("with a null image", lambda c, k: {"image": _set(_cells(c), 5, None), "label": k}, CLASSES)
image_tables("with an empty image", lambda c, k: {"image": _cells(_set(c, 5, b"")), "label": k}, CLASSES)
image_tables("with labels of -1", lambda c, k: {"image": _cells(c), "label": _set(k, 5, -1)}, CLASSES)
image_tables("with labels as names", lambda c, k: {"image": _cells(c), "label": [CLASSES[i] for i in k]})
image_tables("with labels as fractions", lambda c, k: {"image": _cells(c), "label": [float(i) for i in k]})
image_tables(
    "with named labels as fractions", lambda c, k: {"image": _cells(c), "label": [i + 0.5 for i in k]}, CLASSES
)
image_tables("with two columns of images", lambda c, k: {"image": _cells(c), "img": _cells(c[::-1]), "label": k})
image_tables("with two columns of labels", lambda c, k: {"image": _cells(c), "label": k, "labels": k[::-1]})
image_tables("with lists of labels", lambda c, k: {"image": _cells(c), "label": [[i] for i in k]}, CLASSES)


# -- functions -------------------------------------------------------------------------------------------------------


def functions(name: str, result: str, before: str = "") -> None:
    """An attempt with a function that returns ``result``, made of the right scores ``s`` of the images ``x``."""

    def run(folder: Path) -> Words:
        text = f"""import numpy as np
count = [0]
kept = np.zeros((256, 3), np.float32)
def make():
    def model(x):
        s = x.astype("float32").mean(axis=(1, 2))[:, ::-1] / 20
        count[0] += 1
        {before or "pass"}
        return {result}
    return model
"""
        (folder / "model.py").write_text(text)
        return evaluating()

    ATTEMPTS[f"a function that returns {name}"] = run


functions("probabilities", "np.exp(s) / np.exp(s).sum(1, keepdims=True)")
functions("logarithms of probabilities", "s - np.log(np.exp(s).sum(1, keepdims=True))")
functions("percentages", "100 * np.exp(s) / np.exp(s).sum(1, keepdims=True)")
functions("a sigmoid per class", "1 / (1 + np.exp(5 - s))")
functions("numbers of 64 bits", "s.astype('float64')")
functions("numbers of 16 bits", "s.astype('float16')")
functions("numbers of 16 bits that overflow", "(s * 1e6).astype('float16')")
functions("whole numbers", "(s * 1000).astype('int64')")
functions("bytes", "(s * 10).astype('uint8')")
functions("lists", "s.tolist()")
functions("a list of rows", "list(s)")
functions("a tuple of scores and features", "(s, s * 2)")
functions("a dictionary", "{'logits': s}")
functions("nothing", "None")
functions("the classes alone", "s.argmax(1)")
functions("the classes as a column", "s.argmax(1)[:, None]")
functions("one class or none of each", "np.eye(3)[s.argmax(1)]")
functions("scores on their side", "s.T")
functions("a class too few", "s[:, :2]")
functions("a class too many", "np.concatenate([s, s[:, :1]], 1)")
functions("an image too few", "s[:-1]")
functions("an image too many", "np.concatenate([s, s[:1]])")
functions("the mean over the images", "s.mean(0, keepdims=True)")
functions("a dimension too many", "s[:, :, None]")
functions("one image's scores as NaN", "np.where(np.arange(len(s))[:, None] == 0, np.nan, s)")
functions("ties between the best classes", "np.floor(s / 8)")
functions("sorted scores", "np.sort(s, 1)[:, ::-1]")
functions("distances", "-s")
functions("complex numbers", "s + 1j")
functions("texts", "s.astype(str)")
functions("masked scores", "np.ma.masked_array(s, s == s.max(1, keepdims=True))")
functions("scores of images that it inverts", "s", "x[...] = 255 - x")
functions("the same array each time", "kept[:len(s)]", "kept[:len(s)] = s")
functions("another answer every second time", "s if count[0] % 2 else -s")
functions("scores that drift", "s + count[0] * np.array([0, 0, 0.2])")
functions("rows in reverse in large batches", "s[::-1] if len(s) > 4 else s")
functions("scores relative to its batch", "s - s.mean(0)")


# -- formats of images -----------------------------------------------------------------------------------------------


def formats(name: str, change: Callable[[Image.Image], bytes]) -> None:
    """An attempt with one image in another format, under the old name."""

    def run(folder: Path) -> Words:
        path = folder / "data" / "blue" / "0.png"
        path.write_bytes(change(Image.open(path).convert("RGB")))
        return evaluating()

    ATTEMPTS[f"an image in {name}"] = run


def _encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def _cut_with_an_end(image: Image.Image) -> bytes:
    """A JPEG without its lower half, and with the mark of the end."""
    content = _encoded(image.resize((256, 256)), "JPEG", quality=95)
    return content[: len(content) // 2] + b"\xff\xd9"


def _progressive_without_scans(image: Image.Image) -> bytes:
    content = _encoded(image.resize((256, 256)), "JPEG", quality=95, progressive=True)
    third = [place for place in range(len(content)) if content[place : place + 2] == b"\xff\xda"][2]
    return content[:third] + b"\xff\xd9"


def _damaged(image: Image.Image, kind: str, place: float) -> bytes:
    content = bytearray(_encoded(image, kind))
    content[int(len(content) * place)] ^= 0x10
    return bytes(content)


formats("JPEG with four inks", lambda image: _encoded(image.convert("CMYK"), "JPEG", quality=95))
formats("JPEG without colour", lambda image: _encoded(image.convert("L"), "JPEG"))
formats("JPEG cut in the middle, with an end", _cut_with_an_end)
formats("JPEG with scans missing, with an end", _progressive_without_scans)
formats("JPEG with a damaged byte", lambda image: _damaged(image, "JPEG", 0.8))
formats("PNG with a damaged byte", lambda image: _damaged(image, "PNG", 0.6))
formats("PNG without its last byte", lambda image: _encoded(image, "PNG")[:-1])
formats("PNG without its last block", lambda image: _encoded(image, "PNG")[:-12])
formats("PNG of one bit", lambda image: _encoded(image.convert("1"), "PNG"))
formats("PNG of two channels", lambda image: _encoded(image.convert("LA"), "PNG"))
formats("BMP", lambda image: _encoded(image, "BMP"))
formats("BMP that is cut", lambda image: _encoded(image, "BMP")[:-1000])
formats("GIF that is cut", lambda image: _encoded(image, "GIF")[:-300])
formats("WebP", lambda image: _encoded(image, "WEBP", lossless=True))
formats("WebP that is cut", lambda image: _encoded(image, "WEBP", lossless=True)[:-200])
formats(
    "WebP of several pictures", lambda image: _encoded(image, "WEBP", save_all=True, append_images=[image.rotate(90)])
)
formats("TIFF", lambda image: _encoded(image, "TIFF"))
formats("TIFF of two pages", lambda image: _encoded(image, "TIFF", save_all=True, append_images=[image.rotate(90)]))
formats("TIFF that is cut", lambda image: _encoded(image, "TIFF")[:2000])
formats("TIFF of fractions", lambda image: _encoded(image.convert("F"), "TIFF"))
formats("PPM", lambda image: _encoded(image, "PPM"))
formats("PPM that is cut", lambda image: _encoded(image, "PPM")[:-500])
formats("ICO", lambda image: _encoded(image, "ICO", sizes=[(32, 32), (16, 16)]))
