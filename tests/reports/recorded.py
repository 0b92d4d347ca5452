"""Results of any size written straight into a workspace: as many hits as wanted, without images or models."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import shiftbench as sb
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import LabelSpace
from shiftbench.settings.base import Member, Setting
from shiftbench.store.prediction_files import PredictionBlock
from shiftbench.store.spec import ClassifierRecord, DatasetRef, ResultSpec, SettingRecord, ShiftRecord
from shiftbench.store.workspace import Result, Workspace, space_key


def record(
    root: Path,
    setting: str,
    images: int,
    hits: int,
    *,
    model: str = "mine",
    space: LabelSpace | str = "imagenet-1k",
    reference: str | None = None,
    member: Member | None = None,
    source: str | None = None,
    confidence: float = 0.9,
    dataset: str | None = None,
    labels_of_model: str = "",
    weights: str = "",
    made_by: str | None = None,
) -> Result:
    """The first ``hits`` images are classified correctly, the others as the next class.

    Models of one name with other ``weights`` are several versions.
    """
    classes = label_space(space) if isinstance(space, str) else space
    workspace = Workspace(root)
    name = dataset or setting
    labels = (np.arange(images) % len(classes)).astype(np.int32)
    fingerprint = f"{images:08x}{len(name):016x}"
    workspace.record_dataset(name, fingerprint, classes, [str(i) for i in range(images)], labels, {"name": name})
    workspace.record_space(classes)
    about = {
        "fingerprint": (weights + model).encode().hex()[:12],
        "engine": "recorded",
        "labels": labels_of_model or classes.name,
    }
    spec = ResultSpec(
        classifier=ClassifierRecord(about),
        dataset=DatasetRef({"name": name, "fingerprint": fingerprint}),
        images=images,
        shift=ShiftRecord({"shift": "none"}),
        source=source,
        space=space_key(classes),
        reference=reference,
        metric="top1",
        provenance=f"{name} ({images} images)",
        family="f" if member else None,
        made_by=made_by,
    )
    result = Result(model, setting, spec)
    described = Setting(setting, name, space=classes.name, reference=reference, member=member)
    workspace.record_settings({spec.setting_key(setting): SettingRecord.of(described)})
    top = np.where(np.arange(images) < hits, labels, (labels + 1) % len(classes)).astype(np.int32)
    sure = np.full(images, confidence, dtype=np.float32)
    workspace.complete(result, [PredictionBlock(top[:, None], sure)], f"shiftbench {sb.__version__}")
    return result
