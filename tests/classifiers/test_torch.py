"""torch modules: through onnxruntime where it agrees, by torch where not."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.check import check_classifier
from shiftbench.classifiers.onnx_ import OnnxClassifier
from shiftbench.classifiers.preprocessing import Normalisation
from shiftbench.classifiers.torch_ import TorchClassifier, normalised_on
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError, MissingExtraError, ResultWarning
from shiftbench.io.code_state import module_digest
from shiftbench.labels.space import LabelSpace
from tests.classifiers.networks import SMALL, Dictionary, Doubled, Small, Untraceable
from tests.raised import raises

IMAGES = sample_images(5, (32, 32))


def eager(module: nn.Module, images: Any) -> Any:
    with torch.inference_mode():
        return module.eval()(torch.from_numpy(SMALL.normalisation(images))).numpy()


def test_a_module_runs_through_onnxruntime(own_cache: Path, pets: LabelSpace) -> None:
    classifier = load_classifier(Small(), labels=pets, preprocessing=SMALL)
    assert isinstance(classifier, OnnxClassifier)
    assert classifier.path.parent == own_cache / "onnx"
    assert np.allclose(classifier.scores(IMAGES), eager(Small(), IMAGES), atol=1e-5)
    assert classifier.outputs == "logits"


@pytest.mark.parametrize("engine", ["onnxruntime", "torch"])
def test_conformance(own_cache: Path, pets: LabelSpace, engine: str) -> None:
    classifier = load_classifier(Small(), labels=pets, preprocessing=SMALL, engine=engine)  # type: ignore[arg-type]
    assert [check for check in check_classifier(classifier) if not check.ok] == []


def test_a_module_that_cannot_be_exported_runs_by_torch(
    own_cache: Path, pets: LabelSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    classifier = load_classifier(Untraceable(), labels=pets, preprocessing=SMALL)
    assert isinstance(classifier, TorchClassifier)
    assert classifier.why_not_onnxruntime is not None
    monkeypatch.setattr("torch.onnx.export", lambda *given, **options: 1 / 0)  # quicker than to fail once more
    with pytest.raises(ClassifierError, match="onnxruntime"):
        load_classifier(Untraceable(), labels=pets, preprocessing=SMALL, engine="onnxruntime")


def test_other_pictures_for_the_comparison(own_cache: Path, pets: LabelSpace) -> None:
    classifier = load_classifier(Small(), labels=pets, preprocessing=SMALL, check_images=IMAGES)
    assert isinstance(classifier, OnnxClassifier)


def test_the_cache_is_used_and_checked(own_cache: Path, pets: LabelSpace) -> None:
    first = load_classifier(Small(), labels=pets, preprocessing=SMALL)
    assert isinstance(first, OnnxClassifier)
    stamp = first.path.stat().st_mtime_ns
    again = load_classifier(Small(), labels=pets, preprocessing=SMALL)
    assert isinstance(again, OnnxClassifier)
    assert again.path.stat().st_mtime_ns == stamp
    # A graph that is not the twin of these weights, for whatever reason, is replaced.
    other = load_classifier(Small(seed=1), labels=pets, preprocessing=SMALL)
    assert isinstance(other, OnnxClassifier)
    first.path.write_bytes(other.path.read_bytes())
    healed = load_classifier(Small(), labels=pets, preprocessing=SMALL)
    assert np.allclose(healed.scores(IMAGES), eager(Small(), IMAGES), atol=1e-5)
    first.path.write_bytes(b"torn")
    healed = load_classifier(Small(), labels=pets, preprocessing=SMALL)
    assert np.allclose(healed.scores(IMAGES), eager(Small(), IMAGES), atol=1e-5)


def test_many_may_export_at_once(own_cache: Path, pets: LabelSpace) -> None:
    modules = [Small() for _ in range(4)]  # not in the threads: seeding is not safe there
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(lambda module: load_classifier(module, labels=pets, preprocessing=SMALL), modules))
    expected = eager(Small(), IMAGES)
    assert all(np.allclose(classifier.scores(IMAGES), expected, atol=1e-5) for classifier in loaded)
    assert [path.suffix for path in (own_cache / "onnx").iterdir()] == [".onnx"]


def test_without_onnxruntime_torch_does_it(own_cache: Path, pets: LabelSpace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    classifier = load_classifier(Small(), labels=pets, preprocessing=SMALL)
    assert classifier.engine == "torch cpu float32"
    with raises(MissingExtraError, hint="pip install 'shiftbench[onnx]'"):
        load_classifier(Small(), labels=pets, preprocessing=SMALL, engine="onnxruntime")


def test_outputs_are_found_out(own_cache: Path, pets: LabelSpace) -> None:
    module = nn.Sequential(Small(), nn.Softmax(dim=1))
    assert load_classifier(module, labels=pets, preprocessing=SMALL).outputs == "probabilities"


def test_outputs_in_a_dictionary(own_cache: Path, pets: LabelSpace) -> None:
    classifier = load_classifier(Dictionary(), labels=pets, preprocessing=SMALL)
    assert isinstance(classifier, OnnxClassifier)
    assert np.allclose(classifier.scores(IMAGES), eager(Small(), IMAGES), atol=1e-5)


class Several(nn.Module):
    """A network that returns its scores among other things."""

    def __init__(self, pack: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.network = Small()
        self.pack = pack

    def forward(self, x: torch.Tensor) -> object:
        return self.pack(self.network(x))


@pytest.mark.parametrize(
    "pack",
    [
        lambda scores: (scores.repeat(1, 4), scores),
        lambda scores: {"out": scores},
        lambda scores: {"features": scores.repeat(1, 4), "answers": scores},
    ],
)
def test_the_scores_among_several_outputs_have_a_column_per_class(own_cache: Path, pets: LabelSpace, pack: Any) -> None:
    for engine in ("auto", "torch"):
        classifier = load_classifier(Several(pack), labels=pets, preprocessing=SMALL, engine=engine)
        assert np.allclose(classifier.scores(IMAGES), eager(Small(), IMAGES), atol=1e-5)


def test_outputs_that_nothing_distinguishes_are_an_error(own_cache: Path) -> None:
    module = Several(lambda scores: {"one": scores, "two": -scores})
    with raises(ClassifierError, found="one (4, 3), two (4, 3)"):
        load_classifier(module, preprocessing=SMALL)


@pytest.mark.parametrize("device", ["gpu", "cuda:9"])
def test_devices_that_are_not_there(own_cache: Path, pets: LabelSpace, device: str) -> None:
    with raises(ClassifierError, expected="auto, cpu, cuda, cuda:1 or mps"):
        load_classifier(Small(), labels=pets, preprocessing=SMALL, device=device)


def test_fingerprints() -> None:
    assert module_digest(Small()) == module_digest(Small())
    assert module_digest(Small()) != module_digest(Small(seed=1))
    assert module_digest(Small()) != module_digest(Doubled())  # same weights, other forward pass
    assert module_digest(Small()) == module_digest(Small().to(memory_format=torch.channels_last))  # type: ignore[call-overload]
    half = Small().to(torch.bfloat16)
    assert module_digest(half) != module_digest(Small())


def test_digest_is_of_the_loaded_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit of its file does not change a network that is already loaded, nor where its results are kept."""
    file = tmp_path / "edited_network.py"
    file.write_text("from torch import nn\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    network = importlib.import_module("edited_network").Net()
    before = module_digest(network)
    file.write_text(file.read_text().replace("return x", "return 2 * x"))
    assert module_digest(network) == before


@pytest.mark.parametrize("engine", ["onnxruntime", "torch"])
def test_a_module_in_training_stays_so(own_cache: Path, pets: LabelSpace, engine: Any) -> None:
    module = Small().train()
    norm: Any = module.features[1]
    norm.eval()  # frozen, as in fine-tuning
    before = norm.running_mean.clone()
    classifier = load_classifier(module, labels=pets, preprocessing=SMALL, engine=engine)
    assert np.allclose(classifier.scores(IMAGES), eager(Small(), IMAGES), atol=1e-5)
    assert (module.training, module.features[0].training, norm.training) == (True, True, False)
    assert torch.equal(norm.running_mean, before)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it first compiles
def test_wrappers_of_training_are_taken_off(own_cache: Path, pets: LabelSpace) -> None:
    plain = load_classifier(Small(), labels=pets, preprocessing=SMALL)
    for wrapped in (torch.compile(Small()), nn.DataParallel(Small())):
        classifier = load_classifier(wrapped, labels=pets, preprocessing=SMALL)
        assert (classifier.name, classifier.fingerprint) == ("Small", plain.fingerprint)


def test_a_thousand_outputs_are_imagenet(own_cache: Path) -> None:
    assert load_classifier(Small(1000), preprocessing=SMALL).space.name == "imagenet-1k"


def test_other_numbers_of_outputs_need_labels(own_cache: Path, pets: LabelSpace) -> None:
    with pytest.raises(ClassifierError, match="unknown classes"):
        load_classifier(Small(7), preprocessing=SMALL)
    with raises(ClassifierError, found="7 outputs", expected="3 classes"):
        load_classifier(Small(7), labels=pets, preprocessing=SMALL)


def test_unsaid_preprocessing_is_said_aloud(own_cache: Path, pets: LabelSpace) -> None:
    with pytest.warns(ResultWarning):
        load_classifier(Small(), labels=pets)


def test_a_module_that_cannot_take_the_pictures(own_cache: Path, pets: LabelSpace) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(7, 3))
    for model in (module, torch.jit.script(module)):  # whose errors begin with its own traceback
        with pytest.raises(ClassifierError, match="cannot be run on images of 32 x 32") as caught:
            load_classifier(model, labels=pets, preprocessing=SMALL)
        assert "cannot be multiplied" in str(caught.value.found)


def test_torch_pads_to_one_batch_size(own_cache: Path, pets: LabelSpace) -> None:
    classifier = load_classifier(Small(), labels=pets, preprocessing=SMALL, engine="torch", batch_size=8)
    many = np.concatenate([IMAGES] * 4)
    whole = classifier.scores(many)
    for size in (1, 3, 8):
        parts = np.concatenate([classifier.scores(many[start : start + size]) for start in range(0, 20, size)])
        assert np.array_equal(parts, whole)


def test_pickled_modules_keep_their_scores(own_cache: Path, pets: LabelSpace) -> None:
    classifier = load_classifier(Small(), labels=pets, preprocessing=SMALL, engine="torch")
    twin = pickle.loads(pickle.dumps(classifier))
    assert twin.fingerprint == classifier.fingerprint
    assert np.array_equal(twin.scores(IMAGES), classifier.scores(IMAGES))


@pytest.mark.parametrize("order", ["rgb", "bgr"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_bytes_normalised_on_the_device_have_the_same_bits(order: Any, layout: Any) -> None:
    images = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3)).astype(np.uint8)
    normalisation = Normalisation(colour_order=order, layout=layout)
    np.testing.assert_array_equal(normalised_on("cpu", images, normalisation).numpy(), normalisation(images))
