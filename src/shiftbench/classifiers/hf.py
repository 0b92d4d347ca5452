"""``hf:FOLDER``: an image classifier that ``save_pretrained`` of transformers wrote."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.configs import from_hf
from shiftbench.classifiers.options import Options
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.classifiers.torch_ import from_module
from shiftbench.classifiers.torchvision_ import import_torchvision
from shiftbench.errors import ClassifierError, argument, required
from shiftbench.labels import label_space
from shiftbench.labels.space import LabelSpace


def load_hf(target: str, options: Options) -> Classifier:
    """The model, its image processor as a preprocessing, and its ``id2label`` as a label space."""
    folder = Path(target)
    if not (folder / "config.json").is_file():
        raise ClassifierError(
            f"{target} is not a folder of a transformers model",
            found="no config.json" if folder.is_dir() else "no such folder",
            hint="download it first, then give its folder: hf:PATH",
        )
    module = _load_model(folder, options)
    found = _preprocessing(folder)
    known = options if found is None else options.over(found, "file")
    space = _named_classes(module.config.id2label, folder.resolve().name)
    if known.labels is None and space is not None:
        known = replace(known, labels=space, sources={**known.sources, "labels": "file"})
    return from_module(module, known, name=folder.resolve().name)


def _load_model(folder: Path, options: Options) -> Any:
    import_torchvision("hf")
    transformers = required("transformers", "hf", "a model of transformers")
    from shiftbench.classifiers.weights import load_weights

    if not options.trust:
        # transformers may load .bin files by pickle; ask ourselves first whether they hold only tensors.
        for file in [] if list(folder.glob("*.safetensors")) else sorted(folder.glob("*.bin")):
            load_weights(file)
    transformers.utils.logging.disable_progress_bar()  # ours is the only one
    try:
        return transformers.AutoModelForImageClassification.from_pretrained(
            folder, local_files_only=True, trust_remote_code=options.trust
        )
    except (OSError, ValueError) as error:
        raise ClassifierError(
            f"transformers failed to load {folder.name}",
            found=str(error).strip().splitlines()[0][:300],
            hint=f"models with code of their own need {argument('trust', True)}",
        ) from error


def _preprocessing(folder: Path) -> Preprocessing | None:
    """From the processor's complete settings, if there is one; files of early versions leave defaults out."""
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        return None
    written: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    try:
        from transformers import AutoImageProcessor

        complete = AutoImageProcessor.from_pretrained(folder, local_files_only=True).to_dict()  # type: ignore[no-untyped-call]
    except (OSError, ValueError, ImportError):
        complete = {}
    # What is not set is left out on both sides, so that it takes the default and does not hide it.
    return from_hf({key: value for key, value in {**complete, **written}.items() if value is not None})


def _named_classes(id2label: dict[Any, str], name: str) -> LabelSpace | None:
    """Placeholders such as LABEL_7 name nothing; a thousand of them are ImageNet's."""
    placeholders = all(str(label) == f"LABEL_{index}" for index, label in id2label.items())
    return None if placeholders and len(id2label) != 1000 else space_of(id2label, name)


def space_of(id2label: dict[Any, str], name: str) -> LabelSpace:
    """ImageNet's own space where the thousand names are its names, else one of the model's own.

    >>> space_of({0: "cat", 1: "dog"}, "pets").keys
    ('cat', 'dog')
    """
    names = [str(id2label[index]) for index in sorted(id2label, key=int)]
    if len(names) == 1000 and _are_imagenet(names):
        return label_space("imagenet-1k")
    counts = Counter(names)
    keys = tuple(key if counts[key] == 1 else f"{key} ({index})" for index, key in enumerate(names))
    return LabelSpace(name, keys, tuple(names))


def _are_imagenet(names: list[str]) -> bool:
    """Some lists differ in a few spellings; placeholders such as LABEL_7 mean that nobody said otherwise."""
    if all(name == f"LABEL_{index}" for index, name in enumerate(names)):
        return True
    imagenet = label_space("imagenet-1k")
    first = [name.split(",")[0].strip().lower() for name in names]
    return sum(a == b.split(",")[0].strip().lower() for a, b in zip(first, imagenet.names, strict=True)) >= 900
