"""Registrations of the plug-ins of this package: the workshops ``testsets`` and ``hardening``, and ``bridges``.

Loaded through the entry point group ``shiftbench.plugins``, as a third party's module would be. It imports a plug-in
only when something of it is asked for, so that a plain evaluation loads none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from shiftbench import Classifier, Dataset, LabelSpace, Setting
from shiftbench.classifiers import Options, classifier_loaders
from shiftbench.datasets import DatasetKind, dataset_kinds
from shiftbench.extend.io import Location
from shiftbench.extend.shifts import Draws
from shiftbench.extend.types import AskedSpace, Pixels
from shiftbench.integrations import Sink, sinks
from shiftbench.settings import SuiteOptions, suites
from shiftbench.shifts import Shift, corruption, shift_kinds

# Files of a frozen test set; ``testsets.frozen`` writes them.
FROZEN_RECORD = "frozen.json"
FROZEN_REFERENCE = "reference.jsonl"


@classifier_loaders.register("hardened")
def load_hardened(target: str, options: Options) -> Classifier:
    """A model trained by `shiftbench harden train`: hardened:FOLDER."""
    from shiftbench.hardening import classifier

    return classifier.load_hardened(target, options)


@classifier_loaders.register("kserve")
def load_served(target: str, options: Options) -> Classifier:
    """A model behind a server (KServe, Triton): kserve:http://HOST/v2/models/NAME."""
    from shiftbench.bridges import served

    return served.load_served(target, options)


@classifier_loaders.register("chat")
def load_chat(target: str, options: Options) -> Classifier:
    """A vision-language model of an OpenAI-compatible server: chat:http://HOST/v1?model=NAME."""
    from shiftbench.bridges import chat

    return chat.load_chat(target, options)


def _recognise_frozen(path: Location) -> str | None:
    """What a path is if it is a frozen test set or its reference images; else None."""
    folder = path.parent if path.name == FROZEN_REFERENCE else path
    if (folder / FROZEN_RECORD).is_file():
        return "a frozen test set"
    return None


def open_testset(
    path: str | Path, *, space: LabelSpace | str | None = None, name: str | None = None, set: str | None = None
) -> Dataset:
    """A frozen test set: its folder, its project, or its reference.jsonl for the reference images."""
    from shiftbench.testsets import frozen

    return frozen.open_testset(path, space=space, name=name, set=set)


def _open_split(path: str | Path, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """A split that `testset follow-up splits --write` wrote: split-1.json for training, split-1.json/test to test."""
    from shiftbench.testsets.followups.splits import open_split

    return open_split(path, space=space)


def _recognise_croissant(path: Location) -> str | None:
    """What a path is if it is a Croissant file; its name says so, and nothing is imported for other paths."""
    if "croissant" not in path.name.lower():
        return None
    from shiftbench.bridges import croissant

    return croissant.recognise_croissant(path)


def _open_croissant(path: str | Path, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """A Croissant description with its files beside it: croissant.json, with the extra `croissant`."""
    from shiftbench.bridges import croissant

    return croissant.open_croissant(path, space=space, name=name)


dataset_kinds.add("croissant", DatasetKind(_recognise_croissant, _open_croissant, first=True))
# A path is never recognised as a split: it has to be named, as split:PATH.
dataset_kinds.add("split", DatasetKind(lambda path: None, _open_split))
dataset_kinds.add("testset", DatasetKind(_recognise_frozen, open_testset, first=True))


def _style_identity(options: Mapping[str, object]) -> Mapping[str, object]:
    """What decides the pixels of ``style_transfer``, besides the severity and the seed: its files."""
    from shiftbench.hardening.augmentations import stylize

    return stylize.identity(**options)


@corruption("style_transfer", group="style", options=("network", "styles"), identity=_style_identity)
def style_transfer(
    image: Pixels, severity: float, draws: Draws, network: str | None = None, styles: str | None = None
) -> Pixels:
    """The style of a painting by AdaIN, severity / 5 of the way: ``alpha`` from 0.2 to 1."""
    from shiftbench.hardening.augmentations import stylize

    stylizer = stylize.stylizer(network, styles)
    style = draws.integer(0, stylizer.count)
    return stylizer.drawn(image, style, severity / 5)


@suites.family("testset:DIR", "testset:(.+)")
def testset(folder: str) -> Callable[[SuiteOptions], list[Setting]]:
    """The frozen sets of a test-set project, each against its annotated reference images."""

    def build(options: SuiteOptions) -> list[Setting]:
        from shiftbench.testsets.frozen import testset_settings

        return testset_settings(folder)

    return build


@shift_kinds.register("nrtk")
def nrtk_shift(record: Mapping[str, object]) -> Shift:
    """A perturber of NRTK, from its record."""
    from shiftbench.bridges import nrtk_

    return nrtk_.rebuilt(record)


@sinks.register("jsonl")
def json_lines_sink(target: str) -> Sink:
    """A file of JSON lines: jsonl:FILE."""
    from shiftbench.bridges.sinks import JsonLinesSink

    return JsonLinesSink(target)


@sinks.register("trackio")
def trackio_sink(project: str) -> Sink:
    """A project of Trackio: trackio:PROJECT."""
    from shiftbench.bridges.sinks import TrackioSink

    return TrackioSink(project)
