"""Public result files in other people's shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shiftbench.published.importers import read_clip_benchmark, read_timm
from shiftbench.studies import StudyError, fit

CLIP = """acc1,acc5,mean_per_class_recall,dataset,model,pretrained,task
0.6333,0.8877,0.6328,imagenet1k,ViT-B-32,openai,zeroshot_classification
0.5590,0.8300,0.5600,imagenetv2,ViT-B-32,openai,zeroshot_classification
0.7553,0.9450,0.7550,imagenet1k,ViT-L-14,openai,zeroshot_classification
,,,flickr30k,ViT-L-14,openai,zeroshot_retrieval
"""


def test_timm(reference_data: Path) -> None:
    table = read_timm(reference_data / "timm_results")
    assert table.unit == "percent" and {"imagenet", "imagenet-r", "sketch"} <= set(table.settings)
    assert len(table.models) == len(set(table.models)) > 1500
    assert table.of("imagenet")["resnet50.a1_in1k@224"] == 80.382
    assert table.of("sketch")["resnet50.a1_in1k@288"] == 28.189
    line = fit(table.of("imagenet"), table.of("imagenetv2-matched-frequency"), resamples=0)
    assert line.r2 > 0.95 and 0.8 < line.slope < 1.2


def test_clip_benchmark(tmp_path: Path) -> None:
    (tmp_path / "benchmark.csv").write_text(CLIP)
    table = read_clip_benchmark(tmp_path / "benchmark.csv")
    assert table.models == ("ViT-B-32 openai", "ViT-L-14 openai") and table.settings == ("imagenet1k", "imagenetv2")
    assert table.of("imagenetv2") == {"ViT-B-32 openai": 0.559} and np.isnan(table.values[1, 1])


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "results-x.csv").write_text("model,img_size,top1\na,224,70\na,224,71\n")
    with pytest.raises(StudyError, match="twice"):
        read_timm(tmp_path)
    (tmp_path / "results-x.csv").write_text("model,accuracy\na,70\n")
    with pytest.raises(StudyError, match="result file of timm"):
        read_timm(tmp_path / "results-x.csv")
    with pytest.raises(StudyError, match="CLIP benchmark"):
        read_clip_benchmark(tmp_path / "results-x.csv")
    (tmp_path / "b.csv").write_text(CLIP + "0.9,1,1,imagenet1k,ViT-B-32,openai,zeroshot_classification\n")
    with pytest.raises(StudyError, match="two values"):
        read_clip_benchmark(tmp_path / "b.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StudyError, match="no result files"):
        read_timm(tmp_path / "empty")
