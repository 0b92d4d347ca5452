"""Tables about images and their classes: accuracy by group, confusions, tags of mistakes, and checks of datasets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from shiftbench.datasets.factors import FactorAudit, read_table, text_of
from shiftbench.datasets.manifest import PATH_COLUMNS
from shiftbench.errors import ShiftbenchError, StoreError, argument, listed
from shiftbench.io.locks import file_lock
from shiftbench.labels.catalogue import propose_members
from shiftbench.labels.space import LabelSpace
from shiftbench.metrics.accuracy import per_group, worst_group
from shiftbench.metrics.arrays import kept_scores
from shiftbench.metrics.base import Score
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.metrics.multilabel import MEAN_PRECISION, labelled_rows, mean_average_precision_score
from shiftbench.reports import formatting
from shiftbench.reports.scores import Entries, in_one_column, score_table
from shiftbench.reports.summary import confusion_counts, confusions
from shiftbench.reports.table import Column, Table, columns_of
from shiftbench.runs.results import StoredResults
from shiftbench.store.predictions import Predictions
from shiftbench.store.spec import DatasetRef
from shiftbench.store.workspace import Result, Workspace

#: The column that every labelled set has.
CLASS = "class"
_ID_COLUMNS = ("id", "image_id", *PATH_COLUMNS)
#: For images whose column is empty.
_UNNAMED = "(none)"
_MEANING = "worst: its interval holds for all groups together; the least of many noisy numbers looks worse than it is"
#: Beside what is kept of a dataset.
_TAGS = "tags.json"
#: Letters of a tag.
LONGEST_TAG = 40
_WHY_PROPOSED = {
    "name": "same name",
    "synonym": "synonym",
    "group": "group of a published dataset",
    "ambiguous": "several classes have this name",
    "similar": "similar names",
}


def group_table(
    workspace: Workspace, results: Sequence[Result], by: str, *, table: str | Path | None = None, level: float = 0.95
) -> Table:
    """Top-1 accuracy of every result by the groups of a column; mAP where images have several labels.

    The column is one of ``table`` (a CSV, JSONL or Parquet file with an id per row), or was recorded with the dataset
    when the run was made, or is ``"class"``; results whose images do not have it are passed over.
    """
    looked_up = None if table is None else read_groups(table, by)
    known = {result.key: [*workspace.columns_of(result.spec, ()), CLASS] for result in results}
    used = [result for result in results if looked_up is not None or by in known[result.key]]
    if not used:
        columns = dict.fromkeys(column for columns in known.values() for column in columns)
        raise ShiftbenchError(
            f"no image has a column {by!r}",
            found=f"columns {', '.join(columns)}",
            hint=f"give a table with a column of image ids: {argument('table', 'META.csv')}",
        )
    settings = list(dict.fromkeys(result.setting for result in used))
    entries: Entries = []
    without = dict.fromkeys(result.setting for result in results if looked_up is None and by not in known[result.key])
    remarks = [f"without a column {by!r}, and not shown: {listed(without)}"] if without else []
    for result in used:
        several = result.spec.metric == MEAN_PRECISION
        predictions = workspace.read(result, top_k=1, confidence=False, scores=several)
        groups: Mapping[str, str] | list[str] | None = looked_up
        if groups is None:
            names = (*predictions.space.names, _UNNAMED)
            recorded = workspace.columns_of(predictions.spec, predictions.ids).get(by)
            # -1 is the last name.
            classes = (names[label] for label in predictions.labels.tolist())
            groups = list(classes) if recorded is None else [value or _UNNAMED for value in recorded]
        title, where = result.title, f"{result.setting} " if len(settings) > 1 else ""
        if several:
            found = _group_precisions(predictions, None if by == CLASS and looked_up is None else groups, level)
            entries += [(title, f"{where}{by} {group}", score) for group, score in found.items()]
            least = min(found, key=lambda group: found[group].value)
            remarks.append(f"{where}worst {by} of {title}: {least}, {found[least].n} images")
            continue
        rows = per_group(predictions, groups, level=level)
        for row in rows:
            score = Score("top1", row.value, row.low, row.high, row.n, level, provenance=predictions.provenance)
            entries.append((title, f"{where}{by} {row.group}", score))
        entries.append(
            (title, f"{where}worst {by}", replace(worst_group(predictions, groups, level=level), metric="top1"))
        )
        column = [groups[name] for name in predictions.ids] if isinstance(groups, Mapping) else groups
        counted = {row.group for row in rows}
        remarks += [
            f"{where}{by} {group} of {title}: none of its {n} images is readable, labelled and predicted"
            for group, n in Counter(column).items()
            if group not in counted
        ]
        if rows:
            worst = min(rows, key=lambda row: (row.value, -row.n))
            remarks.append(f"{where}worst {by} of {title}: {worst.group}, {worst.correct} of {worst.n} right")
    if any(score.metric == "top1" for _, _, score in entries):
        remarks.append(_MEANING)
    title = f"{settings[0] if len(settings) == 1 else f'{len(settings)} settings'} by {by}"
    return score_table(in_one_column(entries), title=title, remarks=remarks)


def _group_precisions(
    predictions: Predictions, groups: Mapping[str, str] | list[str] | None, level: float
) -> dict[str, Score]:
    """mAP over the images of each group; without groups, the average precision of each class over all images."""
    rows, table, truth = labelled_rows(predictions), kept_scores(predictions), predictions.multi_hot
    parts = {name: (rows, slice(i, i + 1)) for i, name in enumerate(predictions.space.names) if truth[rows, i].any()}
    if groups is not None:
        column = [groups[name] for name in predictions.ids] if isinstance(groups, Mapping) else groups
        own = np.array(column, dtype=object)
        parts = {name: (rows & (own == name), slice(None)) for name in sorted(set(own[rows]))}
    scores = {
        name: mean_average_precision_score(table[chosen][:, classes], truth[chosen][:, classes], level=level)
        for name, (chosen, classes) in parts.items()
    }
    lines = predictions.provenance
    return {name: replace(score, metric=MEAN_PRECISION, provenance=lines) for name, score in scores.items()}


def read_groups(path: str | Path, by: str) -> dict[str, str]:
    """Image id to group, from a table with a column of ids and a column ``by``."""
    rows, _ = read_table(path)
    columns = list(rows[0]) if rows else []
    key = next((column for column in _ID_COLUMNS if column in columns), None)
    if key is None or by not in columns:
        raise ShiftbenchError(
            f"{path} does not give images a group",
            found=f"columns {', '.join(columns) or 'none'}",
            expected=f"a column 'id' and a column {by!r}",
        )
    groups: dict[str, str] = {}
    for row in rows:
        name, group = str(row[key]), text_of(row.get(by)) or _UNNAMED
        if groups.setdefault(name, group) != group:
            raise ShiftbenchError(f"{path} puts {name} into two groups", found=f"{groups[name]} and {group}")
    return groups


def confusion_table(predictions: Sequence[Predictions], *, level: float = 0.95, most: int | None = 20) -> Table:
    """Every pair of classes that a model confuses, most frequent first; people see the first ``most``.

    ``predictions`` has one entry per model and setting. CSV and JSON have all rows, JSON also the whole matrix.
    """
    rows: list[dict[str, Any]] = []
    matrices = []
    for one in predictions:
        place = {"model": one.classifier, "setting": one.setting}
        for pair in confusions(one, most=len(one)):
            low, high = clopper_pearson(pair.count, pair.of, level)
            rows.append({**place, **asdict(pair), "share": pair.count / pair.of, "low": low, "high": high})
        matrices.append({**place, "classes": list(one.space.names), "matrix": confusion_counts(one).tolist()})
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
    title = f"confusions in {f'{len(predictions)} results' if several else predictions[0].setting}"
    notes = [f"%: of the images of the label, {formatting.level_text(level)} clopper-pearson intervals"]
    data = {"level": level, "confusions": rows, "matrices": matrices, "notes": notes}
    lead = [] if rows else ["every image is classified correctly"]
    keys = list(rows[0]) if rows else ["model", "setting"]
    return Table(columns, rows, most=most, title=title, lead=lead, notes=notes, data=data, keys=keys)


def read_tags(workspace: Workspace, dataset: DatasetRef) -> dict[str, list[str]]:
    """Image id to its tags; empty if nobody has tagged."""
    try:
        found = workspace.files.read_json(workspace.dataset_folder(dataset.name, dataset.fingerprint) / _TAGS)
    except FileNotFoundError:
        return {}
    return {str(image): list(map(str, tags)) for image, tags in found["tags"].items()}


def set_tag(workspace: Workspace, dataset: DatasetRef, image: str, tag: str, *, on: bool) -> list[str]:
    """Give an image a tag (a word or a few), or take it away; returns the tags of the image, under all shifts."""
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
    """How many misclassified images of each model and setting have each tag; settings without tags are left out."""
    rows: list[dict[str, Any]] = []
    for result in run.results:
        tags = read_tags(run.workspace, result.spec.dataset) if result.spec.judged_by_image else {}
        if not tags:
            continue
        predictions = run.workspace.read(result, top_k=1, confidence=False, scores=False)
        wrong = (predictions.valid & (predictions.top[:, 0] != predictions.labels)).tolist()
        tagged = [tags[name] for name, here in zip(predictions.ids, wrong, strict=True) if here and name in tags]
        for tag, count in Counter(tag for own in tagged for tag in own).items():
            low, high = clopper_pearson(count, len(tagged), level)
            rows.append(
                {"tag": tag, "model": predictions.classifier, "setting": predictions.setting, "count": count,
                 "of": len(tagged), "mistakes": sum(wrong), "share": count / len(tagged), "low": low, "high": high}
            )  # fmt: skip
    if not rows:
        raise StoreError(
            "no image is tagged",
            hint="open the live page (shiftbench serve), select a misclassified image and type a tag",
        )
    rows.sort(key=lambda row: (row["tag"], -row["count"]))
    notes = [
        "mistakes: misclassified images with the tag; %: of the misclassified images with any tag, "
        f"{formatting.level_text(level)} clopper-pearson intervals",
        "an image may have several tags, and has them under every shift",
    ]
    return Table(columns_of("tag"), rows, title="tags of misclassified images", notes=notes, keys=list(rows[0]))


def proposal_table(own: LabelSpace, space: LabelSpace) -> Table:
    """Which classes of a model the user's own classes may be; the CSV is a mapping file for ``labels``.

    One row per own class; ``members`` is empty where the user must decide.
    """
    found = propose_members(own.keys, space)
    rows = [
        {"key": one.own, "members": "|".join(one.members), "count": len(one.members),
         "proposal": listed(one.candidates, 3) or "none found", "why": _WHY_PROPOSED.get(one.why, "")}
        for one in found
    ]  # fmt: skip
    undecided = [one.own for one in found if not one.members]
    note = f"to be completed: {listed(undecided)}" if undecided else "every class has members"
    return Table(
        columns_of("proposal", proposal=f"classes of {space.name}"),
        rows,
        notes=[note],
        keys=["key", "members", "proposal", "why"],
    )


def audit_tables(audit: FactorAudit) -> Iterator[Table]:
    """The sets of a factor split, then the values of each factor with what the protocol does with them."""
    left = sum(audit.left_over.values())
    notes = [f"{formatting.count(left)} rows are in no set:"] if left else []
    notes += [f"  {formatting.count(n)}  {why}" for why, n in list(audit.left_over.items())[:8]]
    if len(audit.left_over) > 8:
        notes.append(f"  ... and {len(audit.left_over) - 8} more reasons (--json lists all)")
    yield Table(
        columns_of("audit-sets"),
        [asdict(one) for one in audit.sets],
        title=f"{audit.protocol}: {formatting.count(audit.rows)} rows, {formatting.count(audit.images)} images",
        notes=[*notes, *audit.notes],
    )
    columns = [Column("factor", "factor"), Column("value", "value"), Column("rows", "rows", "count")]
    yield Table([*columns, Column("used", "where it is used")], [asdict(one) for one in audit.values])
