"""Mistakes as tables: which classes are confused, and the tags that people gave to misclassified images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from shiftbench.errors import ShiftbenchError, StoreError
from shiftbench.io.locks import file_lock
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.reports import formatting
from shiftbench.reports.summary import confusion_counts, confusions
from shiftbench.reports.table import Column, Table
from shiftbench.runs.results import StoredResults
from shiftbench.store.predictions import Predictions
from shiftbench.store.spec import DatasetRef
from shiftbench.store.workspace import Workspace

#: Beside what is kept of a dataset.
_TAGS = "tags.json"
#: Letters of a tag.
LONGEST_TAG = 40


def confusion_table(predictions: Sequence[Predictions], *, level: float = 0.95, most: int | None = 20) -> Table:
    """Every pair of classes that a model confuses, most frequent first; people see the first ``most``.

    Args:
        predictions: One entry per model and setting.
        level: Confidence level of the intervals.
        most: Rows that are shown; CSV and JSON have all, JSON also the whole matrix.
    """
    rows: list[dict[str, Any]] = []
    matrices = []
    for one in predictions:
        for pair in confusions(one, most=len(one)):
            low, high = clopper_pearson(pair.count, pair.of, level)
            rows.append(
                {"model": one.classifier, "setting": one.setting, "label": pair.label, "prediction": pair.prediction,
                 "count": pair.count, "of": pair.of, "share": pair.count / pair.of, "low": low, "high": high}
            )  # fmt: skip
        matrices.append(
            {"model": one.classifier, "setting": one.setting, "classes": list(one.space.names),
             "matrix": confusion_counts(one).tolist()}
        )  # fmt: skip
    rows.sort(key=lambda row: -row["count"])
    several = len({one.setting for one in predictions}) > 1
    columns = [
        *([Column("model", "model")] if len({one.classifier for one in predictions}) > 1 else []),
        *([Column("setting", "setting")] if several else []),
        Column("label", "label"),
        Column("prediction", "classified as"),
        Column("count", "images", "count"),
        Column("of", "of", "count"),
        Column("share", "%", "number", ("low", "high"), places=1, times=100),
    ]
    first = predictions[0]
    title = f"confusions in {len(predictions)} results" if several else f"confusions in {first.setting}"
    notes = [f"%: of the images of the label, {formatting.level_text(level)} clopper-pearson intervals"]
    data = {"level": level, "confusions": rows, "matrices": matrices, "notes": notes}
    lead = [] if rows else ["every image is classified correctly"]
    keys = ["model", "setting", *(key for key in (rows[0] if rows else {}) if key not in ("model", "setting"))]
    return Table(columns, rows, most=most, title=title, lead=lead, notes=notes, data=data, keys=keys)


def read_tags(workspace: Workspace, dataset: DatasetRef) -> dict[str, list[str]]:
    """Image id to its tags; empty if nobody has tagged."""
    try:
        found = workspace.files.read_json(workspace.dataset_folder(dataset.name, dataset.fingerprint) / _TAGS)
    except FileNotFoundError:
        return {}
    return {str(image): list(map(str, tags)) for image, tags in found["tags"].items()}


def set_tag(workspace: Workspace, dataset: DatasetRef, image: str, tag: str, *, on: bool) -> list[str]:
    """Give an image a tag, or take it away.

    Args:
        workspace: Where it is kept, for the image under all shifts.
        dataset: The dataset of the image.
        image: Its id.
        tag: A word or a few.
        on: Whether the image has the tag from now on.

    Returns:
        The tags of the image.

    Raises:
        ShiftbenchError: The dataset has no such image, or the tag is empty or too long.
    """
    tag = formatting.one_line(tag)
    if not 0 < len(tag) <= LONGEST_TAG:
        raise ShiftbenchError("invalid tag", found=repr(tag), expected=f"1 to {LONGEST_TAG} letters")
    if image not in workspace.dataset(dataset.name, dataset.fingerprint).ids:
        raise StoreError(f"{dataset.name} has no image {image!r}")
    with file_lock(workspace.lock_path(f"tags-{dataset.fingerprint}"), wait=10.0):
        tags = read_tags(workspace, dataset)
        own = [one for one in tags.get(image, []) if one != tag] + [tag] * on
        tags = {name: found for name, found in {**tags, image: own}.items() if found}
        folder = workspace.dataset_folder(dataset.name, dataset.fingerprint)
        workspace.write_json(folder / _TAGS, {"tags": tags})
    return own


def tag_table(run: StoredResults, *, level: float = 0.95) -> Table:
    """How many misclassified images of each model and setting have each tag.

    Args:
        run: The results; settings without tagged images are left out.
        level: Confidence level of the shares.
    """
    rows: list[dict[str, Any]] = []
    for result in run.results:
        tags = read_tags(run.workspace, result.spec.dataset) if result.spec.judged_by_image else {}
        if not tags:
            continue
        rows += _tag_rows(run.workspace.read(result, top_k=1, confidence=False, scores=False), tags, level)
    if not rows:
        raise StoreError(
            "no image is tagged",
            hint="open the live page (shiftbench serve), select a misclassified image and type a tag",
        )
    columns = [
        Column("tag", "tag"),
        Column("model", "model"),
        Column("setting", "setting"),
        Column("count", "mistakes", "count"),
        Column("share", "% of tagged", "number", ("low", "high"), places=1, times=100),
    ]
    rows.sort(key=lambda row: (row["tag"], -row["count"]))
    notes = [
        "mistakes: misclassified images with the tag; %: of the misclassified images with any tag, "
        f"{formatting.level_text(level)} clopper-pearson intervals",
        "an image may have several tags, and has them under every shift",
    ]
    return Table(columns, rows, title="tags of misclassified images", notes=notes, keys=list(rows[0]))


def _tag_rows(predictions: Predictions, tags: Mapping[str, Sequence[str]], level: float) -> list[dict[str, Any]]:
    wrong = predictions.valid & (predictions.top[:, 0] != predictions.labels)
    tagged = [tags[name] for name, here in zip(predictions.ids, wrong.tolist(), strict=True) if here and name in tags]
    rows = []
    for tag, count in Counter(tag for own in tagged for tag in own).items():
        low, high = clopper_pearson(count, len(tagged), level)
        rows.append(
            {"tag": tag, "model": predictions.classifier, "setting": predictions.setting, "count": count,
             "of": len(tagged), "mistakes": int(wrong.sum()), "share": count / len(tagged), "low": low, "high": high}
        )  # fmt: skip
    return rows
