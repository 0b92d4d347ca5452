"""A stranger's own small models reach their true accuracy by every route, with at most one option."""

from __future__ import annotations

import json
import pickle
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import shiftbench as sb
from shiftbench.classifiers.zoo import import_torchvision
from tests.commands import answer, call, output
from tests.first_hour.conftest import Stranger
from tests.first_hour.own import CLASSES

EXPORTS = ("fixed", "any_size", "nhwc", "half")


def accuracy(workspace: Path, *arguments: object) -> tuple[float, list[dict[str, str]]]:
    """Top-1 accuracy and warnings of `shiftbench eval`."""
    words = ["eval", *map(str, arguments), "-w", str(workspace), "--labels", "folders", "--json", "-q"]
    found = json.loads(output(*words))
    return found["scores"][0]["value"], found["warnings"]


def codes(found: list[dict[str, str]]) -> set[str]:
    return {one["code"] for one in found} - {"own-classes"}


def evaluate(model: Any, stranger: Stranger, workspace: Path, **options: Any) -> float:
    options = {"labels": "folders", "progress": False, **options}
    run = sb.evaluate(model, data=stranger.data, workspace=workspace, **options)
    return next(iter(run.shown_scores()))[2].value


@pytest.mark.parametrize("name", EXPORTS)
def test_onnx_on_the_command_line(stranger: Stranger, tmp_path: Path, name: str) -> None:
    arguments = (stranger.folder / f"{name}.onnx", "--data", stranger.data)
    found, warned = accuracy(tmp_path, *arguments, "--preprocess", stranger.statement)
    assert found == pytest.approx(stranger.true_accuracy, abs=0.01 if name == "half" else 1e-9)
    assert codes(warned) == set()
    _, warned = accuracy(tmp_path, *arguments)
    assert "assumed-preprocessing" in codes(warned)


@pytest.mark.parametrize("name", EXPORTS[:3])
def test_geometry_needs_no_option(stranger: Stranger, tmp_path: Path, name: str) -> None:
    """The file states 32 pixels, or the images do and the network accepts them; the normalisation must be given."""
    mean, std = (",".join(map(str, values)) for values in (stranger.mean, stranger.std))
    arguments = (
        stranger.folder / f"{name}.onnx",
        "--data",
        stranger.data,
        "--preprocess",
        f"mean={mean},std={std},colour=rgb",
    )
    found, warned = accuracy(tmp_path, *arguments)
    assert found == pytest.approx(stranger.true_accuracy)
    # Nothing is resized, so a file of fixed size leaves nothing to assume.
    assert codes(warned) == ({"assumed-preprocessing"} if name == "any_size" else set())


def test_an_assumption_leads_to_the_doctor(stranger: Stranger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(stranger.folder)
    words = ["eval", "fixed.onnx", "--data", "photos", "-w", str(tmp_path / "w"), "--labels", "folders", "-q"]
    assert "  shiftbench doctor fixed.onnx --data photos --labels folders\n" in output(*words)
    assert "shiftbench doctor" not in output(*words, "--preprocess", stranger.statement)


def test_a_toml_file_and_a_sidecar_say_the_same(stranger: Stranger, tmp_path: Path) -> None:
    stated = {"size": 32, "mean": stranger.mean, "std": stranger.std, "colour": "rgb"}
    model = tmp_path / "own.onnx"
    model.write_bytes((stranger.folder / "fixed.onnx").read_bytes())
    toml = tmp_path / "own.toml"
    toml.write_text("\n".join(f"{key} = {json.dumps(value)}" for key, value in stated.items()))
    by_file, _ = accuracy(tmp_path / "a", model, "--data", stranger.data, "--preprocess", toml)
    (tmp_path / "own.json").write_text(json.dumps(stated))
    beside, warned = accuracy(tmp_path / "b", model, "--data", stranger.data)
    assert by_file == beside == pytest.approx(stranger.true_accuracy)
    assert codes(warned) == set()


def test_a_torch_module(stranger: Stranger, tmp_path: Path) -> None:
    stated = {"size": 32, "mean": stranger.mean, "std": stranger.std, "colour": "rgb"}
    with warnings.catch_warnings():
        warnings.simplefilter("error", sb.ResultWarning)
        found = evaluate(stranger.network, stranger, tmp_path, preprocessing=stated, name="own")
    assert found == pytest.approx(stranger.true_accuracy)


def test_a_torch_module_with_its_own_transform(stranger: Stranger, tmp_path: Path) -> None:
    import_torchvision()
    from torchvision import transforms
    from torchvision.transforms import v2

    old = transforms.Compose([transforms.ToTensor(), transforms.Normalize(stranger.mean, stranger.std)])
    steps = [v2.Resize((32, 32)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    new = v2.Compose([*steps, v2.Normalize(stranger.mean, stranger.std)])
    for number, transform in enumerate((old, new)):
        found = evaluate(stranger.network, stranger, tmp_path / str(number), preprocessing=transform)
        assert found == pytest.approx(stranger.true_accuracy)


def test_a_transform_that_does_not_resize_takes_the_images_as_they_are(stranger: Stranger, tmp_path: Path) -> None:
    """Also by a network that accepts no other size: it used to be tried on 224 pixels first."""
    import_torchvision()
    from torchvision import transforms

    class Fixed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = stranger.network

        def forward(self, images: torch.Tensor) -> Any:
            return self.network(images.reshape(len(images), 3, 32, 32))

    own = transforms.Compose([transforms.ToTensor(), transforms.Normalize(stranger.mean, stranger.std)])
    found = evaluate(Fixed().eval(), stranger, tmp_path, preprocessing=own)
    assert found == pytest.approx(stranger.true_accuracy)


def test_a_torch_module_of_which_nothing_is_known_is_run_at_the_size_of_the_images(
    stranger: Stranger, tmp_path: Path
) -> None:
    with pytest.warns(sb.ResultWarning) as warned:
        run = sb.evaluate(stranger.network, data=stranger.data, workspace=tmp_path, labels="folders", progress=False)
    geometry = run.results[0].spec.geometry.rebuild()
    assert geometry.output == (32, 32)
    assert all(one.filename == __file__ for one in warned)  # not a line of ours


def test_an_exported_program_states_its_size(stranger: Stranger, tmp_path: Path) -> None:
    program = torch.export.export(
        stranger.network, (torch.zeros(2, 3, 32, 32),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    torch.export.save(program, tmp_path / "own.pt2")
    mean, std = (",".join(map(str, values)) for values in (stranger.mean, stranger.std))
    arguments = (
        tmp_path / "own.pt2",
        "--trust",
        "--data",
        stranger.data,
        "--preprocess",
        f"mean={mean},std={std},colour=rgb",
    )
    found, warned = accuracy(tmp_path / "w", *arguments)
    assert found == pytest.approx(stranger.true_accuracy)
    assert codes(warned) == set()


def test_a_function(stranger: Stranger, tmp_path: Path) -> None:
    """It normalises for itself, and images of one size come as they are: the number is right without any option."""
    with pytest.warns(sb.ResultWarning) as warned:
        found = evaluate(stranger.function, stranger, tmp_path)
    assert found == pytest.approx(stranger.true_accuracy)
    assert [one.message.code for one in warned if isinstance(one.message, sb.ResultWarning)].count(
        "assumed-preprocessing"
    ) == 1
    with pytest.raises(sb.ShiftbenchError):
        evaluate(stranger.function, stranger, tmp_path, preprocessing={"mean": 0.5})


def test_a_function_in_a_file(stranger: Stranger, tmp_path: Path) -> None:
    torch.save(stranger.network.state_dict(), tmp_path / "weights.pt")
    path = tmp_path / "mine.py"
    path.write_text(
        "import numpy as np\ndef tiny():\n    def f(images):\n        return images.mean(axis=(1, 2))\n    return f\n"
    )
    options = ("--preprocess", "size=32", "--data", stranger.data)
    found = answer("eval", f"{path}:tiny", *options, "-w", tmp_path / "w", "--labels", "folders")
    assert found["scores"][0]["classifier"].startswith("mine.tiny")


def test_an_estimator(stranger: Stranger, tmp_path: Path) -> None:
    rows = stranger.images.reshape(len(stranger.images), -1)
    expected = np.array(CLASSES)[stranger.labels]
    truth = float((stranger.estimator.predict(rows / 255) == expected).mean())
    found = evaluate(stranger.estimator, stranger, tmp_path / "a", preprocessing={"scale": "1/255", "layout": "nhwc"})
    assert found == pytest.approx(truth)
    # A part in the old nested form, too, leaves the order of the values alone.
    partial = {"geometry": {"resize": 32, "crop": None, "resize_rule": "exact"}, "normalisation": {"scale": 1 / 255}}
    assert evaluate(stranger.estimator, stranger, tmp_path / "b", preprocessing=partial) == pytest.approx(truth)


def test_an_estimator_of_raw_pixels_on_the_command_line(stranger: Stranger, tmp_path: Path) -> None:
    rows = stranger.images.reshape(len(stranger.images), -1)
    expected = np.array(CLASSES)[stranger.labels]
    truth = float((stranger.raw_estimator.predict(rows.astype(float)) == expected).mean())
    (tmp_path / "own.pkl").write_bytes(pickle.dumps(stranger.raw_estimator))
    found, _ = accuracy(tmp_path / "w", tmp_path / "own.pkl", "--trust", "--data", stranger.data)
    assert found == pytest.approx(truth)


def test_several_models_have_one_preprocessing_for_all_or_one_each(stranger: Stranger, tmp_path: Path) -> None:
    models = [stranger.folder / "fixed.onnx", stranger.folder / "any_size.onnx"]
    shared = ["--data", str(stranger.data), "--labels", "folders", "-w", str(tmp_path), "--json", "-q"]
    first, second = map(str, models)

    def invoke(*options: str) -> Any:
        return call("eval", first, second, *shared, *options)

    both = invoke("--preprocess", stranger.statement, "--name", "one", "--name", "two")
    assert both.exit_code == 0, both.output
    scores = json.loads(both.stdout)["scores"]
    assert [score["value"] for score in scores if score["metric"] == scores[0]["metric"]][:2] == pytest.approx(
        [stranger.true_accuracy] * 2
    )
    each = invoke("--preprocess", stranger.statement, "--preprocess", "mean=0,std=1")
    assert each.exit_code == 0, each.output
    assert invoke("--name", "only-one").exit_code != 0
    assert invoke(*["--preprocess", "size=32"] * 3).exit_code != 0


def test_folders_of_known_classes_and_a_model_of_them_alone(stranger: Stranger, tmp_path: Path) -> None:
    """As many outputs as folders, whose names are wnids: a model that was trained on three classes of ImageNet."""
    folder = tmp_path / "three"
    for own, wnid in zip(CLASSES, ("n01440764", "n02102040", "n02979186"), strict=True):
        shutil.copytree(stranger.data / own, folder / wnid)
    model = stranger.folder / "fixed.onnx"
    options = ("--preprocess", stranger.statement, "-w", tmp_path / "w")
    found = answer("eval", model, "--data", folder, *options)
    assert found["scores"][0]["value"] == pytest.approx(stranger.true_accuracy)
    assert [warning["code"] for warning in found["warnings"]] == ["own-classes"]


def test_images_in_subfolders_of_a_class(stranger: Stranger, tmp_path: Path) -> None:
    """Class folders with subfolders look like several datasets; the error leads to the prefix that decides it."""
    folder = tmp_path / "nested"
    for own in CLASSES:
        shutil.copytree(stranger.data / own, folder / own / "monday")
    options = ("--preprocess", stranger.statement, "-w", tmp_path / "w")
    failed = call("eval", stranger.folder / "fixed.onnx", "--data", folder, *options)
    assert isinstance(failed.exception, sb.ShiftbenchError) and f"folder:{folder}" in str(failed.exception.hint)
    found = answer("eval", stranger.folder / "fixed.onnx", "--data", f"folder:{folder}", *options)
    assert found["scores"][0]["value"] == pytest.approx(stranger.true_accuracy)
