"""A study of one's own test sets: the tables, figures and sheets of 004 for all frozen sets of a project.

docs/test-set-candidates.md lists which part corresponds to which table or figure of 004.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shiftbench.datasets.base import Dataset
from shiftbench.errors import BadImageError, ShiftbenchError, listed, shell_command
from shiftbench.io import html
from shiftbench.io.atomic import write_atomically
from shiftbench.io.hashing import seeded_rank
from shiftbench.io.paths import Location
from shiftbench.metrics.accuracy import hits
from shiftbench.reports.figures import PaperFigure, bins, scatter
from shiftbench.reports.figures import revisions as draw_revisions
from shiftbench.reports.figures.style import marking
from shiftbench.reports.models import figure_marks, with_models
from shiftbench.reports.study_tables import bins_table, lines_table, reproducibility_table
from shiftbench.reports.table import Column, Table
from shiftbench.reports.writers import to_html
from shiftbench.runs.results import StoredResults
from shiftbench.store.predictions import Predictions
from shiftbench.studies.base import StudyError, check_unique
from shiftbench.studies.fits import Line
from shiftbench.studies.reproducibility import bins_of, reproducibility
from shiftbench.studies.results import Results
from shiftbench.studies.study import ShiftAxes, Study
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.followups.hard_images import hardest_images
from shiftbench.testsets.followups.set_effects import impact_of_revisions
from shiftbench.testsets.freeze import all_revisions_dataset, predictions_on, require_frozen
from shiftbench.testsets.frozen import FrozenSet
from shiftbench.testsets.pool.images import square
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import revisions

#: Sizes of the sheets: classes and images per class of the blind one, hard images, confused pairs.
_CLASSES, _EACH, _HARD, _PAIRS = 3, 4, 24, 3
#: Revisions that are all compared with the references; of more, the first and the last.
_PANELS = 6


@dataclass
class TestsetStudy:
    """The parts of a study by title, in order: table 2 of 004, further tables, figures, sheets of images as HTML, and
    notes on what is missing and why."""

    __test__ = False  # not a test, whatever pytest thinks

    name: str
    summary: Table
    tables: dict[str, Table] = field(default_factory=dict)
    figures: dict[str, PaperFigure] = field(default_factory=dict)
    sheets: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def write_html(self, path: str | Path) -> Path:
        """Write one HTML file that loads nothing from elsewhere."""
        parts = [f"<h1>{html.text(self.name)}</h1>", to_html(self.summary), html.notes(self.notes)]
        for title, table in self.tables.items():
            parts.append(f"<h2>{html.text(title)}</h2>{to_html(table)}")
        for title, figure in self.figures.items():
            image = html.image_url(figure._repr_png_()).replace("image/webp", "image/png", 1)
            parts.append(f'<h2>{html.text(title)}</h2><img class="wide" src="{image}" alt="{html.text(title)}">')
        parts += [f"<h2>{html.text(title)}</h2>{sheet}" for title, sheet in self.sheets.items()]
        style = "body{max-width:72em;margin:2em auto;padding:0 1em;font-family:sans-serif}img.wide{max-width:100%}"
        head = (
            '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        )
        head += f"<title>{html.text(self.name)}</title><style>{style}</style>"
        page = f"{head}<body>{html.block(*parts)}</body></html>\n"
        write_atomically(Path(path), lambda temporary: temporary.write_text(page, encoding="utf-8"))
        return Path(path)

    def write_folder(self, folder: str | Path) -> list[Path]:
        def path(title: str, suffix: str) -> Path:
            plain = "".join(one if one.isalnum() or one in "-." else " " for one in title.lower())
            return Path(folder) / f"{'-'.join(plain.split())}{suffix}"

        Path(folder).mkdir(parents=True, exist_ok=True)
        tables = {"Table 2": self.summary, **self.tables}
        written = [table.write(path(title, ".csv")) for title, table in tables.items()]
        return written + [figure.write(path(title, ".svg")) for title, figure in self.figures.items()]

    @contextmanager
    def without(self, what: str) -> Iterator[None]:
        """Note why a part is missing, and go on."""
        try:
            yield
        except ShiftbenchError as error:
            self.notes.append(f"no {what}: {error.message}")


@dataclass(frozen=True)
class _Set:
    """A frozen set with the models that have predictions on it and on its references."""

    frozen: FrozenSet
    new: list[Predictions]
    original: list[Predictions]

    @property
    def names(self) -> tuple[str, str]:
        return self.original[0].setting, self.new[0].setting

    @property
    def tops(self) -> tuple[int, ...]:
        return (1, 5) if len(self.frozen.space) > 5 else (1,)

    def results(self, k: int = 1) -> Results:
        """Top-k accuracies on both; nan for a model that was evaluated on one of them only."""
        sides = [{one.classifier: hits(one, k) for one in side} for side in (self.original, self.new)]
        models = tuple(sorted(sides[0] | sides[1]))
        values = [[float(side[name].mean()) if name in side else np.nan for name in models] for side in sides]
        sizes = [np.array([len(side.get(name, ())) for name in models], dtype=np.float64) for side in sides]
        return Results(models, self.names, np.array(values).T, "fraction", dict(zip(self.names, sizes, strict=True)))


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
    frozen = [one.set_name for one in revisions(project) if one.frozen_at is not None]
    if not frozen:
        raise WorkshopError(
            "no frozen set to study",
            hint=f"{shell_command('testset', 'freeze', project.folder)}, then eval --suite testset:DIR",
        )
    study = TestsetStudy(project.configuration.name, Table([], []))
    sets = []
    for name in dict.fromkeys(frozen):
        with study.without(f"study of {name!r}"):
            own = require_frozen(project, name, "a study")
            sides = [predictions_on(project, name, workspace, part, classifiers) for part in ("images", "reference")]
            for side in sides:
                check_unique([one.classifier for one in side])
            sets.append(_Set(own, *sides))
    if not sets:
        raise WorkshopError(
            "no set has predictions on its images and on its references",
            found="; ".join(study.notes),
            hint=shell_command("eval", "MODEL", "--suite", f"testset:{project.folder}", "-w", workspace),
        )
    run = StoredResults.open(workspace)
    own_seed = project.configuration.seed if seed is None else seed
    with marking(*figure_marks(run)):
        _compare(study, sets, level)
        for one in sets:
            _frequencies(study, one, level)
            with study.without(f"comparison of the revisions of {one.frozen.set_name!r}"):
                _revisions(study, project, one, workspace, level)
            _hard_sheet(study, one, share)
    for table in study.tables.values():
        with_models(table, run)
    _blind_sheet(study, sets, own_seed)
    _confused_sheet(study, sets[0], own_seed)
    return study


def _compare(study: TestsetStudy, sets: Sequence[_Set], level: float) -> None:
    """Tables 2 and 11 to 20, and the scatter plots with their lines."""
    rows, lines = [], dict[str, Line]()
    for one in sets:
        name, (x, y) = one.frozen.set_name, one.names
        row: dict[str, object] = {"set": name, "strategy": one.frozen.sampling["strategy"], "images": one.frozen.images}
        for key, dataset in (("frequency", one.frozen.open()), ("reference", one.frozen.open("reference"))):
            known = list(_shares(dataset).values())
            row[key] = float(np.mean(known)) if known else None
        for k in one.tops:
            with study.without(f"top-{k} accuracies of {name!r}"):
                results = one.results(k)
                old, new = (results.column(column) for column in one.names)
                found = reproducibility(
                    old,
                    new,
                    models=results.models,
                    n_original=results.sizes[x],
                    n_new=results.sizes[y],
                    level=level,
                    unit="fraction",
                )
                row |= {"models": len(found.rows), f"top{k}": found.mean_change}
                study.tables[f"{name}: top-{k} accuracy"] = reproducibility_table(found, x, y)
        rows.append(row)
        title = f"{name}: accuracy on the new and the original set"
        lines |= _scatter(study, title, one.results(), x, {name: y}, level)
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


def _scatter(
    study: TestsetStudy, title: str, results: Results, x: str, settings: Mapping[str, str], level: float
) -> dict[str, Line]:
    """Draw accuracies in some settings, which are named for the reader, against those in ``x``; returns the lines."""
    both, lines = Study(results), {}
    shown = list(settings.values()) if len(settings) <= _PANELS else [*settings.values()][:: len(settings) - 1]
    for scale in ("linear", "probit"):
        with study.without(f"{scale} figure of {title}"):
            axes, width = [ShiftAxes(x, y) for y in shown], "double" if len(shown) > 1 else "single"
            study.figures[f"{title}, {scale}"] = scatter(both, axes, scale=scale, level=level, width=width)
        for name, y in settings.items():
            with study.without(f"{scale} line of {name}"):
                lines[f"{name}, {scale}"] = both.fit(x, y, scale=scale, level=level)
    return lines


def _shares(dataset: Dataset) -> dict[str, float]:
    shares = dataset.metadata.get("selection_frequency", [None] * len(dataset))
    return {image: float(one) for image, one in zip(dataset.ids, shares, strict=True) if one is not None}


def _frequencies(study: TestsetStudy, one: _Set, level: float) -> None:
    name, (x, y) = one.frozen.set_name, one.names
    with study.without(f"accuracy by selection frequency of {name!r}"):
        accuracies, found = one.results().of(x), {}
        for what, side, part, setting in (
            ("new images", one.new, "images", y),
            ("references", one.original, "reference", x),
        ):
            here = found[what] = bins_of(side, _shares(one.frozen.open(part)), level=level)  # type: ignore[arg-type]
            title = f"{name}: {'accuracy' if part == 'images' else what} by selection frequency"
            study.tables[title] = bins_table(here.with_mean(), setting, level, here.notes)
            figure = bins(here, setting, original=accuracies, original_setting=x)
            study.figures[f"{name}: {what} by selection frequency"] = figure
        both = bins(found["new images"], y, original=found["references"], original_setting=x)
        study.figures[f"{name}: both by selection frequency"] = both


def _revisions(study: TestsetStudy, project: Project, one: _Set, workspace: str | Location, level: float) -> None:
    name = one.frozen.set_name
    union, images = all_revisions_dataset(project, name)
    if len(images) < 2:
        return
    run = StoredResults.open(workspace)
    wanted = {single.classifier for single in one.new}
    found = [
        run.workspace.read(result)
        for result in run.results
        if result.setting == union.name and result.spec.dataset.fingerprint == union.fingerprint
    ]
    found = [single for single in found if single.classifier in wanted]
    follow_up = shell_command(
        "testset", "follow-up", "revisions", project.folder, "MODEL", "--set", name, "-w", workspace
    )
    if not found:
        raise StudyError(f"not evaluated; {follow_up}")
    lost = sorted(wanted - {single.classifier for single in found})
    study.notes += [f"{name}: revisions not evaluated for {listed(lost)}; {follow_up}"] if lost else []
    impacts, lines = {}, dict[str, Line]()
    for k in one.tops:
        with study.without(f"top-{k} accuracies of the revisions of {name!r}"):
            impact = impacts[f"top-{k}"] = impact_of_revisions(images, found, k=k, level=level)
            study.tables[f"{name}: impact of revisions, top-{k}"] = impact
            title, revised = f"{name}: revisions and the original set, top-{k}", impact.beside(one.results(k))
            settings = {f"{setting}, top-{k}": setting for setting in map(impact.setting, images)}
            lines |= _scatter(study, title, revised, one.names[0], settings, level)
    if impacts:
        study.figures[f"{name}: accuracy by revision"] = draw_revisions(
            {metric: impact.intervals for metric, impact in impacts.items()}, impact.changed, level=level
        )
    if lines:
        study.tables[f"{name}: lines of the revisions"] = lines_table(lines)


def _hard_sheet(study: TestsetStudy, one: _Set, share: float) -> None:
    for side, part in ((one.new, "images"), (one.original, "reference")):
        hard, dataset = hardest_images(side, share=share), one.frozen.open(part)  # type: ignore[arg-type]
        place = {image: i for i, image in enumerate(dataset.ids)}
        captions = {place[image.image]: f"{image.label}, predicted: {image.common_answer}" for image in hard.images}
        title = f"{one.frozen.set_name}: hardest {'references' if part == 'reference' else 'new images'}"
        shown = dict(list(captions.items())[:_HARD])
        study.sheets[title] = html.notes(hard.lead) + _grid(dataset, shown)


def _blind_sheet(study: TestsetStudy, sets: Sequence[_Set], seed: int) -> None:
    """The same classes of the references and of every set, under letters; the answer is folded away."""
    sources = {
        "references": sets[0].frozen.open("reference"),
        **{one.frozen.set_name: one.frozen.open() for one in sets},
    }
    space = sets[0].frozen.space
    keys = sorted(space.keys, key=lambda key: seeded_rank(seed, "sheet class", key))[:_CLASSES]
    order = sorted(sources, key=lambda name: seeded_rank(seed, "sheet order", name))
    parts = [html.notes([", ".join(space.names[space.index(key)] for key in keys)])]
    lettered = list(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", order, strict=False))
    for letter, name in lettered:
        chosen = [i for key in keys for i in _some(sources[name], space.index(key), seed, _EACH)]
        parts.append(html.title(f"Test set {letter}") + _grid(sources[name], dict.fromkeys(chosen, ""), alike=True))
    answer = "; ".join(f"{letter}: {name}" for letter, name in lettered)
    study.sheets["Which is the original?"] = f"{''.join(parts)}<details><summary>Answer</summary>{answer}</details>"


def _confused_sheet(study: TestsetStudy, one: _Set, seed: int) -> None:
    """Random references of the pairs of classes that models confuse most."""
    dataset, space = one.frozen.open("reference"), one.frozen.space
    confused: Counter[tuple[int, int]] = Counter()
    for single in one.original:
        labels, answers = single.labels[single.valid], single.top[single.valid, 0]
        wrong = (labels != answers) & (answers >= 0)
        pairs = np.sort(np.stack([labels[wrong], answers[wrong]], axis=1), axis=1)
        confused.update((int(a), int(b)) for a, b in pairs)
    parts = []
    for (a, b), count in sorted(confused.items(), key=lambda item: (-item[1], item[0]))[:_PAIRS]:
        parts.append(html.title(f"{space.names[a]} and {space.names[b]}", f"{count} errors"))
        parts += [
            _grid(dataset, dict.fromkeys(_some(dataset, label, seed, _EACH), space.names[label])) for label in (a, b)
        ]
    if parts:
        study.sheets["References of classes that models confuse"] = "".join(parts)


def _some(dataset: Dataset, label: int, seed: int, count: int) -> list[int]:
    here = np.flatnonzero(dataset.labels == label).tolist()
    return sorted(here, key=lambda i: seeded_rank(seed, "sheet", dataset.ids[i]))[:count]


def _grid(dataset: Dataset, captions: Mapping[int, str], *, alike: bool = False) -> str:
    """With ``alike``, all images have the size and shape of annotators' copies, which do not tell sets apart."""
    figures = []
    for index, caption in captions.items():
        try:
            pixels = dataset.read(index).pixels
            figures.append(html.figure(square(pixels, html.LONGEST) if alike else pixels, caption))
        except BadImageError:
            figures.append(html.missing_figure(caption))
    return html.grid(figures)
