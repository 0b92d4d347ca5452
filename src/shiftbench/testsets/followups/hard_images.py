"""Hard images, which few or no models classify correctly, and human accuracy on them (004 B.2.4, B.2.5).

A human study is a separate project with its own database, so that its answers never enter the selection frequencies of
the set. Every participant chooses one of the classes for each hard image of a frozen set and of its references, which
are shown in random order, as in 004: their accuracies compare with those of models, and with table 3.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import func, select

from shiftbench import Dataset, Predictions, ShiftbenchError
from shiftbench.datasets import Subset
from shiftbench.extend.datasets import FileDataset
from shiftbench.extend.errors import shell_command
from shiftbench.extend.io import Location
from shiftbench.extend.metrics import aligned
from shiftbench.extend.studies import common_hits
from shiftbench.extend.tables import Column, Table
from shiftbench.metrics import clopper_pearson
from shiftbench.testsets.configuration import Configuration
from shiftbench.testsets.database import Account, PoolEntry, SelectedSlot, Task
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.followups.splits import images_by_id
from shiftbench.testsets.freeze import predictions_on, require_frozen
from shiftbench.testsets.frequencies import answers
from shiftbench.testsets.frozen import Part
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.project import Project
from shiftbench.testsets.tasks import add_task, shuffled

#: The share of images that count as hard, as in 004.
HARDEST_SHARE = 0.05
#: People who answer a study, as in 004.
PARTICIPANTS = 9
#: Rows of one table shown in a terminal.
_ROWS_IN_TERMINAL = 30
#: Rows of each set shown in a terminal, if a table has both.
_ROWS_OF_EACH_SET = 15
#: Names of the two sets in the study: the source of their entries.
SIDES: dict[str, Part] = {"original": "reference", "new": "images"}


@dataclass(frozen=True)
class HardImage:
    """An image, how many models classify it correctly, and the most common wrong prediction."""

    image: str
    #: The name of its class.
    label: str
    #: The number of models that classify it correctly.
    right: int
    #: The most common wrong prediction and the number of models that make it; "" and 0 if there is none.
    common_answer: str
    common_count: int


class HardImages(Table):
    """The hardest images of a setting, the hardest first."""

    def __init__(self, setting: str, models: Sequence[str], total: int, images: Sequence[HardImage]) -> None:
        self.setting = setting
        self.models = list(models)
        self.total = total
        self.images = list(images)
        rows: list[dict[str, object]] = [asdict(image) for image in images]
        most_right = max((image.right for image in images), default=0)
        columns = [
            Column("image", "image"),
            Column("label", "label"),
            Column("right", "correct", "count"),
            Column("common_answer", "most common error"),
            Column("common_count", "models", "count", optional=True),
        ]
        lead = [
            f"{len(self.missed_by_all):,} of {total:,} images are misclassified by all {len(models)} models",
            f"{len(images):,} images ({len(images) / total:.1%}) are classified correctly by at most {most_right}",
        ]
        super().__init__(columns, rows, most=_ROWS_IN_TERMINAL, title=f"Hard images of {setting}", lead=lead)

    @property
    def missed_by_all(self) -> list[HardImage]:
        return [image for image in self.images if image.right == 0]

    def subset(self, dataset: Dataset, name: str | None = None) -> Subset:
        """These images as a dataset; raises DatasetError if ``dataset`` does not have all of them."""
        ids = [image.image for image in self.images]
        return images_by_id(dataset, ids, f"setting {self.setting!r}", name or f"{dataset.name} hard")


def hardest_images(predictions: Sequence[Predictions], *, share: float = HARDEST_SHARE) -> HardImages:
    """The ``share`` of images that the fewest models classify correctly, and all that are as hard as the last of them.

    004 did the same: 500 images of CIFAR-10 and 115 of the new set are the hardest 5 %. ``share=0`` selects the images
    that all models misclassify.
    """
    if not predictions:
        raise ShiftbenchError("no predictions to find hard images in")
    if not 0 <= share <= 1:
        raise ShiftbenchError("invalid share of images", found=share, expected="0 to 1", hint="5 % is 0.05")
    hits, ids = common_hits(predictions)
    right_models = hits.sum(axis=0)
    most_right = 0
    if share > 0:
        last = max(0, int(np.ceil(share * len(ids))) - 1)
        most_right = int(np.sort(right_models)[last])
    hard = sorted(np.flatnonzero(right_models <= most_right).tolist(), key=lambda i: (right_models[i], ids[i]))
    first = predictions[0]
    position = {image: i for i, image in enumerate(first.ids)}
    # (models, images), in the order of the first model's images
    answers = np.stack([model.top[aligned(first, model), 0] for model in predictions])
    images = []
    for i in hard:
        index = position[ids[i]]
        label = int(first.labels[index])
        wrong_answers = Counter(answer for answer in answers[:, index].tolist() if 0 <= answer != label)
        common_answer = ""
        common_count = 0
        if wrong_answers:
            # The most common answer; in a tie, the class with the lowest number.
            answer, common_count = min(wrong_answers.items(), key=lambda item: (-item[1], item[0]))
            common_answer = first.space.names[answer]
        images.append(HardImage(ids[i], first.space.names[label], int(right_models[i]), common_answer, common_count))
    return HardImages(first.setting, [model.classifier for model in predictions], len(ids), images)


def human_accuracy(
    answers: Mapping[str, Mapping[str, Sequence[bool]]], *, original: str, new: str, level: float = 0.95
) -> Table:
    """Table 3 of 004: accuracy on both sets, and the gap, from correct and wrong answers by participant and set."""
    if not answers:
        raise ShiftbenchError("no answers")
    rows = []
    for participant, answers_by_set in answers.items():
        missing = [name for name in (original, new) if not len(answers_by_set.get(name, ()))]
        if missing:
            raise ShiftbenchError(
                f"no answers of {participant} on {missing[0]!r}", found=", ".join(answers_by_set) or "nothing"
            )
        row: dict[str, Any] = {"participant": participant}
        for role, name in (("original", original), ("new", new)):
            right = int(np.sum(answers_by_set[name]))
            count = len(answers_by_set[name])
            low, high = clopper_pearson(right, count, level)
            row[role] = right / count
            row[f"{role}_low"] = low
            row[f"{role}_high"] = high
            row[f"{role}_n"] = count
        row["gap"] = row["original"] - row["new"]
        rows.append(row)
    rows.sort(key=lambda row: (-row["original"], row["participant"]))
    mean_gap = float(np.mean([row["gap"] for row in rows]))
    better_on_original = sum(row["gap"] > 0 for row in rows)
    columns = [
        Column("participant", "participant"),
        Column("original", f"{original} %", "number", ends=("original_low", "original_high"), times=100, places=1),
        Column("new", f"{new} %", "number", ends=("new_low", "new_high"), times=100, places=1),
        Column("gap", "gap", "points", times=100, places=1),
    ]
    lead = [
        f"mean gap {100 * mean_gap:+.1f} points; "
        f"{better_on_original} of {len(rows)} participants are better on {original}"
    ]
    return Table(columns, rows, title="Human accuracy", lead=lead)


def hard_images_of(
    project: Project,
    set_name: str,
    workspace: str | Location,
    classifiers: Sequence[str] = (),
    *,
    share: float = HARDEST_SHARE,
) -> dict[str, HardImages]:
    """The hardest images of the references ("original") and of the set ("new"); requires a frozen set."""
    hard = {}
    for side, part in SIDES.items():
        predictions = predictions_on(project, set_name, workspace, part, classifiers)
        hard[side] = hardest_images(predictions, share=share)
    return hard


def hard_table(hard: Mapping[str, HardImages]) -> Table:
    """Both sets in one table, the hardest images of each first."""
    rows = []
    shown_rows = []
    lead = []
    for side, images in hard.items():
        side_rows = [{"set": side, **row} for row in images.rows]
        rows += side_rows
        shown_rows += side_rows[:_ROWS_OF_EACH_SET]
        lead += [f"{side}: {line}" for line in images.lead]
    notes = []
    if len(rows) > len(shown_rows):
        notes.append(f"first {len(shown_rows)} of {len(rows):,}; write a .csv file for all")
    columns = [Column("set", "set"), *next(iter(hard.values())).columns]
    return Table(columns, rows, shown=shown_rows, title="Hard images", lead=lead, notes=notes)


def make_study(
    project: Project,
    set_name: str,
    hard: Mapping[str, HardImages],
    folder: str | Path,
    *,
    participants: int = PARTICIPANTS,
) -> int:
    """Create a project with grids of hard images for ``participants`` people; returns the number of grids."""
    frozen = require_frozen(project, set_name, "showing hard images to people")
    empty = [side for side in SIDES if not hard[side].images]
    if empty:
        raise WorkshopError(
            f"no hard images in the {empty[0]} set",
            found=f"{hard[empty[0]].total} images",
            hint="use a larger share: 0.05 selects the hardest 5 %",
        )
    original = project.configuration
    # No controls are needed, because the class of every image is known.
    rules = replace(original.annotation, annotators=participants, positive_controls=0, negative_controls=0)
    name = f"{original.name}-{set_name}-hard"[:60]
    configuration = Configuration(name, original.classes, original.labels, original.seed, annotation=rules)
    study = Project.create(folder, configuration)
    try:
        for side, part in SIDES.items():
            subset = hard[side].subset(frozen.open(part))
            # The files are imported without metadata: a stored source would replace the name of the set.
            ids = list(subset.ids)
            files = FileDataset(subset.name, subset.space, frozen.folder / part, ids, subset.labels.tolist(), ids=ids)
            import_images(study, files, name=side)
        with study.writing() as session:
            # The order is random. There are as few grids as possible, and their sizes differ by at most one.
            entries = shuffled(session.scalars(select(PoolEntry.id)).all(), study, "hard")
            count = math.ceil(len(entries) / rules.grid)
            for i in range(count):
                start = i * len(entries) // count
                stop = (i + 1) * len(entries) // count
                add_task(study, session, "", entries[start:stop])
    finally:
        study.close()
    return count


def human_accuracy_of(study: Project, *, level: float = 0.95) -> Table:
    """The accuracy of all participants who have answered all grids and are not excluded."""
    # For each participant: the grids that they answered, and whether each answer was right, by set.
    tasks_answered: dict[str, set[int]] = defaultdict(set)
    right: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))
    with study.reading() as session:
        sources = set(session.scalars(select(PoolEntry.source).distinct()))
        if sources != set(SIDES):
            raise WorkshopError(
                f"{study.folder} is not a study of hard images",
                found=", ".join(sorted(sources)[:3]) or "an empty pool",
                hint="create one: shiftbench testset follow-up hard DIR -w WORKSPACE --study FOLDER",
            )
        task_count = session.scalars(select(func.count()).select_from(Task)).one()
        query = answers(Account.name, PoolEntry.source, Task.id, PoolEntry.class_key == SelectedSlot.label)
        query = query.where(Account.excluded_at.is_(None)).order_by(PoolEntry.id)
        for name, side, task, hit in session.execute(query):
            tasks_answered[name].add(task)
            right[name][side].append(bool(hit))
    complete = {name: sides for name, sides in right.items() if len(tasks_answered[name]) == task_count}
    if not complete:
        raise WorkshopError(
            "no participant has answered all grids of the study yet",
            hint=f"invite people and serve the pages; see: {shell_command('testset', 'status', study.folder)}",
        )
    return human_accuracy(complete, original="original", new="new", level=level)
