"""Datasets of torch, both ways: theirs as data of an evaluation, and the images of a setting for their loaders."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from shiftbench.classifiers import Classifier, Preprocessing
from shiftbench.datasets import Dataset, DecodedImage
from shiftbench.errors import BadImageError, DatasetError, SettingError
from shiftbench.extend.datasets import ContentDataset, decode, digest_bytes, find_label_space, recognise_names
from shiftbench.extend.settings import Data, data_name, of_split, setting_geometry
from shiftbench.extend.types import Labels, Pixels
from shiftbench.labels import LabelSpace
from shiftbench.settings import Setting, SuiteOptions, build_suite, open_data

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image

#: How far a float may lie from a multiple of 1/255, in units of 1/255.
_TOLERANCE = 0.01
#: Keys of items that are mappings, as in the datasets library.
_IMAGE_KEYS = ("image", "img", "pixel_values")
_LABEL_KEYS = ("label", "labels", "fine_label")
#: Modes of Pillow that PNG can store without loss.
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
_CHANNELS = (1, 3)


class SizedItems(Protocol):
    """A map-style dataset: of torchvision, of the datasets library, or one's own."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> object: ...


def from_torch_dataset(
    dataset: SizedItems,
    *,
    labels: Sequence[str] | LabelSpace | str | None = None,
    name: str | None = None,
) -> Dataset:
    """A map-style dataset, such as those of torchvision, as data of an evaluation.

    Items are ``(image, label)`` or mappings with ``image`` and ``label``. Images are PIL images, uint8 arrays, or
    tensors as ``ToTensor`` makes them; a dataset that normalises or augments its images is refused, because the model's
    preprocessing does the one and a shift the other. All items are read once, for their labels and a fingerprint.

    Args:
        dataset: The dataset; it must give the same image each time.
        labels: The names of the classes in the order of their numbers, or a label space; default: what the dataset
            names as ``classes``, or declares in ``features``; else the numbers.
        name: The name that tables and provenance show; default: the name of the dataset's class.

    Returns:
        The dataset, for ``evaluate(..., data=...)``.

    Raises:
        DatasetError: The items are not images with class numbers.

    Example:
        >>> from PIL import Image
        >>> class Squares:
        ...     classes = ["dark", "light"]
        ...     def __len__(self):
        ...         return 2
        ...     def __getitem__(self, index):
        ...         return Image.new("RGB", (8, 8), (200 * index,) * 3), index
        >>> squares = from_torch_dataset(Squares())
        >>> squares[1].label_name, squares[1].pixels.max()
        ('light', np.uint8(200))
    """
    return TorchStyleDataset(dataset, labels, name or type(dataset).__name__.lower())


class TorchStyleDataset(ContentDataset):
    """The items of a map-style dataset."""

    def __init__(self, source: SizedItems, labels: Sequence[str] | LabelSpace | str | None, name: str) -> None:
        self.name = name
        self.source = source
        self.ids = _item_ids(source)
        numbers: list[int] = []
        self._digests: list[bytes] = []
        for index in range(len(source)):
            image, label = _image_and_label(source[index], self.ids[index])
            numbers.append(label)
            self._digests.append(self._digest(image, index))
        self.space, self.labels = _numbered_classes(numbers, labels, source, name)

    def digests(self, indices: Sequence[int]) -> list[bytes]:
        return [self._digests[index] for index in indices]

    def read(self, index: int) -> DecodedImage:
        image, _ = _image_and_label(self.source[index], self.ids[index])
        decoded = _pixels(image, self.ids[index])
        if digest_bytes(decoded.pixels.tobytes()) != self._digests[index]:
            raise DatasetError(
                f"{self.name!r} gives another image each time it is read",
                found=f"{self.ids[index]} differs from what was read first",
                expected="the same image each time",
                hint="open the dataset without a random transform",
            )
        return decoded

    def _digest(self, image: object, index: int) -> bytes:
        """The digest of an image; that of nothing if it cannot be used, which a run will report."""
        try:
            return digest_bytes(_pixels(image, self.ids[index]).pixels.tobytes())
        except BadImageError:
            return digest_bytes(b"")


def _item_ids(source: object) -> list[str]:
    """The names of the items: their paths where torchvision lists them, else their numbers."""
    count = len(source)  # type: ignore[arg-type]
    module = type(source).__module__
    if module.startswith("torch.utils.data") and hasattr(source, "indices") and hasattr(source, "dataset"):
        names = _item_ids(source.dataset)
        ids = [names[index] for index in source.indices]
        if len(set(ids)) == len(ids):
            return ids
    samples = getattr(source, "samples", None)
    root = getattr(source, "root", None)
    if module.startswith("torchvision.") and isinstance(samples, list) and root is not None and len(samples) == count:
        return [Path(path).relative_to(root).as_posix() for path, _ in samples]
    digits = max(5, len(str(count - 1)))
    return [f"{index:0{digits}d}" for index in range(count)]


def _image_and_label(item: object, image_id: str) -> tuple[object, int]:
    """The two parts of an item; DatasetError if it has others."""
    parts: tuple[object, object] | None = None
    if isinstance(item, tuple | list) and len(item) >= 2:
        parts = (item[0], item[1])
    elif isinstance(item, Mapping):
        image_key = next((key for key in _IMAGE_KEYS if key in item), None)
        label_key = next((key for key in _LABEL_KEYS if key in item), None)
        if image_key is not None and label_key is not None:
            parts = (item[image_key], item[label_key])
    if parts is None:
        raise DatasetError(
            f"the item {image_id} is not an image with its label",
            found=f"{type(item).__name__} {list(item)}" if isinstance(item, Mapping) else type(item).__name__,
            expected="(image, label), or a mapping with image and label",
        )
    return parts[0], _class_number(parts[1], image_id)


def _class_number(label: object, image_id: str) -> int:
    if label is None:
        return -1
    try:
        value = np.asarray(label)
    except (TypeError, ValueError):
        value = np.asarray("not a number")
    if value.size != 1 or value.dtype.kind not in "iu":
        raise DatasetError(
            f"the label of {image_id} is not the number of a class",
            found=f"{type(label).__name__} {label!r}"[:80],
            expected="an integer from 0, or -1 for no label",
        )
    return int(value.reshape(()))


def _numbered_classes(
    numbers: Sequence[int], labels: Sequence[str] | LabelSpace | str | None, source: object, name: str
) -> tuple[LabelSpace, Labels]:
    """The label space, and the labels as its indices."""
    space = find_label_space(labels)
    if isinstance(space, str):
        raise DatasetError("a torch dataset has no class folders", found=space, expected="the names of its classes")
    index = None
    if space is None:
        names = _class_names(source)
        if names is None:
            names = [str(number) for number in range(max(numbers, default=0) + 1)]
        space, index = recognise_names(names, own=name)
    count = len(space) if index is None else len(index)
    lowest = min(numbers, default=0)
    highest = max(numbers, default=0)
    if lowest < -1 or highest >= count:
        raise DatasetError(
            f"labels of {name!r} lie outside its classes",
            found=f"{lowest} to {highest}",
            expected=f"0 to {count - 1}, or -1 for no label",
        )
    table = np.arange(count) if index is None else np.asarray(index)
    table = np.append(table, -1)  # the last entry is for -1, no label
    return space, table[np.asarray(numbers, dtype=np.int64)].astype(np.int32)


def _class_names(source: object) -> list[str] | None:
    """The names of the classes that a dataset, or the one that it is a subset of, declares."""
    features = getattr(source, "features", None)
    if isinstance(features, Mapping):
        for key in _LABEL_KEYS:
            names = getattr(features.get(key), "names", None)
            if names:
                return [str(name) for name in names]
    classes = getattr(source, "classes", None)
    if isinstance(classes, list | tuple) and classes:
        # ImageNet of torchvision has a tuple of synonyms for each class.
        return [str(entry[0]) if isinstance(entry, tuple | list) else str(entry) for entry in classes]
    inner = getattr(source, "dataset", None)
    if inner is not None:
        return _class_names(inner)
    return None


def _pixels(image: object, image_id: str) -> DecodedImage:
    """An image as RGB pixels; BadImageError if it cannot be used, DatasetError if no image of the kind can."""
    if hasattr(image, "convert") and hasattr(image, "mode"):
        return _pixels_of_pillow(cast("Image", image), image_id)
    if hasattr(image, "detach"):
        array = cast("torch.Tensor", image).detach().cpu().numpy()
        return DecodedImage(_pixels_of_array(array, image_id, channels_first=True))
    if isinstance(image, np.ndarray):
        return DecodedImage(_pixels_of_array(image, image_id, channels_first=False))
    raise DatasetError(
        f"{image_id} is not an image", found=type(image).__name__, expected="a PIL image, an array or a tensor"
    )


def _pixels_of_pillow(image: Image, image_id: str) -> DecodedImage:
    if image.mode == "RGB":
        return DecodedImage(np.array(image))
    # Other modes are converted as those of image files are, with the same remarks.
    encoded = io.BytesIO()
    image.save(encoded, "PNG" if image.mode in _PNG_MODES else "TIFF")
    return decode(encoded.getvalue(), image_id)


def _pixels_of_array(array: NDArray[np.generic], image_id: str, channels_first: bool) -> Pixels:
    if array.ndim == 3 and channels_first and array.shape[0] in _CHANNELS:
        array = array.transpose(1, 2, 0)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in _CHANNELS:
        raise DatasetError(
            f"{image_id} is not an image",
            found=f"shape {array.shape}",
            expected="(C, H, W) of a tensor or (H, W, C) of an array, C = 3 or 1",
        )
    if array.dtype != np.uint8:
        array = _levels(array, image_id)
    if array.shape[2] == 1:
        array = np.repeat(array, 3, axis=2)
    return np.array(array, dtype=np.uint8, order="C")


def _levels(array: NDArray[np.generic], image_id: str) -> Pixels:
    """Floats that ``ToTensor`` made of 8 bits, as these bits; DatasetError for other floats."""
    levels = np.asarray(array, dtype=np.float64) * 255
    rounded = np.rint(levels)
    is_integer = array.dtype.kind != "f"
    if is_integer or rounded.min() < 0 or rounded.max() > 255 or np.abs(levels - rounded).max() > _TOLERANCE:
        raise DatasetError(
            f"{image_id} has been changed by a transform",
            found=f"{array.dtype} from {levels.min() / 255:.3g} to {levels.max() / 255:.3g}",
            expected="uint8, or floats that are multiples of 1/255, as ToTensor makes them",
            hint="open the dataset without a transform; the model's preprocessing resizes and normalises",
        )
    return rounded.astype(np.uint8)


def torch_dataset(
    setting: str | Setting,
    data: Data = None,
    *,
    suite: str = "corruptions",
    preprocessing: Preprocessing | Classifier | None = None,
    labels: Sequence[str] | LabelSpace | str | None = None,
    split: str | None = None,
    seed: int = 0,
    transform: Callable[[Image], object] | None = None,
) -> SettingDataset:
    """The images of a setting for a ``DataLoader``: the very pixels that ``evaluate`` gives a model.

    Args:
        setting: A setting, or its name in the suite, such as ``"photos-c.fog.3"`` for the folder ``photos``.
        data: A folder, file or dataset, or a mapping from role to one, as in ``evaluate``.
        suite: The suite that has the setting.
        preprocessing: A model's preprocessing, or a loaded model that has one. Images are resized and cropped before
            the shift, as in an evaluation, and normalised after it. None: images keep their size, and are uint8.
        labels: Classes of the data, as in ``evaluate``.
        split: The split of the data, if it has several.
        seed: Seed of the shift, as in ``evaluate``.
        transform: A function of the shifted PIL image, in place of the normalisation; torchvision's transforms are.

    Returns:
        A map-style dataset of ``(image, label)``: float32 or uint8 tensors (C, H, W), or what ``transform`` returns; a
        label is an index into ``space``, or -1.

    Raises:
        SettingError: The suite has no such setting, or its images cannot be made without a model.

    Example:
        >>> from torch.utils.data import DataLoader  # doctest: +SKIP
        >>> foggy = torch_dataset("photos-c.fog.3", "photos", preprocessing=classifier)  # doctest: +SKIP
        >>> for images, targets in DataLoader(foggy, batch_size=64, num_workers=4):  # doctest: +SKIP
        ...     scores = network(images)
    """
    data = of_split(data, split)
    if isinstance(setting, str):
        setting = build_suite(suite, SuiteOptions(data_name=data_name(data)))[setting]
    if not setting.shift.per_image or setting.uncropped or setting.parts:
        raise SettingError(
            f"the images of {setting.name!r} cannot be made one by one",
            found=f"the shift {setting.shift.name}",
            expected="a shift that changes each image by itself, such as a corruption",
        )
    alone = build_suite([replace(setting, optional=False)])
    datasets, _ = open_data(alone, data, space=find_label_space(labels))
    if isinstance(preprocessing, Classifier):
        preprocessing = preprocessing.preprocessing
    return SettingDataset(setting, datasets[setting.dataset], preprocessing, seed, transform)


class SettingDataset:
    """The shifted images of a setting, one by one; picklable, so that a ``DataLoader`` can have workers.

    Attributes:
        setting: The setting.
        dataset: Its clean images.
        space: The label space of the labels.
        classes: The names of the classes, in the order of the labels.
        ids: The names of the images.
        targets: The labels.
        seed: Seed of the shift.
        preprocessing: Of a model; None if the images are as they are.

    Args:
        setting: The setting.
        dataset: Its clean images.
        preprocessing: Of a model; None leaves the images as they are.
        seed: Seed of the shift.
        transform: A function of the shifted PIL image.
    """

    def __init__(
        self,
        setting: Setting,
        dataset: Dataset,
        preprocessing: Preprocessing | None,
        seed: int,
        transform: Callable[[Image], object] | None,
    ) -> None:
        self.setting = setting
        self.space = dataset.space
        self.classes = list(dataset.space.names)
        self.ids = list(dataset.ids)
        self.targets: list[int] = dataset.labels.tolist()
        self.preprocessing = preprocessing
        self._geometry = None
        if preprocessing is not None:
            self._geometry = setting_geometry(preprocessing.geometry, setting)
            dataset = dataset.decoded_as(self._geometry.decoding)
        self.dataset = dataset
        self.seed = seed
        self._transform = transform

    def __len__(self) -> int:
        return len(self.ids)

    def pixels(self, index: int) -> Pixels:
        """uint8 (H, W, 3): the image after the geometry and the shift.

        Args:
            index: Its place in ``ids``.
        """
        image = self.dataset.read(index).pixels
        if self._geometry is not None:
            image = self._geometry(image)
        return self.setting.shift(image, image_id=self.ids[index], seed=self.seed)

    def __getitem__(self, index: int) -> tuple[torch.Tensor | object, int]:
        import torch

        index = range(len(self))[index]
        pixels = self.pixels(index)
        label = self.targets[index]
        if self._transform is not None:
            from PIL import Image

            return self._transform(Image.fromarray(pixels)), label
        if self.preprocessing is None:
            return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))), label
        return torch.from_numpy(self.preprocessing.normalisation(pixels[None])[0]), label

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.setting.name!r}: {len(self)} images, {len(self.classes)} classes>"
