"""Models and single files in an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.classifiers import load_classifier
from shiftbench.datasets.catalogue import open_dataset
from shiftbench.errors import DatasetError
from shiftbench.io.downloads import DownloadError
from tests.commands import answer
from tests.io.objects.server import Bucket
from tests.runs.helpers import colour_folder, write_onnx_model
from tests.runs.test_addresses import write_table


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))


def test_a_model_and_a_table(bucket: Bucket, tmp_path: Path) -> None:
    write_onnx_model(tmp_path / "light.onnx")
    write_table(tmp_path / "val.parquet", colour_folder(tmp_path / "images", per_class=4))
    bucket.put("models/light.onnx", (tmp_path / "light.onnx").read_bytes())
    bucket.put("val.parquet", (tmp_path / "val.parquet").read_bytes())
    stated = "size=32,mean=0.5,std=0.25,colour=rgb,interpolation=bilinear"
    where = ["--data", f"{bucket.url}/val.parquet", "--workspace", tmp_path / "w", "--preprocess", stated]
    answer("eval", f"{bucket.url}/models/light.onnx", *where)
    (result,) = sb.Run.open(tmp_path / "w").results
    assert result.title == "light" and result.setting == "val.parquet"


def test_a_wrong_bucket_and_a_wrong_name(bucket: Bucket) -> None:
    bucket.put("there", b"")
    with pytest.raises(DatasetError) as caught:
        open_dataset("s3://no-such-bucket-here/val")
    assert "no-such-bucket-here" in str(caught.value.found)
    with pytest.raises(DatasetError) as caught:
        open_dataset(f"{bucket.url}/val")
    assert bucket.name in str(caught.value.found) and "val" in str(caught.value.found)
    with pytest.raises(DownloadError) as failed:
        load_classifier(f"{bucket.url}/models/light.onnx")
    assert failed.value.message.startswith(f"{bucket.url}/models/light.onnx")
