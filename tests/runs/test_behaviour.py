"""A model that changes behind the same code is computed anew; one that is random is not, again and again."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import shiftbench as sb
from shiftbench.api import IncompleteRunError, StrictRunError
from shiftbench.errors import ResultWarning
from shiftbench.store.maintenance import verify
from shiftbench.store.workspace import Workspace
from tests.runs.helpers import brightest_channel, colour_folder

SMALL: Any = {"preprocessing": {"size": 32}, "labels": "folders", "progress": False, "workers": 1}
#: The classes are blue, green and red, in this order.
RIGHT = np.eye(3)[:, ::-1]
WRONG = np.roll(np.eye(3), 1, axis=1)
READS = """
import numpy as np
def classifier():
    return lambda images: images.mean(axis=(1, 2)) / 20 @ np.load("{weights}")
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return colour_folder(tmp_path / "data", per_class=6)


def run(model: Any, data: Path, workspace: Path, **options: Any) -> tuple[sb.Run, list[str]]:
    """The run, and the codes of its warnings about the model."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = sb.evaluate(model, data=data, workspace=workspace, **{**SMALL, **options})
    codes = [one.message.code for one in caught if isinstance(one.message, ResultWarning)]
    return found, [code for code in codes if code.endswith("-model")]


def accuracy(found: sb.Run) -> float:
    ((_, _, score),) = found.scores("top1")
    return score.value


def test_weights_that_a_file_reads_when_it_is_called(tmp_path: Path, data: Path) -> None:
    model = tmp_path / "model.py"
    weights = tmp_path / "w.npy"
    workspace = tmp_path / "w"
    model.write_text(READS.format(weights=weights))
    found = []
    ids = []
    for matrix in (RIGHT, RIGHT, WRONG, WRONG, RIGHT):
        np.save(weights, matrix)
        one, codes = run(model, data, workspace)
        found.append((accuracy(one), codes))
        ids.append(one.results[0].model_id)
    np.save(weights, WRONG)
    wrong = accuracy(run(model, data, tmp_path / "fresh")[0])
    assert wrong < 0.5
    # the first weights again are the first model again
    assert found == [(1.0, []), (1.0, []), (wrong, ["changed-model"]), (wrong, []), (1.0, [])]
    assert ids[0] == ids[1] == ids[4] != ids[2] == ids[3]
    assert not list(verify(Workspace(workspace)))
    assert len({result.model_id for result in Workspace(workspace).results()}) == 2


def test_rounding_is_not_a_change(tmp_path: Path, data: Path) -> None:
    model = tmp_path / "model.py"
    weights = tmp_path / "w.npy"
    model.write_text(READS.format(weights=weights))
    seen = []
    ids = []
    for factor in (1, 1 + 1e-5, 1.005, 1.01):
        np.save(weights, RIGHT * factor)
        found, codes = run(model, data, tmp_path / "w")
        seen.append(codes)
        ids.append(found.results[0].model_id)
    assert seen == [[], [], ["changed-model"], ["changed-model"]]
    assert ids[0] == ids[1] and len(set(ids)) == 3


@pytest.mark.parametrize("batch", ["n", 1])
@pytest.mark.parametrize("training", [0, 1])
def test_a_graph_exported_in_training_mode_is_reported(
    training: int, batch: str | int, tmp_path: Path, data: Path
) -> None:
    """ONNX Runtime normalises by running means that each call changes: an image alone has other scores each time.

    So no batch size makes the numbers independent of the order of the images, and the model is not merely one that
    mixes the images of a batch.
    """
    helper = onnx.helper
    array = onnx.numpy_helper.from_array
    constants = {name: np.full(3, value, np.float32) for name, value in {"s": 1, "b": 0, "m": 0, "v": 1}.items()}
    outputs = ["normal", "mean", "variance"] if training else ["normal"]
    nodes = [
        helper.make_node("GlobalAveragePool", ["images"], ["pooled"]),
        helper.make_node("BatchNormalization", ["pooled", "s", "b", "m", "v"], outputs, training_mode=training),
        helper.make_node("Flatten", ["normal"], ["scores"]),
    ]
    float32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("images", float32, [batch, 3, 32, 32])],
        [helper.make_tensor_value_info("scores", float32, [batch, 3])],
        [array(values, name) for name, values in constants.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)
    session = onnxruntime.InferenceSession(path)
    white = np.ones((1, 3, 32, 32), np.float32)
    first, second = (session.run(None, {"images": white})[0] for _ in range(2))
    assert np.allclose(first, second) == (not training)
    _, codes = run(path, data, tmp_path / "w")
    assert codes == ["unsteady-model"] * training


def test_a_random_model_is_computed_once_and_reported(tmp_path: Path, data: Path) -> None:
    rng = np.random.default_rng(0)
    calls = []

    def noisy(images: Any) -> Any:
        calls.append(len(images))
        return brightest_channel(images)[:, ::-1] + rng.normal(0, 0.1, (len(images), 3))

    first, codes = run(noisy, data, tmp_path / "w")
    made = len(calls)
    again, later = run(noisy, data, tmp_path / "w")
    assert codes == later == ["unsteady-model"]
    assert calls[made:] == [4]  # only to count the outputs
    assert again.results[0].key == first.results[0].key
    with pytest.raises(StrictRunError):
        run(noisy, data, tmp_path / "w", strict=True)


def test_results_are_known_without_the_record_or_with_a_damaged_one(tmp_path: Path, data: Path) -> None:
    """By their id; to other decimals, the scores on fixed images are part of it."""
    first, _ = run(brightest_channel, data, tmp_path / "w")
    (record,) = (tmp_path / "w/behaviour").glob("*.json")
    record.unlink()
    again, codes = run(brightest_channel, data, tmp_path / "w")
    assert codes == [] and again.results[0].key == first.results[0].key
    record.write_text(record.read_text().replace("0.", "1.", 1))
    assert [one.file for one in verify(Workspace(tmp_path / "w"))] == [f"behaviour/{record.name}"]
    anew, codes = run(brightest_channel, data, tmp_path / "w")
    assert codes == [] and anew.results[0].key == first.results[0].key
    assert not list(verify(Workspace(tmp_path / "w")))


def test_copies_of_a_cloud_drive_are_ignored_with_a_note(tmp_path: Path, data: Path) -> None:
    first, _ = run(brightest_channel, data, tmp_path / "w")
    (file,) = (tmp_path / "w/predictions").rglob("*.parquet")
    stray = file.with_name(f"{file.stem} (conflicted copy).parquet")
    stray.write_bytes(b"half of a file")
    with pytest.warns(ResultWarning, match="conflicted copy") as caught:
        again = sb.evaluate(brightest_channel, data=data, workspace=tmp_path / "w", **SMALL)
    notes = [warning.message for warning in caught if isinstance(warning.message, ResultWarning)]
    assert {note.is_note for note in notes if note.code == "stray-files"} == {True}
    assert again.results[0].key == first.results[0].key
    assert not list(verify(Workspace(tmp_path / "w")))


KILLED = """
import os, sys
import numpy as np
import shiftbench as sb

data, workspace, weights = sys.argv[1:]
seen = []

def reads(images):
    seen.extend(images)
    if len(seen) > 100:
        np.save(weights, np.roll(np.eye(3), 1, axis=1))
    if len(seen) > 150:
        os._exit(9)
    return images.mean(axis=(1, 2)) / 20 @ np.load(weights)

def plain(images):
    return images.mean(axis=(1, 2)) / 20 @ np.load(weights)

if __name__ == "__main__":
    model = sb.load_classifier(plain, labels=["blue", "green", "red"], preprocessing={"size": 32}, name="m")
    if not os.path.exists(workspace):
        model.function = reads
    run = sb.evaluate(model, data=data, workspace=workspace, labels="folders", progress=False, workers=1)
    ((_, _, score),) = run.scores("top1")
    print(score.value)
"""


def test_blocks_of_another_model_do_not_survive_a_kill(tmp_path: Path) -> None:
    """The weights are replaced during a run that is killed before it notices, and put back."""
    data = colour_folder(tmp_path / "data", per_class=60)
    weights = tmp_path / "w.npy"
    (tmp_path / "run.py").write_text(KILLED)
    words = [sys.executable, str(tmp_path / "run.py"), str(data), str(tmp_path / "w"), str(weights)]
    np.save(weights, RIGHT)
    killed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert killed.returncode == 9, killed.stderr
    assert list((tmp_path / "w").rglob("shards/**/*.parquet"))
    np.save(weights, RIGHT)
    resumed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert resumed.stdout.split() == ["1.0"], resumed.stderr
    assert not list((tmp_path / "w/locks").glob("unchecked-*.json"))


def test_blocks_of_another_run_that_is_killed_meanwhile_are_not_joined(tmp_path: Path, data: Path) -> None:
    """The other run wrote the first blocks, and is killed after this one has begun."""
    workspace = tmp_path / "w"
    listed: list[str] = []

    def in_company(images: Any) -> Any:
        if not listed:
            listed.extend(path.relative_to(workspace).as_posix() for path in workspace.glob("shards/**/*.parquet"))
            if listed:
                (workspace / "locks/unchecked-other-1-0.json").write_text(json.dumps(listed))
        return brightest_channel(images)[:, ::-1]

    with pytest.raises(IncompleteRunError):
        run(in_company, data, workspace, batch_size=2)
    assert not list((workspace / "predictions").rglob("*.parquet"))
    finished, _ = run(in_company, data, workspace, batch_size=2)
    assert accuracy(finished) == 1.0
