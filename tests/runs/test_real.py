"""Real classifiers on real photographs, end to end."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.labels.space import Scores

LITE0 = "demo:efficientnet-lite0"
SQUEEZENET = "demo:squeezenet1_1"


@pytest.fixture(scope="module")
def demo() -> sb.Dataset:
    return sb.open_dataset("demo")


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> sb.Run:
    return sb.evaluate(
        [LITE0, SQUEEZENET],
        "demo",
        workspace=tmp_path_factory.mktemp("w"),
        corruptions=("fog",),
        severities=(3,),
        progress=False,
    )


def wnid_tree(root: Path, demo: sb.Dataset, wnids: set[str]) -> Path:
    """Photographs in ImageNet's layout, losslessly, for the classes asked for."""
    for i in range(0, len(demo), 4):
        wnid = demo.space.keys[demo.labels[i]]
        if wnid in wnids:
            (root / wnid).mkdir(parents=True, exist_ok=True)
            small(demo, i).save(root / wnid / f"{i:03d}.png")
    return root


def small(demo: sb.Dataset, index: int) -> Image.Image:
    image = Image.fromarray(demo.read(index).pixels)
    image.thumbnail((400, 400))
    return image


def test_each_model_with_its_own_preprocessing_reaches_its_accuracy(clean: sb.Run) -> None:
    """Known counts: 87 + 18 + 1 of 114 for Lite0, 78 + 14 + 2 for SqueezeNet; top-5 91 + 19 + 2."""
    top1 = {c: round(s.value * s.n) for c, setting, s in clean.scores("top1") if setting == "demo"}
    top5 = {c: round(s.value * s.n) for c, setting, s in clean.scores("top5") if setting == "demo"}
    assert top1 == {"efficientnet-lite0": 106, "squeezenet1_1": 94}
    assert top5["efficientnet-lite0"] >= 110


def test_a_corruption_costs_accuracy_and_does_not_ruin_it(clean: sb.Run) -> None:
    scores = {(c, setting): s.value for c, setting, s in clean.scores("top1")}
    for classifier in clean.classifiers:
        assert 0.2 < scores[classifier, "demo-c.fog.3"] < scores[classifier, "demo"] - 0.05


def test_provenance_names_weights_and_preprocessing(clean: sb.Run) -> None:
    lite = clean.predictions("efficientnet-lite0", "demo").spec.text
    squeeze = clean.predictions("squeezenet1_1", "demo").spec.text
    assert '"bgr"' in squeeze and '"rgb"' in lite and "127" in lite


def test_masked_and_unmasked_accuracy_of_two_hundred_classes(demo: sb.Dataset, tmp_path: Path) -> None:
    """Photographs of ImageNet-R classes as if they were ImageNet-R, and as if they were val."""
    two_hundred = sb.label_space("imagenet-r-200")
    tree = wnid_tree(tmp_path / "imagenet-r", demo, set(two_hundred.keys))
    whole = wnid_tree(tmp_path / "val", demo, set(demo.space.keys))
    images = sum(1 for _ in tree.rglob("*.png"))
    run = sb.evaluate(
        SQUEEZENET,
        "imagenet-r",
        {"imagenet-r": tree, "imagenet-val": whole},
        tmp_path / "w",
        labels="imagenet-1k",
        progress=False,
        keep_scores=True,
    )
    masked = run.predictions("squeezenet1_1", "imagenet-r")
    unmasked = run.predictions("squeezenet1_1", "imagenet-r.unmasked")
    reference = run.predictions("squeezenet1_1", "val-on-imagenet-r-classes")
    assert len(masked) == len(unmasked) == len(reference) == images
    assert len(masked.space) == 200 and len(unmasked.space) == 1000
    assert masked.correct.sum() >= unmasked.correct.sum()
    # restricted before softmax: columns of the full scores, then argmax and softmax over 200
    assert unmasked.scores is not None
    columns = [demo.space.index(key) for key in two_hundred.keys]
    restricted = unmasked.scores[:, columns].astype(np.float64)
    np.testing.assert_array_equal(masked.top[:, 0], restricted.argmax(axis=1))
    softmax = np.exp(restricted - restricted.max(axis=1, keepdims=True))
    np.testing.assert_allclose(masked.confidence, (softmax / softmax.sum(axis=1, keepdims=True)).max(axis=1), atol=3e-4)
    assert masked.top[:, 0].tolist() == reference.top[:, 0].tolist(), "the same pictures, the same answers"


def test_folders_named_by_class_index_are_read_as_integers(demo: sb.Dataset, tmp_path: Path) -> None:
    """ImageNetV2's layout: sorted as strings, 2 would come after 1000 others and every label would be wrong."""
    root = tmp_path / "imagenetv2"
    for i in range(1000):
        (root / str(i)).mkdir(parents=True)
    for i in range(0, len(demo), 4):
        small(demo, i).save(root / str(demo.labels[i]) / f"{i}.png")
    run = sb.evaluate(LITE0, "clean", root, tmp_path / "w", progress=False)
    assert run.scores("top1")[0][2].value > 0.85


def test_wrong_label_order_warns(demo: sb.Dataset, tmp_path: Path) -> None:
    """A classifier that counts classes in string order of their index, as many scripts do."""
    inner = sb.load_classifier(SQUEEZENET)
    order = sorted(range(1000), key=str)

    def shuffled(images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> Scores:
        return inner.scores(images)[:, order]

    wrong = sb.load_classifier(shuffled, name="shuffled", labels="imagenet-1k", preprocessing=inner.preprocessing)
    with pytest.warns(UserWarning, match="permuted"):
        sb.evaluate(wrong, "clean", demo, tmp_path / "w", progress=False)


def test_recorded_predictions_score_like_the_run_they_came_from(clean: sb.Run, tmp_path: Path) -> None:
    found = clean.predictions("efficientnet-lite0", "demo")
    lines = ["id,prediction,confidence"]
    lines += [f"{i},{t},{c}" for i, t, c in zip(found.ids, found.top[:, 0], found.confidence, strict=True)]
    (tmp_path / "elsewhere.csv").write_text("\n".join(lines[:-4]) + "\n")
    with pytest.warns(UserWarning, match="no prediction for 4 of 114"):
        run = sb.evaluate(
            tmp_path / "elsewhere.csv",
            "clean",
            "demo",
            tmp_path / "w",
            labels="imagenet-1k",
            metric=("top1",),
            progress=False,
        )
    score = run.scores("top1")[0][2]
    assert score.n == 110
    assert score.value == pytest.approx((found.top[:110, 0] == found.labels[:110]).mean())


def test_sixteen_threads_of_one_process_and_processes_agree(demo: sb.Dataset, tmp_path: Path) -> None:
    """Bit for bit, with a real network: what a resumed run with other workers relies on."""
    stored = []
    for workers, engine in ((1, "threads"), (16, "threads"), (2, "processes")):
        root = tmp_path / f"{workers}-{engine}"
        sb.evaluate(
            SQUEEZENET,
            "demo",
            workspace=root,
            corruptions=("snow",),
            severities=(2,),
            workers=workers,
            executor=engine,  # type: ignore[arg-type]
            progress=False,
            select=sb.Selection(sample=40),
        )
        stored.append({p.name: p.read_bytes() for p in sorted((root / "predictions").rglob("*.parquet"))})
        shutil.rmtree(root)
    assert stored[0] == stored[1] == stored[2] and len(stored[0]) == 2


def test_a_folder_called_demo_does_not_hide_the_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo").mkdir()
    monkeypatch.chdir(tmp_path)
    chosen = {"corruptions": ("contrast",), "severities": (1,), "select": sb.Selection(sample=5)}
    run = sb.evaluate(SQUEEZENET, "demo", workspace="demo", progress=False, **chosen)  # type: ignore[arg-type]
    assert len(run.predictions(setting="demo")) == 5


def test_our_frost_is_as_hard_as_the_original_pictures(demo: sb.Dataset, reference_data: Path) -> None:
    classifier = sb.load_classifier(SQUEEZENET)
    chosen = range(0, len(demo), 2)
    images = np.stack([classifier.preprocessing.geometry(demo.read(i).pixels) for i in chosen])
    ids = [demo.ids[i] for i in chosen]
    labels = demo.labels[list(chosen)]

    def accuracy(textures: str) -> float:
        hits = []
        for seed in range(3):
            frosted = sb.corrupt(images, "frost", 1, seed=seed, image_id=ids, frost_textures=textures)
            hits.append(classifier.scores(frosted).argmax(axis=1) == labels)
        return float(np.mean(hits))

    ours = accuracy("procedural")
    originals = accuracy(str(reference_data / "frost"))
    assert abs(ours - originals) < 0.08, (ours, originals)
    assert originals < 0.7
