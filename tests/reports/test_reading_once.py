"""A command reads each result once, and its work grows with the number of results, not with its square."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pyarrow.parquet as pq
import pytest
from benchmarks.synthetic_testbed import Size, datasets_of, models_of, settings_of, write_model

import shiftbench as sb
from shiftbench.arrays import Pixels
from shiftbench.datasets import from_arrays
from shiftbench.labels.space import Scores
from shiftbench.metrics.base import Needs
from shiftbench.reports.page.report_data import ReportData, ReportOptions, build_page
from shiftbench.reports.page.thumbnails import FileAlbum
from shiftbench.reports.summary import summarise
from shiftbench.runs.plan import plan_result, record_images
from shiftbench.store import workspace as workspace_module
from shiftbench.store.prediction_files import read_block
from shiftbench.store.spec import SettingRecord
from shiftbench.store.workspace import Workspace

#: The natural shifts of the testbed, and some of its corruptions.
SETTINGS = 40
IMAGES = 42


def _workspace(root: Path, models: int) -> Path:
    workspace = Workspace(root)
    size = Size(models, IMAGES, SETTINGS)
    settings = settings_of(SETTINGS)
    datasets = datasets_of(settings, IMAGES)
    for dataset in datasets.values():
        record_images(workspace, dataset)
    records = {}
    for setting in settings:
        planned = plan_result(models_of(1)[0], setting, datasets[setting.dataset], Needs(), 0, workspace)
        records[planned.result.spec.setting_key(setting.name)] = SettingRecord.of(setting)
    workspace.record_settings(records)
    for number in range(models):
        write_model(root, size, number)
    return root


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _workspace(tmp_path_factory.mktemp("small") / "w", 3)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _workspace(tmp_path_factory.mktemp("large") / "w", 12)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file of predictions is read."""
    counts: Counter[str] = Counter()

    def counted(path: Path, **options: object) -> object:
        counts[str(path)] += 1
        return read_block(path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(workspace_module, "read_block", counted)
    return counts


def _table(root: Path) -> None:
    sb.Run.open(root).table().to_text()


def _report(root: Path) -> None:
    data = ReportData(sb.Run.open(root), None, ReportOptions(), FileAlbum(budget=1e6))
    build_page(data)


@pytest.mark.parametrize("command", [_table, _report])
def test_each_result_is_read_once(small: Path, reads: Counter[str], command: Callable[[Path], None]) -> None:
    command(small)
    assert len(reads) == 3 * SETTINGS
    assert set(reads.values()) == {1}


def _by_brightness(images: Pixels) -> Scores:
    bright = images.mean(axis=(1, 2, 3)) / 255
    return np.stack([1 - bright, bright], axis=1).astype(np.float32)


def test_a_run_opens_the_files_that_it_wrote_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run again opens them twice: for the spec, and to see whether they are complete.

    The clean result is read once more, with its confidences.
    """
    counts: Counter[str] = Counter()
    open_parquet = pq.ParquetFile

    def counted(source: object, **options: object) -> object:
        path = Path(str(getattr(source, "name", "")))
        if "predictions" in path.parts:
            counts[path.parent.name] += 1
        return open_parquet(source, **options)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    images = np.random.default_rng(0).integers(0, 256, (8, 16, 16, 3), dtype=np.uint8)
    dataset = from_arrays(images, [0, 1] * 4, space=["dark", "bright"], name="images")
    opened = []
    for _ in range(2):
        counts.clear()
        run = sb.evaluate(
            _by_brightness,
            "corruptions",
            data=dataset,
            workspace=tmp_path / "w",
            corruptions=["fog", "contrast"],
            severities=3,
            preprocessing={"size": 16},
            progress=False,
        )
        str(summarise(run))
        for table in run.overview():
            str(table)
        opened.append(dict(counts))
    corrupted = {"images-c.fog.3", "images-c.contrast.3"}
    assert opened == [{"images": 2} | dict.fromkeys(corrupted, 1), {"images": 2} | dict.fromkeys(corrupted, 2)]


def _calls(command: Callable[[Path], None], root: Path) -> int:
    """How many Python functions a command calls in this thread."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        if event == "call":
            count += 1

    sys.setprofile(note)
    try:
        command(root)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("command", [_table, _report])
def test_the_work_grows_with_the_number_of_results(small: Path, large: Path, command: Callable[[Path], None]) -> None:
    command(small)  # Imports and caches are not counted.
    assert _calls(command, large) < 1.25 * 4 * _calls(command, small)
