"""Corrupted copies of a dataset on disk: an ImageNet-C tree, CIFAR-C arrays, WebDataset shards or Hugging Face tables.

In-memory evaluation needs none of this; it is for tools that read files, and for passing a test set on.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

import numpy as np
import PIL
from PIL import Image

from shiftbench._version import __version__
from shiftbench.arrays import Pixels
from shiftbench.datasets.arrays import ArrayDataset
from shiftbench.datasets.base import Dataset, Decoding
from shiftbench.datasets.catalogue import open_dataset
from shiftbench.datasets.geometry import Geometry, centre_crop, check_choice
from shiftbench.datasets.images import ALPHA_DROPPED, EXIF_IGNORED, bad_image, conversion_kinds
from shiftbench.datasets.stored import FileDataset
from shiftbench.datasets.subset import Subset
from shiftbench.datasets.subset import sample as random_sample
from shiftbench.datasets.webdataset import WebDataset
from shiftbench.errors import DatasetError, LabelError, ResultWarning, ShiftError, StoreError, argument, warn_user
from shiftbench.grouping import by_key, repeated
from shiftbench.io.paths import Location, is_object, local, place
from shiftbench.jobs.base import Executor, Shard
from shiftbench.jobs.threads import worker_count
from shiftbench.labels.guard import recognise_folders
from shiftbench.labels.space import LabelSpace
from shiftbench.outputs.encoding import Encoding, unique_names, without_suffix
from shiftbench.outputs.layouts import Arrays, Layout, Tree, Variants
from shiftbench.outputs.packed import SHARD_SIZE, Packed
from shiftbench.outputs.record import Content, OutputRecord, check_destination, check_recipe, plain
from shiftbench.outputs.write import Written, write
from shiftbench.shifts.corruptions.api import GENERATOR_VERSION, Corruption
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, corruptions
from shiftbench.shifts.corruptions.image_kinds import MIN_SIDE
from shiftbench.shifts.seeds import SEED_SCHEME

Format = Literal["tree", "arrays", "shards", "huggingface"]
FORMATS: tuple[Format, ...] = get_args(Format)
#: Names of sets of corruptions.
SETS = ("benchmark", "extra", "all", "registered", "noise", "blur", "weather", "digital")
RECORD = "shiftbench-corruptions.json"
_ABOUT = "corrupted copies of a dataset; written by `shiftbench corrupt`, which continues or extends it"
#: Parts of a corruption's description that belong to one severity.
_OF_SEVERITY = ("severity", "parameters_224")


@dataclass(frozen=True, kw_only=True)
class CorruptionsWritten(Written):
    """The outcome of ``write_corruptions``."""

    format: Format
    source: str
    images: int
    corruptions: tuple[str, ...]
    severities: tuple[float, ...]


def write_corruptions(
    source: str | Location | Dataset,
    destination: str | Location,
    *,
    names: str | Sequence[str] = "all",
    severities: Sequence[float] = (1, 2, 3, 4, 5),
    format: Format | None = None,
    size: int | None = None,
    resize: bool = True,
    lossless: bool = False,
    seed: int = 0,
    sample: int | None = None,
    shard: Shard | str | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    frost_textures: str | Path | None = None,
    style_network: str | Path | None = None,
    styles: str | Path | None = None,
    labels: LabelSpace | str | None = None,
    shard_size: int = SHARD_SIZE,
    exif: Literal["ignore", "apply"] | None = None,
    alpha: Literal["drop", "white", "black"] | None = None,
    verify: bool = False,
    progress: bool = False,
) -> CorruptionsWritten:
    """Write corrupted copies of ``source`` to ``destination``.

    The same call continues a run that was stopped at any moment. A call with more corruptions or severities extends
    the set, one with any other difference is refused. The files do not depend on workers, executor or shards.

    Args:
        source: The dataset, or where it is.
        destination: Folder to write.
        names: Corruptions, or names of several ("all", "benchmark", "extra", a group).
        severities: Severities, from 1 to 5.
        format: "tree" (ImageNet-C), "arrays" (CIFAR-C), "shards" (WebDataset) or "huggingface" (Parquet); default: a
            tree for image files, arrays for rows of an array.
        size: Images are first resized to it; default: 224 as for ImageNet-C, and not at all for arrays.
        resize: False leaves images as they are.
        lossless: Whether images are written as PNG.
        seed: Seed of all random numbers.
        sample: Only so many images of the source, chosen at random by the seed; default: all.
        shard: Only this part of the work, ``"3/8"``.
        workers: Number of workers; default: one per core.
        executor: Where the work runs; default: threads of this process.
        frost_textures: Folder with the original frost images, or ``"procedural"``.
        style_network: For ``style_transfer``: the weights of an AdaIN network.
        styles: For ``style_transfer``: folder of paintings; default: those that the network remembers.
        labels: Label space of the source, needed where classes are written as numbers and it does not name them.
        shard_size: Images per shard.
        exif: Whether the orientation in a file's EXIF data is applied. The copies have no such data. By default it is
            ignored, with a warning if there is one.
        alpha: Transparent images lose their alpha channel (``"drop"``) or are laid on a background. By default they
            lose it, with a warning if there are any.
        verify: Whether the files that exist are read and compared with the digests of what was written; those that
            differ are written again. Without it only their sizes are compared.
        progress: Whether a progress bar is shown.
    """
    options = {"frost_textures": frost_textures, "network": style_network, "styles": styles}
    shifts = chosen_shifts(names, severities, options)
    decoding = Decoding(exif or "ignore", alpha or "drop")
    check_choice("exif", decoding.exif, ("ignore", "apply"))
    check_choice("alpha", decoding.alpha, ("drop", "white", "black"))
    dataset = _open(source, labels, tree=format in (None, "tree"))
    if sample is not None:
        dataset = random_sample(dataset, min(sample, len(dataset)), seed=seed)
    base = _without_selections(dataset)
    layout = format or _natural_format(base)
    if layout not in FORMATS:
        raise StoreError(f"unknown format {layout!r}", expected=", ".join(FORMATS))
    target = place(destination)
    if is_object(target):
        raise StoreError("the destination is in an object store", found=target, hint="write to a folder, then copy it")
    target = local(target)
    check_destination(target, RECORD, _source_folder(source, base))
    _try_corruptions(shifts)
    size = _size_of_copies(size, resize, base)
    encoding = Encoding(lossless=lossless)
    copies = CorruptedCopies(dataset, shifts, preparation(size), encoding, seed, decoding)
    recipe = copies.recipe(layout, shard_size)
    record = OutputRecord(
        target,
        RECORD,
        _ABOUT,
        recipe,
        enter=partial(_enter, target, shifts),
        complete=partial(_complete, shifts),
    )
    done = write(
        record,
        partial(copies.layout, layout, target, shard_size, worker_count(workers)),
        what="corrupted images",
        shard=Shard.parse(shard),
        workers=workers,
        executor=executor,
        verify=verify,
        progress=progress,
    )
    unstated = {EXIF_IGNORED: exif is None, ALPHA_DROPPED: alpha is None}
    _warn_of_decoding(dataset.name, copies.converted, [kind for kind, is_unstated in unstated.items() if is_unstated])
    return CorruptionsWritten(
        **vars(done),
        format=layout,
        source=dataset.name,
        images=len(dataset) - len(done.skipped),
        corruptions=tuple(dict.fromkeys(shift.corruption for shift in shifts)),
        severities=tuple(sorted({float(shift.severity) for shift in shifts})),
    )


def _without_selections(dataset: Dataset) -> Dataset:
    """The dataset that parts of parts were taken from."""
    while isinstance(dataset, Subset):
        dataset = dataset.base
    return dataset


def _size_of_copies(size: int | None, resize: bool, base: Dataset) -> int | None:
    """The size that images are resized to first; None if they stay as they are."""
    if not resize and size is not None:
        raise ShiftError("size and resize=False exclude each other", found=f"size {size}")
    if resize and size is None and not isinstance(base, ArrayDataset):
        return 224
    return size


def _warn_of_decoding(dataset: str, converted: Mapping[str, str], kinds: Sequence[str]) -> None:
    """Warn if images were read with conversions of these kinds, which nobody stated: the copies do not show it."""
    counts: Counter[str] = Counter()
    for conversion in converted.values():
        counts.update(kind for kind in conversion_kinds(conversion) if kind in kinds)
    if not counts:
        return
    choices = {
        EXIF_IGNORED: f"{argument('exif', 'apply')} or ignore",
        ALPHA_DROPPED: f"{argument('alpha', 'white')}, black or drop",
    }
    kinds_met = [kind for kind in kinds if counts[kind]]
    images = ", ".join(f"{kind}: {counts[kind]}" for kind in kinds_met)
    stated = " and ".join(choices[kind] for kind in kinds_met)
    text = f"{dataset}: {images}. The copies are wrong if this was not meant: state {stated}"
    warn_user(ResultWarning(text, "unstated-decoding"))


def _natural_format(dataset: Dataset) -> Format:
    """The format in which a dataset is stored itself."""
    if isinstance(dataset, ArrayDataset):
        return "arrays"
    if isinstance(dataset, WebDataset):
        return "shards"
    return "tree"


def _source_folder(source: str | Location | Dataset, base: Dataset) -> Location | None:
    """The folder that holds the source's images, which must not be written into; None if there is no such folder."""
    if isinstance(source, Dataset):
        return base.root if isinstance(base, FileDataset) else None
    location = place(source)
    if location.is_dir():
        return location
    if isinstance(base, FileDataset):
        # The source is a table that lists its images; other files may be in the same folder.
        return base.root / posixpath.commonpath([PurePosixPath(path).parent for path in base.paths])
    return None


def _try_corruptions(shifts: Sequence[Corruption]) -> None:
    """Apply each corruption to a small image, so that one that cannot work fails before anything is written."""
    image = np.full((32, 32, 3), 128, dtype=np.uint8)
    by_corruption = {shift.corruption: shift for shift in shifts}
    for shift in by_corruption.values():
        shift(image, image_id="probe", seed=0)


def chosen_shifts(
    names: str | Sequence[str], severities: Sequence[float], options: Mapping[str, str | Path | None] | None = None
) -> list[Corruption]:
    """Every corruption at every severity, checked; names as on the command line, options for those that take them."""
    if isinstance(names, str):
        names = names.split(",")
    unique_names: dict[str, None] = {}
    for name in names:
        name = name.strip()
        if name in SETS:
            unique_names.update(dict.fromkeys(corruptions(name)))
        elif name:
            unique_names[name] = None
    if not unique_names:
        raise ShiftError("nothing to write", found="no corruption")
    if not severities:
        raise ShiftError("nothing to write", found="no severity")
    shifts = []
    for name in unique_names:
        accepted = CORRUPTIONS.get(name).options
        accepted_options = {}
        for key, value in (options or {}).items():
            if value is not None and key in accepted:
                accepted_options[key] = str(value)
        shifts += [Corruption(name, severity, accepted_options) for severity in sorted(set(severities))]
    return shifts


class CorruptedCopies(Variants):
    """Every image under every corruption at every severity."""

    def __init__(
        self,
        dataset: Dataset,
        shifts: Sequence[Corruption],
        prepare: Preparation,
        encoding: Encoding,
        seed: int,
        decoding: Decoding,
    ) -> None:
        self.source = self._dataset = dataset.decoded_as(decoding)
        self._decoding = decoding
        self.names = [f"{shift.corruption}/{shift.severity:g}" for shift in shifts]
        self.encoding = encoding
        self._shifts = shifts
        self._prepare = prepare
        self._seed = seed
        #: By id of an image that this process has read: the conversion that it needed.
        self.converted: dict[str, str] = {}

    def read(self, index: int) -> Pixels:
        image = self._dataset.read(index)
        image_id = self._dataset.ids[index]
        if image.converted:
            self.converted[image_id] = image.converted
        return self._prepare(image.pixels, image_id)

    def make(self, variant: int, pixels: Pixels, image_id: str) -> Pixels:
        return self._shifts[variant](pixels, image_id=image_id, seed=self._seed)

    def make_batch(self, variant: int, images: Pixels, ids: Sequence[str]) -> Pixels:
        return self._shifts[variant].batch(images, image_ids=ids, seed=self._seed)

    def layout(self, name: Format, folder: Path, shard_size: int, threads: int) -> Layout:
        if name in ("shards", "huggingface"):
            classes = self._dataset.space.keys if name == "huggingface" else None
            return Packed(self, folder, shard_keys(self._dataset), shard_size, classes)
        if name == "tree":
            return self._tree(folder)
        groups = by_key((shift.corruption, variant) for variant, shift in enumerate(self._shifts))
        return Arrays(self, folder, groups, isinstance(self._dataset, ArrayDataset), threads)

    def _tree(self, folder: Path) -> Tree:
        """One folder per corruption and severity, each with the source's class folders."""
        files = []
        for file in tree_files(self._dataset, self.encoding):
            files.append([f"{variant}/{file}" for variant in self.names])
        folders = [f"{variant}/" for variant in self.names]
        space = self._dataset.space
        if space.name == "folders":
            # Only folders define the classes, so that they are made even if they stay empty.
            for variant in self.names:
                folders += [f"{variant}/{_component(key)}" for key in space.keys]
        return Tree(self, folder, files, folders)

    def recipe(self, layout: Format, shard_size: int) -> dict[str, Any]:
        dataset = self._dataset
        encoding = {"format": "npy uint8"} if layout == "arrays" else self.encoding.describe()
        recipe: dict[str, Any] = {
            "layout": layout,
            "seed": self._seed,
            "generator": GENERATOR_VERSION,
            "seed_scheme": SEED_SCHEME,
            "geometry": self._prepare.describe(),
            "encoding": encoding,
            "source": {
                "name": dataset.name,
                "images": len(dataset),
                "labels": dataset.space.name,
                "fingerprint": dataset.fingerprint,
            },
        }
        if self._decoding != Decoding():
            # The default is left out, so that folders from before it could be chosen can be extended.
            recipe["decoding"] = asdict(self._decoding)
        if layout == "arrays":  # an array holds all its severities
            recipe["severities"] = sorted({float(shift.severity) for shift in self._shifts})
        if layout in ("shards", "huggingface"):
            recipe["shard_size"] = shard_size
        return recipe


def _enter(folder: Path, shifts: Sequence[Corruption], content: Content) -> None:
    """Add corruptions to the record of a folder, as unfinished.

    A folder may get further corruptions and severities later. A corruption that is recorded must be made in the same
    way again, whatever its severity; StoreError if it is not.
    """
    entries = content.setdefault("corruptions", {})
    unfinished = set(content.get("unfinished", ()))
    for shift in shifts:
        description = plain(shift.describe())
        common = {key: value for key, value in description.items() if key not in _OF_SEVERITY}
        entry = entries.setdefault(shift.corruption, {**common, "severities": {}})
        recorded_common = {key: value for key, value in entry.items() if key != "severities"}
        check_recipe(folder, {shift.corruption: recorded_common}, {shift.corruption: common})
        entry["severities"][f"{shift.severity:g}"] = {"parameters_224": description.get("parameters_224")}
        unfinished.add(shift.name)
    content["unfinished"] = sorted(unfinished)
    # Versions are recorded but not compared, because the pixels follow the generator's version.
    software = {"shiftbench": __version__, "pillow": PIL.__version__}
    recorded = content.setdefault("software", [])
    if software not in recorded:
        content["software"] = [*recorded, software]


def _complete(shifts: Sequence[Corruption], content: Content) -> None:
    done = {shift.name for shift in shifts}
    content["unfinished"] = [name for name in content["unfinished"] if name not in done]


def _open(source: str | Location | Dataset, labels: LabelSpace | str | None, *, tree: bool) -> Dataset:
    """Open the source. A tree keeps class folders by name, so that the label space does not matter for it."""
    if isinstance(source, Dataset):
        return source
    try:
        return open_dataset(source, space=labels)
    except LabelError:
        if labels is not None or not tree or not place(source).is_dir():
            raise
        return open_dataset(source, space="folders")


def tree_files(dataset: Dataset, encoding: Encoding) -> list[str]:
    """``class folder/file`` of every image, unique also where a file system ignores case.

    A source of class folders keeps its folders and file names; other sources get the classes' keys as folders and
    their ids as file names.
    """
    if (dataset.labels < 0).any():
        lost = int((dataset.labels < 0).sum())
        raise DatasetError(
            f"{lost} images of {dataset.name!r} have no label or several, hence no class folder",
            hint=f"write shards: {argument('format', 'shards')}",
        )
    paths = dataset.paths if isinstance(dataset, FileDataset) else dataset.ids
    labels = dataset.labels.tolist()
    if _have_class_folders(paths, labels, dataset.space):
        return unique_names(paths, encoding.renamed)
    keys = dataset.space.keys
    names = []
    for image_id, label in zip(dataset.ids, labels, strict=True):
        names.append(f"{_component(keys[label])}/{_component(image_id)}")
    return unique_names(names, encoding.renamed)


def _have_class_folders(paths: Sequence[str], labels: Sequence[int], space: LabelSpace) -> bool:
    """Whether the first part of every path names its class, and no path leads out of its folder or is hidden."""
    for path in paths:
        components = path.split("/")
        if len(components) < 2 or any(not name or name.startswith(".") for name in components):
            return False
    folders = [path.split("/", 1)[0] for path in paths]
    try:
        _, index = recognise_folders(folders, space)
    except LabelError:
        return False
    return [index[folder] for folder in folders] == list(labels)


def shard_keys(dataset: Dataset) -> list[str]:
    """WebDataset keys: the ids without suffix, and without dots in the file name, where a key would end.

    Ids that would share a key get their number as well.
    """
    keys = []
    for image_id in dataset.ids:
        folder, slash, file = without_suffix(image_id).rpartition("/")
        keys.append(f"{folder}{slash}{file.replace('.', '_') or '_'}")
    shared_keys = set(repeated(keys))
    for i, key in enumerate(keys):
        if key in shared_keys:
            keys[i] = f"{key}__{i:08d}"
    return keys


def _component(text: str) -> str:
    """Any text as one visible component of a path."""
    flat = text.replace("/", "_").replace("\0", "_")
    if not flat or flat.startswith("."):
        return f"_{flat}"
    return flat


# What is done to a source image before it is corrupted.


@dataclass(frozen=True)
class CentralFraction:
    """The middle ``fraction`` of both sides, then both sides to ``size``: how ImageNet-C-299 was made.

    >>> CentralFraction(299)(np.zeros((300, 400, 3), np.uint8)).shape
    (299, 299, 3)
    """

    size: int
    fraction: float = 0.875

    def __call__(self, pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        middle = max(1, int(height * self.fraction)), max(1, int(width * self.fraction))
        image = Image.fromarray(centre_crop(pixels, middle))
        return np.asarray(image.resize((self.size, self.size), Image.Resampling.BILINEAR))


@dataclass(frozen=True)
class Preparation:
    """Source pixels to the pixels that are corrupted; an image that can't be used raises BadImageError."""

    geometry: Geometry | CentralFraction | None

    def __call__(self, pixels: Pixels, image_id: str) -> Pixels:
        height, width = pixels.shape[:2]
        result = pixels
        if self.geometry is not None:
            result = self.geometry(pixels)
        if min(result.shape[:2]) < MIN_SIDE:
            raise bad_image(image_id, f"{width} x {height} pixels are too small to corrupt (at least {MIN_SIDE})")
        return np.ascontiguousarray(result)

    def describe(self) -> dict[str, Any]:
        if self.geometry is None:
            return {"kind": "as it is"}
        if isinstance(self.geometry, CentralFraction):
            return {"kind": "central fraction", **asdict(self.geometry)}
        return {"kind": "resize and crop", **plain(self.geometry.describe())}


def preparation(size: int | None) -> Preparation:
    """The published preparation of each size; None keeps images as they are.

    * 224: the short side to 256, the middle 224 (ImageNet-C);
    * 299: the middle 87.5 % of both sides, both to 299 (ImageNet-C-299);
    * 64: both sides to 64, whatever the aspect (ImageNet-64-C);
    * any other S: as 224, that is the short side to 8/7 S, the middle S.
    """
    if size is None:
        return Preparation(None)
    if size < MIN_SIDE:
        raise ShiftError("invalid size", found=size, expected=f"at least {MIN_SIDE} pixels")
    if size == 299:
        return Preparation(CentralFraction(size))
    if size == 64:
        return Preparation(Geometry(resize=size, crop=None, resize_rule="exact"))
    return Preparation(Geometry(resize=round(size * 8 / 7), crop=size))
