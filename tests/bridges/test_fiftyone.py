"""FiftyOne's own samples, both ways. Its datasets need a MongoDB server, which is not at hand; its samples do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shiftbench as sb
from shiftbench.bridges import from_fiftyone, to_fiftyone
from shiftbench.errors import DatasetError
from tests.runs.helpers import brightest_channel, colour_folder


class View:
    """What the bridge uses of a dataset or view: a name, its samples, and samples that are saved when they change."""

    name = "colours"

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples
        self.autosave = False

    def __iter__(self) -> Any:
        return iter(self.samples)

    def iter_samples(self, autosave: bool = False) -> Any:
        self.autosave = autosave
        return iter(self.samples)


def test_samples_are_data_and_get_predictions(tmp_path: Path) -> None:
    fiftyone: Any = pytest.importorskip("fiftyone", reason="the extra fiftyone is not installed")
    folder = colour_folder(tmp_path / "photos", per_class=3)
    samples = []
    for file in sorted(folder.rglob("*.png")):
        truth = fiftyone.Classification(label=file.parent.name)
        samples.append(fiftyone.Sample(filepath=str(file), ground_truth=truth))
    view = View(samples)
    model = sb.load_classifier(
        brightest_channel, name="net", labels=["red", "green", "blue"], preprocessing={"size": 32, "outputs": "logits"}
    )
    runs: list[sb.Run] = []
    for data in (from_fiftyone(view), folder):
        workspace = tmp_path / f"w{len(runs)}"
        runs.append(sb.evaluate(model, data=data, labels="folders", workspace=workspace, progress=False))
    assert runs[0].results[0].spec.images == 9
    tops = [run.predictions("net").top[:, 0].tolist() for run in runs]
    assert tops[0] == tops[1] and runs[0].predictions("net").correct.all()
    assert to_fiftyone(runs[0].predictions("net"), view, field="net") == 9 and view.autosave
    for sample in samples:
        assert sample["net"].label == sample.ground_truth.label and 0 < sample["net"].confidence <= 1
    assert to_fiftyone(runs[0].predictions("net"), samples) == 9 and samples[0]["net_colours"].label
    with pytest.raises(DatasetError, match="class in the field"):
        from_fiftyone(view, field="another")
    with pytest.raises(DatasetError, match="no samples"):
        from_fiftyone([])
    other = fiftyone.Sample(filepath=str(tmp_path / "x" / "other.png"))
    with pytest.raises(DatasetError, match="not of these"):
        to_fiftyone(runs[0].predictions("net"), [other])
