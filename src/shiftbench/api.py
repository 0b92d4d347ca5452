"""The public Python API: ``evaluate`` models under the settings of a suite, and a ``Run`` to look at what came out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from shiftbench.classifiers.loading import classifier_loaders
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import recognise_path
from shiftbench.errors import SettingError, ShiftbenchError, StoreError, argument, check_integer, listed, warn_user
from shiftbench.io import html
from shiftbench.io.paths import Location, ObjectPath, place
from shiftbench.jobs.base import Executor, Failure, Shard, add_tracebacks, retry_hint
from shiftbench.jobs.executors import ExecutorName, find_executor
from shiftbench.labels.catalogue import LabelsArgument, find_label_space
from shiftbench.runs.arguments import DESIGN_KEYWORDS, KEYWORDS, EvaluateKeywords, GroupedArguments
from shiftbench.runs.behaviour import copy_behaviour, settle_behaviour
from shiftbench.runs.execute import (
    AnsweredByPlanError,
    RunRequest,
    input_warnings,
    load_classifiers,
    open_inputs,
    plan_and_execute,
    with_metrics,
)
from shiftbench.runs.results import StoredResults
from shiftbench.runs.stateful import check_stateful
from shiftbench.settings.base import Setting, ShiftOptions, Suite, SuiteOptions, build_suite, split_names, suites
from shiftbench.settings.designs import Design, DesignName, one_pass
from shiftbench.settings.roles import Data, Selection, data_name, of_split
from shiftbench.store.run_records import Call
from shiftbench.store.workspace import Workspace

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from shiftbench.errors import ResultWarning
    from shiftbench.metrics.detection import AnomalyScore
    from shiftbench.reports.figures import RunFigures
    from shiftbench.reports.frames import Content
    from shiftbench.reports.placement import Placements
    from shiftbench.reports.table import Table
    from shiftbench.runs.dry_run import DryRun
    from shiftbench.runs.execute import Outcome
    from shiftbench.runs.plan import RunContext


#: Results whose numbers a notebook shows.
_MOST_SHOWN = 500


class Run(StoredResults):
    """Results to look at: tables, comparisons and the report, computed from the stored predictions.

    Attributes:
        workspace: The workspace that holds the results.
        results: The results.
        settings_left_out: Settings of the suite that were not evaluated, and why: without data, or for a model that
            lacks their classes.
        left_out: What ``settings_left_out`` starts with.
        models: Versions of the models in the workspace; read from it by default.

    Args:
        left_out: The settings that were left out: ``settings_left_out``.
    """

    def table(
        self, metric: str | None = None, *, level: float = 0.95, gaps: bool = False, pivot: bool = False
    ) -> Table:
        """Classifiers by settings, with intervals.

        Args:
            metric: Metrics, separated by commas; default: each setting's own.
            level: Confidence level of the intervals.
            gaps: Whether each score is followed by its difference from the setting's reference.
            pivot: One row per model and one column per setting, with values only, as tables of results have them.
        """
        from shiftbench.reports.gaps import with_gaps
        from shiftbench.reports.scores import pivot_table, score_table

        if metric:
            scores = self.with_means(self.scores(metric, level=level))
        else:
            scores = self.shown_scores(level=level)
        if gaps:
            scores = with_gaps(scores, self.references)
        if pivot:
            return pivot_table(scores)
        return self.with_models(score_table(scores))

    def with_models(self, table: Table) -> Table:
        """A table of these models with their ids, marks for assumed preprocessing, and notes on what differs.

        Args:
            table: A table made from the scores of this run; it is completed in place.
        """
        from shiftbench.reports.models import with_models

        return with_models(table, self)

    def __repr__(self) -> str:
        models = self.classifiers[0] if len(self.classifiers) == 1 else f"{len(self.classifiers)} models"
        return f"<{type(self).__name__}: {models} in {self._where}>"

    @property
    def _where(self) -> str:
        settings = self.settings[0] if len(self.settings) == 1 else f"{len(self.settings)} settings"
        return f"{settings}, workspace {self.workspace.root}"

    def _repr_html_(self) -> str:
        """Models, the summary, warnings, the tables of the overview, and what was left out."""
        parts = [html.title(type(self).__name__, f"{listed(self.classifiers, 3)} in {self._where}")]
        if len(self.results) > _MOST_SHOWN:  # reading them all takes too long for something that is only displayed
            parts.append(html.notes([f"{len(self.results):,} results: choose some with run.select(models, settings)"]))
        else:
            from shiftbench.reports.summary import summarise
            from shiftbench.reports.table import Table
            from shiftbench.reports.writers import to_html

            rows = []
            if self.results:
                rows = [(html.small(name), html.text(text)) for name, text in summarise(self).lines()]
            parts.append(html.table(("", ""), rows, left=2))
            parts += [html.warning(str(line)) for line in [*self.trained_on(), *self.warnings()]]
            try:
                tables = self.overview()
            except ShiftbenchError as error:  # corruptions at different severities have no mean
                tables = [self.table(), Table([], [], notes=[error.message])]
            parts += map(to_html, tables)
        parts.append(html.notes(f"{name} left out: {why}" for name, why in self.left_out.items()))
        return html.block(*parts)

    @property
    def plot(self) -> RunFigures:
        """Figures of this run: ``run.plot.corruptions()``, ``.scatter()``, ``.reliability()``, ``.heatmap()``, ...

        Raises:
            MissingExtraError: Matplotlib is not installed (``pip install 'shiftbench[figures]'``).
        """
        from shiftbench.reports.figures import RunFigures

        return RunFigures(self)

    def metrics(self, metric: str | None = None) -> dict[str, float]:
        """All scores as a flat dict, for a logger.

        A key is composed of the names of what was evaluated:

        - ``setting/metric`` for a setting of its own: ``val/top1``;
        - ``family/corruption/severity/metric`` for a corrupted setting: ``imagenet-c/fog/3/top1``;
        - ``family/corruption/metric`` for the mean over its severities: ``imagenet-c/fog/top1``, ``imagenet-c/fog/CE``;
        - ``family/metric`` for the mean over all corruptions of the family: ``imagenet-c/top1``, ``imagenet-c/mCE``.

        If the run has several models, the model's name comes first: ``resnet50/imagenet-c/mCE``. Spaces in a metric's
        name become ``_``. Sequences of frames have ``flip_probability`` and ``top-5_distance`` in place of ``top1``.
        Values are fractions (an mCE of 76.7 is 0.767). Numbers that are not defined are left out, and so are the
        means of a family whose corruptions were evaluated at different severities. A mean over fewer corruptions or
        severities than the benchmark has is ``partial_mCE``, never ``mCE``.

        Args:
            metric: Names of metrics, separated by commas, to use instead of each setting's own. Then only single
                settings are scored.

        Returns:
            Key to value, in the order of the results.

        Raises:
            StoreError: Two results have the same key, such as two seeds in one workspace.

        Example:
            >>> run = evaluate(model, "corruptions", data="photos")  # doctest: +SKIP
            >>> run.metrics()["photos-c/top1"]  # doctest: +SKIP
            0.713
        """
        from shiftbench.reports.frames import flat_metrics, score_rows

        return flat_metrics(score_rows(self, metric))

    def to_arrow(self, content: Content = "scores", *, top_k: int = 1, level: float = 0.95) -> pa.Table:
        """The run as an Arrow table, for any data-frame library.

        Args:
            content: ``"scores"``: one row per score, with columns ``model``, ``model_id``, ``setting``, ``family``,
                ``corruption``, ``severity``, ``metric``, ``value``, ``low``, ``high``, ``n``, ... Values
                are fractions. A row without a severity is the mean over the severities, one without a corruption the
                mean over a family.
                ``"predictions"``: one row per image, model and setting, with columns ``model``, ``setting``,
                ``image``, ``label``, ``top1`` (keys of classes), ``confidence``, ``correct``, ``model_id``,
                ``label_name``, ``top1_name``, ``family``, ``corruption`` and ``severity``.
            top_k: Number of predicted classes per image: columns ``top1`` to ``topK``.
            level: Confidence level.

        Returns:
            A ``pyarrow.Table``.

        Example:
            >>> frame = run.to_arrow("predictions").to_pandas()  # doctest: +SKIP
            >>> frame.groupby("label_name")["correct"].mean()  # doctest: +SKIP
        """
        from shiftbench.reports import frames

        frames.check_content(content)
        if content == "predictions":
            return frames.predictions_to_arrow(self, top_k)
        return frames.scores_to_arrow(self, frames.score_rows(self, level=level))

    def to_pandas(self, content: Content = "scores", *, top_k: int = 1, level: float = 0.95) -> pd.DataFrame:
        """As ``to_arrow``, as a data frame of pandas.

        Args:
            content: ``"scores"`` or ``"predictions"``.
            top_k: Number of predicted classes per image.
            level: Confidence level.

        Raises:
            ShiftbenchError: pandas is not installed.
        """
        from shiftbench.reports.frames import to_pandas

        return to_pandas(self.to_arrow(content, top_k=top_k, level=level))

    def to_polars(self, content: Content = "scores", *, top_k: int = 1, level: float = 0.95) -> pl.DataFrame:
        """As ``to_arrow``, as a data frame of Polars.

        Args:
            content: ``"scores"`` or ``"predictions"``.
            top_k: Number of predicted classes per image.
            level: Confidence level.

        Raises:
            ShiftbenchError: Polars is not installed.
        """
        from shiftbench.reports.frames import to_polars

        return to_polars(self.to_arrow(content, top_k=top_k, level=level))

    def corruption_table(
        self,
        family: str | None = None,
        *,
        baseline: str | None = None,
        relative: bool = False,
        modelled: bool = False,
        level: float = 0.95,
    ) -> Table:
        """mCE, relative mCE and the corruption error of every type, with intervals.

        Args:
            family: Family of corrupted settings, such as ``imagenet-c``; default: all.
            baseline: A model of this run to divide by; default: the published AlexNet errors for ImageNet's
                classes, else nothing.
            relative: Relative corruption errors by type, in place of corruption errors.
            modelled: Under a design, the error of each corruption, severity and setting by a partially pooled model,
                in place of corruption errors.
            level: Confidence level of the intervals.

        Raises:
            StoreError: The run has no corrupted settings, or none of this family.
            SettingError: ``modelled`` for results of the full grid.
        """
        from shiftbench.reports.corruption import modelled_table, results_corruption_table

        if modelled:
            return self.with_models(modelled_table(self, family, level=level))
        return self.with_models(
            results_corruption_table(self, family, baseline=baseline, relative=relative, level=level)
        )

    def overview(self, *, level: float = 0.95) -> list[Table]:
        """The main tables: corruption errors and flips for their families, accuracy for the rest.

        Args:
            level: Confidence level of the intervals.
        """
        from shiftbench.reports.corruption import corruption_families, flip_entries, perturbation_families
        from shiftbench.reports.scores import score_table

        corrupted = corruption_families(self)
        perturbed = perturbation_families(self)
        in_families: set[str] = set()
        for family_results in [*(family.members for family in corrupted.values()), *perturbed.values()]:
            in_families.update(result.setting for result in family_results)
        plain = [entry for entry in self.shown_scores(level=level) if entry.setting not in in_families]
        tables: list[Table] = []
        if plain:
            tables.append(self.with_models(score_table(plain)))
        tables += [self.corruption_table(family, level=level) for family in corrupted]
        for family in perturbed:
            flips = flip_entries(self, family, level)
            tables.append(self.with_models(score_table(flips, title=f"{family}: flips between frames")))
        return tables

    def compare(self, setting: str | None = None, *, level: float = 0.95) -> Table:
        """Every pair of classifiers on the same images of one setting, or in the mean over a family of settings.

        Args:
            setting: The setting, a family of corrupted settings (``imagenet-c``) or a mean over settings
                (``deepfashion-remixed.shifted``); default: the first of the run. Of results on several sets of images,
                those that most models have are compared.
            level: Confidence level of the intervals.

        Returns:
            Differences with intervals, and tests corrected for the number of pairs: exact McNemar for a setting,
            Student's over images for a family.
        """
        from shiftbench.reports.comparisons import compare_runs

        return compare_runs([self], setting, level=level)

    def groups(
        self, by: str, setting: str | None = None, *, table: str | Path | None = None, level: float = 0.95
    ) -> Table:
        """Accuracy by the groups of a column, and of the worst group, in one setting or in all.

        Args:
            by: Column of the images' metadata, or of ``table``.
            setting: The setting; default: all.
            table: A CSV or Parquet file with a column of image ids and the column ``by``.
            level: Confidence level of the intervals.
        """
        from shiftbench.reports.images import group_table

        return self.with_models(group_table(self.workspace, self.of_setting(setting), by, table=table, level=level))

    def per_class(self, setting: str | None = None, *, level: float = 0.95) -> Table:
        """Accuracy of every class, and of the worst one: ``groups("class")``.

        Args:
            setting: The setting; default: all.
            level: Confidence level of the intervals.
        """
        from shiftbench.reports.images import CLASS

        return self.groups(CLASS, setting, level=level)

    def detection(
        self,
        inside: str | None = None,
        outside: str | None = None,
        scores: Sequence[AnomalyScore] | None = ("max_softmax",),
        *,
        published: bool = False,
        level: float = 0.95,
    ) -> Table:
        """How well anomaly scores tell the images of ``outside`` from those of ``inside``.

        Args:
            inside: Setting with images of known classes; default: the only one that can be.
            outside: Setting with images of other classes, such as ``imagenet-o``.
            scores: Anomaly scores to use; None: all.
            published: Whether FPR95 is computed as in the papers' code.
            level: Confidence level of the intervals.
        """
        from shiftbench.reports.confidence import detection_table

        table = detection_table(self.workspace, self.results, inside, outside, scores, published=published, level=level)
        return self.with_models(table)

    def calibration(
        self,
        setting: str | None = None,
        *,
        fit: str | None = None,
        split: float | None = None,
        seed: int = 0,
        diagrams: bool = False,
        level: float = 0.95,
    ) -> Table:
        """Calibration in one setting, before and after a temperature that is fitted on other images.

        Args:
            setting: The setting to score; may be left out where there is only one.
            fit: Setting whose images the temperature is fitted on.
            split: Instead of ``fit``: share of the setting's own images to fit on.
            seed: Seed of the split.
            diagrams: Whether a reliability diagram is drawn below the table.
            level: Confidence level of the intervals.

        Raises:
            StoreError: The run has several settings and none is named.
        """
        from shiftbench.reports.confidence import calibration_table

        results = self.of_setting(setting)
        if len({result.setting for result in results}) > 1:
            raise StoreError(
                "several settings: name the one to score",
                found=f"{len(self.settings)} settings",
                expected=f"one of {', '.join(self.settings[:12])}",
                hint=argument("setting", "NAME"),
            )
        table = calibration_table(
            self.workspace,
            self.results,
            results[0].setting,
            fit=fit,
            split=split,
            seed=seed,
            diagrams=diagrams,
            level=level,
        )
        return self.with_models(table)

    def baselines(self, *, level: float = 0.95) -> Placements:
        """Where the models of this run stand among the published models of their settings.

        The papers' printed accuracies serve as the line for one's own model: ImageNetV2 (67 models), CIFAR-10.1 (34),
        ImageNet-R, -A, -C and -O. A result is placed only if it is the same measurement: setting, label space and
        number of images; the others are listed in ``unplaced``, with the reason.

        Args:
            level: Confidence level.

        Returns:
            The placements; each has its ``sentence``, its distance from the line (``effective``) and its source.

        Example:
            >>> [one.sentence for one in run.baselines()]  # doctest: +SKIP
        """
        from shiftbench.reports.placement import place_models

        return place_models(self, level=level)

    def report(self, path: str | Path) -> Path:
        """Everything about this run in one HTML file.

        Args:
            path: The file to write, ``.html``.

        Returns:
            The path of the file.
        """
        from shiftbench.reports.page.write import write_report

        return Path(write_report(path, self).path)

    def summary(self, *, level: float = 0.95) -> dict[str, Any]:
        """The run as JSON-able data.

        Args:
            level: Confidence level of the intervals.
        """
        facts = self.model_facts()
        scores = []
        for model, setting, score in self.shown_scores(level=level):
            scores.append({"classifier": model, "setting": setting, **score.as_dict(), **asdict(facts[model])})
        return {
            "workspace": str(self.workspace.root),
            "scores": scores,
            "tables": [table.as_data() for table in self.overview(level=level)],
            "problems": self.problems(),
            "left_out": self.left_out,
            "settings_left_out": [omission.as_dict() for omission in self.settings_left_out],
        }


class IncompleteRunError(ShiftbenchError):
    """Some classifiers failed on some images; everything else is stored, and the same call continues.

    Args:
        failures: What failed, on which images and why.
        run: What is complete.
        planned: Number of results that the run should have had.
    """

    def __init__(self, failures: Sequence[Failure], run: Run, planned: int) -> None:
        causes = list(dict.fromkeys(str(failure) for failure in failures))
        lines = causes[:5]
        if len(causes) > 5:
            lines.append(f"... and {len(causes) - 5} more such")
        super().__init__(
            f"{planned - len(run.results)} of {planned} results (model by setting) are not complete; everything else "
            f"is stored in {run.workspace.root}",
            found="\n            ".join(lines),
            hint=retry_hint(failures),
        )
        add_tracebacks(self, failures)
        self.failures = list(failures)
        #: What is complete.
        self.run = run


class StrictRunError(ShiftbenchError):
    """A strict run ended with warnings. Everything is stored.

    Attributes:
        run: The run, complete.
        warnings: What was found; each has a ``code``.

    Args:
        found: The warnings.
    """

    def __init__(self, run: Run, found: Sequence[ResultWarning]) -> None:
        texts = [str(warning) for warning in found if not warning.is_note]
        super().__init__(
            "a warning in a strict run" if len(texts) == 1 else f"{len(texts)} warnings in a strict run",
            found="\n            ".join(texts),
            hint="correct or confirm what they are about; the results are stored",
        )
        self.run = run
        self.warnings = list(found)


class SharedRun(Run):
    """What is complete after one job of several that share a run; the last of them finds everything."""

    def __init__(self, run: Run, shard: Shard, blocks: int, waiting: int) -> None:
        super().__init__(run.workspace, run.results, left_out=run.settings_left_out)
        self.complete = waiting == 0
        if self.complete:
            progress = f"all {blocks} blocks are done, and joined"
        else:
            own_blocks = len(shard.of(range(blocks)))
            progress = f"my {own_blocks} of {blocks} blocks are done; {waiting} are for other jobs"
        #: For people: what this job did, and what the others have yet to do.
        self.word = f"job {shard.number} of {shard.count}: {progress}"


def evaluate(
    classifiers: object,
    suite: str | Sequence[str | Setting] = "clean",
    data: Data = None,
    workspace: str | Location | Workspace = "shiftbench-workspace",
    *,
    labels: LabelsArgument = None,
    shifts: ShiftOptions | None = None,
    seed: int = 0,
    select: Selection | None = None,
    split: str | None = None,
    allow_outside: bool = False,
    metric: str | Sequence[str] = ("top1", "top5"),
    keep_scores: bool = False,
    design: Design | DesignName = "full",
    shard: Shard | str | None = None,
    wait: float | None = None,
    workers: int | None = None,
    executor: ExecutorName | Executor = "threads",
    progress: bool = True,
    strict: bool = False,
    check: Callable[[RunContext], object] | None = None,
    **keywords: Unpack[EvaluateKeywords],
) -> Run:
    """Evaluate models under the settings of a suite.

    Results that are already in the workspace are not computed again; an interrupted call resumes if it is repeated.
    Device, batch size, threads and workers change scores only through the rounding of the device's arithmetic.

    Args:
        classifiers: One model or a list: ``"timm:resnet50"``, ``"model.onnx"``, a torch module, a function from a
            uint8 batch (N, H, W, 3) to scores, ... (see ``shiftbench list classifiers``).
        suite: Name of a suite (``"clean"``, ``"corruptions"``, ``"imagenet-c"``, ...), several with commas, or a
            list of names and settings.
        data: Folder, file, URL or dataset; for suites of several datasets a mapping from role to one.
        workspace: Folder or URL (``"s3://bucket/folder"``) that keeps the results.
        labels: Classes of data and models: name of a label space, a file (classes in order, or a mapping from your
            classes to those of the model), a list of names in the model's order, a dict from class to index or back
            (``class_to_idx``, ``id2label``), or ``"folders"``. Default:
            recognised by name; a model that names none has the classes of the data, in sorted order, if it has as
            many outputs.
        shifts: Which corruptions, and how corrupted images come to be: ``ShiftOptions(severities=(3,))``.
        seed: Seed of the corruptions.
        select: Evaluate only a part of the data: ``Selection(per_class=10)`` or ``Selection(sample=1000)``.
        split: Which split of data that has several: ``split="test"`` is short for ``data="FOLDER/test"``.
        allow_outside: Let manifests name images outside their folder: only for manifests that you trust.
        metric: Metrics to compute later; decides how much of each prediction is stored.
        keep_scores: Store the scores of all classes, for calibration and detection.
        design: ``"full"``, or ``"one-pass"``: evaluate every image clean and under one of the suite's shifts, and
            estimate the numbers of the full grid with intervals for that; with limits:
            ``Design("one-pass", budget="60s")``.
        shard: ``"3/8"`` computes the third of eight parts, for job arrays: the same call with 1/8, 2/8, ..., in any
            order or at once, on one workspace; the job that finds a result's last block joins it.
        wait: Seconds to wait for blocks that another run on the workspace computes, before they are computed here as
            well; default: until they are done.
        workers: Number of workers; default: one per core.
        executor: Where the work runs: ``"threads"``, ``"processes"``, ``"ray"``, or an executor.
        progress: Whether a progress bar is shown.
        strict: Raise StrictRunError, after everything is stored, where there would be warnings: permuted labels,
            chance level, assumed preprocessing, an orientation or transparency of images that nobody said to ignore,
            skipped images, missing predictions.
        check: Called with the plan before anything is computed; an exception it raises ends the run.
        **keywords: Options of the models, and short forms for the fields of ``shifts``, ``design`` and ``shard``.

            Models that are loaded here: ``preprocessing`` is what they were trained with: ``{"size": 32, "mean": 0.5,
            "std": 0.25}``, a file, or a transform (see ``load_classifier``); one for all models, or a list with one per
            model. Default: what file or library state; the rest is assumed, with a warning. ``name``: name of the
            model, or a list with one name per model. ``defences``: put before every model: ``"clahe"``,
            ``"denoise"``, ``"ten-crop"``. ``device``: ``"auto"``, ``"cpu"``, ``"cuda:1"``. ``batch_size``: images per
            call; default: the model's own. ``threads``: threads per model and worker. ``trust``: load model files
            that run code of their own. ``stateful``: the models change while they run, or mix the images of a batch,
            on purpose, such as test-time adaptation (docs/models.md): each setting is evaluated as a whole by one
            worker, its images in an order shuffled by ``seed`` and in batches of ``batch_size`` (default: 64), and
            the model is reset before it.

            Short forms: ``severities``, ``corruptions``, ``source``, ``frost_textures``, ``style_network`` and
            ``styles`` are those of ``ShiftOptions``, and take single values, too (``severities=3``); ``passes``,
            ``budget`` and ``width`` are those of ``Design``; ``rebalance=True``: after its own part, the job computes
            blocks that other jobs have not begun.

    Returns:
        The results, to look at: ``run.table()``, ``run.metrics()``, ``run.plot``, ``run.report("report.html")``,
        ...

    Raises:
        IncompleteRunError: A model failed on some images; everything else is stored, and the same call continues.
        StrictRunError: There were warnings, and ``strict`` is set.
        ShiftbenchError: Data, labels or models don't fit together; the message says what to change.

    Example:
        >>> import shiftbench as sb
        >>> run = sb.evaluate("model.onnx", "corruptions", data="photos/")  # doctest: +SKIP
        >>> run.metrics()["photos/top1"]  # doctest: +SKIP
        0.945
    """
    arguments = dict(locals())
    groups = GroupedArguments.of(shifts, design, shard, keywords)
    check_integer("seed", seed, None)
    if data is None:
        _check_order(classifiers, suite)
    data = of_split(data, split)
    is_sampled = not groups.design.is_full
    if select is not None:
        select = replace(select, balanced=is_sampled or select.balanced)
    built_suite = _build_suite(suite, groups.shifts, data, select)
    store = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
    load = partial(load_classifiers, classifiers, **groups.models)
    inputs = open_inputs(
        built_suite, data, find_label_space(labels), load, selection=select, allow_outside=allow_outside
    )
    models = inputs.classifiers.values()
    check_stateful(models, designed=is_sampled, shared=groups.shard is not None)
    behaviour_notes, watch = settle_behaviour(models, store)
    request = RunRequest(
        store,
        inputs.classifiers,
        inputs.without_data,
        data,
        metric_names=split_names(metric),
        keep_scores=keep_scores,
        seed=seed,
        watch=watch,
        executor=find_executor(executor, workers),
        shard=groups.shard,
        progress=progress,
        call=_call(arguments, groups),
        patience=True if wait is None else wait,
        check=check,
    )
    built_suite = with_metrics(built_suite, inputs.datasets)
    try:
        outcome, design_notes = _plan_and_execute(request, built_suite, inputs.datasets, groups.design)
    except AnsweredByPlanError:
        notes = [*inputs.notes, *behaviour_notes, *input_warnings(models, inputs.datasets.values())]
        _report_warnings(Run(store, []), notes, strict=strict)
        raise
    run = Run(store, outcome.complete, left_out=outcome.left_out)
    if outcome.failures:
        raise IncompleteRunError(outcome.failures, run, outcome.planned)
    if groups.shard is not None:
        run = SharedRun(run, groups.shard, outcome.blocks, outcome.waiting)
    notes = [*inputs.notes, *behaviour_notes, *design_notes, *input_warnings(models, inputs.datasets.values())]
    _report_warnings(run, notes, strict=strict)
    return run


def _build_suite(
    suite: str | Sequence[str | Setting], shifts: ShiftOptions, data: Data, select: Selection | None
) -> Suite:
    """The settings that are asked for, under the name of the user's data."""
    built_suite = build_suite(suite, suite_options(data, shifts))
    return built_suite if select is None else select.settings(built_suite)


def _plan_and_execute(
    request: RunRequest, suite: Suite, datasets: Mapping[str, Dataset], design: Design
) -> tuple[Outcome, list[ResultWarning]]:
    """Plan and execute a suite by the design that is asked for; with notes on what was reached within its limits."""
    if design.is_full:
        return plan_and_execute(request, suite, datasets), []
    from shiftbench.runs.budget import Budget, compute_design  # most runs have no design

    limits = Budget.of(design)
    if limits is not None and request.shard is not None:
        raise SettingError("a budget can't be shared by jobs", hint=f"leave {argument('shard')} out")
    return compute_design(request, suite, datasets, one_pass(design, request.seed), limits)


def _call(arguments: Mapping[str, object], groups: GroupedArguments) -> Call:
    """The call of ``evaluate`` for the record of the run, which names each argument by its keyword."""
    plain = {name: value for name, value in arguments.items() if name not in ("shifts", "keywords")}
    return Call("evaluate", evaluate, plain | groups.flat(), defaults=GroupedArguments.of().flat())


def argument_names() -> list[str]:
    """The names of all arguments of ``evaluate`` as records and configuration files state them: those of its
    signature, and the keywords in place of objects."""
    names = [name for name in inspect.signature(evaluate).parameters if name not in ("shifts", "keywords")]
    return [*names, *KEYWORDS]


def _report_warnings(run: Run, notes: Sequence[ResultWarning], *, strict: bool) -> None:
    """Warn of the notes and of what the results show; StrictRunError in a strict run with warnings."""
    warnings = [*notes, *run.skipped(), *run.trained_on(), *run.warnings()]
    if strict and not all(warning.is_note for warning in warnings):
        raise StrictRunError(run, warnings)
    for warning in warnings:
        if warning.code != "assumed-preprocessing":  # loading the model has warned of it
            warn_user(warning)


def _check_order(classifiers: object, suite: object) -> None:
    """Refuse data in the place of the suite, or among the models, where none are given as data."""
    is_known_suite = isinstance(suite, str) and suite in suites
    if _is_data(suite) and not is_known_suite:
        raise _misplaced(suite, "suite")
    models = classifiers if isinstance(classifiers, list | tuple) else [classifiers]
    for model in models:
        if _is_data(model):
            raise _misplaced(model, "model")


def _is_data(value: object) -> bool:
    """Whether a value is a dataset or the path of one; models are files, or have a scheme."""
    if isinstance(value, Dataset):
        return True
    if not isinstance(value, str | Path) or not Path(value).exists():
        return False
    return Path(value).suffix not in classifier_loaders and recognise_path(Path(value)) is not None


def _misplaced(value: object, role: str) -> SettingError:
    if isinstance(value, Dataset):
        name = f"the dataset {value.name!r}"
        advice = argument("data")
    else:
        name = repr(str(value))
        advice = argument("data", str(value))
    return SettingError(f"{name} is data, not a {role}", found=f"no {argument('data')}", hint=f"did you mean {advice}?")


def suite_options(data: Data, shifts: ShiftOptions) -> SuiteOptions:
    """What a suite may depend on, from the arguments of ``evaluate`` and ``Monitor``; raises for what is no data."""
    if data is not None and not isinstance(data, str | PathLike | ObjectPath | Dataset | Mapping):
        raise SettingError(
            "data is neither a path nor a dataset",
            found=type(data).__name__,
            expected="a folder, a file, a URL, a dataset, or a mapping from role to one",
            hint="shiftbench.from_torch_dataset(...) or shiftbench.datasets.from_arrays(images, labels, space=...)",
        )
    return SuiteOptions.of(shifts, data_name(data))


def dry_run(
    classifiers: Any,
    suite: str | Sequence[str | Setting] = "clean",
    data: Data = None,
    workspace: str | Location | Workspace = "shiftbench-workspace",
    **options: Any,
) -> DryRun:
    """What ``evaluate`` would do with the same arguments: settings, images, forward passes, estimated time.

    Models and data are opened and a few images are run, to estimate the time. Nothing is written.

    Args:
        classifiers: One model or a list, as in ``evaluate``.
        suite: Suites and settings, as in ``evaluate``.
        data: The data, as in ``evaluate``.
        workspace: The workspace that results would be written to; what it holds already is not counted.
        **options: Further arguments of ``evaluate``.

    Returns:
        The plan; ``print`` shows it.

    Example:
        >>> print(sb.dry_run("model.onnx", "imagenet-c", data="val/"))  # doctest: +SKIP
    """
    import tempfile

    from shiftbench.runs.budget import Budget
    from shiftbench.runs.dry_run import OnlyPlannedError, rehearse

    existing: Workspace | None = None
    if isinstance(workspace, Workspace):
        existing = workspace
    elif (place(workspace) / "workspace.json").is_file():
        existing = Workspace(workspace, create=False)
    workers = options.get("workers")
    executor = find_executor(options.get("executor", "threads"), workers)
    design_keywords = {name: value for name, value in options.items() if name in DESIGN_KEYWORDS}
    design = GroupedArguments.of(
        design=options.get("design", "full"), keywords=cast(EvaluateKeywords, design_keywords)
    ).design
    limits = Budget.of(design)
    has_pilot = limits is not None and not limits.fixed
    with tempfile.TemporaryDirectory() as folder:
        if existing is not None:
            copy_behaviour(existing, Workspace(folder))  # a model that has changed since has no results there
        options["check"] = lambda context: rehearse(context, executor, existing, workers)
        options["progress"] = False
        try:
            evaluate(classifiers, suite, data, folder, **options)
        except OnlyPlannedError as planned:
            return replace(planned.plan, pilot=has_pilot)
    raise ShiftbenchError("nothing was planned")
