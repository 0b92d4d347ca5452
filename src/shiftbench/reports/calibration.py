"""Calibration before and after temperature scaling as a table, and reliability diagrams for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.base import Score, metrics
from shiftbench.metrics.calibration import ReliabilityBin, reliability_diagram
from shiftbench.metrics.temperature import BOUNDS, Calibrated, calibrate
from shiftbench.reports import formatting
from shiftbench.reports.entries import Entries, in_one_column, named
from shiftbench.reports.reliability_text import LEGEND, diagram_lines
from shiftbench.reports.tables import ResultTable
from shiftbench.store.display_names import classifier_titles
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result, Workspace

if TYPE_CHECKING:
    from rich.console import RenderableType

_FROM_CONFIDENCE = ("rms_calibration_error", "rms_calibration_error_published", "mad_calibration_error", "ece")
_FROM_SCORES = ("classwise_ece", "brier", "nll")
_PUBLISHED, _BIN = "rms_calibration_error_published", 100
_DIAGRAM_BINS = 10
_WITHOUT_SCORES = "no temperature, classwise_ece, brier or nll, for not all scores were kept (eval --keep-scores)"
_BINS_NOTE = (
    "rms and mad: adaptive bins of 100 images; _published leaves out the most confident bin, as the papers' code does; "
    "ece: 15 equal bins. Every binned error is raised by noise: compare at the same number of images"
)


class CalibrationTable(ResultTable):
    """Calibration errors and proper scores, with the reliability diagrams they come from where asked for."""

    def __init__(
        self, entries: Entries, diagrams: Mapping[str, Sequence[ReliabilityBin]], *, title: str, remarks: Sequence[str]
    ) -> None:
        super().__init__(entries, title=title, remarks=remarks)
        self.diagrams = dict(diagrams)

    def renderables(self, width: int, *, ascii_only: bool) -> Iterator[RenderableType]:
        from rich.text import Text

        yield from super().renderables(width, ascii_only=ascii_only)
        for name, bins in self.diagrams.items():
            yield Text()
            yield Text(name, style="bold")
            yield Text("\n".join(diagram_lines(bins, width, ascii_only=ascii_only)))
        if self.diagrams:
            yield Text(formatting.ascii_text(LEGEND) if ascii_only else LEGEND, style="dim")

    def to_markdown(self) -> str:
        drawn = [
            f"\n**{formatting.markdown(name)}**\n\n```\n"
            + "\n".join(diagram_lines(bins, 80, ascii_only=False))
            + "\n```\n"
            for name, bins in self.diagrams.items()
        ]
        return super().to_markdown() + "".join(drawn)

    def as_data(self) -> dict[str, Any]:
        from shiftbench.reports.writers import plain

        drawn = {name: [plain(asdict(one)) for one in bins] for name, bins in self.diagrams.items()}
        return {**super().as_data(), **({"diagrams": drawn} if drawn else {})}


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
) -> CalibrationTable:
    """Each classifier in ``setting`` as it is and at the temperature that held-out images give it.

    The temperature is fitted in the setting ``fit``, or on a share ``split`` of the images, which is then not scored;
    see ``metrics.temperature.calibrate``. Where all scores were not kept there is no temperature: then what the
    confidences alone tell is shown, over all images.
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
    return CalibrationTable(in_one_column(entries), drawn, title="calibration", remarks=[*remarks, _BINS_NOTE])


def _to_calibrate(
    workspace: Workspace, results: Sequence[Result], setting: str, fit: str | None
) -> Iterator[tuple[str, Predictions, Predictions | None]]:
    chosen = [result for result in results if result.setting == setting]
    titles = classifier_titles([result for result in results if result.setting in (setting, fit)])
    for result in chosen:
        other = None
        if fit is not None:
            same = [one for one in results if one.setting == fit and titles[one.key] == titles[result.key]]
            if len(same) != 1:
                raise ShiftbenchError(
                    f"which predictions of {titles[result.key]!r} should its temperature be fitted on?",
                    found=f"{len(same)} in the setting {fit!r}",
                    expected="one",
                    hint="evaluate it there with --keep-scores" if not same else "keep one data set a workspace",
                )
            other = workspace.read(same[0])
        yield titles[result.key], workspace.read(result), other


def _comparable(done: Calibrated) -> Predictions:
    """The row's name tells the temperature; its provenance must be that of the row above to share its columns."""
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
