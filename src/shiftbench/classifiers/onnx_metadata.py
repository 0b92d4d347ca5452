"""What the metadata of an ONNX file says about the preprocessing, and how it gets there.

Two vocabularies are read. The key ``shiftbench`` holds what a sidecar holds, as JSON. The keys ``Image.*`` are those of
the ONNX specification (MetadataProps.md): the order of the channels and the range of the pixels.

An entry is written at the end of the file, as Protocol Buffers allow. The weights before it are not touched, and the
hash of the model leaves it out: a model that is described keeps its id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.description import Description, read_description
from shiftbench.classifiers.onnx_graph import OUR_KEY, described_from, is_described, metadata_entry
from shiftbench.classifiers.options import existing_file, sidecar_content
from shiftbench.errors import ClassifierError, argument, raising
from shiftbench.io.atomic import write_bytes

#: By the specification's names: the order of the channels.
_PIXEL_FORMATS = {"Gray8": "grey", "Rgb8": "rgb", "Bgr8": "bgr"}
#: By the specification's names: mean, standard deviation and scale that lead to this range.
_PIXEL_RANGES = {
    "NominalRange_0_255": (0.0, 1.0, "1"),
    "Normalized_0_1": (0.0, 1.0, "1/255"),
    "Normalized_1_1": (0.5, 0.5, "1/255"),
}


def own_entry(metadata: Mapping[str, str], name: str) -> dict[str, object]:
    """The content of the key ``shiftbench``; empty if the file has none. Raises ClassifierError if it is damaged."""
    text = metadata.get(OUR_KEY, "")
    if not text:
        return {}
    with raising(ClassifierError, f"the metadata {OUR_KEY!r} of {name} is not JSON", ValueError):
        content = json.loads(text)
    if not isinstance(content, dict):
        raise ClassifierError(f"the metadata {OUR_KEY!r} of {name} describes no model", found=type(content).__name__)
    return content


def description_in(metadata: Mapping[str, str], name: str, *, pixels: bool) -> Description:
    """The preprocessing that the metadata of a file states.

    Args:
        metadata: The file's metadata, by key.
        name: The name of the model, for messages.
        pixels: Whether the graph takes uint8 pixels: their range is then no question.
    """
    stated: dict[str, object] = {}
    colour = _PIXEL_FORMATS.get(metadata.get("Image.BitmapPixelFormat", ""))
    if colour is not None:
        stated["colour"] = colour
    pixel_range = _PIXEL_RANGES.get(metadata.get("Image.NominalPixelRange", ""))
    if pixel_range is not None and not pixels:
        stated["mean"], stated["std"], stated["scale"] = pixel_range
    content = own_entry(metadata, name)
    for key in ("name", "labels"):
        content.pop(key, None)
    return read_description({**stated, **content}, f"the metadata of {name}")


def write_metadata(model: str, classifier: Classifier, force: bool = False) -> Path:
    """Write down what is known about a model in its ONNX file. Assumptions are written as such.

    Args:
        model: The file.
        classifier: The model, loaded from it.
        force: Replace what was written there before.

    Raises:
        ClassifierError: It is no ONNX file, or is described already.
    """
    path = existing_file(model)
    if path.suffix.lower() != ".onnx":
        raise ClassifierError(f"{path.name} has no metadata to write to", expected="an ONNX file")
    if is_described(path) and not force:
        raise ClassifierError(f"{path.name} is described already", hint=f"replace it with {argument('force', True)}")
    data = path.read_bytes()[: described_from(path)]
    content = json.dumps(sidecar_content(path, classifier), sort_keys=True)
    write_bytes(path, data + metadata_entry(OUR_KEY, content))
    return path
