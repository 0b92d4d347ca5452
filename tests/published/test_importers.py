"""Public result files in other people's shapes."""

from __future__ import annotations

from pathlib import Path

from shiftbench.published.importers import read_timm
from shiftbench.studies import StudyError, fit
from tests.raised import raises


def test_timm(reference_data: Path) -> None:
    table = read_timm(sorted((reference_data / "timm_results").glob("results-*.csv")))
    assert table.unit == "percent" and {"imagenet", "imagenet-r", "sketch"} <= set(table.settings)
    assert len(table.models) == len(set(table.models)) > 1500
    assert table.of("imagenet")["resnet50.a1_in1k@224"] == 80.382
    assert table.of("sketch")["resnet50.a1_in1k@288"] == 28.189
    line = fit(table.of("imagenet"), table.of("imagenetv2-matched-frequency"), resamples=0)
    assert line.r2 > 0.95 and 0.8 < line.slope < 1.2


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "results-x.csv").write_text("model,img_size,top1\na,224,70\na,224,71\n")
    with raises(StudyError, found="a@224"):
        read_timm([tmp_path / "results-x.csv"])
    (tmp_path / "results-x.csv").write_text("model,accuracy\na,70\n")
    with raises(StudyError, found="model, accuracy", expected="model, img_size, top1"):
        read_timm([tmp_path / "results-x.csv"])
