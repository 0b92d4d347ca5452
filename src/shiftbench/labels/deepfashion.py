"""The categories of clothes of DeepFashion2."""

from __future__ import annotations

from functools import cache

from shiftbench.labels.catalogue import label_spaces
from shiftbench.labels.space import LabelSpace


@label_spaces.register("deepfashion2-13")
@cache
def deepfashion2() -> LabelSpace:
    """DeepFashion2's 13 categories of clothes, in the order of ``category_id``, which counts from 1."""
    return LabelSpace(
        "deepfashion2-13",
        (
            "short sleeve top",
            "long sleeve top",
            "short sleeve outwear",
            "long sleeve outwear",
            "vest",
            "sling",
            "shorts",
            "trousers",
            "skirt",
            "short sleeve dress",
            "long sleeve dress",
            "vest dress",
            "sling dress",
        ),
    )
