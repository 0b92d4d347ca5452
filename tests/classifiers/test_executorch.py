"""ExecuTorch programs against the torch module that they were exported from."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch", reason="the extra executorch is not installed")

import shiftbench as sb  # noqa: E402
from shiftbench.classifiers import load_classifier  # noqa: E402
from shiftbench.datasets.samples import sample_images  # noqa: E402
from shiftbench.errors import ClassifierError  # noqa: E402
from tests.runs.helpers import colour_folder  # noqa: E402

IMAGES = sample_images(5, (24, 24))
PETS = ["cat", "dog", "fish"]
STATED = "size=24,resize=squash,interpolation=bilinear,mean=0.5,std=0.25,colour=rgb"


def network() -> Any:
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(8, 3)).eval()


def export(module: Any, path: Path, batch: int, channels: int = 3) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # executorch's own use of torch and Python
        from executorch.exir import to_edge_transform_and_lower

        exported = torch.export.export(module, (torch.zeros(batch, channels, 24, 24),))
        path.write_bytes(to_edge_transform_and_lower(exported).to_executorch().buffer)
    return path


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(network(), tmp_path_factory.mktemp("executorch") / "small.pte", 2)


def test_scores_are_those_of_torch(program: Path, tmp_path: Path) -> None:
    classifier = load_classifier(program, labels=PETS, preprocessing=STATED)
    pixels = torch.from_numpy((IMAGES.transpose(0, 3, 1, 2) / 255 - 0.5) / 0.25).float()
    with torch.inference_mode():
        expected = network()(pixels).numpy()
    np.testing.assert_allclose(classifier.scores(IMAGES), expected, atol=1e-5)
    assert classifier.batch_size == 2 and classifier.engine == "executorch cpu" and classifier.assumed == ()
    again = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(again.scores(IMAGES), classifier.scores(IMAGES))
    classifier = load_classifier(program, labels=["blue", "green", "red"], preprocessing=STATED)
    data = colour_folder(tmp_path / "photos", per_class=3)
    run = sb.evaluate(classifier, data=data, labels="folders", workspace=tmp_path / "w", progress=False)
    assert run.results[0].spec.classifier.engine == "executorch cpu"


def test_files_that_are_no_programs_of_images(program: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.pte").write_bytes(program.read_bytes()[:500])
    with pytest.raises(ClassifierError, match="can't open"):
        load_classifier(tmp_path / "broken.pte", labels=PETS)
    with pytest.raises(ClassifierError, match="classes"):
        load_classifier(program, labels=["one", "two"], preprocessing=STATED)
