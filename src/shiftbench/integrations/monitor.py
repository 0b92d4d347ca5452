"""Robustness of a model while it is trained."""

from __future__ import annotations

import hashlib
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any
from urllib.parse import quote

import msgspec

from shiftbench.api import Run, evaluate, suite_options
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.loading import load_classifier
from shiftbench.classifiers.options import Engine
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.subset import proportional
from shiftbench.errors import ResultWarning, SettingError, ShiftbenchError, UnknownClassesError, check_integer, required
from shiftbench.integrations.ranks import computed_on_rank_0, is_first_rank
from shiftbench.integrations.sinks import Sink, find_sink
from shiftbench.integrations.training_state import copied, is_module, kept_random_state
from shiftbench.io.paths import Location
from shiftbench.labels.catalogue import FOLDERS, LabelsArgument, find_label_space
from shiftbench.labels.space import LabelSpace
from shiftbench.reports.frames import ScoreRow, flat_metrics, score_rows
from shiftbench.reports.table import Column, Number, Table
from shiftbench.runs.budget import duration
from shiftbench.runs.execute import common_image_size
from shiftbench.settings.base import Setting, build_suite, shift_options
from shiftbench.settings.roles import Data, open_data
from shiftbench.store.workspace import Workspace

#: Codes of warnings that every training gives at its beginning.
_EXPECTED_WARNINGS = {"chance-level"}
#: With fewer images than this, intervals are too wide to be of use.
_FEW_IMAGES = 30
#: A sample that takes this share of the budget tells the speed well enough.
_ENOUGH_SHARE = 0.125
#: One image alone does not tell what is spent on it and what on every call. A second sample does, and is taken if the
#: first took less than this share of the budget.
_AFFORDABLE_SHARE = 0.4
#: Each sample has this many times the images of the one before.
_SAMPLE_GROWTH = 4


@dataclass(frozen=True)
class Speed:
    """Seconds of an evaluation of n images (in every setting): ``fixed + n * per_image``."""

    fixed: float
    per_image: float

    def images(self, budget: float) -> int:
        """As many images as the budget allows, at least one."""
        return max(1, int((budget - self.fixed) / self.per_image))


class _Epoch(msgspec.Struct):
    """What was evaluated at one epoch."""

    epoch: int
    model: str
    #: Keys of its results in the workspace.
    results: list[str]
    seconds: float


class _Record(msgspec.Struct):
    """``monitors/<name>.json`` in a workspace: which images a training is judged on, and its results so far."""

    settings: list[str]
    seed: int
    budget: float | None
    #: Fingerprints of the chosen images by dataset, and their number.
    images: dict[str, str]
    counts: dict[str, int]
    speed: Speed | None
    epochs: list[_Epoch]


#: What the records of a history say of each score.
_SCORE_FIELDS = ("value", "low", "high", "n", "level", "unit")


def _score_record(epoch: int, row: ScoreRow) -> dict[str, object]:
    score = row.score.as_dict()
    record: dict[str, object] = {"epoch": epoch, "metric": row.key, "setting": row.setting}
    for field in _SCORE_FIELDS:
        record[field] = score[field]
    return record


class Monitor:
    """Evaluates a model during training, without touching the training.

    Each call copies the model, evaluates the copy with torch (an export to ONNX at every epoch would cost more than it
    saves, and leave a file each), and restores all random generators: training with and without a monitor gives the
    same bits. Results go into a workspace under the name ``<name>-epoch<epoch>``; a training that is resumed continues
    its history with the same images.

    In a training on several ranks, rank 0 evaluates, writes the results and logs to the sinks. The other ranks may call
    the monitor as well; they wait for rank 0 and return its metrics.

    Args:
        data: A folder, file or dataset, or a mapping from role to one, as in ``evaluate``.
        suite: A suite, several separated by commas, or settings.
        every: Evaluate at epochs that this number divides; other calls return ``{}`` at once.
        budget: Time per call: ``"20s"``, ``"2min"``, or seconds. The first call measures the speed (which takes up to
            about another budget) and chooses how many images fit: the same ones at every epoch, with each class in its
            share of the dataset. A larger budget contains the images of a smaller one. None: all images.
        workspace: Folder or URL for the results.
        name: Name of the model in results; default: its class.
        sinks: Where metrics are logged: ``"tensorboard:FOLDER"``, ``"mlflow:URI"``, ``"wandb:PROJECT"``, or objects
            with ``log(metrics, step)`` and ``close()``.
        prefix: Begins the names of metrics in sinks and in the logs of training frameworks.
        labels: Classes of data and model, as in ``evaluate``.
        preprocessing: What the model was trained with, as in ``evaluate``.
        severities: Severities of corruption suites: one or several.
        corruptions: Only these corruptions, one or several; default: all of the suite.
        seed: Seed of the shifts and of the choice of images.
        batch_size: Images per forward pass.

    Raises:
        ShiftbenchError: If the suite, the data or a sink cannot be opened.

    Example:
        >>> monitor = Monitor(data="photos/val", every=5, budget="20s")  # doctest: +SKIP
        >>> for epoch in range(90):  # doctest: +SKIP
        ...     train_one_epoch(model)
        ...     print(monitor(model, epoch))
        >>> monitor.history()  # doctest: +SKIP
    """

    def __init__(
        self,
        data: Data = None,
        suite: str | Sequence[str | Setting] = "corruptions",
        *,
        every: int = 1,
        budget: str | float | None = None,
        workspace: str | Location | Workspace = "shiftbench-workspace",
        name: str | None = None,
        sinks: Sequence[str | Sink] = (),
        prefix: str = "shiftbench/",
        labels: LabelsArgument = None,
        preprocessing: object = None,
        severities: float | Sequence[float] = (1, 2, 3, 4, 5),
        corruptions: str | Sequence[str] = (),
        seed: int = 0,
        batch_size: int | None = None,
    ) -> None:
        check_integer("every", every)
        check_integer("seed", seed, None)
        self.every = every
        self.seed = seed
        self.prefix = prefix
        self.name = name
        self.budget = None if budget is None else duration(budget)
        self.preprocessing = preprocessing
        self.batch_size = batch_size
        built_suite = build_suite(
            suite, suite_options(data, shift_options({"severities": severities, "corruptions": corruptions}))
        )
        space = find_label_space(labels)
        try:
            self._datasets, left_out = open_data(built_suite, data, space=space)
        except UnknownClassesError:
            if space is not None:
                raise
            # As in `evaluate`, folders of unknown classes are the user's own classes, in sorted order.
            self._datasets, left_out = open_data(built_suite, data, space=FOLDERS)
        self._settings = [setting for setting in built_suite.settings if setting.name not in left_out]
        self._data_space = next(iter(self._datasets.values())).space
        #: The classes of the model, if the user names them.
        self._model_space: LabelSpace | None = None
        if isinstance(space, str):
            self._model_space = self._data_space
        elif space and not space.members:
            # As in `evaluate`, groups of classes are those of the data; a model has the classes that they group.
            self._model_space = space
        self._image_size = cache(lambda: common_image_size([*self._datasets.values()]))
        self.workspace = workspace if isinstance(workspace, Workspace) else Workspace(workspace)
        self._sink_arguments = sinks
        self.sinks: list[Sink] = []
        if is_first_rank():
            self._open_sinks()
        self._clock = time.perf_counter
        #: The images that every epoch is evaluated on, from the first call on.
        self._evaluated: dict[str, Dataset] | None = None
        self._record: _Record | None = None
        self._rows: dict[int, list[ScoreRow]] = {}
        self._warned: set[str] = set()

    def __call__(self, model: object, epoch: int) -> dict[str, float]:
        """Evaluate the model as it is now.

        Args:
            model: A torch module, or whatever ``load_classifier`` accepts. Its outputs are class scores.
            epoch: Number of the epoch; part of the names of the results, and the step in sinks.

        Returns:
            The metrics of ``Run.metrics()``, the same on every rank; empty if the epoch is not due. A failure after the
            first epoch (such as outputs that are not numbers) is warned about and returns ``{}``: it does not end the
            training.

        Raises:
            ShiftbenchError: If the model cannot be evaluated at the first call.
        """
        if epoch % self.every:
            return {}
        return computed_on_rank_0(self._call_name(epoch), lambda: self._evaluated_and_logged(model, epoch))

    def _call_name(self, epoch: int) -> str:
        """Names a call alike on all ranks, and unlike the calls of other monitors."""
        settings = [setting.name for setting in self._settings]
        identity = repr((self.name, self.prefix, self.seed, settings))
        return f"monitor/{hashlib.sha256(identity.encode()).hexdigest()}/{epoch}"

    def _evaluated_and_logged(self, model: object, epoch: int) -> dict[str, float]:
        """The metrics of an epoch, which the sinks have got; empty after a failure that is not the first call's."""
        try:
            with kept_random_state(), self._own_warnings():
                metrics = self._evaluate(model, epoch)
        except ShiftbenchError as error:
            if not self._rows:
                raise
            warnings.warn(f"epoch {epoch} could not be evaluated: {error}", stacklevel=5)
            return {}
        self._open_sinks()
        for sink in self.sinks:
            sink.log(self._prefixed(metrics), epoch)
        return metrics

    def _open_sinks(self) -> None:
        """Open the sinks, once; only the rank that logs does so, since each opened one may leave a file or a run."""
        if not self.sinks:
            self.sinks = [find_sink(sink) for sink in self._sink_arguments]

    def _prefixed(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """The metrics under the names that sinks and training frameworks log."""
        return {f"{self.prefix}{name}": value for name, value in metrics.items()}

    def history(self) -> Table:
        """Scores with intervals by epoch, computed from the stored predictions.

        Returns:
            A table: people see clean scores and the means of corruption families; its rows, CSV and JSON have every
            score. Before the first call it shows what an earlier training of this ``name`` left in the workspace.
        """
        record = self._record
        if record is None and self.name:
            record = self._earlier(self.name)
        epochs: list[_Epoch] = []
        counts: dict[str, int] = {}
        if record is not None:
            epochs = record.epochs
            counts = record.counts
        columns = {"epoch": Column("epoch", "epoch", "count")}
        # People read one line per epoch; CSV and JSON have one row per score.
        epoch_lines: list[dict[str, object]] = []
        score_records: list[dict[str, object]] = []
        for evaluated in epochs:
            line: dict[str, object] = {"epoch": evaluated.epoch}
            for row in self._rows_of(evaluated):
                line[row.key] = Number(row.score.value, row.score.low, row.score.high)
                # Single corruptions would make the line too wide: they have no column, and show in the records only.
                if row.corruption is None:
                    columns.setdefault(row.key, Column(row.key, row.key, "number", places=1, times=100))
                score_records.append(_score_record(evaluated.epoch, row))
            epoch_lines.append(line)
        return Table(
            list(columns.values()),
            score_records,
            shown=epoch_lines,
            keys=("epoch", "metric", "setting", *_SCORE_FIELDS),
            title="% by epoch",
            notes=[f"{name}: {count} images" for name, count in counts.items()],
        )

    def close(self) -> None:
        """Close the sinks that the monitor opened."""
        for sink in self.sinks:
            sink.close()

    def lightning_callback(self) -> Any:
        """A callback for Lightning's Trainer: evaluates at the end of training epochs and logs through the module.

        Loggers get the metrics, and ``ModelCheckpoint(monitor=...)`` can use them. The module's ``forward`` must return
        class scores. On several ranks, rank 0 evaluates, and every rank logs the metrics.
        """
        monitor = self
        module = "lightning.pytorch"
        if find_spec("lightning") is None and find_spec("pytorch_lightning") is not None:
            module = "pytorch_lightning"  # the older name of the package
        library = required(module, "integrations", "a callback for Lightning")

        class LightningCallback(library.Callback):  # type: ignore[misc, name-defined]
            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                metrics = monitor._prefixed(monitor(pl_module, trainer.current_epoch))
                # A checkpoint is saved by all ranks together: all must see the metric that decides on it. The ranks
                # have equal values, of which the maximum is exact and the mean may be rounded.
                pl_module.log_dict(metrics, sync_dist=True, reduce_fx="max")

            def teardown(self, trainer: object, pl_module: object, stage: str) -> None:
                monitor.close()

        return LightningCallback()

    def keras_callback(self) -> Any:
        """A callback for ``fit`` of Keras 3 on torch: evaluates at the end of epochs and adds to the logs.

        ``History`` gets the metrics, and ``ModelCheckpoint(monitor=...)`` and ``EarlyStopping`` behind it in the list
        of callbacks can use them. Epochs are counted from 0.
        """
        monitor = self
        library = required("keras", "keras", "a callback for Keras")

        class KerasCallback(library.callbacks.Callback):  # type: ignore[misc, name-defined]
            def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
                metrics = monitor._prefixed(monitor(self.model, epoch))
                if logs is not None:
                    logs.update(metrics)

            def on_train_end(self, logs: dict[str, float] | None = None) -> None:
                monitor.close()

        return KerasCallback()

    def trainer_callback(self) -> Any:
        """A callback for the Trainer of transformers: evaluates at the end of epochs and adds to its log history.

        The Trainer hands its reporters to no callback: for TensorBoard and others, give the monitor sinks. On several
        ranks, rank 0 evaluates, and the log history of every rank gets the metrics.
        """
        monitor = self
        library = required("transformers", "hf", "a callback for the Trainer of transformers")

        class HuggingFaceCallback(library.TrainerCallback):  # type: ignore[misc, name-defined]
            def on_epoch_end(
                self, args: object, state: Any, control: object, model: Any = None, **unused: object
            ) -> None:
                metrics = monitor._prefixed(monitor(model, round(state.epoch)))
                if metrics:
                    state.log_history.append({**metrics, "epoch": state.epoch, "step": state.global_step})

            def on_train_end(self, args: object, state: object, control: object, **unused: object) -> None:
                monitor.close()

        return HuggingFaceCallback()

    def __repr__(self) -> str:
        budget = "" if self.budget is None else f", {self.budget:g} s per call"
        return f"<Monitor: {len(self._settings)} settings every {self.every} epochs{budget}>"

    def _evaluate(self, model: object, epoch: int) -> dict[str, float]:
        """Evaluate a copy of the model, and add the results to the record."""
        if is_module(model):
            model = copied(model)
        name = self.name or getattr(model, "name", None) or type(model).__name__
        record, datasets = self._prepared(model, name, epoch)
        began = self._clock()
        run = self._run(self._load(model, f"{name}-epoch{epoch}", datasets), datasets, self.workspace)
        seconds = self._clock() - began
        self._rows[epoch] = score_rows(run)
        keys = [result.key for result in run.results]
        record.epochs = [done for done in record.epochs if done.epoch != epoch]
        record.epochs.append(_Epoch(epoch, f"{name}-epoch{epoch}", keys, seconds))
        self.workspace.write_json(self._record_path(name), msgspec.to_builtins(record))
        return flat_metrics(self._rows[epoch])

    def _load(self, model: object, name: str, datasets: Mapping[str, Dataset]) -> Classifier:
        device = "auto"
        engine: Engine = "auto"
        if is_module(model):
            device = str(next((tensor.device for tensor in model.parameters()), "cpu"))  # type: ignore[attr-defined]
            engine = "torch"
        batch_size = self.batch_size or None
        images = max(len(dataset) for dataset in datasets.values())
        if not batch_size and images < 16:
            batch_size = images  # batches are filled up to their size: few images must not cost as much as many
        classifier = load_classifier(
            model,
            name=name,
            labels=self._model_space,
            default_labels=self._data_space,
            preprocessing=self.preprocessing,
            image_size=self._image_size,
            device=device,
            engine=engine,
            batch_size=batch_size,
        )
        # A model that is said to be self-contained is not run on fixed images to recognise it: every epoch is another
        # model anyway, and the budget is for the images of the data.
        classifier.self_contained = True
        return classifier

    def _run(self, model: Classifier, datasets: Mapping[str, Dataset], workspace: str | Location | Workspace) -> Run:
        return evaluate(model, self._settings, dict(datasets), workspace, seed=self.seed, progress=False)

    def _prepared(self, model: object, name: str, epoch: int) -> tuple[_Record, dict[str, Dataset]]:
        """The record to continue and the images; chosen at the first call, or as in the training that is resumed."""
        if self._record is not None and self._evaluated is not None:
            return self._record, self._evaluated
        record = self._earlier(name)
        if record is None:
            speed: Speed | None = None
            images = self._most
            if self.budget is not None:
                speed = self._pilot(model, name, self.budget)
                images = speed.images(self.budget)
            self._evaluated = self._subset(images)
            record = self._new_record(speed)
        else:
            self._evaluated = self._subset(max(record.counts.values()))
            if self._new_record(record.speed).images != record.images:
                raise self._other_monitor(name, "other images")
            # What is trained again from here is another model.
            record.epochs = [done for done in record.epochs if done.epoch < epoch]
        self._record = record
        return record, self._evaluated

    def _pilot(self, model: object, name: str, budget: float) -> Speed:
        """Measure the speed of the model, and warn if the budget is enough for few images only."""

        def timed(count: int) -> float:
            datasets = self._subset(count)
            classifier = self._load(model, name, datasets)
            with tempfile.TemporaryDirectory(prefix="shiftbench-") as folder:
                began = self._clock()
                self._run(classifier, datasets, folder)
                return self._clock() - began

        speed = measure(timed, budget, self._most)
        count = min(speed.images(budget), self._most)
        if count < min(_FEW_IMAGES, self._most):
            warnings.warn(
                f"{budget:g} s are enough for {count} images in {len(self._settings)} settings: intervals will be "
                "wide. Choose fewer severities or corruptions, or a larger budget.",
                stacklevel=2,
            )
        return speed

    @property
    def _most(self) -> int:
        """The number of images of the largest dataset."""
        return max(len(dataset) for dataset in self._datasets.values())

    def _subset(self, count: int) -> dict[str, Dataset]:
        """This many images of each dataset, or all if it has no more."""
        subsets: dict[str, Dataset] = {}
        for role, dataset in self._datasets.items():
            if count < len(dataset):
                dataset = proportional(dataset, count, seed=self.seed)
            subsets[role] = dataset
        return subsets

    def _new_record(self, speed: Speed | None) -> _Record:
        """A record of this monitor, without epochs."""
        datasets = self._evaluated or {}
        return _Record(
            settings=[setting.name for setting in self._settings],
            seed=self.seed,
            budget=self.budget,
            images={role: dataset.fingerprint for role, dataset in datasets.items()},
            counts={role: len(dataset) for role, dataset in datasets.items()},
            speed=speed,
            epochs=[],
        )

    def _record_path(self, name: str) -> Location:
        return self.workspace.root / "monitors" / f"{quote(name, safe=' ')}.json"

    def _earlier(self, name: str) -> _Record | None:
        """The record of an earlier training of this name; SettingError if its monitor asked for something else."""
        path = self._record_path(name)
        if not path.is_file():
            return None
        record = msgspec.convert(self.workspace.files.read_json(path), _Record)
        present = self._new_record(None)
        if (record.settings, record.seed, record.budget) != (present.settings, present.seed, present.budget):
            raise self._other_monitor(name, "other settings, seed or budget")
        return record

    def _other_monitor(self, name: str, found: str) -> SettingError:
        return SettingError(
            f"the workspace holds the history of another monitor of {name!r}",
            found=found,
            hint="pass another name=... or workspace=..., so that numbers of different images do not mix",
        )

    def _rows_of(self, evaluated: _Epoch) -> list[ScoreRow]:
        """The scores of an epoch, computed once."""
        if evaluated.epoch not in self._rows:
            keys = set(evaluated.results)
            results = [result for result in self.workspace.results([evaluated.model]) if result.key in keys]
            self._rows[evaluated.epoch] = score_rows(Run(self.workspace, results))
        return self._rows[evaluated.epoch]

    @contextmanager
    def _own_warnings(self) -> Iterator[None]:
        """Each kind of warning once per training; their texts name the epoch, so that Python would repeat them."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            if isinstance(warning.message, ResultWarning):
                code: str = warning.message.code
            else:
                code = f"{warning.filename}:{warning.lineno}"
            if code not in self._warned | _EXPECTED_WARNINGS:
                self._warned.add(code)
                warnings.warn(warning.message, warning.category, stacklevel=7)


def measure(evaluate: Callable[[int], float], budget: float, most: int) -> Speed:
    """Time samples that grow until one takes an eighth of the budget.

    Args:
        evaluate: Evaluates a number of images from scratch and returns the seconds it took.
        budget: Seconds.
        most: The number of images there are.

    >>> measure(lambda n: 2 + 0.25 * n, budget=20, most=1000)
    Speed(fixed=2.0, per_image=0.25)
    """
    evaluate(1)  # compiles kernels and fills caches, once
    n = 1
    seconds = evaluate(n)
    speed = Speed(0.0, seconds)
    enough = _AFFORDABLE_SHARE * budget
    while seconds < enough and n < most:
        smaller_n = n
        smaller_seconds = seconds
        n = min(n * _SAMPLE_GROWTH, most)
        seconds = evaluate(n)
        slope = (seconds - smaller_seconds) / (n - smaller_n)
        if slope > 0:
            speed = Speed(max(0.0, seconds - slope * n), slope)
        else:  # only noise grew, and the mean is a cautious estimate
            speed = Speed(0.0, seconds / n)
        enough = _ENOUGH_SHARE * budget
    return speed if speed.per_image > 0 else Speed(0.0, budget / most)
