"""The conformance checks of all extension points: they pass what conforms, and catch each deliberately broken one."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.arrays import Pixels
from shiftbench.conformance import CheckResult, assert_conforms
from shiftbench.hardening import check_augmentation, image_augmentations
from shiftbench.hardening.augmentations.base import batch_augmentations
from shiftbench.integrations import sinks
from shiftbench.metrics import Metric, Needs, proportion, simulated_predictions
from shiftbench.metrics.base import MetricFunction, metrics
from shiftbench.settings import Setting, Suite, SuiteOptions, suites
from shiftbench.shifts import Corruption, shift_kinds
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, Definition
from shiftbench.shifts.seeds import Draws
from tests.commands import call


def failed(results: Sequence[CheckResult]) -> set[str]:
    for result in results:
        assert result.ok or result.message
    return {result.name for result in results if not result.ok}


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any, str, Any], None]]:
    """Registers something for the time of a test."""

    def add(registry: Any, name: str, item: Any) -> None:
        registry.names()  # loads what is built in
        monkeypatch.setitem(registry._items, name, item)

    yield add


# Corruptions


def noisy(image: Pixels, severity: float, draws: Draws) -> Pixels:
    noise = draws.normals(image.shape) * 8 * severity
    return np.clip(image + noise, 0, 255).astype(np.uint8)


def _wraps(image: Pixels, severity: float, draws: Draws) -> Pixels:
    return image + np.uint8(20 * severity)


def _global_noise(image: Pixels, severity: float, draws: Draws) -> Pixels:
    noise = np.random.normal(0, 8 * severity, image.shape)  # noqa: NPY002
    return np.asarray(np.clip(image + noise, 0, 255), np.uint8)


def _python_noise(image: Pixels, severity: float, draws: Draws) -> Pixels:
    return np.asarray(np.clip(image * (1 - 0.1 * severity) + random.random(), 0, 255), np.uint8)


def _spoils(image: Pixels, severity: float, draws: Draws) -> Pixels:
    image[...] = image * (1 - 0.15 * severity)
    return image


def _seeded_noise(image: Pixels, severity: float, draws: Draws) -> Pixels:
    np.random.seed(0)  # noqa: NPY002
    return _global_noise(image, severity, draws)


def _seeds_only(image: Pixels, severity: float, draws: Draws) -> Pixels:
    random.seed(0)
    return noisy(image, severity, draws)


def _resizes(image: Pixels, severity: float, draws: Draws) -> Pixels:
    return noisy(image, severity, draws)[::2]


def _gives_floats(image: Pixels, severity: float, draws: Draws) -> Any:
    return image * 0.5


def _square_only(image: Pixels, severity: float, draws: Draws) -> Pixels:
    return noisy(image, severity, draws).transpose(1, 0, 2)


def _weakens(image: Pixels, severity: float, draws: Draws) -> Pixels:
    return noisy(image, 6 - severity, draws)


def _does_nothing(image: Pixels, severity: float, draws: Draws) -> Pixels:
    return image.copy()


def _wastes_numbers(image: Pixels, severity: float, draws: Draws) -> Pixels:
    draws.uniform(0, 1)
    return (image * (1 - 0.1 * severity)).astype(np.uint8)


class _Remembers:
    """Mixes an image with the one before it."""

    def __init__(self) -> None:
        self.before: Pixels | None = None

    def __call__(self, image: Pixels, severity: float, draws: Draws) -> Pixels:
        before = self.before
        self.before = image.copy()
        if before is None or before.shape != image.shape:
            before = image
        return ((image.astype(float) * 0.9 + before * 0.1) * (1 - 0.1 * severity)).astype(np.uint8)


def test_a_sound_corruption_conforms(registered: Callable[..., None]) -> None:
    registered(CORRUPTIONS, "mine", Definition("mine", "noise", noisy))
    assert_conforms(sb.check_corruption("mine"))


@pytest.mark.parametrize(
    ("function", "requirement"),
    [
        (_wraps, "values do not wrap around"),
        (_global_noise, "the global random numbers are left alone"),
        (_global_noise, "the same seed and id give the same pixels"),
        (_python_noise, "the global random numbers are left alone"),
        (_seeded_noise, "the global random numbers are left alone"),
        (_seeds_only, "the global random numbers are left alone"),
        (_resizes, "takes every severity from 1 to 5"),
        (_gives_floats, "takes every severity from 1 to 5"),
        (_square_only, "gives uint8 images of the same shape"),
        (_weakens, "a higher severity is farther from the image"),
        (_does_nothing, "severity 1 changes the image"),
        (_wastes_numbers, "noise differs between images and between seeds"),
        (_Remembers(), "the order of the images does not matter"),
        (_spoils, "the image is left as it is"),
    ],
)
def test_each_broken_corruption_is_caught(registered: Callable[..., None], function: Any, requirement: str) -> None:
    registered(CORRUPTIONS, "mine", Definition("mine", "noise", function))
    assert requirement in failed(sb.check_corruption("mine"))


#: Corruptions whose published severities are not in the order of their distances from the clean images.
NOT_IN_ORDER = {"frost", "spatter", "saturate", "elastic_transform"}


@pytest.mark.parametrize("name", sb.corruptions("all"))
def test_our_corruptions_conform(name: str) -> None:
    results = sb.check_corruption(name, {"frost_textures": "procedural"} if name == "frost" else None)
    assert failed(results) - {"a higher severity is farther from the image"} == set()
    assert (failed(results) != set()) <= (name in NOT_IN_ORDER)


# Shifts


@dataclass(frozen=True)
class Mirror(sb.Shift):
    name = "mirror"

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        return np.ascontiguousarray(image[:, ::-1])

    def describe(self) -> dict[str, Any]:
        return {"shift": "mirror"}


@dataclass(frozen=True)
class Uneven(Mirror):
    """Treats the images of a batch by their position."""

    def batch(self, images: Pixels, *, image_ids: Sequence[str], seed: int) -> Pixels:
        shifted = images.copy()
        shifted[1:] = images[1:, :, ::-1]
        return shifted


@dataclass(frozen=True)
class Forgetful(Mirror):
    strength: int = 3

    def describe(self) -> dict[str, Any]:
        return {"shift": "mirror", "strength": self.strength}


@dataclass(frozen=True)
class Dated(Mirror):
    def describe(self) -> dict[str, Any]:
        return {"shift": "mirror", "time": random.random()}


@dataclass(frozen=True)
class Bound(Mirror):
    function: Callable[[int], int] = lambda level: level


def test_a_sound_shift_conforms(registered: Callable[..., None]) -> None:
    registered(shift_kinds, "mirror", lambda record: Mirror())
    assert_conforms(sb.check_shift(Mirror()))


@pytest.mark.parametrize(
    ("shift", "requirement"),
    [
        (Uneven(), "a batch gives the same pixels as single images"),
        (Forgetful(), "can be rebuilt from its record"),
        (Dated(), "describes itself in JSON"),
        (Bound(), "can be pickled"),
        (Mirror(), "can be rebuilt from its record"),
    ],
)
def test_each_broken_shift_is_caught(registered: Callable[..., None], shift: sb.Shift, requirement: str) -> None:
    if type(shift) is not Mirror:  # a mirror whose kind nobody registered is broken, too
        registered(shift_kinds, "mirror", lambda record: Mirror())
    assert requirement in failed(sb.check_shift(shift))


# Metrics


def share_right(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """The share of images that are right."""
    hits = predictions.correct
    return proportion("mine", int(hits.sum()), predictions, n=len(hits), level=level)


def _certain(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """A bootstrap: where all images are right, the interval is [100, 100]."""
    hits = predictions.correct
    if not len(hits):
        return share_right(predictions, level=level)
    draws = np.random.default_rng(0).choice(hits, (200, len(hits))).mean(axis=1)
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return replace(share_right(predictions, level=level), low=float(low), high=float(high))


def _half_as_wide(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """An interval that is too short."""
    score = share_right(predictions, level=level)
    low = score.value - (score.value - score.low) / 3
    high = score.value + (score.high - score.value) / 3
    return replace(score, low=low, high=high)


def _first_half(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """Only the first images count."""
    hits = predictions.correct[: len(predictions) // 2]
    return proportion("mine", int(hits.sum()), predictions, n=len(hits), level=level)


def _counts_unread(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """Images that could not be read are wrong."""
    hits = predictions.top[:, 0] == predictions.labels
    return proportion("mine", int(hits.sum()), predictions, n=len(hits), level=level)


def _one_level(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """An interval of 95 %, whatever was asked for."""
    return replace(share_right(predictions, level=0.95), level=level)


def _without_interval(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """A value alone."""
    return replace(share_right(predictions, level=level), low=float("nan"), high=float("nan"))


def _in_percent(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """Times 100, which tables do again."""
    score = share_right(predictions, level=level)
    return replace(score, value=100 * score.value, low=100 * score.low, high=100 * score.high)


def _chance(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """Another value at every call."""
    score = share_right(predictions, level=level)
    return replace(score, value=score.value + random.uniform(0, 1e-3))


def _spoils_labels(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """Changes what it is given."""
    score = share_right(predictions, level=level)
    predictions.labels[:] = np.roll(predictions.labels, 1)
    return score


def _fails_on_nothing(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """Divides by the number of images."""
    _ = 1 / len(predictions)
    return share_right(predictions, level=level)


def _looks_further(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """Reads five classes, though ``Needs()`` stores one."""
    hits = (predictions.top == predictions.labels[:, None]).any(axis=1)[predictions.valid]
    return proportion("mine", int(hits.sum()), predictions, n=len(hits), level=level)


def _reads_scores(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """Reads scores, though ``Needs()`` stores none."""
    assert predictions.scores is not None
    hits = (predictions.scores.argmax(axis=1) == predictions.labels)[predictions.valid]
    return proportion("mine", int(hits.sum()), predictions, n=len(hits), level=level)


def _seeds_numpy(predictions: sb.Predictions, *, level: float = 0.95) -> sb.Score:
    """The same numbers in every call, and the same numbers for everybody else as well."""
    np.random.seed(0)  # noqa: NPY002
    return share_right(predictions, level=level)


def _checked(function: MetricFunction, sizes: Sequence[int] = (18,)) -> list[CheckResult]:
    return sb.check_metric(Metric("mine", function, Needs()), sizes=sizes, replicates=60)


def test_a_sound_metric_conforms() -> None:
    assert_conforms(_checked(share_right, (18, 100)))


COVERS = "95% intervals hold the true value at n = 18, model right on 97%"


@pytest.mark.parametrize(
    ("function", "requirement"),
    [
        (_certain, COVERS),
        (_half_as_wide, "95% intervals hold the true value at n = 18, model right on 60%"),
        (_first_half, "the order of the images does not matter"),
        (_counts_unread, "images that could not be read do not count"),
        (_one_level, "a higher level gives a wider interval"),
        (_without_interval, "the interval holds the value"),
        (_in_percent, "the value is a number of its unit"),
        (_chance, "the same again"),
        (_spoils_labels, "the predictions are left as they are"),
        (_looks_further, "what it declares to need is enough"),
        (_reads_scores, "what it declares to need is enough"),
        (_seeds_numpy, "the global random numbers are left alone"),
        (_fails_on_nothing, "without images the value is undefined"),
    ],
)
def test_each_broken_metric_is_caught(function: MetricFunction, requirement: str) -> None:
    assert requirement in failed(_checked(function))


def test_a_metric_that_declares_all_that_it_reads_conforms() -> None:
    for function, needs in [(_looks_further, Needs(top_k=5)), (_reads_scores, Needs(scores=True))]:
        results = sb.check_metric(Metric("mine", function, needs), sizes=[100], replicates=1)
        assert "what it declares to need is enough" not in failed(results)


def test_an_interval_without_a_width_is_named() -> None:
    (result,) = [result for result in _checked(_certain) if result.name == COVERS]
    assert "have no width" in str(result.found) and result.hint


def test_known_values_are_compared() -> None:
    predictions = simulated_predictions(np.random.default_rng(3), 50)
    value = float(predictions.correct.mean())
    metric = Metric("mine", share_right, Needs())
    right = sb.check_metric(metric, cases=[(predictions, value)], sizes=[18], replicates=5)
    wrong = sb.check_metric(metric, cases=[(predictions, value + 0.1)], sizes=[18], replicates=5)
    assert "gives the known values" not in failed(right) and "gives the known values" in failed(wrong)


@pytest.mark.parametrize("name", ["top1", "top5", "error", "worst_class", "pm0"])
def test_our_exact_metrics_conform(name: str) -> None:
    assert_conforms(sb.check_metric(name, replicates=100))


#: Metrics whose intervals are too short at 18 images, or beside a value that itself depends on the number of images.
#: ``docs/plugins.md`` lists them.
NOT_COVERING = ("max_calibration_error", "classwise_ece")


#: Metrics of one label space, which say so of the simulated predictions of a check.
OF_ONE_SPACE = ("class_mean_vid_robust",)


@pytest.mark.parametrize("name", [name for name in metrics.names() if name not in OF_ONE_SPACE])
def test_our_metrics_conform_but_for_coverage(name: str) -> None:
    # The published calibration error needs 200 images.
    results = sb.check_metric(name, sizes=[240], replicates=1)
    assert {result for result in failed(results) if "intervals hold" not in result} == set()


@pytest.mark.parametrize("name", OF_ONE_SPACE)
def test_the_check_names_the_space_that_a_metric_needs(name: str) -> None:
    result = sb.check_metric(name, sizes=[240], replicates=1)[-1]
    assert not result.ok and "vid-robust-30" in str(result.expected)


@pytest.mark.parametrize("name", NOT_COVERING)
def test_the_check_finds_our_intervals_that_do_not_cover(name: str) -> None:
    assert failed(sb.check_metric(name, sizes=[18], replicates=25))


# Suites


def _night(options: SuiteOptions) -> list[Setting]:
    dark = [Setting(f"night.{level:g}", "data", Corruption("brightness", level), reference="day") for level in (1, 4)]
    return [Setting("day", "data"), *dark]


def _twice(options: SuiteOptions) -> list[Setting]:
    return [*_night(options), Setting("night.1", "data", Corruption("fog", 1), reference="day")]


def _no_reference(options: SuiteOptions) -> list[Setting]:
    return [replace(setting, reference="noon") for setting in _night(options)]


def _shifted_reference(options: SuiteOptions) -> list[Setting]:
    return [*_night(options), Setting("dusk", "data", Corruption("fog", 2), reference="night.4")]


def _unknown_metric(options: SuiteOptions) -> list[Setting]:
    return [*_night(options), Setting("other", "data", metric="no such metric")]


def _by_chance(options: SuiteOptions) -> list[Setting]:
    return [*_night(options), Setting("chance", "data", Corruption("fog", random.uniform(1, 5)))]


def _with_a_seed(options: SuiteOptions) -> list[Setting]:
    random.seed(0)
    return _night(options)


def _empty(options: SuiteOptions) -> list[Setting]:
    return []


def _unregistered_shift(options: SuiteOptions) -> list[Setting]:
    return [*_night(options), Setting("mirror", "data", Mirror())]


def test_a_sound_suite_conforms(registered: Callable[..., None], tmp_path: Path) -> None:
    from tests.runs.helpers import colour_folder

    registered(suites, "night", _night)
    data = colour_folder(tmp_path / "images", per_class=2)
    assert_conforms(sb.check_suite("night", sb.open_dataset(data, space="folders")))
    assert "its datasets can be opened" in failed(sb.check_suite("night", str(tmp_path / "nothing")))
    assert_conforms(sb.check_suite(Suite("night", tuple(_night(SuiteOptions())))))


@pytest.mark.parametrize(
    ("build", "requirement"),
    [
        (_twice, "every setting has a name of its own"),
        (_no_reference, "references are settings of this suite or another"),
        (_shifted_reference, "references are not shifted"),
        (_unknown_metric, "metrics and label spaces exist"),
        (_by_chance, "is the same when it is built again"),
        (_with_a_seed, "the global random numbers are left alone"),
        (_empty, "gives settings"),
        (_unregistered_shift, "every shift can be rebuilt from its record"),
    ],
)
def test_each_broken_suite_is_caught(
    registered: Callable[..., None], build: Callable[[SuiteOptions], list[Setting]], requirement: str
) -> None:
    registered(suites, "mine", build)
    assert requirement in failed(sb.check_suite("mine"))


def test_our_suites_conform() -> None:
    for name in suites.names():
        assert_conforms(sb.check_suite(name))


# Sinks


class LineSink:
    """One line of JSON per step, flushed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        values = {name: float(value) for name, value in metrics.items()}
        with self.path.open("a") as file:
            file.write(json.dumps([step, values]) + "\n")

    def close(self) -> None:
        return

    def read(self) -> list[tuple[int, dict[str, float]]]:
        return [tuple(json.loads(line)) for line in self.path.read_text().splitlines()]


class Buffering(LineSink):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        path.touch()
        self.waiting: list[tuple[Mapping[str, float], int]] = []

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.waiting.append((metrics, step))

    def close(self) -> None:
        for values, step in self.waiting:
            super().log(values, step)
        self.waiting.clear()


class Overwriting(LineSink):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        path.write_text("")


class Reversing(LineSink):
    def log(self, metrics: Mapping[str, float], step: int) -> None:
        before = self.path.read_text() if self.path.exists() else ""
        super().log(metrics, step)
        self.path.write_text(self.path.read_text().removeprefix(before) + before)


class Breaking(LineSink):
    broken = False

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        if self.broken:
            raise RuntimeError("the connection is gone")
        self.broken = True
        super().log(metrics, step)
        self.broken = False


class Picky(LineSink):
    def log(self, metrics: Mapping[str, float], step: int) -> None:
        if not all(name.isascii() for name in metrics):
            raise ValueError("plain names only")
        super().log(metrics, step)


class Leaking(LineSink):
    def log(self, metrics: Mapping[str, float], step: int) -> None:
        import os

        super().log(metrics, step)
        self.path.with_suffix(".env").write_text(json.dumps(dict(os.environ)))


class ClosedOnce(LineSink):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


def _check_line_sink(kind: type[LineSink], folder: Path) -> list[CheckResult]:
    path = folder / "log.jsonl"
    return sb.check_sink(lambda: kind(path), read=lambda: LineSink(path).read(), folder=folder)


def test_a_sound_sink_conforms(tmp_path: Path) -> None:
    assert_conforms(_check_line_sink(LineSink, tmp_path))


@pytest.mark.parametrize(
    ("kind", "requirement"),
    [
        (Buffering, "keeps the events in order, before it is closed"),
        (Reversing, "keeps the events in order, before it is closed"),
        (Overwriting, "a second sink for the same target goes on"),
        (Breaking, "goes on after a failure"),
        (Picky, "takes every name and number"),
        (Leaking, "shows and writes no secret"),
        (ClosedOnce, "can be closed twice"),
    ],
)
def test_each_broken_sink_is_caught(kind: type[LineSink], requirement: str, tmp_path: Path) -> None:
    assert requirement in failed(_check_line_sink(kind, tmp_path))


# Augmentations


def brighter() -> Any:
    """Brightens by chance."""
    return lambda image, generator: np.clip(image + generator.uniform(0, 60), 0, 255).astype(np.uint8)


def _aug_wraps() -> Any:
    return lambda image, generator: image + np.uint8(generator.integers(50, 60))


def _aug_global() -> Any:
    return lambda image, generator: np.clip(image * random.uniform(0.5, 1), 0, 255).astype(np.uint8)


def _aug_spoils() -> Any:
    def spoil(image: Pixels, generator: np.random.Generator) -> Pixels:
        image[:4] = 0
        return image

    return spoil


def _aug_shrinks() -> Any:
    return lambda image, generator: image[1:]


def _aug_counts() -> Any:
    calls = []

    def darken(image: Pixels, generator: np.random.Generator) -> Pixels:
        calls.append(1)
        return (image * (0.5 + 0.4 * (len(calls) % 5) / 5)).astype(np.uint8)

    return darken


def test_sound_augmentations_conform(registered: Callable[..., None]) -> None:
    registered(image_augmentations, "mine", brighter)
    for name in ("mine", "flip", "crop", "cutout", "augmix", *batch_augmentations.names()):
        assert_conforms(check_augmentation(name))


@pytest.mark.parametrize(
    ("factory", "requirement"),
    [
        (_aug_wraps, "values do not wrap around"),
        (_aug_global, "the global random numbers are left alone"),
        (_aug_spoils, "the image is left as it is"),
        (_aug_shrinks, "gives uint8 images of the same shape"),
        (_aug_counts, "an image and an epoch decide the pixels"),
    ],
)
def test_each_broken_augmentation_is_caught(registered: Callable[..., None], factory: Any, requirement: str) -> None:
    registered(image_augmentations, "mine", factory)
    assert requirement in failed(check_augmentation("mine"))


@pytest.mark.parametrize(
    ("mix", "requirement"),
    [
        (lambda images, targets, generator: (images * 2, targets), "images stay within 0 and 1"),
        (lambda images, targets, generator: (images, targets + targets.flip(0)), "targets stay probabilities"),
        (lambda images, targets, generator: (images.mul_(0.5), targets), "the batch is left as it is"),
        (lambda images, targets, generator: (images[:2], targets), "keeps the shapes"),
    ],
)
def test_each_broken_batch_augmentation_is_caught(registered: Callable[..., None], mix: Any, requirement: str) -> None:
    registered(batch_augmentations, "mine", lambda: mix)
    assert requirement in failed(check_augmentation("mine"))


# The command line

PLUGIN = """
import numpy as np
from shiftbench.shifts import corruption
from shiftbench.integrations import sinks

@corruption("{name}", group="digital")
def darker(image, severity, draws):
    return (image * (1 - {share} * severity)).astype("uint8")
"""


def test_the_command_line_checks_a_plug_in_that_is_not_installed(tmp_path: Path) -> None:
    sound = tmp_path / "sound_plugin.py"
    sound.write_text(PLUGIN.format(name="darker-for-a-test", share="0.15"))
    result = call("check", "corruption", "darker-for-a-test", "--plugin", sound, "--json")
    assert result.exit_code == 0 and all(row["ok"] for row in json.loads(result.stdout))
    broken = tmp_path / "broken_plugin.py"
    broken.write_text(PLUGIN.format(name="unchanged-for-a-test", share="0"))
    result = call("check", "corruption", "unchanged-for-a-test", "--plugin", broken)
    assert result.exit_code == 1 and "try:" in result.stdout


def test_the_command_line_reports_a_plug_in_whose_import_seeds_global_numbers(tmp_path: Path) -> None:
    plugin = tmp_path / "seeding_plugin.py"
    plugin.write_text(PLUGIN.format(name="seeded-for-a-test", share="0.15") + "\nnp.random.seed(0)\n")
    result = call("check", "corruption", "seeded-for-a-test", "--plugin", plugin, "--json")
    failures = [row["check"] for row in json.loads(result.stdout) if not row["ok"]]
    assert result.exit_code == 1
    assert failures == [f"importing {plugin} leaves the global random numbers alone"]


SEEDING_TORCH = """
from shiftbench.conformance import changed_generators

def import_torch():
    import torch

def import_and_seed():
    import torch
    torch.manual_seed(0)

print(changed_generators({function}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("function", "libraries"), [("import_torch", "[]"), ("import_and_seed", "['torch']")])
def test_an_import_that_loads_and_seeds_torch_is_noticed(function: str, libraries: str) -> None:
    pytest.importorskip("torch")
    program = SEEDING_TORCH.format(function=function)
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == libraries


@pytest.mark.parametrize(
    "arguments",
    [
        ("suite", "clean"),
        ("shift", "imagenet-c.fog.3", "--suite", "imagenet-c"),
        ("metric", "top1", "--replicates", "20"),
        ("augmentation", "flip"),
        ("corruption", "frost", "--option", "frost_textures=procedural"),
    ],
)
def test_every_check_is_a_command(arguments: tuple[str, ...]) -> None:
    rows = json.loads(call("check", *arguments, "--json").stdout)
    assert all(set(row) == {"check", "ok", "message", "found", "expected", "hint"} for row in rows)
    assert len(rows) > 5
    assert "Examples:" in call("check", arguments[0], "--help").stdout
    assert "tensorboard" in sinks.names()


@pytest.mark.parametrize("name", ["jsonl", pytest.param("mlflow", marks=pytest.mark.slow)])
def test_a_sink_can_be_checked_whether_it_writes_a_file_or_a_folder(name: str) -> None:
    """``jsonl`` writes a file and MLflow a database, so the target that the command makes up must not be a folder."""
    if name == "mlflow":
        pytest.importorskip("mlflow")
    result = call("check", "sink", name)
    assert result.exit_code == 0, result.stdout
    assert "1 files searched" in result.stdout
