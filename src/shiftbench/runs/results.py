"""The results of a workspace that belong together: their predictions, scores, problems and warnings."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from operator import or_
from statistics import fmean
from typing import NamedTuple, Self, TypeVar, cast

from shiftbench.classifiers.base import IMAGENET_21K
from shiftbench.datasets.images import ALPHA_DROPPED, ALPHA_LAID, EXIF_APPLIED, EXIF_IGNORED, conversion_kinds
from shiftbench.errors import ResultWarning, StoreError, UnknownNameError, argument, listed
from shiftbench.grouping import by_key
from shiftbench.io.paths import Location, is_object
from shiftbench.jobs.threads import worker_count
from shiftbench.labels.guard import outcome_warnings
from shiftbench.labels.space import NO_ANSWER
from shiftbench.metrics.base import Score, SettingScore, metrics
from shiftbench.metrics.intervals import mean_interval
from shiftbench.settings.base import LeftOut, SettingMean
from shiftbench.store.models import AmbiguousModelError, ModelVersion, ModelVersions
from shiftbench.store.predictions import Predictions
from shiftbench.store.run_records import RunHistory
from shiftbench.store.workspace import PartResult, Result, Workspace

T = TypeVar("T")

#: Results that a thread scores one after the other: a task for each would take as long as its score.
_SCORED_TOGETHER = 64
#: Facts that exchange classes which differ by colour or brightness, if they are assumed and wrong.
_CHANGES_COLOURS = ("mean", "std", "scale", "colour order")
#: The setting of images whose classes no model is to know.
_UNKNOWN_CLASSES = "imagenet-o"


@dataclass(frozen=True)
class _Treatment:
    """A key of the preprocessing about image files, and the conversions that are due to it."""

    key: str
    usual: str
    #: What to state, for people, and one of the choices as an example.
    choice: str
    example: str
    #: By value of the key: how the conversion is counted.
    names: Mapping[str, str]

    @property
    def kinds(self) -> list[str]:
        return list(self.names.values())

    def text(self, results: Iterable[Result]) -> str:
        """What the models of these results did."""
        values = dict.fromkeys(str(result.spec.geometry.values.get(self.key, self.usual)) for result in results)
        names = [self.names[value] for value in values]
        if len(names) == 1:
            return names[0]
        return f"{' for some models, '.join(names)} for others"


_TREATMENTS = (
    _Treatment(
        "exif", "ignore", "exif=apply or exif=ignore", "exif=apply", {"ignore": EXIF_IGNORED, "apply": EXIF_APPLIED}
    ),
    _Treatment(
        "alpha", "drop", "alpha=white, alpha=black or alpha=drop", "alpha=white", {"drop": ALPHA_DROPPED, **ALPHA_LAID}
    ),
)


@dataclass(frozen=True)
class ModelFacts:
    """What is known of a model beside its scores; tables and data frames show it with them."""

    id: str
    #: Facts that nobody gave and no file states; None where that was not recorded.
    assumed: Sequence[str] | None
    #: How many images of which datasets it was trained on.
    training_images: Sequence[str] = ()


class StoredResults:
    """Complete results of a workspace. Every number is computed again from their stored predictions."""

    def __init__(
        self,
        workspace: Workspace,
        results: Sequence[Result],
        *,
        left_out: Sequence[LeftOut] = (),
        models: ModelVersions | None = None,
    ) -> None:
        self.workspace = workspace
        #: Settings of the suite that were not evaluated, and why.
        self.settings_left_out = tuple(left_out)
        #: All versions of the models in the workspace that share a name with one of these.
        if models is None:
            names = {result.classifier for result in results}
            stored = [*workspace.results(names), *results] if names else []
            models = ModelVersions.of(workspace, stored)
        self.models = models
        #: Numbers that were computed already, by what decides them; all parts of a run share them.
        self._computed: dict[Hashable, object] = {}
        #: A design's passes are the settings that they estimate.
        self.results = _with_parts(workspace, [self.models.named(result) for result in results])

    @property
    def left_out(self) -> dict[str, str]:
        """Why settings were not evaluated, by ``LeftOut.title``: the text of ``settings_left_out``, for people."""
        return {omission.title: omission.reason for omission in self.settings_left_out}

    @classmethod
    def open(
        cls, workspace: str | Location | Workspace, classifiers: Iterable[str] = (), settings: Iterable[str] = ()
    ) -> Self:
        """What earlier runs left in a workspace.

        Args:
            workspace: Folder, URL or opened workspace.
            classifiers: Only these models: names, or ids (``name@hash``) where a name has several versions.
            settings: Only these settings.

        Raises:
            UnknownNameError: A model or setting that the workspace does not hold; the nearest names are suggested.
        """
        store = workspace if isinstance(workspace, Workspace) else Workspace(workspace, create=False)
        stored = list(store.results())
        everything = _with_parts(store, _distinct(stored))
        models = ModelVersions.of(store, stored)
        selected = models.select(everything, list(classifiers), list(settings))
        opened = cls(store, selected, models=models)
        first_runs = opened.history.first_runs
        pairs = dict.fromkeys((result.classifier, result.setting) for result in selected)
        position = {pair: i for i, pair in enumerate(pairs)}

        def order(result: Result) -> tuple[int, str]:
            """Versions of one name come in the order of their first run, not of their hashes."""
            return position[result.classifier, result.setting], first_runs.get(result.spec.classifier.version, "")

        opened.results.sort(key=order)
        return opened

    @cached_property
    def history(self) -> RunHistory:
        """What the records of runs say about these results; nothing in workspaces of version 0.1."""
        return RunHistory.of(self.workspace, self.models.current_hashes)

    def model_facts(self) -> dict[str, ModelFacts]:
        """What is known of each model, by its title."""
        assumed = {version: list(facts) for version, facts in self.assumed_facts().items()}
        training_images = self._training_images(self.results)
        facts: dict[str, ModelFacts] = {}
        for title, model in self.models.titles.items():
            facts[title] = ModelFacts(
                id=model.id,
                assumed=assumed.get(model.record.version),
                training_images=training_images.get(title, []),
            )
        return facts

    def assumed_facts(self) -> dict[str, tuple[str, ...]]:
        """By hash of a model's version: what was assumed for these results; only versions of which that was recorded.

        If images have an orientation or a transparency, and nobody stated what to do with it, that was assumed as well.
        """
        assumed = dict(self.history.assumed)
        one_result_each: dict[tuple[str, str, str], Result] = {}
        for result in self.results:
            spec = result.spec
            one_result_each[spec.classifier.version, spec.dataset.name, spec.dataset.fingerprint] = result
        for (version, name, fingerprint), result in one_result_each.items():
            if version not in assumed:
                continue
            kinds = self._conversions_of(name, fingerprint)
            for treatment in _TREATMENTS:
                is_met = not kinds.isdisjoint(treatment.kinds)
                if is_met and self._nobody_states(treatment.key, treatment.usual, [result]):
                    assumed[version] = (*assumed[version], treatment.key)
        return {version: tuple(dict.fromkeys(facts)) for version, facts in assumed.items()}

    def _conversions_of(self, name: str, fingerprint: str) -> frozenset[str]:
        """The kinds of conversions that images of a dataset needed when they were read; looked up once."""
        key = ("conversions", name, fingerprint)
        if key not in self._computed:
            kinds: set[str] = set()
            for problem in self.workspace.problems(name, fingerprint):
                if problem["action"] == "converted":
                    kinds.update(conversion_kinds(problem["why"]))
            self._computed[key] = frozenset(kinds)
        return cast(frozenset[str], self._computed[key])

    def training_images(self, result: Result) -> int | None:
        """How many images of a result the model was trained on; None if that is not known."""
        return self.history.training_images.get(result.relative.name)

    def _training_images(self, results: Iterable[Result]) -> dict[str, list[str]]:
        """By title of a model that was trained on some of the images: how many, of which dataset."""
        texts: dict[str, list[str]] = {}
        for result in results:
            count = self.training_images(result)
            if count:
                text = f"{count:,} of the {result.spec.images:,} images of {result.spec.dataset.name}"
                texts.setdefault(result.title, []).append(text)
        # Several settings of one dataset have the same text.
        return {title: list(dict.fromkeys(repeated)) for title, repeated in texts.items()}

    def select(self, models: str | Iterable[str] = (), settings: str | Iterable[str] = ()) -> Self:
        """Some of these results.

        Args:
            models: Only these models: names, or ids (``name@hash``); one or several.
            settings: Only these settings; one or several.

        Raises:
            UnknownNameError: A model or setting that is not among the results; the nearest names are suggested.

        Example:
            >>> run.select(["resnet50"]).plot.corruptions()  # doctest: +SKIP
        """
        model_names = [models] if isinstance(models, str) else list(models)
        setting_names = [settings] if isinstance(settings, str) else list(settings)
        return self.part(self.models.select(self.results, model_names, setting_names))

    def part(self, results: Sequence[Result]) -> Self:
        """Some of these results. What is computed of them is not computed again for the whole, and the reverse."""
        selection = copy(self)
        selection.results = list(results)
        return selection

    def by_model(self) -> dict[str, Self]:
        """The results of each model, by its title."""
        groups = by_key((result.title, result) for result in self.results)
        return {title: self.part(results) for title, results in groups.items()}

    def once(self, results: Iterable[Result], what: Hashable, compute: Callable[[], T]) -> T:
        """A number that is decided by some results and by ``what``: it is computed once.

        So a command reads each result once, however many of its tables show the number. Results are told apart by
        their files: models of two names may have one key, as functions of the same code, and other predictions.
        """
        files = []
        for result in results:
            if isinstance(result, PartResult):
                return compute()  # The key of a part is that of the design's passes.
            files.append(result.relative)
        key = (tuple(files), what)
        if key not in self._computed:
            self._computed[key] = compute()
        return cast(T, self._computed[key])

    @property
    def classifiers(self) -> list[str]:
        """The models as tables call them: by name, or by id where the workspace has several versions of a name."""
        return list(dict.fromkeys(result.title for result in self.results))

    @property
    def settings(self) -> list[str]:
        return list(dict.fromkeys(result.setting for result in self.results))

    @property
    def references(self) -> dict[str, str]:
        """For each setting that has one, the setting that its shift is compared with; also for means over settings."""
        references = {}
        for result in self.results:
            reference = result.spec.reference
            if reference is None:
                continue
            references[result.setting] = reference
            mean = self.workspace.setting_record(result).mean
            if mean is not None:
                references[mean.name] = reference
        return references

    def predictions(self, classifier: str | None = None, setting: str | None = None) -> Predictions:
        """The predictions of one result.

        Args:
            classifier: Name or id of a model; may be left out where there is only one.
            setting: May be left out where there is only one.

        Raises:
            UnknownNameError: No such model or setting.
            AmbiguousModelError: The name has several versions: pass an id.
        """
        if classifier is not None:
            classifier = self.models.title(self.find_model(classifier))
        results = [result for result in self.of_setting(setting) if classifier in (None, result.title)]
        if len(results) != 1:
            message = f"ambiguous selection: {len(results)} results match"
            if not results:
                message = "no result matches this selection"
            raise StoreError(
                message,
                found=f"{len(results)} of {len(self.results)} results",
                expected=f"a classifier of {self.classifiers} and a setting of {self.settings[:8]}",
            )
        return self.workspace.read(results[0])

    def scores(self, metric: str | None = None, *, level: float = 0.95) -> list[SettingScore]:
        """The score of every result: by each setting's own metric, or by those named, with commas."""
        scored = scored_results(self, metric, level)
        return [entry.of_setting for entry in scored]

    def shown_scores(self, *, level: float = 0.95) -> list[SettingScore]:
        """As ``scores()``, with what each setting's metric is shown beside (mAP weighted by frequency and plain), and
        the means over settings that belong together, under names of their own."""

        def metric_names(result: Result) -> tuple[str, ...]:
            return (result.spec.metric, *metrics.get(result.spec.metric).beside)

        scored = _score_results(self, metric_names, level)
        return self.with_means([entry.of_setting for entry in scored])

    def with_means(self, scores: Sequence[SettingScore]) -> list[SettingScore]:
        """Scores of this run, and the means over settings that belong together, such as the shifts of a protocol."""
        with_means = list(scores)
        for mean in dict.fromkeys(self.workspace.setting_record(result).mean for result in self.results):
            if mean is not None:
                with_means += mean_scores(mean, with_means, self._images_of(mean))
        return with_means

    def _images_of(self, mean: SettingMean) -> dict[str, frozenset[str]]:
        """By setting of a mean: the ids of its images."""
        one_result_each = {result.setting: result for result in self.results if result.setting in mean.settings}
        images: dict[str, frozenset[str]] = {}
        for setting, result in one_result_each.items():
            predictions = self.workspace.read(result, top_k=1, confidence=False, scores=False)
            images[setting] = frozenset(predictions.ids)
        return images

    def find_model(self, name: str) -> ModelVersion:
        """The model with this name or id."""
        models = [model for model in self.models.find(name) if self.models.title(model) in self.classifiers]
        if not models:
            raise UnknownNameError("model", name, self.classifiers)
        if len(models) > 1:
            raise AmbiguousModelError(name, models, self.history.dates)
        return models[0]

    def of_setting(self, setting: str | None) -> list[Result]:
        """The results in a setting, or all; UnknownNameError if there are none."""
        results = [result for result in self.results if setting in (None, result.setting)]
        if not results:
            raise UnknownNameError("setting", setting or "", self.settings)
        return results

    def problems(self) -> list[dict[str, str]]:
        """Images that were skipped or converted, once each, with the dataset's name."""
        datasets = {(result.spec.dataset.name, result.spec.dataset.fingerprint) for result in self.results}
        # Images that were opened with several label spaces, or partly and then all, are several datasets of one path.
        problems: dict[tuple[str, str, str], dict[str, str]] = {}
        for name, fingerprint in sorted(datasets):
            source = self.workspace.source(name, fingerprint)
            origin = fingerprint if source is None else source[1]
            for problem in self.workspace.problems(name, fingerprint):
                problems[name, origin, problem["id"]] = {"dataset": name, **problem}
        return list(problems.values())

    def skipped(self) -> list[ResultWarning]:
        """A warning for each dataset of which images could not be used."""
        skipped = [problem for problem in self.problems() if problem["action"] == "skipped"]
        warnings = []
        for dataset, ids in by_key((problem["dataset"], problem["id"]) for problem in skipped).items():
            text = f"{len(ids)} images of {dataset} can't be used and are left out of all scores: {listed(ids)}"
            warnings.append(ResultWarning(text, "skipped-images"))
        return warnings

    def conversions(self) -> list[ResultWarning]:
        """For each dataset with images that decoding converted: how many, by kind of conversion.

        An orientation or a transparency that was ignored without anybody having stated so is a warning: with it, the
        scores may be others. The rest is a note.
        """
        converted = [problem for problem in self.problems() if problem["action"] == "converted"]
        warnings = []
        results = by_key((result.spec.dataset.name, result) for result in self.results)
        for dataset, texts in by_key((problem["dataset"], problem["why"]) for problem in converted).items():
            counts: Counter[str] = Counter()
            for text in texts:
                counts.update(conversion_kinds(text))
            warnings.append(self._conversion_warning(dataset, counts, results[dataset]))
        return warnings

    def _conversion_warning(self, dataset: str, counts: Mapping[str, int], results: Sequence[Result]) -> ResultWarning:
        """What became of orientation and transparency depends on the models, whoever read the images last."""
        images_by_kind = dict(counts)
        unstated: list[_Treatment] = []
        for treatment in _TREATMENTS:
            images = sum(images_by_kind.pop(kind, 0) for kind in treatment.kinds)
            if images:
                images_by_kind[treatment.text(results)] = images
                if self._nobody_states(treatment.key, treatment.usual, results):
                    unstated.append(treatment)
        ordered = sorted(images_by_kind.items(), key=lambda entry: -entry[1])
        text = f"{dataset}: {', '.join(f'{kind}: {count}' for kind, count in ordered)}"
        if not unstated:
            return ResultWarning(f"{text} (images that were converted when they were read)", "converted-images")
        examples = ",".join(treatment.example for treatment in unstated)
        stated = argument("preprocessing", f"...,{examples}", flag="--preprocess")
        choices = " and ".join(treatment.choice for treatment in unstated)
        text += f". The scores differ if the model was trained otherwise: state {choices} ({stated})"
        return ResultWarning(text, "unstated-decoding")

    def _nobody_states(self, key: str, usual: str, results: Iterable[Result]) -> bool:
        """Whether a model read these images in the usual way without anybody having stated that it should."""
        for result in results:
            record = result.spec.classifier
            is_usual = result.spec.geometry.values.get(key, usual) == usual
            if is_usual and not record.recorded and key not in self.history.stated.get(record.version, ()):
                return True
        return False

    def served_answers(self) -> list[ResultWarning]:
        """A note for each model that answers with the names of classes: how often it did not, and what it has cost."""
        answered = [result for result in self.results if result.spec.classifier.outputs == "answers"]
        notes = []
        for title, results in by_key((result.title, result) for result in answered).items():
            images = 0
            unanswered = 0
            for result in results:
                predictions = self.workspace.read(result, top_k=1, confidence=False, scores=False)
                images += len(predictions)
                unanswered += int((predictions.top[:, 0] == NO_ANSWER).sum())
            text = f"{title}: {unanswered:,} of {images:,} images without an answer from the list (counted as wrong)"
            spent: Mapping[str, float] = self.history.usage.get(results[0].spec.classifier.version, {})
            for what, count in sorted(spent.items()):
                text += f", {what} {count:,g}"
            notes.append(ResultWarning(f"{text}. The answers of a server are not tied to weights", "served-answers"))
        return notes

    def trained_on(self, results: Iterable[Result] | None = None) -> list[ResultWarning]:
        """A warning for each model that was trained on images or corruptions of these results; by default, of all."""
        results = list(self.results if results is None else results)
        warnings = []
        for title, texts in self._training_images(results).items():
            text = f"{title} was trained on {' and '.join(texts)}: its scores on them are too high and say nothing "
            warnings.append(ResultWarning(f"{text}about unseen images", "training-images"))
        return [*warnings, *self._trained_with(results)]

    def _trained_with(self, results: Iterable[Result]) -> list[ResultWarning]:
        """A warning for each model whose training had what these results are to measure."""
        met: dict[str, dict[str, None]] = {}
        for result in results:
            trained_with = self.history.trained_with.get(result.spec.classifier.version, ())
            member = self.workspace.setting_record(result).member
            if member is not None and member.name in trained_with:
                met.setdefault(result.title, {})[member.name] = None
            if result.setting == _UNKNOWN_CLASSES and IMAGENET_21K in trained_with:
                met.setdefault(result.title, {})[IMAGENET_21K] = None
        warnings = []
        for title, names in met.items():
            corruptions = [name for name in names if name != IMAGENET_21K]
            if corruptions:
                text = f"{title} was trained with {listed(corruptions)}: its scores on them, and means over them, say "
                warnings.append(ResultWarning(f"{text}nothing about unseen corruptions", "training-corruptions"))
            if IMAGENET_21K in names:
                text = (
                    f"{title} was trained on ImageNet-21K, which has the classes of ImageNet-O: they are not unknown "
                )
                warnings.append(ResultWarning(f"{text}to it", "training-corruptions"))
        return warnings

    def warnings(self) -> list[ResultWarning]:
        """Signs of wrong labels or preprocessing, those that cost most accuracy first.

        They are chance level or permuted labels on images as they are (corrupted ones may be beyond a classifier), and
        images that were converted.
        """
        warnings: list[ResultWarning] = []
        for result in self.results:
            if result.spec.shift.kind == "none" and result.spec.source is None:
                warnings += self.once([result], ("warnings", result.title), partial(self._signs_of_errors, result))
        return [*warnings, *self.conversions(), *self.served_answers()]

    def _signs_of_errors(self, result: Result) -> list[ResultWarning]:
        """Chance level or permuted labels in one result."""
        predictions = self.workspace.read(result, top_k=1, confidence=False, scores=False)
        if predictions.label_sets is not None:  # top-1 says nothing about a multi-label model
            return []
        assumed = self.history.assumed.get(result.spec.classifier.version, ())
        return outcome_warnings(
            predictions.labels,
            predictions.top[:, 0],
            predictions.space,
            chosen_to_fool=self.workspace.setting_record(result).chosen_to_fool,
            preprocessing_assumed=any(fact in _CHANGES_COLOURS for fact in assumed),
            about=f"{result.title} on {result.setting}: ",
        )


class ScoredResult(NamedTuple):
    result: Result
    score: Score

    @property
    def of_setting(self) -> SettingScore:
        """The score under the names that tables show."""
        return SettingScore(self.result.title, self.result.setting, self.score)


def scored_results(run: StoredResults, metric: str | None = None, level: float = 0.95) -> list[ScoredResult]:
    """Every result with its score: by each setting's own metric, or by those named, with commas."""
    if not metric:
        return _score_results(run, lambda result: (result.spec.metric,), level)
    names = tuple(name.strip() for name in metric.split(","))
    return _score_results(run, lambda result: names, level)


def _score_results(
    run: StoredResults, metric_names: Callable[[Result], Sequence[str]], level: float
) -> list[ScoredResult]:
    """The scores of all results, several results at a time; ``metric_names`` says by which metrics each is scored."""

    def score(results: Sequence[Result]) -> list[ScoredResult]:
        scored: list[ScoredResult] = []
        for result in results:
            names = tuple(metric_names(result))
            compute = partial(_scores_of, run.workspace, result, names, level)
            scored += [ScoredResult(result, score) for score in run.once([result], (names, level), compute)]
        return scored

    # On a disk more threads than cores only wait for the interpreter; in an object store they wait for answers.
    threads: int | None = worker_count(None)
    together = _SCORED_TOGETHER
    if is_object(run.workspace.root):
        threads = None
        together = 1
    starts = range(0, len(run.results), together)
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(score, [run.results[start : start + together] for start in starts])
        return list(itertools.chain.from_iterable(parts))


def _scores_of(workspace: Workspace, result: Result, names: Sequence[str], level: float) -> list[Score]:
    """The scores of one result by several metrics, from one reading."""
    result_metrics = [metrics.get(name) for name in names]
    needs = reduce(or_, (metric.needs for metric in result_metrics))
    predictions = workspace.read(result, top_k=needs.top_k, confidence=needs.confidence, scores=needs.scores)
    return [metric(predictions, level=level) for metric in result_metrics]


def mean_scores(
    mean: SettingMean, scores: Sequence[SettingScore], images: Mapping[str, frozenset[str]]
) -> list[SettingScore]:
    """The mean of each model and metric that has a score in all settings of ``mean``; ``images`` are ids by setting.

    Scores in two settings are correlated as far as they share images, at most by the share that these are of both.
    """
    groups: dict[tuple[str, str], dict[str, Score]] = {}
    for model, setting, score in scores:
        if setting in mean.settings:
            groups.setdefault((model, score.metric), {})[setting] = score
    means: list[SettingScore] = []
    for (model, _), scores_by_setting in groups.items():
        if len(scores_by_setting) == len(mean.settings):
            correlation = _correlation([images[setting] for setting in scores_by_setting])
            score = _mean_score(list(scores_by_setting.values()), correlation)
            means.append(SettingScore(model, mean.name, score))
    return means


def _correlation(image_sets: Sequence[frozenset[str]]) -> list[list[float]]:
    """The correlation of scores on each pair of sets of images: the share of images that are in both."""
    correlation: list[list[float]] = []
    for first in image_sets:
        row = [len(first & second) / max(1.0, (len(first) * len(second)) ** 0.5) for second in image_sets]
        correlation.append(row)
    return correlation


def _mean_score(scores: Sequence[Score], correlation: Sequence[Sequence[float]]) -> Score:
    """The mean of the scores of several settings, with an interval."""
    values = [score.value for score in scores]
    lows = [score.low for score in scores]
    highs = [score.high for score in scores]
    low, high = mean_interval(values, lows, highs, correlation)
    return replace(
        scores[0],
        value=fmean(values),
        low=low,
        high=high,
        n=sum(score.n for score in scores),
        method="intervals of the settings put together, correlated by shared images",
        provenance=f"mean over {len(scores)} settings",
    )


def _distinct(results: Iterable[Result]) -> list[Result]:
    """Results with the same predictions once: versions up to 0.2 made them again for each name of a label space."""
    distinct: list[Result] = []
    for same_place in by_key(((result.classifier, result.setting), result) for result in results).values():
        if len(same_place) == 1:
            # Nearly all results are the only ones in their place, and their identity need not be known.
            distinct += same_place
        else:
            by_identity: dict[str, Result] = {}
            for result in same_place:
                by_identity.setdefault(result.spec.identity, result)
            distinct += by_identity.values()
    return distinct


def _with_parts(workspace: Workspace, results: list[Result]) -> list[Result]:
    """The results, with the settings that a design estimates in place of its passes."""
    if not any(result.spec.shift.kind == "assigned" for result in results):
        return results
    from shiftbench.store.designs import with_parts  # most workspaces hold no design

    return with_parts(workspace, results)
