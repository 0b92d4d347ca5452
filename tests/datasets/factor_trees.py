"""Pictures of several real photographs in DeepFashion2's layout, with factors that are really there.

A picture is two by two places; in each may lie one photograph of CIFAR-10. Photographs of the k-th class of CIFAR-10
stand for clothes of category k + 1: the names are other people's, the truth of the labels is not. An item's factors
are done to its photograph: it is made smaller or larger, covered, turned, or zoomed into.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbench.datasets.catalogue import open_named

Pixels = NDArray[np.uint8]
SIDE = 32
BASE = {"scale": 2, "occlusion": 2, "viewpoint": 2, "zoom_in": 1}
OTHERS = [(factor, value) for factor, own in BASE.items() for value in (1, 2, 3) if value != own]

#: A classifier for such pictures: a real network looks at each of the four places, and the surest one counts.
LOOKS_AT_PLACES = """
import numpy as np
import shiftbench as sb

def make():
    network = sb.load_classifier("demo:resnet8-cifar10", threads=1)

    def scores(images):
        places = [images[:, y:y + 32, x:x + 32] for y in (0, 32) for x in (0, 32)]
        best = np.max([network.scores(np.ascontiguousarray(place)) for place in places], axis=0)
        return np.concatenate([best, np.full((len(best), 3), -30, np.float32)], axis=1)

    return sb.load_classifier(
        scores, name="places", labels="deepfashion2-13", preprocessing=sb.Preprocessing(sb.Geometry(None, None))
    )
"""


def deepfashion2_tree(root: Path, *, train: int = 60, validation: int = 160, seed: int = 0) -> Path:
    """``root/{train,validation}/{annos,image}``, as DeepFashion2 is unpacked."""
    rng = np.random.default_rng(seed)
    photographs = open_named("cifar-10-test")
    for part, count in (("train", train), ("validation", validation)):
        for folder in ("annos", "image"):
            (root / part / folder).mkdir(parents=True)
        for number in range(1, count + 1):
            pixels, items = _picture(rng, photographs)
            value = {"source": "shop", "pair_id": number, **{f"item{i}": item for i, item in enumerate(items, start=1)}}
            (root / part / "annos" / f"{number:06d}.json").write_text(json.dumps(value))
            Image.fromarray(pixels).save(root / part / "image" / f"{number:06d}.jpg", quality=95)
    return root


def _picture(rng: np.random.Generator, photographs: Any) -> tuple[Pixels, list[dict[str, int]]]:
    canvas = np.full((2 * SIDE, 2 * SIDE, 3), 128, np.uint8)
    items = []
    for place in rng.permutation(4)[: rng.integers(1, 4)]:
        index = int(rng.integers(len(photographs)))
        factors = dict(BASE)
        if rng.random() < 0.5:
            factor, value = OTHERS[rng.integers(len(OTHERS))]
            factors[factor] = value
        y = SIDE * (place // 2)
        x = SIDE * (place % 2)
        canvas[y : y + SIDE, x : x + SIDE] = _shown(photographs.read(index).pixels, factors)
        items.append({"category_id": int(photographs.labels[index]) + 1, **factors})
    return canvas, items


def _shown(pixels: Pixels, factors: dict[str, int]) -> Pixels:
    """The base is the photograph as it is; every other value changes it."""
    zoom = {1: 0, 2: 4, 3: 8}[factors["zoom_in"]] + {1: 0, 2: 0, 3: 4}[factors["scale"]]
    shown = cv2.resize(pixels[zoom : SIDE - zoom, zoom : SIDE - zoom], (SIDE, SIDE))
    if factors["scale"] == 1:
        small = cv2.resize(shown, (SIDE // 2, SIDE // 2), interpolation=cv2.INTER_AREA)
        shown = np.full_like(shown, 128)
        shown[SIDE // 4 : 3 * SIDE // 4, SIDE // 4 : 3 * SIDE // 4] = small
    if factors["viewpoint"] != 2:
        shown = np.rot90(shown, 2 if factors["viewpoint"] == 1 else 1)
    covered = {1: SIDE // 4, 2: 0, 3: SIDE // 2}[factors["occlusion"]]
    shown = shown.copy()
    shown[:, :covered] = 128
    return np.asarray(shown, np.uint8)
