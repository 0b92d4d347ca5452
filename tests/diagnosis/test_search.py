"""A real network miswired on purpose: each fault is found, and what is printed repairs it on other images."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.stats import binom

import shiftbench as sb
from shiftbench.arrays import Pixels
from shiftbench.classifiers.loading import load_classifier
from shiftbench.classifiers.options import write_sidecar
from shiftbench.classifiers.preprocessing import CAFFE_NORMALISATION
from shiftbench.datasets.base import Dataset
from shiftbench.diagnosis.search import detectable, judged, one_sided
from shiftbench.labels import label_space
from shiftbench.labels.space import Scores
from tests.diagnosis.conftest import (
    DIAGNOSED,
    EVALUATED,
    RIGHT,
    accuracy,
    dataset,
    part,
    reordered,
    with_softmax,
)

pytestmark = pytest.mark.filterwarnings("ignore::shiftbench.ResultWarning")

SHUFFLED = [3, 0, 7, 1, 9, 2, 8, 4, 6, 5]


def _plain(images: Pixels) -> Pixels:
    return images


def _grainy(images: Pixels) -> Pixels:
    """Four times as large, with grain that a filter with antialiasing averages out and others keep."""
    draws = np.random.default_rng(0)
    large = images.repeat(4, axis=1).repeat(4, axis=2).astype(np.int16)
    grain = draws.choice([-70, 70], (*large.shape[:3], 1))
    return np.asarray(np.clip(large + grain, 0, 255), np.uint8)


def _stretched(images: Pixels) -> Pixels:
    """Twice as wide: right if squashed, half lost if cropped."""
    wide = [Image.fromarray(image).resize((64, 32), Image.Resampling.BILINEAR) for image in images]
    return np.stack([np.asarray(image) for image in wide])


def _with_borders(images: Pixels) -> Pixels:
    """Grey stripes left and right, which a crop removes and a squash keeps."""
    return np.pad(images, ((0, 0), (0, 0), (16, 16), (0, 0)), constant_values=127)


@dataclass(frozen=True)
class Miswiring:
    """The preprocessing that is stated, what was done to the graph, and to the images."""

    stated: str
    right: str = RIGHT
    graph: Callable[[Path, Path], Path] | None = None
    images: Callable[[Pixels], Pixels] = _plain
    quick: bool = False


def _order(order: list[int]) -> Callable[[Path, Path], Path]:
    return lambda source, target: reordered(source, target, order)


IMAGENET = "size=32,mean=0.485,0.456,0.406,std=0.229,0.224,0.225"
GRAIN = "size=32,mean=128,std=128,interpolation="
MISWIRED = {
    "mean and std of ImageNet": Miswiring(IMAGENET),
    "0 to 1": Miswiring("size=32,mean=0,std=1,scale=1/255"),
    "0 to 255": Miswiring("size=32,mean=0,std=1,scale=1"),
    "divided by 255 too often": Miswiring("size=32,mean=128,std=128,scale=1/255"),
    "not divided by 255": Miswiring("size=32,mean=0.5,std=0.5,scale=1"),
    "Caffe": Miswiring("size=32,mean=103.939,116.779,123.68,std=1,colour=bgr"),
    "Caffe's means, RGB": Miswiring("size=32,mean=123.68,116.779,103.939,std=1"),
    "-0.5 to 0.5": Miswiring("size=32,mean=0.5,std=1,scale=1/255"),
    "deviation too small": Miswiring("size=32,mean=128,std=32"),
    "BGR": Miswiring(f"{RIGHT},colour=bgr"),
    "BGR and ImageNet": Miswiring(f"{IMAGENET},colour=bgr", quick=True),
    "BGR and 0 to 1": Miswiring("size=32,mean=0,std=1,scale=1/255,colour=bgr"),
    "input of 64": Miswiring("size=64,mean=128,std=128"),
    "input of 96": Miswiring("size=96,mean=128,std=128"),
    "input of 20": Miswiring("size=20,mean=128,std=128"),
    "input of 64 and BGR": Miswiring("size=64,mean=128,std=128,colour=bgr"),
    "crop of two thirds": Miswiring("resize=48,crop=32,mean=128,std=128"),
    "crop of a half": Miswiring("resize=64,crop=32,mean=128,std=128", quick=True),
    "black margin": Miswiring("resize=20,crop=32,mean=128,std=128"),
    "crop of a half and ImageNet": Miswiring("resize=64,crop=32,mean=0.485,0.456,0.406,std=0.229,0.224,0.225"),
    "short side instead of squash": Miswiring("resize=32,crop=32,mean=128,std=128", images=_stretched),
    "squash instead of short side": Miswiring(RIGHT, "resize=32,crop=32,mean=128,std=128", images=_with_borders),
    "nearest": Miswiring(f"{GRAIN}nearest", f"{GRAIN}box", images=_grainy),
    "OpenCV without antialiasing": Miswiring(f"{GRAIN}opencv-bilinear", f"{GRAIN}box", images=_grainy),
    "OpenCV bicubic": Miswiring(f"{GRAIN}opencv-bicubic", f"{GRAIN}box", images=_grainy),
    "labels one ahead": Miswiring(RIGHT, graph=_order([9, *range(9)])),
    "labels one behind": Miswiring(RIGHT, graph=_order([*range(1, 10), 0])),
    "labels reversed": Miswiring(RIGHT, graph=_order([*range(9, -1, -1)])),
    "labels three ahead": Miswiring(RIGHT, graph=_order([7, 8, 9, *range(7)])),
    "labels shuffled": Miswiring(RIGHT, graph=_order(SHUFFLED), quick=True),
    "two classes exchanged": Miswiring(RIGHT, graph=_order([0, 1, 2, 5, 4, 3, 6, 7, 8, 9])),
    "labels one ahead and BGR": Miswiring(f"{RIGHT},colour=bgr", graph=_order([9, *range(9)])),
    "labels reversed and 0 to 255": Miswiring("size=32,mean=0,std=1,scale=1", graph=_order([*range(9, -1, -1)])),
    "labels shuffled and ImageNet": Miswiring(IMAGENET, graph=_order(SHUFFLED)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if one.quick else pytest.mark.soak) for name, one in MISWIRED.items()]
)
def test_each_fault_is_found_and_the_printed_fix_repairs_it(
    name: str, cifar: Dataset, resnet8: Path, tmp_path: Path
) -> None:
    fault = MISWIRED[name]
    model = tmp_path / "model.onnx"
    if fault.graph is None:
        model.write_bytes(resnet8.read_bytes())
    else:
        fault.graph(resnet8, model)
    rows = np.random.default_rng(7).permutation(DIAGNOSED)[: 200 if fault.quick else 400]
    pixels, labels = part(cifar, rows.tolist())
    found = sb.doctor(str(model), dataset(fault.images(pixels), labels), preprocessing=fault.stated, progress=False)
    assert found.status == "fault" and found.p <= 0.05 and found.gain >= 0.01 and found.low > 0
    assert found.verdict in repr(found) and all(fact in found._repr_html_() for fact in found.changes)

    pixels, labels = part(cifar, list(EVALUATED))
    others = dataset(fault.images(pixels), labels)
    before = accuracy(model, others, tmp_path / "before", fault.stated)
    write_sidecar(str(model), found.classifier)
    after = accuracy(model, others, tmp_path / "after")
    right = accuracy(resnet8, others, tmp_path / "right", fault.right)
    assert after > before and after >= right - 0.02


@pytest.mark.soak
def test_the_values_of_a_network_for_photographs_are_found() -> None:
    """SqueezeNet takes BGR minus Caffe's means; 57 photographs to search and 57 to test are enough for that."""
    stated = "mean=0.485,0.456,0.406,std=0.229,0.224,0.225,colour=rgb"
    found = sb.doctor("demo:squeezenet1_1", "demo", preprocessing=stated, progress=False)
    assert found.status == "fault" and found.before < 0.1 and found.after > 0.7
    assert found.classifier.preprocessing.normalisation == CAFFE_NORMALISATION


def test_a_layout_that_the_network_accepts_but_was_not_trained_with(cifar: Dataset, tmp_path: Path) -> None:
    """A linear model on all pixels takes them in either order; only one of them is right."""
    from sklearn.linear_model import LogisticRegression

    onnx = pytest.importorskip("onnx")
    pixels, labels = part(cifar, range(3000))
    two = np.isin(labels, (0, 6))  # airplanes and frogs
    table = (pixels[two].astype(np.float32) / 255).reshape(two.sum(), -1)
    fitted = LogisticRegression(C=0.001, max_iter=200).fit(table, labels[two] == 6)
    weights = np.zeros((3072, 10), np.float32)
    weights[:, 6], weights[:, 0] = fitted.coef_[0], -fitted.coef_[0]
    bias = np.full(10, -50, np.float32)
    bias[6], bias[0] = fitted.intercept_[0], -fitted.intercept_[0]
    helper = onnx.helper
    array = onnx.numpy_helper.from_array
    graph = helper.make_graph(
        [
            helper.make_node("Flatten", ["images"], ["flat"]),
            helper.make_node("Gemm", ["flat", "weights", "bias"], ["scores"]),
        ],
        "linear",
        [helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, ["n", "a", "b", "c"])],
        [helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["n", 10])],
        [array(weights, "weights"), array(bias, "bias")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "linear.onnx")
    rows = np.array(DIAGNOSED)[np.isin(np.asarray(cifar.labels)[list(DIAGNOSED)], (0, 6))][:400]
    data = dataset(*part(cifar, rows.tolist()))
    stated = "size=32,mean=0,std=1,scale=1/255,layout=nchw"
    found = sb.doctor(str(tmp_path / "linear.onnx"), data, preprocessing=stated, progress=False)
    assert found.status == "fault" and found.changes["layout"] == ("nchw", "nhwc")
    assert found.after > 0.8


@pytest.mark.parametrize(
    ("times", "stated", "better"), [(1, "logits", "probabilities"), (0, "probabilities", "logits"), (2, "logits", None)]
)
def test_softmax_once_never_or_twice(
    times: int, stated: str, better: str | None, cifar: Dataset, resnet8: Path, tmp_path: Path
) -> None:
    model = with_softmax(resnet8, tmp_path / "model.onnx", times)
    data = dataset(*part(cifar, DIAGNOSED[:80]))
    found = sb.doctor(str(model), data, preprocessing=f"{RIGHT},outputs={stated}", progress=False)
    assert found.status == "fault" and found.notes
    outputs = found.preprocess["outputs"]
    assert outputs == (better or "probabilities")
    assert ("twice" in found.notes[0]) == (times > 0)
    again = sb.doctor(str(model), data, preprocessing=f"{RIGHT},outputs={outputs}", progress=False)
    # Two softmax layers stay wrong whatever is stated.
    assert "outputs" not in again.changes and again.status == ("fault" if times == 2 else "nothing found")


def test_a_correct_model_is_fine(cifar: Dataset, resnet8: Path) -> None:
    data = dataset(*part(cifar, DIAGNOSED[:400]))
    found = sb.doctor(str(resnet8), data, preprocessing=RIGHT, progress=False)
    assert found.status == "nothing found" and not found.changes and not found.preprocess and found.labels is None
    assert found.searched == found.confirmed == 200
    assert found.verdict in repr(found) and "<table" not in found._repr_html_()
    assert {factor: tried > 0 for factor, tried in found.factors.items()} == {
        "label order": True,
        "values and colours": True,
        "layout": False,  # the graph does not accept the other one
        "input size": True,
        "resize and crop": True,
        "interpolation": False,  # nothing is resized
        "decoding": False,  # arrays have neither EXIF data nor transparency
        "orientation": True,
        "fitted mean and std": True,
    }


@pytest.mark.soak
def test_correct_models_raise_no_more_alarms_than_the_level_allows(cifar: Dataset, resnet8: Path) -> None:
    """100 samples; more than 10 alarms have a probability below 1.2 % at a rate of 5 %."""
    classifier = load_classifier(str(resnet8), labels="cifar-10", preprocessing=RIGHT)
    alarms = 0
    for seed in range(100):
        rows = np.random.default_rng(seed).permutation(DIAGNOSED)[:300].tolist()
        found = sb.doctor(classifier, dataset(*part(cifar, rows)), seed=seed, progress=False)
        alarms += found.status == "fault"
    print(f"{alarms} alarms in 100 samples")
    assert alarms <= 10


def test_the_test_of_a_gain_is_exact() -> None:
    """Against the binomial distribution of SciPy."""
    from scipy.stats import binom

    for more, fewer in [(0, 0), (5, 0), (12, 4), (3, 9)]:
        right = binom.sf(more - 1, more + fewer, 0.5)
        assert one_sided(more, fewer) == pytest.approx(right if more > fewer else 1)


@pytest.mark.parametrize(("quarters", "named"), [(1, "turned right"), (-1, "turned left")])
def test_images_that_the_model_turns_are_named(cifar: Dataset, resnet8: Path, quarters: int, named: str) -> None:
    """As where the orientation that a camera wrote was applied to the training images only."""
    network = load_classifier(str(resnet8), labels="cifar-10", preprocessing=RIGHT)

    def turning(images: Pixels) -> Scores:
        return network.scores(np.ascontiguousarray(np.rot90(images, quarters, (1, 2))))

    rows = np.random.default_rng(3).permutation(DIAGNOSED)[:160].tolist()
    found = sb.doctor(
        turning, dataset(*part(cifar, rows)), labels="cifar-10", preprocessing="size=32", seed=1, progress=False
    )
    assert found.changes == {"image": ("as read", named)} and found.gain > 0.3


@pytest.mark.parametrize("images", [20, 57, 200])
def test_the_detectable_loss_of_a_fault_that_corrects_no_answer(images: int) -> None:
    """Against the tests of both halves: all images that differ are lost ones, each with the same probability."""
    loss = detectable(images, images, 0.95, 0.0)
    power = 1.0
    for level in (0.02, 0.05):
        fewest = next(lost for lost in range(images + 1) if one_sided(lost, 0) <= level)
        power *= binom.sf(fewest - 1, images, loss)
    assert power == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize(("images", "disagreement"), [(100, 0.15), (200, 0.2), (700, 0.2)])
def test_the_detectable_loss_is_found_as_often_as_promised(images: int, disagreement: float) -> None:
    """A fault spoils some answers and corrects others by chance: 2,000 simulated tests."""
    loss = detectable(images, images, 0.95, disagreement)
    assert loss > 1.2 * detectable(images, images, 0.95, 0.0)
    shares = [(disagreement + loss) / 2, (disagreement - loss) / 2, 1 - disagreement]
    draws = np.random.default_rng(0).multinomial(images, shares, size=(2000, 2))
    searched, tested = ([one_sided(int(more), int(fewer)) for more, fewer, _ in draws[:, half]] for half in (0, 1))
    found = np.mean((np.array(searched) <= 0.02) & (np.array(tested) <= 0.05))
    assert found == pytest.approx(0.8, abs=3 * (0.8 * 0.2 / 2000) ** 0.5)


def test_the_printed_limit_is_not_refuted_by_its_own_miss(cifar: Dataset, resnet8: Path) -> None:
    """Images of 40 pixels that are resized without a filter: it costs a few points, and the doctor misses it."""
    rows = np.random.default_rng(8).permutation(DIAGNOSED)
    pixels, labels = part(cifar, rows.tolist())
    larger = np.stack(
        [np.asarray(Image.fromarray(pixel).resize((40, 40), Image.Resampling.BICUBIC)) for pixel in pixels]
    )
    right = f"{RIGHT},interpolation=bicubic"
    wrong = f"{RIGHT},interpolation=nearest"
    hits = []
    for preprocessing in (right, wrong):
        classifier = load_classifier(str(resnet8), labels="cifar-10", preprocessing=preprocessing)
        small = np.stack([classifier.preprocessing.geometry(one) for one in larger])
        hits.append(classifier.scores(small).argmax(axis=1) == labels)
    cost = float(hits[0].mean() - hits[1].mean())
    found = sb.doctor(
        str(resnet8), dataset(larger[:160], labels[:160]), labels="cifar-10", preprocessing=wrong, progress=False
    )
    assert found.status == "nothing found" and 0.01 < cost < 0.2
    assert found.detectable_loss is not None and found.detectable_loss > cost
    assert f"{100 * found.detectable_loss:.1f} points" in " ".join(found.notes)


def test_a_gain_that_meets_a_threshold_is_not_rounded_below_it() -> None:
    """18 of 120 minus 6 of 120 are 0.09999999999999999 as a difference of means."""
    scores = np.eye(2, dtype=np.float32)[np.arange(120) % 2]
    before, after = (np.where(np.arange(120) < right, scores.argmax(1), 1 - scores.argmax(1)) for right in (6, 18))
    assert judged(scores, after).gain_over(judged(scores, before)) == 0.1


def test_the_likelihood_does_not_depend_on_the_scale_of_the_scores() -> None:
    draws = np.random.default_rng(0)
    logits = draws.normal(size=(200, 5)).astype(np.float32)
    labels = draws.integers(0, 5, 200)
    logits[np.arange(200), labels] += 2
    assert judged(logits, labels).likelihood == pytest.approx(judged(logits * 8, labels).likelihood, rel=1e-5)


def test_an_untrained_model_is_at_chance_level_whatever_is_tried(cifar: Dataset) -> None:
    def constant(images: Pixels) -> object:
        return [np.random.default_rng(int(image.sum())).normal(size=10) for image in images]

    data = dataset(*part(cifar, DIAGNOSED[:200]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = sb.doctor(constant, data, labels="cifar-10", preprocessing="size=32", progress=False)
    assert found.status == "unexplained" and "chance level" in found.notes[-1]
    geometry = ["input size", "resize and crop", "interpolation", "decoding", "orientation"]
    assert list(found.factors) == ["label order", *geometry, "pixels"]


class TestBadInput:
    def test_too_few_images(self, cifar: Dataset, resnet8: Path) -> None:
        with pytest.raises(sb.ShiftbenchError) as error:
            sb.doctor(str(resnet8), dataset(*part(cifar, DIAGNOSED[:20])), preprocessing=RIGHT, progress=False)
        assert "20 readable images" in str(error.value.found) and "40" in str(error.value.expected)

    def test_no_labels(self, cifar: Dataset, resnet8: Path) -> None:
        pixels, labels = part(cifar, DIAGNOSED[:60])
        labels[3] = -1
        with pytest.raises(sb.ShiftbenchError, match="1 of 60 images have no label"):
            sb.doctor(str(resnet8), dataset(pixels, labels), preprocessing=RIGHT, progress=False)

    def test_one_class(self, cifar: Dataset, resnet8: Path) -> None:
        rows = np.flatnonzero(np.asarray(cifar.labels) == 3)[:60].tolist()
        with pytest.raises(sb.ShiftbenchError, match="one class") as error:
            sb.doctor(str(resnet8), dataset(*part(cifar, rows)), preprocessing=RIGHT, progress=False)
        assert error.value.found == label_space("cifar-10").names[3]

    def test_scores_that_are_not_numbers(self, cifar: Dataset) -> None:
        def broken(images: Pixels) -> object:
            return np.full((len(images), 10), np.nan)

        data = dataset(*part(cifar, DIAGNOSED[:60]))
        with pytest.raises(sb.ShiftbenchError, match="not numbers"):
            sb.doctor(broken, data, labels="cifar-10", preprocessing="size=32,outputs=logits", progress=False)

    def test_recorded_predictions(self, cifar: Dataset, tmp_path: Path) -> None:
        data = dataset(*part(cifar, DIAGNOSED[:60]))
        path = tmp_path / "answers.csv"
        path.write_text("id,prediction\n" + "".join(f"{one},0\n" for one in data.ids))
        with pytest.raises(sb.ShiftbenchError, match="cannot be run again"):
            sb.doctor(str(path), data, labels="cifar-10", progress=False)
