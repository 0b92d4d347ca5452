"""The demo's graphs, made without torch: the same scores as the networks in torch, and nothing but tensors is read."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.demo import CIFAR_CLASSIFIERS, DEMO_CLASSIFIERS, pickled_tensors
from shiftbench.classifiers.weights import load_weights
from shiftbench.errors import ClassifierError
from tests.classifiers.conftest import Photographs
from tests.classifiers.keras_networks import network
from tests.commands import call
from tests.raised import raises


@pytest.mark.parametrize("name", sorted({**DEMO_CLASSIFIERS, **CIFAR_CLASSIFIERS}))
def test_scores_are_those_of_the_network_in_torch(name: str, photographs: Photographs) -> None:
    torch = pytest.importorskip("torch")
    graph = load_classifier(f"demo:{name}")
    module = load_classifier(f"demo:{name}", engine="torch")
    assert (graph.engine, module.engine) == ("onnxruntime cpu", "torch cpu float32")
    assert graph.fingerprint == module.fingerprint
    images = np.stack([graph.preprocessing.geometry(photographs.pixels[i]) for i in range(0, 114, 30)])
    with torch.inference_mode():
        inputs = torch.from_numpy(graph.preprocessing.normalisation(images))
        expected = network(name).eval()(inputs).numpy()
    for found in (graph.scores(images), module.scores(images)):
        assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
        assert (found.argmax(axis=1) == expected.argmax(axis=1)).all()


def test_tensors_are_those_that_torch_reads() -> None:
    path = DEMO_CLASSIFIERS["efficientnet-lite0"].weights()
    found = pickled_tensors(path)
    expected = load_weights(path)
    assert list(found) == list(expected)
    assert all(np.array_equal(found[name], expected[name].numpy()) for name in found)


def test_a_file_that_names_other_things_than_tensors_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(pickle.dumps(pickle.dumps) + bytes(100))
    with raises(ClassifierError, found="_pickle.dumps"):
        pickled_tensors(path)
    parts: tuple[object, ...] = (1, 2, 3, {}, [])
    path.write_bytes(b"".join(pickle.dumps(part) for part in parts))
    with pytest.raises(ClassifierError, match="not a torch file"):
        pickled_tensors(path)


def test_graphs_are_made_without_torch(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from shiftbench.classifiers import load_classifier\n"
        "load_classifier('demo:efficientnet-lite0').session\n"
        "assert 'torch' not in sys.modules\n"
        "sys.modules['torch'] = sys.modules['onnx'] = None\n"
        "from pathlib import Path\n"
        "from shiftbench.classifiers.demo import DEMO_CLASSIFIERS\n"
        "import onnxruntime\n"
        "for name, demo in DEMO_CLASSIFIERS.items():\n"
        "    target = Path(sys.argv[1], name)\n"
        "    demo.graph(demo.weights(), None).save(target)\n"
        "    print(onnxruntime.InferenceSession(target).get_inputs()[0].shape)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["['batch', 3, 'height', 'width']"] * len(DEMO_CLASSIFIERS)


def test_demo_names_missing_packages_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    absent = ("h5py", "onnxruntime")
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name in absent else find(name, *rest))
    monkeypatch.chdir(tmp_path)
    done = call("demo")
    assert done.exit_code != 0
    assert "onnxruntime, h5py" in str(done.exception) + done.output
    assert "pip install 'shiftbench[demo]'" in str(done.exception) + done.output
    assert list(tmp_path.iterdir()) == []
