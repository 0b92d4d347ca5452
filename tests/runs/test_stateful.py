"""Models that adapt while they run, compared with plain loops of torch over the same batches."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

import shiftbench as sb
from shiftbench.classifiers import load_classifier
from shiftbench.errors import ClassifierError, ResultWarning, SettingError
from shiftbench.runs.stateful import image_order
from tests.commands import answer
from tests.runs.helpers import colour_folder

BATCH = 8
MEAN = 0.5
STD = 0.25
CLASSES = ("blue", "green", "red")
INPUT = {"size": 32, "mean": MEAN, "std": STD, "colour": "rgb", "interpolation": "bilinear"}
QUIET: dict[str, Any] = {"progress": False, "labels": "folders", "preprocessing": INPUT, "batch_size": BATCH}


class Network(nn.Module):
    """With batch normalisation, whose statistics are far from those of the images."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=4), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Linear(8, len(CLASSES))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(x).mean(dim=(2, 3)))
        return scores


def with_batch_statistics() -> Network:
    """In eval mode, but for batch normalisation: each batch is normalised by its own statistics."""
    network = Network()
    network.features[1].train()
    return network


class Tent(nn.Module):
    """A gradient step on the entropy of each batch, on the affine parameters of batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Network()
        self.network.train()
        norm: Any = self.network.features[1]
        norm.track_running_stats = False
        norm.running_mean = norm.running_var = None
        self.optimizer = torch.optim.SGD(norm.parameters(), lr=0.5, momentum=0.9)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.network(x)
        entropy = -(scores.softmax(1) * scores.log_softmax(1)).sum(1).mean()
        self.optimizer.zero_grad()
        torch.autograd.backward(entropy)
        self.optimizer.step()
        return scores


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of the size of the input, so that none is resized; the last batch is not full."""
    folder = tmp_path_factory.mktemp("stateful") / "images"
    rng = np.random.default_rng(5)
    for channel, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True)
        for i in range(9):
            pixels = rng.integers(0, 200, (32, 32, 3))
            pixels[..., channel] += rng.integers(0, 55)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i}.png")
    return folder


def by_hand(module: nn.Module, data: Path, seed: int, corrupt: Any = None) -> dict[str, NDArray[np.float32]]:
    """Scores by image, of a plain loop over shuffled batches."""
    ids = sorted(path.relative_to(data).as_posix() for path in data.glob("*/*.png"))
    order = [ids[i] for i in image_order(ids, seed)]
    module = copy.deepcopy(module)
    scores: dict[str, NDArray[np.float32]] = {}
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        images = [np.asarray(Image.open(data / name)) for name in batch]
        if corrupt is not None:
            images = [corrupt(image, name) for image, name in zip(images, batch, strict=True)]
        pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) / 255
        outputs = module((pixels - MEAN) / STD).detach().numpy()
        scores |= dict(zip(batch, outputs, strict=True))
    return scores


def stored(run: sb.Run, setting: str | None = None) -> dict[str, NDArray[np.float32]]:
    predictions = run.predictions(setting=setting)
    assert predictions.scores is not None
    return dict(zip(predictions.ids, predictions.scores, strict=True))


def assert_equal(found: dict[str, NDArray[np.float32]], expected: dict[str, NDArray[np.float32]]) -> None:
    assert found.keys() == expected.keys()
    for name, scores in expected.items():
        np.testing.assert_allclose(found[name], scores, rtol=2e-3, atol=2e-3)
        assert found[name].argmax() == scores.argmax()


@pytest.mark.parametrize("make", [with_batch_statistics, Tent])
@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_as_a_plain_loop(data: Path, tmp_path: Path, make: Any, seed: int) -> None:
    module = make()
    before = copy.deepcopy(module.state_dict())
    run = sb.evaluate(module, data=data, workspace=tmp_path / "w", stateful=True, seed=seed, keep_scores=True, **QUIET)
    assert_equal(stored(run), by_hand(module, data, seed))
    spec = run.results[0].spec
    assert spec.classifier.values["stateful"] == {"order": "shuffled by seed", "batch_size": BATCH}
    assert spec.shift.seed == seed and "seed" in spec.shift.values
    # The module itself did not change.
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_it_is_reset_before_each_setting(data: Path, tmp_path: Path) -> None:
    options: Any = {"severities": 3, "corruptions": ["brightness", "contrast"], **QUIET}
    run = sb.evaluate(Tent(), "corruptions", data, tmp_path / "w", stateful=True, keep_scores=True, **options)
    assert len(run.settings) == 3
    for setting in run.settings:
        name = setting.split(".")[1] if "." in setting else None
        corrupt = None if name is None else lambda image, id, name=name: sb.corrupt(image, name, 3, image_id=id)
        assert_equal(stored(run, setting), by_hand(Tent(), data, 0, corrupt))


def test_an_interrupted_setting_begins_again(data: Path, tmp_path: Path) -> None:
    """The bytes are those of a run that was not interrupted, with any number of workers."""
    evaluate = {"stateful": True, **QUIET}
    whole = sb.evaluate(Tent(), data=data, workspace=tmp_path / "whole", workers=1, **evaluate)
    calls = 0

    def interrupt(*_: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    handle = nn.modules.module.register_module_forward_pre_hook(lambda m, _: interrupt() if type(m) is Tent else None)
    try:
        with pytest.raises(KeyboardInterrupt):
            sb.evaluate(Tent(), data=data, workspace=tmp_path / "again", workers=4, **evaluate)
    finally:
        handle.remove()
    again = sb.evaluate(Tent(), data=data, workspace=tmp_path / "again", workers=4, **evaluate)
    files = [run.workspace.predictions_path(run.results[0]) for run in (whole, again)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_another_batch_size_is_another_model(data: Path, tmp_path: Path) -> None:
    first = load_classifier(with_batch_statistics(), labels=CLASSES, preprocessing=INPUT, stateful=True, batch_size=4)
    second = load_classifier(with_batch_statistics(), labels=CLASSES, preprocessing=INPUT, stateful=True)
    assert first.batch_size == 4 and second.batch_size == 64
    assert first.describe() != second.describe()
    plain = load_classifier(Network(), labels=CLASSES, preprocessing=INPUT, engine="torch")
    assert plain.fingerprint not in (first.fingerprint, second.fingerprint)


class Counter:
    """A callable object with a state: its scores depend on how often it was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, images: Any) -> Any:
        self.calls += 1
        return np.eye(3)[[self.calls % 3] * len(images)]


def test_functions_are_reset_by_a_copy_or_by_themselves(data: Path, tmp_path: Path) -> None:
    options: Any = {**QUIET, "preprocessing": {"size": 32}, "stateful": True}
    run = sb.evaluate(Counter(), data=data, workspace=tmp_path / "w", **options)
    counts = np.bincount(run.predictions().top[:, 0], minlength=3).tolist()
    assert counts == [8, 11, 8]  # batches of 8, 8, 8 and 3, in the classes 1, 2, 0, 1
    counter = Counter()

    def function(images: Any) -> Any:
        return counter(images)

    with pytest.raises(ClassifierError) as caught:
        sb.evaluate(function, data=data, workspace=tmp_path / "w", **options)
    assert "reset" in str(caught.value.hint)
    function.reset = lambda: setattr(counter, "calls", 0)  # type: ignore[attr-defined]
    again = sb.evaluate(function, data=data, workspace=tmp_path / "w", **options)
    np.testing.assert_array_equal(again.predictions().top, run.predictions("Counter").top)


def test_what_it_cannot_be_evaluated_with(data: Path, tmp_path: Path) -> None:
    options: Any = {"data": data, "workspace": tmp_path / "w", "stateful": True, **QUIET}
    with pytest.raises(SettingError):
        sb.evaluate(Tent(), "corruptions", design="one-pass", **options)
    with pytest.raises(SettingError):
        sb.evaluate(Tent(), shard="1/2", **options)
    with pytest.raises(ClassifierError):
        sb.evaluate("demo:efficientnet-lite0", **{**options, "labels": None, "preprocessing": None})


def test_without_it_gradients_are_not_blamed_on_the_size_of_the_images() -> None:
    with pytest.raises(ClassifierError) as caught:
        load_classifier(Tent(), labels=CLASSES, preprocessing=INPUT)
    assert "stateful=True" in str(caught.value.hint)


def test_parts_in_training_mode_are_respected(data: Path, tmp_path: Path) -> None:
    module = with_batch_statistics()
    before = copy.deepcopy(module.state_dict())
    with pytest.warns(ResultWarning, match="stateful=True"):
        run = sb.evaluate(module, data=data, workspace=tmp_path / "w", keep_scores=True, workers=1, **QUIET)
    plain = sb.evaluate(Network(), data=data, workspace=tmp_path / "w", keep_scores=True, name="plain", **QUIET)
    adapted = stored(run)
    usual = stored(plain)
    assert any(not np.allclose(adapted[name], usual[name], atol=0.1) for name in adapted)
    assert run.results[0].spec.classifier.fingerprint != plain.results[0].spec.classifier.fingerprint
    # Neither its modes nor what it has learnt changed.
    assert module.features[1].training and not module.training
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_a_module_in_training_is_evaluated_in_eval_mode_with_a_note() -> None:
    module = Network().train()
    with pytest.warns(ResultWarning, match="training mode") as caught:
        classifier = load_classifier(module, labels=CLASSES, preprocessing=INPUT, engine="torch")
    notes = [one.message for one in caught if isinstance(one.message, ResultWarning)]
    assert [note.is_note for note in notes if note.code == "training-mode"] == [True]
    images = np.zeros((2, 32, 32, 3), np.uint8)
    usual = load_classifier(Network(), labels=CLASSES, preprocessing=INPUT, engine="torch")
    np.testing.assert_array_equal(classifier.scores(images), usual.scores(images))
    assert module.training and module.features[1].training


def test_the_command_line(tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "colours", per_class=4)
    (tmp_path / "counter.py").write_text(
        "import numpy as np\n"
        "class Counter:\n"
        "    calls = 0\n"
        "    def __call__(self, images):\n"
        "        self.calls += 1\n"
        "        return np.eye(3)[[self.calls % 3] * len(images)]\n"
        "def adapting():\n"
        "    return Counter()\n"
    )
    words = [
        "eval",
        tmp_path / "counter.py:adapting",
        "--data",
        data,
        "--workspace",
        tmp_path / "w",
        "--labels",
        "folders",
    ]
    found = answer(*words, "--stateful", "--batch-size", 4, "--preprocess", "size=32")
    assert found
    (row,) = answer("table", "--workspace", tmp_path / "w", "--provenance")["rows"]
    assert "seed 0" in row["state"] and "batches of 4" in row["state"]
    (result,) = sb.Run.open(tmp_path / "w").results
    assert result.spec.classifier.values["stateful"] == {"order": "shuffled by seed", "batch_size": 4}


def test_two_settings_of_the_same_images_are_both_evaluated(tmp_path: Path) -> None:
    """Settings of other names may ask for the same predictions, and then have one key."""
    data = colour_folder(tmp_path / "pictures", per_class=6)
    settings = [sb.Setting("first", "pictures"), sb.Setting("second", "pictures")]
    run = sb.evaluate(with_batch_statistics(), settings, data, tmp_path / "w", stateful=True, **QUIET)
    first, second = (run.predictions(setting=setting.name) for setting in settings)
    np.testing.assert_array_equal(first.top, second.top)
