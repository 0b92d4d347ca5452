"""Calibration before and after temperature scaling as a table, and reliability diagrams for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.base import Score, metrics
from shiftbench.metrics.calibration import ReliabilityBin, reliability_diagram
from shiftbench.metrics.temperature import BOUNDS, Calibrated, calibrate
from shiftbench.reports import formatting
from shiftbench.reports.scores import Entries, in_one_column, named, score_table
from shiftbench.reports.table import Diagram, Table
from shiftbench.reports.writers import plain
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result, Workspace

_FROM_CONFIDENCE = ("rms_calibration_error", "rms_calibration_error_published", "mad_calibration_error", "ece")
_FROM_SCORES = ("classwise_ece", "brier", "nll")
_PUBLISHED, _BIN = "rms_calibration_error_published", 100
_DIAGRAM_BINS = 10
_LEGEND = "bar: share that is right; mark: mean confidence. A bar that ends short of its mark is overconfident."
_HEADER = ("confidence %", "n", "right %", "")
_LEAST_BAR, _MOST_BAR, _GAP = 10, 50, 2
_UNICODE, _ASCII = ("█", "│"), ("#", "|")
_WITHOUT_SCORES = "no temperature, classwise_ece, brier or nll, for not all scores were kept (eval --keep-scores)"
_BINS_NOTE = (
    "rms and mad: adaptive bins of 100 images; _published leaves out the most confident bin, as the papers' code does; "
    "ece: 15 equal bins. Every binned error is raised by noise: compare at the same number of images"
)


def calibration_table(
    workspace: Workspace,
    results: Sequence[Result],
    setting: str,
    *,
    fit: str | None = None,
    split: float | None = None,
    seed: int = 0,
    diagrams: bool = False,
    level: float = 0.95,
) -> Table:
    """Each model in ``setting`` as it is and at the temperature that held-out images give it.

    The temperature is fitted in the setting ``fit``, or on a share ``split`` of the images, which is then not scored;
    see ``metrics.temperature.calibrate``. Where all scores were not kept there is no temperature: then what the
    confidences alone show is reported, over all images.
    """
    entries: Entries = []
    without: list[str] = []
    drawn: dict[str, Sequence[ReliabilityBin]] = {}
    remarks: list[str] = []
    for title, scored, other in _to_calibrate(workspace, results, setting, fit):
        rows = {title: scored}
        if scored.scores is None and fit is None and split is None:
            without.append(title)
        else:
            done = calibrate(scored, other, split=split, seed=seed)
            rows = {title: done.before, f"{title} at T = {done.temperature:.3g}": _comparable(done)}
            remarks.append(f"{title}: {_fitted(done)}")
        for name, predictions in rows.items():
            entries += [(name, setting, score) for score in _all_scores(predictions, level)]
            if diagrams:
                hits = predictions.correct
                drawn[name] = reliability_diagram(
                    predictions.confidence[predictions.valid], hits, _DIAGRAM_BINS, level=level
                )
    if without:
        remarks.append(f"{named(without)}: {_WITHOUT_SCORES}")
    if any(score.n < _BIN for *_, score in entries):
        remarks.append(f"{_PUBLISHED} needs at least {_BIN} images")
    table = score_table(
        in_one_column(entries), title="calibration", remarks=[*remarks, _BINS_NOTE], diagrams=_diagrams(drawn)
    )
    if drawn:
        bins_of = {name: [plain(asdict(one)) for one in bins] for name, bins in drawn.items()}
        table.data = {**table.as_data(), "diagrams": bins_of}
    return table


def _diagrams(drawn: Mapping[str, Sequence[ReliabilityBin]]) -> list[Diagram]:
    """One per row; the last one explains them all."""
    return [
        Diagram(name, partial(diagram_lines, bins), _LEGEND if name == list(drawn)[-1] else "")
        for name, bins in drawn.items()
    ]


def _to_calibrate(
    workspace: Workspace, results: Sequence[Result], setting: str, fit: str | None
) -> Iterator[tuple[str, Predictions, Predictions | None]]:
    chosen = [result for result in results if result.setting == setting]
    for result in chosen:
        other = None
        if fit is not None:
            same = [one for one in results if one.setting == fit and one.title == result.title]
            if len(same) != 1:
                raise ShiftbenchError(
                    f"which predictions of {result.title!r} should its temperature be fitted on?",
                    found=f"{len(same)} in the setting {fit!r}",
                    expected="one",
                    hint="evaluate it there with --keep-scores" if not same else "keep one dataset per workspace",
                )
            other = workspace.read(same[0])
        yield result.title, workspace.read(result), other


def _comparable(done: Calibrated) -> Predictions:
    """The row's name gives the temperature; its provenance must be that of the row above to share its columns."""
    return replace(done.after, spec=replace(done.after.spec, provenance=done.before.provenance))


def _fitted(done: Calibrated) -> str:
    held = done.held_out
    where = "the setting, which are not scored" if held.setting == done.before.setting else held.setting
    classes = "" if held.space.keys == done.before.space.keys else f" over {held.space.name} ({len(held.space)})"
    end = ", the end of the search: these images do not determine it" if done.temperature in BOUNDS else ""
    images = formatting.count(int(held.valid.sum()))
    return f"temperature {done.temperature:.4g}, fitted on {images} images of {where}{classes}{end}"


def _all_scores(predictions: Predictions, level: float) -> list[Score]:
    names = [name for name in _FROM_CONFIDENCE if name != _PUBLISHED or int(predictions.valid.sum()) >= _BIN]
    names += _FROM_SCORES if predictions.scores is not None else ()
    return [metrics.get(name)(predictions, level=level) for name in names]


def diagram_lines(bins: Sequence[ReliabilityBin], width: int, ascii_only: bool) -> list[str]:
    """A reliability diagram in characters: one line per bin, the most confident last.

    >>> made = [ReliabilityBin(0.0, 0.5, 4, 0.4, 0.25, 0.0, 0.8), ReliabilityBin(0.5, 1.0, 0, *[math.nan] * 4)]
    >>> print("\\n".join(diagram_lines(made, 55, True)))
    confidence %  n  right %
            0-50  4     25.0 [0.0, 80.0]  ####  |
          50-100  0
    """
    whole = [_HEADER, *(_cells(one) for one in bins)]
    # In a narrow terminal the bars are worth more than the ends of the intervals.
    short = [(*row[:3], "") for row in whole]
    rows, room = next((r, _room(r, width)) for r in (whole, short) if r is short or _room(r, width) >= _LEAST_BAR)
    marks = _ASCII if ascii_only else _UNICODE
    drawn = ["", *(_bar(one, room, marks) if one.n else "" for one in bins)]
    lines = [_line(row, _sizes(rows), drawing) for row, drawing in zip(rows, drawn, strict=True)]
    return [formatting.ascii_text(line) for line in lines] if ascii_only else lines


def _cells(one: ReliabilityBin) -> tuple[str, str, str, str]:
    """Confidence, images, accuracy and its interval."""
    share, ends = formatting.number(one.accuracy, 1), formatting.interval(one.low, one.high, 1)
    name = f"{100 * one.start:.3g}–{100 * one.stop:.3g}"
    return (name, formatting.count(one.n), share if one.n else "", f" {ends}" if one.n else "")


def _sizes(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*rows, strict=True)]


def _room(rows: Sequence[Sequence[str]], width: int) -> int:
    """What is left for the bars."""
    return max(0, min(_MOST_BAR, width - sum(_sizes(rows)) - 3 * _GAP))


def _line(row: Sequence[str], sizes: Sequence[int], drawing: str) -> str:
    gap, (name, n, right, ends) = " " * _GAP, sizes
    return f"{row[0]:>{name}}{gap}{row[1]:>{n}}{gap}{row[2]:>{right}}{row[3]:<{ends}}{gap}{drawing}".rstrip()


def _bar(one: ReliabilityBin, width: int, marks: tuple[str, str]) -> str:
    if not width:
        return ""
    full, mark = marks
    bar = full * round(one.accuracy * width)
    place = min(width - 1, math.floor(one.confidence * width))
    return f"{bar:<{width}}"[:place] + mark + f"{bar:<{width}}"[place + 1 :]
