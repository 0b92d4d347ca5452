"""Tables about images and their classes: accuracy by group, confusions, tags of mistakes, and checks of datasets."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shiftbench.arrays import BoolArray
from shiftbench.datasets.factors import FactorAudit, read_table, text_of
from shiftbench.datasets.manifest import PATH_COLUMNS
from shiftbench.errors import ShiftbenchError, StoreError, argument, listed
from shiftbench.io.locks import file_lock
from shiftbench.labels.catalogue import propose_members
from shiftbench.labels.space import LabelSpace
from shiftbench.metrics.accuracy import groups_of_images, per_group, worst_group
from shiftbench.metrics.arrays import kept_scores
from shiftbench.metrics.base import Score, SettingScore
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.metrics.multilabel import MEAN_PRECISION, labelled_rows, mean_average_precision_score
from shiftbench.reports import formatting
from shiftbench.reports.scores import in_one_column, score_table
from shiftbench.reports.summary import confusion_counts, confusions
from shiftbench.reports.table import Column, ModelRecords, Table, as_row, columns_of, keys_of
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
#: Reasons why rows are in no set, of which a terminal shows this many.
_MAX_REASONS = 8


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
    group_of = None if table is None else read_groups(table, by)
    columns = {result.key: [*workspace.columns_of(result.spec, ()), CLASS] for result in results}
    used = [result for result in results if group_of is not None or by in columns[result.key]]
    if not used:
        all_columns = dict.fromkeys(itertools.chain.from_iterable(columns.values()))
        raise ShiftbenchError(
            f"no image has a column {by!r}",
            found=f"columns {', '.join(all_columns)}",
            hint=f"give a table with a column of image ids: {argument('table', 'META.csv')}",
        )
    settings = list(dict.fromkeys(result.setting for result in used))
    entries: list[SettingScore] = []
    remarks: list[str] = []
    if len(used) < len(results):
        passed_over = dict.fromkeys(result.setting for result in results if by not in columns[result.key])
        remarks.append(f"without a column {by!r}, and not shown: {listed(passed_over)}")
    for result in used:
        prefix = f"{result.setting} " if len(settings) > 1 else ""
        if result.spec.metric == MEAN_PRECISION:
            group_scores = _precisions_of(workspace, result, by, group_of, prefix, level)
        else:
            group_scores = _accuracies_of(workspace, result, by, group_of, prefix, level)
        entries += group_scores.entries
        remarks += group_scores.remarks
    if any(entry.score.metric == "top1" for entry in entries):
        remarks.append(_MEANING)
    where = settings[0] if len(settings) == 1 else f"{len(settings)} settings"
    return score_table(in_one_column(entries), title=f"{where} by {by}", remarks=remarks)


class _GroupScores(NamedTuple):
    """The scores of one result by group, and what a reader has to know about them."""

    entries: list[SettingScore]
    remarks: list[str]


def _precisions_of(
    workspace: Workspace, result: Result, by: str, group_of: Mapping[str, str] | None, prefix: str, level: float
) -> _GroupScores:
    """The mean average precision in every group of a result whose images have several labels."""
    predictions = workspace.read(result, top_k=1, confidence=False, scores=True)
    if group_of is not None:
        groups = _column(group_of, predictions)
    elif by == CLASS:
        # The classes of such images overlap, so each class is scored over all images.
        groups = None
    else:
        groups = _column(_recorded_groups(workspace, predictions, by), predictions)
    scores = _group_precisions(predictions, groups, level)
    entries = [SettingScore(result.title, f"{prefix}{by} {group}", score) for group, score in scores.items()]
    lowest = min(scores, key=lambda group: scores[group].value)
    return _GroupScores(entries, [f"{prefix}worst {by} of {result.title}: {lowest}, {scores[lowest].n} images"])


def _accuracies_of(
    workspace: Workspace, result: Result, by: str, group_of: Mapping[str, str] | None, prefix: str, level: float
) -> _GroupScores:
    """The accuracy in every group of a result, and in the worst one."""
    predictions = workspace.read(result, top_k=1, confidence=False, scores=False)
    groups = _recorded_groups(workspace, predictions, by) if group_of is None else group_of
    rows = per_group(predictions, groups, level=level)
    entries: list[SettingScore] = []
    for row in rows:
        score = Score("top1", row.value, row.low, row.high, row.n, level, provenance=predictions.provenance)
        entries.append(SettingScore(result.title, f"{prefix}{by} {row.group}", score))
    worst_score = replace(worst_group(predictions, groups, level=level), metric="top1")
    entries.append(SettingScore(result.title, f"{prefix}worst {by}", worst_score))
    remarks = []
    scored_groups = {row.group for row in rows}
    for group, n in Counter(_column(groups, predictions)).items():
        if group not in scored_groups:
            name = f"{prefix}{by} {group} of {result.title}"
            remarks.append(f"{name}: none of its {n} images is readable, labelled and predicted")
    if rows:
        worst = min(rows, key=lambda row: (row.value, -row.n))
        remarks.append(f"{prefix}worst {by} of {result.title}: {worst.group}, {worst.correct} of {worst.n} right")
    return _GroupScores(entries, remarks)


def _recorded_groups(workspace: Workspace, predictions: Predictions, by: str) -> list[str]:
    """The group of every image by a recorded column, or by its class."""
    recorded = workspace.columns_of(predictions.spec, predictions.ids).get(by)
    if recorded is not None:
        return [value or _UNNAMED for value in recorded]
    # An image without a class has the label -1, which is the index of the last name.
    names = (*predictions.space.names, _UNNAMED)
    return [names[label] for label in predictions.labels.tolist()]


def _column(groups: Mapping[str, str] | list[str], predictions: Predictions) -> list[str]:
    """The group of every image in the predictions' order."""
    return [str(group) for group in groups_of_images(predictions, groups)]


def _group_precisions(predictions: Predictions, groups: list[str] | None, level: float) -> dict[str, Score]:
    """mAP over the images of each group; without groups, the average precision of each class over all images."""
    labelled = labelled_rows(predictions)
    table = kept_scores(predictions)
    truth = predictions.multi_hot
    # By name: the images and the classes that are scored.
    selections: dict[str, tuple[BoolArray, slice]] = {}
    if groups is None:
        for i, name in enumerate(predictions.space.names):
            if truth[labelled, i].any():
                selections[name] = (labelled, slice(i, i + 1))
    else:
        group_names = np.array(groups, dtype=object)
        for name in sorted(set(group_names[labelled])):
            selections[name] = (labelled & (group_names == name), slice(None))
    scores = {}
    for name, (images, classes) in selections.items():
        score = mean_average_precision_score(table[images][:, classes], truth[images][:, classes], level=level)
        scores[name] = replace(score, metric=MEAN_PRECISION, provenance=predictions.provenance)
    return scores


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
        name = str(row[key])
        group = text_of(row.get(by)) or _UNNAMED
        if groups.setdefault(name, group) != group:
            raise ShiftbenchError(f"{path} puts {name} into two groups", found=f"{groups[name]} and {group}")
    return groups


@dataclass(frozen=True)
class _ConfusionRow:
    """How often a model takes the images of a class for another one."""

    model: str
    setting: str
    label: str
    prediction: str
    count: int
    #: How many images the class has.
    of: int
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class _ConfusionMatrix:
    """The images of every class (row) by the class that the model takes them for (column)."""

    model: str
    setting: str
    classes: list[str]
    matrix: list[list[int]]


def confusion_table(predictions: Sequence[Predictions], *, level: float = 0.95, most: int | None = 20) -> Table:
    """Every pair of classes that a model confuses, most frequent first; people see the first ``most``.

    ``predictions`` has one entry per model and setting. CSV and JSON have all rows, JSON also the whole matrix.
    """
    rows: list[_ConfusionRow] = []
    matrices: list[_ConfusionMatrix] = []
    for result in predictions:
        for pair in confusions(result, most=len(result)):
            low, high = clopper_pearson(pair.count, pair.of, level)
            share = pair.count / pair.of
            rows.append(
                _ConfusionRow(result.classifier, result.setting, **asdict(pair), share=share, low=low, high=high)
            )
        matrix = confusion_counts(result).tolist()
        matrices.append(_ConfusionMatrix(result.classifier, result.setting, list(result.space.names), matrix))
    rows.sort(key=lambda row: -row.count)
    several_models = len({result.classifier for result in predictions}) > 1
    several_settings = len({result.setting for result in predictions}) > 1
    columns = []
    if several_models:
        columns.append(Column("model", "model", "model"))
    if several_settings:
        columns.append(Column("setting", "setting"))
    columns += [
        Column("label", "label"),
        Column("prediction", "classified as"),
        Column("count", "images", "count"),
        Column("of", "of", "count"),
        Column("share", "%", "number", ("low", "high"), places=1, times=100),
    ]
    where = f"{len(predictions)} results" if several_settings else predictions[0].setting
    lead: list[str] = []
    keys = keys_of(_ConfusionRow)
    if not rows:
        lead = ["every image is classified correctly"]
        keys = ["model", "setting"]
    notes = [f"%: of the images of the label, {formatting.level_text(level)} clopper-pearson intervals"]
    return Table(
        columns,
        rows,
        most=most,
        title=f"confusions in {where}",
        lead=lead,
        notes=notes,
        data={
            "level": level,
            "confusions": ModelRecords([as_row(row) for row in rows]),
            "matrices": ModelRecords([as_row(matrix) for matrix in matrices]),
            "notes": notes,
        },
        keys=keys,
    )


def read_tags(workspace: Workspace, dataset: DatasetRef) -> dict[str, list[str]]:
    """Image id to its tags; empty if nobody has tagged."""
    try:
        content = workspace.files.read_json(workspace.dataset_folder(dataset.name, dataset.fingerprint) / _TAGS)
    except FileNotFoundError:
        return {}
    return {str(image): list(map(str, tags)) for image, tags in content["tags"].items()}


def set_tag(workspace: Workspace, dataset: DatasetRef, image: str, tag: str, *, on: bool) -> list[str]:
    """Give an image a tag (a word or a few), or take it away; returns the tags of the image, under all shifts."""
    tag = formatting.one_line(tag)
    if not 0 < len(tag) <= LONGEST_TAG:
        raise ShiftbenchError("invalid tag", found=repr(tag), expected=f"1 to {LONGEST_TAG} letters")
    if image not in workspace.dataset(dataset.name, dataset.fingerprint).ids:
        raise StoreError(f"{dataset.name} has no image {image!r}")
    with file_lock(workspace.lock_path(f"tags-{dataset.fingerprint}"), wait=10.0):
        tags = read_tags(workspace, dataset)
        image_tags = [earlier for earlier in tags.get(image, []) if earlier != tag]
        if on:
            image_tags.append(tag)
        tags[image] = image_tags
        # Images that have lost their last tag are not kept.
        tagged = {name: names for name, names in tags.items() if names}
        folder = workspace.dataset_folder(dataset.name, dataset.fingerprint)
        workspace.write_json(folder / _TAGS, {"tags": tagged})
    return image_tags


@dataclass(frozen=True)
class _TagRow:
    """How many misclassified images of a model in a setting have a tag."""

    tag: str
    model: str
    setting: str
    count: int
    #: How many of the misclassified images have any tag.
    of: int
    #: All misclassified images.
    mistakes: int
    share: float
    low: float
    high: float


def tag_table(run: StoredResults, *, level: float = 0.95) -> Table:
    """How many misclassified images of each model and setting have each tag; settings without tags are left out."""
    rows: list[_TagRow] = []
    for result in run.results:
        rows += _tag_rows(run.workspace, result, level)
    if not rows:
        raise StoreError(
            "no image is tagged",
            hint="open the live page (shiftbench serve), select a misclassified image and type a tag",
        )
    rows.sort(key=lambda row: (row.tag, -row.count))
    notes = [
        "mistakes: misclassified images with the tag; %: of the misclassified images with any tag, "
        f"{formatting.level_text(level)} clopper-pearson intervals",
        "an image may have several tags, and has them under every shift",
    ]
    return Table(columns_of("tag"), rows, title="tags of misclassified images", notes=notes, keys=keys_of(_TagRow))


def _tag_rows(workspace: Workspace, result: Result, level: float) -> list[_TagRow]:
    """The tags of the images that a result has wrong."""
    tags = read_tags(workspace, result.spec.dataset) if result.spec.judged_by_image else {}
    if not tags:
        return []
    predictions = workspace.read(result, top_k=1, confidence=False, scores=False)
    wrong = predictions.valid & (predictions.top[:, 0] != predictions.labels)
    wrong_ids = itertools.compress(predictions.ids, wrong.tolist())
    tagged = [tags[image_id] for image_id in wrong_ids if image_id in tags]
    rows = []
    for tag, count in Counter(itertools.chain.from_iterable(tagged)).items():
        low, high = clopper_pearson(count, len(tagged), level)
        row = _TagRow(
            tag=tag,
            model=predictions.classifier,
            setting=predictions.setting,
            count=count,
            of=len(tagged),
            mistakes=int(wrong.sum()),
            share=count / len(tagged),
            low=low,
            high=high,
        )
        rows.append(row)
    return rows


@dataclass(frozen=True)
class _ProposalRow:
    """A class of the user's own, and the classes of the model that it may be."""

    key: str
    #: Separated by "|"; empty where the user must decide.
    members: str
    count: int
    proposal: str
    why: str


def proposal_table(own: LabelSpace, space: LabelSpace) -> Table:
    """Which classes of a model the user's own classes may be; the CSV is a mapping file for ``labels``.

    One row per own class; ``members`` is empty where the user must decide.
    """
    proposals = propose_members(own.keys, space)
    rows = []
    for proposal in proposals:
        row = _ProposalRow(
            key=proposal.own,
            members="|".join(proposal.members),
            count=len(proposal.members),
            proposal=listed(proposal.candidates, 3) or "none found",
            why=_WHY_PROPOSED.get(proposal.why, ""),
        )
        rows.append(row)
    undecided = [proposal.own for proposal in proposals if not proposal.members]
    note = f"to be completed: {listed(undecided)}" if undecided else "every class has members"
    return Table(
        columns_of("proposal", proposal=f"classes of {space.name}"),
        rows,
        notes=[note],
        keys=["key", "members", "proposal", "why"],
    )


def audit_tables(audit: FactorAudit) -> Iterator[Table]:
    """The sets of a factor split, then the values of each factor with what the protocol does with them."""
    notes = []
    n_left_over = sum(audit.left_over.values())
    if n_left_over:
        notes.append(f"{formatting.count(n_left_over)} rows are in no set:")
    for reason, n in list(audit.left_over.items())[:_MAX_REASONS]:
        notes.append(f"  {formatting.count(n)}  {reason}")
    if len(audit.left_over) > _MAX_REASONS:
        notes.append(f"  ... and {len(audit.left_over) - _MAX_REASONS} more reasons (--json lists all)")
    yield Table(
        columns_of("audit-sets"),
        audit.sets,
        title=f"{audit.protocol}: {formatting.count(audit.rows)} rows, {formatting.count(audit.images)} images",
        notes=[*notes, *audit.notes],
    )
    columns = [
        Column("factor", "factor"),
        Column("value", "value"),
        Column("rows", "rows", "count"),
        Column("used", "where it is used"),
    ]
    yield Table(columns, audit.values)
