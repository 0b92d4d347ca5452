"""A study of one's own test sets: the tables, figures and sheets of 004 for all frozen sets of a project.

docs/test-set-candidates.md lists which part corresponds to which table or figure of 004.
"""

from __future__ import annotations

import base64
import re
import string
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Literal

import numpy as np

from shiftbench import Dataset, Predictions, ShiftbenchError
from shiftbench.errors import BadImageError
from shiftbench.extend import html
from shiftbench.extend.errors import listed, shell_command
from shiftbench.extend.io import Location, seeded_rank, write_atomically
from shiftbench.extend.metrics import hits
from shiftbench.extend.settings import StoredResults
from shiftbench.extend.studies import Line, ShiftAxes, bins_of, check_unique, reproducibility
from shiftbench.extend.tables import (
    Column,
    Table,
    bins_table,
    lines_table,
    marked_figures,
    reproducibility_table,
    with_models,
)
from shiftbench.extend.types import Pixels
from shiftbench.reports.figures import PaperFigure, bins, scatter
from shiftbench.reports.figures import revisions as draw_revisions
from shiftbench.studies import Results, Study, StudyError
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.followups.hard_images import hardest_images
from shiftbench.testsets.followups.set_effects import impact_of_revisions
from shiftbench.testsets.freeze import all_revisions_dataset, predictions_on, require_frozen
from shiftbench.testsets.frozen import FrozenSet
from shiftbench.testsets.pool.images import fitted
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import revisions

#: Classes on the blind sheet.
_BLIND_CLASSES = 3
#: Longest side of an image on a sheet that must not tell sets apart, in pixels.
_SHEET_SIDE = 112
#: Images per class on the blind sheet and on the sheet of confused classes.
_IMAGES_PER_CLASS = 4
#: Hard images per sheet.
_HARD_IMAGES = 24
#: Pairs of classes on the sheet of confused classes.
_CONFUSED_PAIRS = 3
#: If there are more revisions than this, only the first and the last are drawn.
_MAX_PANELS = 6
#: The style sheet and the beginning of a study as HTML.
_STYLE = "body{max-width:72em;margin:2em auto;padding:0 1em;font-family:sans-serif}img.wide{max-width:100%}"
_HEAD = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'


@dataclass
class TestsetStudy:
    """The parts of a study by title, in order: table 2 of 004, further tables, figures, sheets of images as HTML, and
    notes on what is missing and why."""

    __test__ = False  # The name begins with "Test", so pytest would collect it.

    name: str
    summary: Table
    tables: dict[str, Table] = field(default_factory=dict)
    figures: dict[str, PaperFigure] = field(default_factory=dict)
    sheets: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def write_html(self, path: str | Path) -> Path:
        """Write one HTML file that loads nothing from elsewhere."""
        sections = [f"<h1>{escape(self.name)}</h1>", self.summary.to_html(), html.notes(self.notes)]
        for title, table in self.tables.items():
            sections.append(f"<h2>{escape(title)}</h2>{table.to_html()}")
        for title, figure in self.figures.items():
            png = base64.b64encode(figure._repr_png_()).decode()
            image = f'<img class="wide" src="data:image/png;base64,{png}" alt="{escape(title)}">'
            sections.append(f"<h2>{escape(title)}</h2>{image}")
        for title, sheet in self.sheets.items():
            sections.append(f"<h2>{escape(title)}</h2>{sheet}")
        head = f"{_HEAD}<title>{escape(self.name)}</title><style>{_STYLE}</style>"
        page = f"{head}<body>{html.block(*sections)}</body></html>\n"
        write_atomically(Path(path), lambda temporary: temporary.write_text(page, encoding="utf-8", newline="\n"))
        return Path(path)

    def write_folder(self, folder: str | Path) -> list[Path]:
        """Write each table as CSV and each figure as SVG, named after its title; returns the files."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        tables = {"Table 2": self.summary, **self.tables}
        paths = [table.write(folder / f"{_file_stem(title)}.csv") for title, table in tables.items()]
        paths += [figure.write(folder / f"{_file_stem(title)}.svg") for title, figure in self.figures.items()]
        return paths

    @contextmanager
    def without(self, what: str) -> Iterator[None]:
        """Note why a part is missing, and go on."""
        try:
            yield
        except ShiftbenchError as error:
            self.notes.append(f"no {what}: {error.message}")


def _file_stem(title: str) -> str:
    """A file name for a title, without spaces and marks.

    >>> _file_stem("Top-1: val, then new")
    'top-1-val-then-new'
    """
    words = re.split(r"[^\w.-]|_", title.lower())
    return "-".join(word for word in words if word)


@dataclass(frozen=True)
class _Set:
    """A frozen set with the models that have predictions on it and on its references."""

    frozen: FrozenSet
    #: Predictions on the new images, one per model, and on the references.
    new: list[Predictions]
    original: list[Predictions]

    @property
    def names(self) -> tuple[str, str]:
        """The settings of the references and of the new images."""
        return self.original[0].setting, self.new[0].setting

    @property
    def tops(self) -> tuple[int, ...]:
        """The k of the top-k accuracies that make sense for this number of classes."""
        return (1, 5) if len(self.frozen.space) > 5 else (1,)

    def without_classes(self, k: int) -> list[str]:
        """Models whose predictions do not have the best k classes of each image, such as imported top-1 files."""
        return sorted({row.classifier for row in (*self.original, *self.new) if not _has_classes(row, k)})

    def results(self, k: int = 1) -> Results:
        """Top-k accuracies on both, of the models that have the best k classes; nan for a model that was evaluated on
        one of them only."""
        left_out = self.without_classes(k)
        original = [row for row in self.original if row.classifier not in left_out]
        new = [row for row in self.new if row.classifier not in left_out]
        hits_on_original = {predictions.classifier: hits(predictions, k) for predictions in original}
        hits_on_new = {predictions.classifier: hits(predictions, k) for predictions in new}
        models = tuple(sorted(hits_on_original | hits_on_new))
        values = np.full((len(models), 2), np.nan)
        sizes = np.zeros((len(models), 2))
        for column, hits_by_model in enumerate((hits_on_original, hits_on_new)):
            for row, model in enumerate(models):
                if model in hits_by_model:
                    values[row, column] = float(hits_by_model[model].mean())
                    sizes[row, column] = len(hits_by_model[model])
        return Results(models, self.names, values, "fraction", dict(zip(self.names, sizes.T, strict=True)))


def _has_classes(predictions: Predictions, k: int) -> bool:
    return bool(predictions.top.shape[1] >= min(k, len(predictions.space)))


def study_sets(
    project: Project,
    workspace: str | Location,
    *,
    classifiers: Sequence[str] = (),
    share: float = 0.05,
    level: float = 0.95,
    seed: int | None = None,
) -> TestsetStudy:
    """Study all frozen sets of a project with the predictions of a workspace (``shiftbench eval MODEL --suite
    testset:DIR``); no model is run. ``share`` of the images count as hard; ``seed`` is that of the sheets."""
    study = TestsetStudy(project.configuration.name, Table([], []))
    sets = _evaluated_sets(study, project, workspace, classifiers)
    run = StoredResults.open(workspace)
    # Every figure of the study marks the same models in the same way.
    with marked_figures(run):
        _compare(study, sets, level)
        for testset in sets:
            _frequencies(study, testset, level)
            with study.without(f"comparison of the revisions of {testset.frozen.set_name!r}"):
                _revisions(study, project, testset, workspace, level)
            _hard_sheet(study, testset, share)
    for table in study.tables.values():
        with_models(table, run)
    sheet_seed = project.configuration.seed if seed is None else seed
    _blind_sheet(study, sets, sheet_seed)
    _confused_sheet(study, sets[0], sheet_seed)
    return study


def _evaluated_sets(
    study: TestsetStudy, project: Project, workspace: str | Location, classifiers: Sequence[str]
) -> list[_Set]:
    """The frozen sets with predictions on their images and references; raises WorkshopError if there is none."""
    names = [revision.set_name for revision in revisions(project) if revision.frozen_at is not None]
    if not names:
        raise WorkshopError(
            "no frozen set to study",
            hint=f"{shell_command('testset', 'freeze', project.folder)}, then eval --suite testset:DIR",
        )
    sets = []
    for name in dict.fromkeys(names):
        with study.without(f"study of {name!r}"):
            frozen = require_frozen(project, name, "a study")
            new = predictions_on(project, name, workspace, "images", classifiers)
            original = predictions_on(project, name, workspace, "reference", classifiers)
            for side in (new, original):
                check_unique([predictions.classifier for predictions in side])
            sets.append(_Set(frozen, new, original))
    if not sets:
        raise WorkshopError(
            "no set has predictions on its images and on its references",
            found="; ".join(study.notes),
            hint=shell_command("eval", "MODEL", "--suite", f"testset:{project.folder}", "-w", workspace),
        )
    return sets


def _compare(study: TestsetStudy, sets: Sequence[_Set], level: float) -> None:
    """Add tables 2 and 11 to 20, and the scatter plots with their lines."""
    rows = []
    lines: dict[str, Line] = {}
    for testset in sets:
        rows.append(_compare_set(study, testset, level))
        name = testset.frozen.set_name
        x, y = testset.names
        title = f"{name}: accuracy on the new and the original set"
        lines |= _scatter(study, title, testset.results(), x, {name: y}, level)
    if lines:
        study.tables["Lines"] = lines_table(lines)
    columns = [
        Column("set", "set"),
        Column("strategy", "strategy"),
        Column("images", "images", "count"),
        Column("frequency", "selection frequency", "number"),
        Column("reference", "of the references", "number"),
        Column("models", "models", "count"),
        Column("top1", "change of top-1", "points", times=100, places=1),
        Column("top5", "change of top-5", "points", times=100, places=1),
    ]
    notes = ["means over images and over models; change: new minus original accuracy, in points"]
    study.summary = Table(columns, rows, title="Impact of the sampling strategy", notes=notes)


def _compare_set(study: TestsetStudy, testset: _Set, level: float) -> dict[str, object]:
    """Add the tables of accuracies of one set; returns its row of table 2."""
    frozen = testset.frozen
    x, y = testset.names
    row: dict[str, object] = {
        "set": frozen.set_name,
        "strategy": frozen.sampling["strategy"],
        "images": frozen.images,
        "frequency": _mean_share(frozen.open()),
        "reference": _mean_share(frozen.open("reference")),
    }
    for k in testset.tops:
        with study.without(f"top-{k} accuracies of {frozen.set_name!r}"):
            left_out = testset.without_classes(k)
            if left_out:
                study.notes.append(
                    f"{frozen.set_name}: top-{k} without {listed(left_out)}, whose predictions have fewer classes"
                )
            results = testset.results(k)
            comparison = reproducibility(
                results.column(x),
                results.column(y),
                models=results.models,
                n_original=results.sizes[x],
                n_new=results.sizes[y],
                level=level,
                unit="fraction",
            )
            row.setdefault("models", len(comparison.rows))
            row[f"top{k}"] = comparison.mean_change
            study.tables[f"{frozen.set_name}: top-{k} accuracy"] = reproducibility_table(comparison, x, y)
    return row


def _scatter(
    study: TestsetStudy, title: str, results: Results, x: str, settings: Mapping[str, str], level: float
) -> dict[str, Line]:
    """Draw accuracies in some settings, which are named for the reader, against those in ``x``; returns the lines."""
    accuracies = Study(results)
    drawn = list(settings.values())
    if len(drawn) > _MAX_PANELS:
        drawn = [drawn[0], drawn[-1]]
    axes = [ShiftAxes(x, y) for y in drawn]
    width: Literal["single", "double"] = "double" if len(drawn) > 1 else "single"
    lines = {}
    for scale in ("linear", "probit"):
        with study.without(f"{scale} figure of {title}"):
            study.figures[f"{title}, {scale}"] = scatter(accuracies, axes, scale=scale, level=level, width=width)
        # Lines are fitted in all settings, including those that are not drawn.
        for name, y in settings.items():
            with study.without(f"{scale} line of {name}"):
                lines[f"{name}, {scale}"] = accuracies.fit(x, y, scale=scale, level=level)
    return lines


def _shares(dataset: Dataset) -> dict[str, float]:
    """The selection frequency of each image that has one."""
    shares = dataset.metadata.get("selection_frequency", [None] * len(dataset))
    return {image: float(share) for image, share in zip(dataset.ids, shares, strict=True) if share is not None}


def _mean_share(dataset: Dataset) -> float | None:
    shares = list(_shares(dataset).values())
    return float(np.mean(shares)) if shares else None


def _frequencies(study: TestsetStudy, testset: _Set, level: float) -> None:
    """Add tables and figures of accuracy by selection frequency, of the new images, the references, and both."""
    name = testset.frozen.set_name
    x, y = testset.names
    with study.without(f"accuracy by selection frequency of {name!r}"):
        accuracies = testset.results().of(x)
        new_bins = bins_of(testset.new, _shares(testset.frozen.open()), level=level)
        title = f"{name}: accuracy by selection frequency"
        study.tables[title] = bins_table(new_bins.with_mean(), y, level, new_bins.notes)
        title = f"{name}: new images by selection frequency"
        study.figures[title] = bins(new_bins, y, original=accuracies, original_setting=x)

        reference_bins = bins_of(testset.original, _shares(testset.frozen.open("reference")), level=level)
        title = f"{name}: references by selection frequency"
        study.tables[title] = bins_table(reference_bins.with_mean(), x, level, reference_bins.notes)
        study.figures[title] = bins(reference_bins, x, original=accuracies, original_setting=x)

        title = f"{name}: both by selection frequency"
        study.figures[title] = bins(new_bins, y, original=reference_bins, original_setting=x)


def _revisions(study: TestsetStudy, project: Project, testset: _Set, workspace: str | Location, level: float) -> None:
    """Add the accuracies by revision, if there are several; raises StudyError if no model was evaluated on them."""
    name = testset.frozen.set_name
    union, image_ids = all_revisions_dataset(project, name)
    if len(image_ids) < 2:
        return
    models = {predictions.classifier for predictions in testset.new}
    union_predictions = _predictions_on_union(union, workspace, models)
    follow_up = shell_command(
        "testset", "follow-up", "revisions", project.folder, "MODEL", "--set", name, "-w", workspace
    )
    if not union_predictions:
        raise StudyError(f"not evaluated; {follow_up}")
    missing_models = sorted(models - {predictions.classifier for predictions in union_predictions})
    if missing_models:
        study.notes.append(f"{name}: revisions not evaluated for {listed(missing_models)}; {follow_up}")
    impacts = {}
    lines: dict[str, Line] = {}
    for k in testset.tops:
        with study.without(f"top-{k} accuracies of the revisions of {name!r}"):
            with_classes = [predictions for predictions in union_predictions if _has_classes(predictions, k)]
            impact = impact_of_revisions(image_ids, with_classes, k=k, level=level)
            impacts[f"top-{k}"] = impact
            study.tables[f"{name}: impact of revisions, top-{k}"] = impact
            title = f"{name}: revisions and the original set, top-{k}"
            results = impact.beside(testset.results(k))
            settings = {f"{setting}, top-{k}": setting for setting in map(impact.setting, image_ids)}
            lines |= _scatter(study, title, results, testset.names[0], settings, level)
    if impacts:
        # The revisions are the same for every k, so the last impact knows what changed between them.
        intervals = {metric: impact.intervals for metric, impact in impacts.items()}
        study.figures[f"{name}: accuracy by revision"] = draw_revisions(intervals, impact.changed, level=level)
    if lines:
        study.tables[f"{name}: lines of the revisions"] = lines_table(lines)


def _predictions_on_union(union: Dataset, workspace: str | Location, models: Collection[str]) -> list[Predictions]:
    """The predictions of these models on all images that were in any revision of a set."""
    run = StoredResults.open(workspace)
    union_predictions = []
    for result in run.results:
        if result.setting == union.name and result.spec.dataset.fingerprint == union.fingerprint:
            predictions = run.workspace.read(result)
            if predictions.classifier in models:
                union_predictions.append(predictions)
    return union_predictions


def _hard_sheet(study: TestsetStudy, testset: _Set, share: float) -> None:
    """Add the sheets of the hardest new images and of the hardest references."""
    frozen = testset.frozen
    sides = {
        "new images": (testset.new, frozen.open()),
        "references": (testset.original, frozen.open("reference")),
    }
    for side, (predictions, dataset) in sides.items():
        hard = hardest_images(predictions, share=share)
        position = {image: i for i, image in enumerate(dataset.ids)}
        captions = {}
        for image in hard.images[:_HARD_IMAGES]:
            captions[position[image.image]] = f"{image.label}, predicted: {image.common_answer}"
        study.sheets[f"{frozen.set_name}: hardest {side}"] = html.notes(hard.lead) + _grid(dataset, captions)


def _blind_sheet(study: TestsetStudy, sets: Sequence[_Set], seed: int) -> None:
    """Add the same classes of the references and of every set, under letters; the answer is folded away."""
    sources = {"references": sets[0].frozen.open("reference")}
    for testset in sets:
        sources[testset.frozen.set_name] = testset.frozen.open()
    space = sets[0].frozen.space
    keys = sorted(space.keys, key=lambda key: seeded_rank(seed, "sheet class", key))[:_BLIND_CLASSES]
    names = sorted(sources, key=lambda name: seeded_rank(seed, "sheet order", name))
    grids = [html.notes([", ".join(space.names[space.index(key)] for key in keys)])]
    answers = []
    for letter, name in zip(string.ascii_uppercase, names, strict=False):
        indices = []
        for key in keys:
            indices += _random_images(sources[name], space.index(key), seed)
        grid = _grid(sources[name], dict.fromkeys(indices, ""), alike=True)
        grids.append(html.title(f"Test set {letter}") + grid)
        answers.append(f"{letter}: {name}")
    answer = f"<details><summary>Answer</summary>{'; '.join(answers)}</details>"
    study.sheets["Which is the original?"] = "".join(grids) + answer


def _confused_sheet(study: TestsetStudy, testset: _Set, seed: int) -> None:
    """Add random references of the pairs of classes that models confuse most."""
    dataset = testset.frozen.open("reference")
    space = testset.frozen.space
    confusions: Counter[tuple[int, int]] = Counter()
    for predictions in testset.original:
        labels = predictions.labels[predictions.valid]
        answers = predictions.top[predictions.valid, 0]
        # A negative answer is none of the classes of the set.
        wrong = (labels != answers) & (answers >= 0)
        # Sorted, so that taking a for b and b for a count as one confusion.
        pairs = np.sort(np.stack([labels[wrong], answers[wrong]], axis=1), axis=1)
        confusions.update((int(a), int(b)) for a, b in pairs)
    grids = []
    for (a, b), count in sorted(confusions.items(), key=lambda item: (-item[1], item[0]))[:_CONFUSED_PAIRS]:
        grids.append(html.title(f"{space.names[a]} and {space.names[b]}", f"{count} errors"))
        for label in (a, b):
            captions = dict.fromkeys(_random_images(dataset, label, seed), space.names[label])
            grids.append(_grid(dataset, captions))
    if grids:
        study.sheets["References of classes that models confuse"] = "".join(grids)


def _random_images(dataset: Dataset, label: int, seed: int) -> list[int]:
    """The indices of a few images of a class, the same for the same seed."""
    indices = np.flatnonzero(dataset.labels == label).tolist()
    return sorted(indices, key=lambda i: seeded_rank(seed, "sheet", dataset.ids[i]))[:_IMAGES_PER_CLASS]


def _grid(dataset: Dataset, captions: Mapping[int, str], *, alike: bool = False) -> str:
    """The images with these indices and captions.

    With ``alike``, all images have the size and shape of annotators' copies, which do not tell sets apart.
    """
    images: list[tuple[Pixels | None, str]] = []
    for index, caption in captions.items():
        try:
            pixels = dataset.read(index).pixels
        except BadImageError:
            images.append((None, caption))
            continue
        if alike:
            pixels = fitted(pixels, (_SHEET_SIDE, _SHEET_SIDE))
        images.append((pixels, caption))
    return html.image_grid(images)
