"""Natural test sets end to end: small trees in the official layouts, real photographs, a real classifier."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import shiftbench as sb
from shiftbench.datasets.arrays import from_arrays
from shiftbench.datasets.base import Picture
from shiftbench.datasets.bordered import open_objectnet
from shiftbench.datasets.folder import open_folder
from shiftbench.metrics.detection import aupr
from shiftbench.metrics.video_rows import pm_k_score
from shiftbench.settings.base import build_suite

Pixels = NDArray[np.uint8]
SQUEEZENET = "demo:squeezenet1_1"
FULL = sb.label_space("imagenet-1k")
OBJECTNET = sb.label_space("objectnet-113")
VID = sb.label_space("vid-robust-30")


@pytest.fixture(scope="module")
def demo() -> sb.Dataset:
    return sb.open_dataset("demo")


def smaller(pixels: Pixels) -> Pixels:
    """Short side 256, as the classifier would resize it anyway."""
    return sb.Geometry(resize=256, crop=None)(pixels)


def save(pixels: Pixels, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, format="PNG")


def framed(pixels: Pixels) -> Pixels:
    """As ObjectNet has them: in a red frame."""
    out = np.pad(pixels, ((2, 2), (2, 2), (0, 0)))
    out[:2], out[-2:], out[:, :2], out[:, -2:] = [(255, 0, 0)] * 4
    return out


def owners(space: sb.LabelSpace) -> dict[str, str]:
    assert space.members is not None
    return {wnid: key for key, group in zip(space.keys, space.members, strict=True) for wnid in group}


def video(root: Path, pixels: Pixels, name: str) -> dict[str, list[str]]:
    """A camera that pans: frame 5 is the anchor, 3 to 7 its neighbours."""
    frames = [f"val/{name}/{i:06d}.JPEG" for i in range(3, 8)]
    for i, frame in enumerate(frames):
        save(np.roll(pixels, 12 * (i - 2), axis=1), root / frame)
    return {frames[2]: [frame for frame in frames if frame != frames[2]]}


@pytest.fixture(scope="module")
def data(demo: sb.Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every role of the suite ``natural`` but YTBB-Robust, from every third photograph and those of few classes."""
    root = tmp_path_factory.mktemp("data")
    two_hundred = {letter: sb.label_space(f"imagenet-{letter}-200") for letter in "ar"}
    objects, animals = owners(OBJECTNET), owners(VID)
    pmsets: dict[str, list[str]] = {}
    labels: dict[str, list[int]] = {}
    for i in range(0, len(demo), 3):
        pixels, label = smaller(demo.read(i).pixels), int(demo.labels[i])
        wnid = FULL.keys[label]
        save(pixels, root / "imagenet-val" / wnid / f"{i}.png")
        save(pixels, root / "imagenetv2-matched-frequency-format-val" / str(label) / f"{i}.png")
        save(pixels, root / "imagenet-sketch" / wnid / f"{i}.png")
        for letter, space in two_hundred.items():
            if wnid in space:
                save(pixels, root / f"imagenet-{letter}" / wnid / f"{i}.png")
        if wnid in objects:
            save(framed(pixels), root / "objectnet" / "images" / objects[wnid] / f"{i}.png")
        if wnid in animals and len(pmsets) < 4:
            added = video(root / "imagenet-vid-robust", pixels, f"video{i}")
            pmsets |= added
            for anchor, near in added.items():
                labels |= {frame: [VID.index(animals[wnid])] for frame in [anchor, *near]}
    metadata = root / "imagenet-vid-robust" / "metadata"
    metadata.mkdir()
    (metadata / "pmsets.json").write_text(json.dumps(pmsets))
    (metadata / "labels.json").write_text(json.dumps(labels))
    return root


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> sb.Run:
    workspace = tmp_path_factory.mktemp("w")
    return sb.evaluate(SQUEEZENET, "natural", data, workspace, labels="imagenet-1k", keep_scores=True, progress=False)


def test_every_set_that_is_there_is_scored_and_the_rest_is_left_out_by_name(run: sb.Run) -> None:
    assert "ytbb-robust_pm0" in run.left_out and "real-blurry-images" in run.left_out
    assert {"val", "objectnet-1.0-beta", "imagenet-vid-robust_pm10", "imagenet-a"} <= set(run.settings)
    assert len(run.settings) + len(run.left_out) == len(build_suite("natural").settings)
    values = {setting: score.value for _, setting, score in run.scores()}
    assert values["val"] == values["imagenetv2-matched-frequency-format-val"] == values["imagenet-sketch"]
    assert values["val"] > 0.7, "the same photographs under three layouts, labels right in each"


def test_val_on_the_classes_of_a_set_scores_the_same_pictures_as_the_set(run: sb.Run) -> None:
    for shifted, reference in (
        ("imagenet-a", "val-on-imagenet-a-classes"),
        ("imagenet-r", "val-on-imagenet-r-classes"),
        ("objectnet-1.0-beta", "val-on-objectnet-classes"),
    ):
        one, other = run.predictions(setting=shifted), run.predictions(setting=reference)
        assert len(one) == len(other) > 0 and one.space == other.space
        assert sorted(one.top[:, 0].tolist()) == sorted(other.top[:, 0].tolist()), shifted


def test_objectnet_is_right_if_the_best_of_the_125_is_one_of_the_folders(run: sb.Run) -> None:
    """Recounted from all 1,000 scores of the same pictures, as the testbed counts."""
    found, full = run.predictions(setting="val-on-objectnet-classes"), run.predictions(setting="val")
    rows = [full.ids.index(name) for name in found.ids]
    owner = owners(OBJECTNET)
    columns = [FULL.index(wnid) for wnid in owner]
    assert full.scores is not None
    best = np.array(columns)[full.scores[rows][:, columns].argmax(axis=1)]
    right = [owner[FULL.keys[b]] == owner[FULL.keys[full.labels[r]]] for b, r in zip(best, rows, strict=True)]
    assert found.correct.tolist() == right and len(columns) == 125


def test_the_border_of_objectnet_is_gone_before_the_classifier_sees_it(data: Path, run: sb.Run) -> None:
    assert "2 px border cropped" in run.predictions(setting="objectnet-1.0-beta").provenance
    kept = open_objectnet(data / "objectnet", border=0)
    assert (kept.read(0).pixels[0] == (255, 0, 0)).all()


def test_pm_0_and_pm_10_come_from_stored_predictions(run: sb.Run) -> None:
    scores = {setting: score for _, setting, score in run.scores()}
    pm0, pm10 = scores["imagenet-vid-robust_pm0"], scores["imagenet-vid-robust_pm10"]
    assert pm0.n == pm10.n == 4 and pm10.value <= pm0.value and pm0.value >= 0.5
    assert pm0.metric == "pm0" and pm10.metric == "pm10"
    stored = run.predictions(setting="imagenet-vid-robust_pm10")
    assert pm_k_score(stored, 1).value >= pm_k_score(stored, 2).value == pm10.value
    right = dict(zip(stored.ids, (stored.top[:, 0] == stored.labels).tolist(), strict=True))
    anchors = [name for name in right if "@" not in name]
    by_hand = [right[a] and all(right[name] for name in right if name.startswith(f"{a}@")) for a in anchors]
    assert pm10.value == sum(by_hand) / 4


class Counting(sb.Dataset):
    """Counts how often each picture is read."""

    def __init__(self, base: sb.Dataset) -> None:
        self.base, self.reads = base, Counter[int]()
        self.name, self.space, self.ids, self.labels = base.name, base.space, base.ids, base.labels

    @property
    def fingerprint(self) -> str:
        return self.base.fingerprint

    def read(self, index: int) -> Picture:
        self.reads[index] += 1
        return self.base.read(index)


def test_val_and_all_its_restrictions_read_each_image_once(data: Path, tmp_path: Path) -> None:
    val = Counting(open_folder(data / "imagenet-val", space="imagenet-1k", name="val"))
    suite = [s for s in build_suite("testbed-213").settings if s.dataset == "imagenet-val" and s.source is None]
    wanted = [s for s in suite if not s.name.startswith("pgd.")]
    assert {"val", "val-on-objectnet-classes", "val-on-ytbb-robust-classes", "val_subsampled_class_1_8"} <= {
        s.name for s in wanted
    }
    run = sb.evaluate(SQUEEZENET, wanted, {"imagenet-val": val}, tmp_path, workers=2, progress=False)
    assert set(val.reads.values()) == {1} and len(val.reads) == len(val)
    assert len(run.settings) == len(wanted) == 7
    sizes = {setting: score.n for _, setting, score in run.scores()}
    assert sizes["val"] == len(val) and all(0 < n < len(val) for name, n in sizes.items() if name != "val")


def test_imagenet_o_against_val_of_its_classes(demo: sb.Dataset, tmp_path: Path) -> None:
    """Noise as pictures of no class: less confident than photographs, so it is found."""
    space = sb.label_space("imagenet-o-200")
    rng = np.random.default_rng(0)
    for i in range(len(demo)):
        wnid = FULL.keys[demo.labels[i]]
        if wnid in space:
            save(smaller(demo.read(i).pixels), tmp_path / "imagenet-val" / wnid / f"{i}.png")
            save(rng.integers(0, 256, (256, 256, 3), dtype=np.uint8), tmp_path / "imagenet-o" / wnid / f"{i}.png")
    run = sb.evaluate(SQUEEZENET, "imagenet-o", tmp_path, tmp_path / "w", labels="imagenet-1k", progress=False)
    known, unknown = (run.predictions(setting=s) for s in ("val-on-imagenet-o-classes", "imagenet-o"))
    assert len(known.space) == len(unknown.space) == 200 and len(known) == len(unknown)
    assert aupr(-known.confidence, -unknown.confidence) > 0.8


def test_a_cifar_classifier_on_the_new_test_sets(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    (tmp_path / "cifar-10.1").mkdir()
    (tmp_path / "cifar-10.2").mkdir()
    images = rng.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    labels = (np.arange(40) % 10).astype(np.int32)
    images[np.arange(40), 0, 0, 0] = labels * 20
    for version in ("v4", "v6"):
        np.save(tmp_path / "cifar-10.1" / f"cifar10.1_{version}_data.npy", images)
        np.save(tmp_path / "cifar-10.1" / f"cifar10.1_{version}_labels.npy", labels)
    np.savez(tmp_path / "cifar-10.2" / "cifar102_test.npz", images=images, labels=labels.astype(np.int64))
    clean = from_arrays(images, labels, space="cifar-10", name="cifar-10-test")

    def reads_the_corner(batch: Pixels) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = np.eye(10, dtype=np.float32)[batch[:, 0, 0, 0] // 20 % 10]
        return scores

    model = sb.load_classifier(
        reads_the_corner, name="corner", labels="cifar-10", preprocessing=sb.Preprocessing(sb.Geometry(None, None))
    )
    sources: dict[str, str | Path | sb.Dataset] = {
        "cifar-10": clean,
        "cifar-10.1": tmp_path / "cifar-10.1",
        "cifar-10.2": tmp_path / "cifar-10.2",
    }
    run = sb.evaluate(model, "cifar", sources, tmp_path / "w", progress=False)
    assert {s: score.value for _, s, score in run.scores("top1")} == dict.fromkeys(
        ("cifar-10", "cifar-10.1-v4", "cifar-10.1-v6", "cifar-10.2"), 1.0
    )
