"""Factor-split sets end to end: several labels an image, real photographs, real networks, scikit-learn's mAP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import shiftbench as sb
from shiftbench.classifiers.function import load_python_file
from shiftbench.classifiers.options import Options
from shiftbench.datasets.factors import deepfashion2_rows, open_splits, read_protocol
from shiftbench.errors import SettingError
from shiftbench.io.paths import Location, relative
from shiftbench.metrics import SettingScore
from shiftbench.settings.base import Setting
from shiftbench.shifts.attacks.attack import ATTACKS
from tests.datasets.factor_trees import LOOKS_AT_PLACES, deepfashion2_tree
from tests.raised import raises

REMIXED = "deepfashion-remixed"
SQUEEZENET = "demo:squeezenet1_1"
FULL = sb.label_space("imagenet-1k")
Pixels = NDArray[np.uint8]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deepfashion2_tree(tmp_path_factory.mktemp("df") / "DeepFashion2", train=30, validation=120)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> sb.Classifier:
    file = tmp_path_factory.mktemp("model") / "model.py"
    file.write_text(LOOKS_AT_PLACES)
    return load_python_file(f"{file}:make", Options())


@pytest.fixture(scope="module")
def run(tree: Path, network: sb.Classifier, tmp_path_factory: pytest.TempPathFactory) -> sb.Run:
    return sb.evaluate(network, REMIXED, {REMIXED: tree}, tmp_path_factory.mktemp("w") / "w", progress=False)


@pytest.fixture(scope="module")
def shown(run: sb.Run) -> list[SettingScore]:
    return run.shown_scores()


def reference_map(scores: NDArray[np.float32], hot: NDArray[np.bool_]) -> tuple[float, float]:
    """(weighted by frequency, plain) the way of the paper's code: scikit-learn's curve, trapezoids, nan counts 0."""
    from sklearn.metrics import auc, precision_recall_curve

    areas = []
    for k in range(hot.shape[1]):
        if hot[:, k].any():
            precision, recall, _ = precision_recall_curve(hot[:, k], scores[:, k])
            areas.append(auc(recall, precision))
        else:
            areas.append(np.nan)
    shares = hot.sum(axis=0) / hot.sum()
    return float((np.nan_to_num(areas) * shares).sum()), float(np.nanmean(areas))


def annotated(root: Path, which: str) -> dict[str, set[int]]:
    """Read off the annotation files again: for each picture of a set the categories of the items that fit."""
    wanted = {factor: int(values[0]) for factor, values in read_protocol(REMIXED).base.items()}
    if which != "test":
        [(factor, values)] = read_protocol(REMIXED).shifts[which].items()
        wanted[factor] = int(values[0])
    found: dict[str, set[int]] = {}
    for part in ("validation",) if which == "test" else ("train", "validation"):
        for file in sorted((root / part / "annos").iterdir()):
            items = [item for key, item in json.loads(file.read_text()).items() if key.startswith("item")]
            fitting = {i["category_id"] - 1 for i in items if all(i[f] == v for f, v in wanted.items())}
            if fitting:
                found[f"{part}/image/{file.stem}.jpg"] = fitting
    return found


@pytest.mark.parametrize("which", ["test", "scale-large", "occlusion-heavy"])
def test_predictions_labels_and_map_equal_a_plain_loop(
    run: sb.Run, shown: list[SettingScore], tree: Path, network: sb.Classifier, which: str
) -> None:
    truth = annotated(tree, which)
    found = run.predictions(setting=f"{REMIXED}.{which}")
    assert list(found.ids) == list(truth) and found.label_sets == [tuple(sorted(own)) for own in truth.values()]
    images = np.stack([np.asarray(Image.open(tree / name).convert("RGB")) for name in truth])
    scores = network.scores(images)
    assert found.scores is not None and np.abs(found.scores - scores).max() < 1e-4
    hot = np.array([[k in own for k in range(13)] for own in truth.values()])
    by_metric = {s.metric: s for _, setting, s in shown if setting == f"{REMIXED}.{which}"}
    expected = reference_map(scores, hot)
    names = ("mean_average_precision", "mean_average_precision_plain")
    assert [by_metric[name].value for name in names] == pytest.approx(expected, abs=1e-3)
    assert all(by_metric[name].low < by_metric[name].high and by_metric[name].n == len(truth) for name in names)


def test_a_set_as_data_has_the_metric_of_the_suite(
    tree: Path, network: sb.Classifier, shown: list[SettingScore], tmp_path: Path
) -> None:
    """Images with several labels are never scored by the accuracy of those that have one."""
    alone = sb.evaluate(network, data=f"factors:{REMIXED}:{tree}/zoom-large", workspace=tmp_path / "w", progress=False)
    expected = {(score.metric, score.value) for _, setting, score in shown if setting == f"{REMIXED}.zoom-large"}
    assert {(score.metric, score.value) for _, _, score in alone.shown_scores()} == expected


def test_a_shift_costs_precision_and_no_set_is_left_out(run: sb.Run, shown: list[SettingScore]) -> None:
    """The network never saw photographs half covered or made small; as they are it knows them well."""
    own = [entry for entry in shown if entry[2].metric == "mean_average_precision"]
    value = {setting.partition(".")[2]: score.value for _, setting, score in own}
    assert len(value) == 10 and not run.left_out
    assert value["shifted"] == pytest.approx(np.mean([value[name] for name in read_protocol(REMIXED).shifts]))
    assert value["test"] > 0.55
    assert max(value["occlusion-heavy"], value["scale-small"], value["viewpoint-not-worn"]) < value["test"] - 0.05


def test_both_means_are_shown_and_the_provenance_tells_of_several_labels(
    run: sb.Run, shown: list[SettingScore]
) -> None:
    assert {(setting, score.metric) for _, setting, score in shown} == {
        (s, m)
        for s in [*run.settings, f"{REMIXED}.shifted"]
        for m in ("mean_average_precision", "mean_average_precision_plain")
    }
    single = [score for _, setting, score in shown if setting in run.settings]
    assert all("several labels an image" in score.provenance for score in single)
    one = sb.Run.open(run.workspace, settings=[f"{REMIXED}.scale-small"])
    assert [row["metric"] for row in one.table().rows] == ["mean_average_precision", "mean_average_precision_plain"]
    assert len(one.summary()["scores"]) == 2
    assert [row["metric"] for row in one.table("top1,mean_average_precision_plain").rows] == [
        "top1",
        "mean_average_precision_plain",
    ]


def test_top_1_counts_the_images_of_one_label_only(run: sb.Run) -> None:
    found = run.predictions(setting=f"{REMIXED}.test")
    assert found.label_sets is not None
    one = [i for i, own in enumerate(found.label_sets) if len(own) == 1]
    [score] = [s for _, setting, s in run.scores("top1") if setting == f"{REMIXED}.test"]
    assert score.n == len(one) < len(found)
    assert score.value == pytest.approx(np.mean([found.top[i, 0] == found.label_sets[i][0] for i in one]))


def stored(workspace: Location) -> dict[str, bytes]:
    folder = workspace / "predictions"
    files: list[Location] = sorted(folder.rglob("*.parquet"))
    return {str(relative(path, folder)): path.read_bytes() for path in files}


def test_a_run_that_broke_off_goes_on_and_gives_the_same_bytes(
    tree: Path, network: sb.Classifier, tmp_path: Path
) -> None:
    class Fragile:
        """Answers five times, then no more until it is mended."""

        answers = 0
        most = 5

        def __call__(self, images: Pixels) -> NDArray[np.float32]:
            if self.answers >= self.most:
                raise RuntimeError("no more")
            self.answers += 1
            return network.scores(images)

    fragile = Fragile()
    model = sb.load_classifier(fragile, name="places", labels="deepfashion2-13", preprocessing=network.preprocessing)
    model.self_contained = True  # so that it is asked for the images of the data alone

    def run(workspace: Path, workers: int, most: int) -> int:
        """How often it was asked."""
        fragile.answers = 0
        fragile.most = most
        sb.evaluate(model, REMIXED, {REMIXED: tree}, workspace, progress=False, workers=workers)
        return fragile.answers

    with pytest.raises(sb.ShiftbenchError, match="no more"):
        run(tmp_path / "w", workers=1, most=5)
    rest = run(tmp_path / "w", workers=1, most=1000)
    whole = run(tmp_path / "whole", workers=3, most=1000)
    assert rest == whole - 5, "what was stored is not computed again"
    assert stored(tmp_path / "w") == stored(tmp_path / "whole") and len(stored(tmp_path / "w")) == 9
    assert not any((tmp_path / "w" / "shards").rglob("*.parquet"))


def test_a_table_of_the_same_items_gives_the_same_predictions(
    tree: Path, network: sb.Classifier, run: sb.Run, tmp_path: Path
) -> None:
    import csv

    rows = deepfashion2_rows(tree)
    with (tree / "items.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    again = sb.evaluate(network, REMIXED, tree / "items.csv", tmp_path / "w", progress=False)
    assert stored(tmp_path / "w") == stored(run.workspace.root)
    assert again.settings == run.settings


def test_attacks_need_one_label_an_image(tree: Path, network: sb.Classifier, tmp_path: Path) -> None:
    sets = open_splits(tree, REMIXED)
    setting = Setting("attacked", "data", ATTACKS["pgd.linf.eps2"])
    with raises(SettingError, found="'deepfashion-remixed/test', whose images have several"):
        sb.evaluate(network, [setting], {"data": sets[f"{REMIXED}/test"]}, tmp_path, progress=False)


def test_an_estimator_trained_on_the_training_set(tree: Path, tmp_path: Path) -> None:
    """scikit-learn's own classifier of several labels, fitted on the protocol's training set, on thumbnails."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    sets = open_splits(tree, REMIXED)
    train = sets[f"{REMIXED}/train"]
    assert train.label_sets is not None
    thumbnail = sb.Geometry(resize=8, crop=None, resize_rule="exact")
    pixels = np.stack([thumbnail(train.read(i).pixels) for i in range(len(train))]).reshape(len(train), -1)
    hot = np.array([[k in own for k in range(13)] for own in train.label_sets], int)
    kept = np.flatnonzero(hot.any(axis=0))
    model = OneVsRestClassifier(LogisticRegression(C=1e-4, max_iter=1000)).fit(pixels, hot[:, kept])
    model.classes_ = kept
    run = sb.evaluate(
        sb.load_classifier(model, labels="deepfashion2-13", name="logistic"),
        REMIXED,
        {REMIXED: tree},
        tmp_path,
        progress=False,
    )
    found = run.predictions(setting=f"{REMIXED}.test")
    assert found.scores is not None and found.scores.shape[1] == 13
    [(_, _, score)] = sb.Run.open(run.workspace, settings=[f"{REMIXED}.test"]).scores()
    assert score.value == pytest.approx(reference_map(found.scores, found.multi_hot)[0], abs=1e-6)


def pairs_of_photographs(root: Path) -> Path:
    """Two photographs side by side (base) or one above the other (shift), a row for each; with the wnids as labels."""
    demo = sb.open_dataset("demo")
    lines = ["path,wnid,layout,light"]
    for i in range(0, 36, 2):
        for layout, axis, size in (("beside", 1, (128, 256)), ("above", 0, (256, 128))):
            both = [Image.fromarray(demo.read(i + k).pixels).resize(size) for k in (0, 1)]
            name = f"{i}-{layout}.png"
            Image.fromarray(np.concatenate([np.asarray(one) for one in both], axis=axis)).save(root / name)
            lines += [f"{name},{FULL.keys[demo.labels[i + k]]},{layout},{'dim' if i % 4 else 'bright'}" for k in (0, 1)]
    (root / "pairs.csv").write_text("\n".join(lines) + "\n")
    (root / "pairs.toml").write_text(
        "name = 'pairs'\nlabel = 'wnid'\nseveral_labels = true\nclasses = 'imagenet-1k'\n"
        "[base]\nlayout = ['beside']\n[shifts.above]\nlayout = ['above']\n"
    )
    return root


def test_an_imagenet_network_on_pictures_of_two_things(tmp_path: Path) -> None:
    """Over all 1,000 classes, from its own logits: a picture of two things has both among the best."""
    root = pairs_of_photographs(tmp_path)
    run = sb.evaluate(SQUEEZENET, f"factors:{root}/pairs.toml", root / "pairs.csv", root / "w", progress=False)
    found = run.predictions(setting="pairs.test")
    assert found.scores is not None and len(found) == 18 and found.multi_hot.sum() == 36
    expected = reference_map(found.scores, found.multi_hot)
    shown = {s.metric: s.value for *_, s in sb.Run.open(run.workspace, settings=["pairs.test"]).shown_scores()}
    assert list(shown.values()) == pytest.approx(expected, abs=1e-6) and shown["mean_average_precision"] > 0.4
    best = found.top[:, :5]
    assert np.mean([len(set(row) & set(own)) for row, own in zip(best, found.label_sets or [], strict=True)]) > 1
    assert run.workspace.columns_of(run.results[0].spec, found.ids)["light"].count("bright") == 9


def test_data_that_a_factor_suite_can_not_use(tree: Path, network: Any, tmp_path: Path) -> None:
    whole = open_splits(tree, REMIXED)[f"{REMIXED}/test"]
    with pytest.raises(SettingError, match="needs a table"):
        sb.evaluate(network, REMIXED, {REMIXED: whole}, tmp_path, progress=False)
    with pytest.raises(SettingError, match="'deepfashion-remixed': 'TABLE'"):
        sb.evaluate(network, REMIXED, None, tmp_path, progress=False)
    rows = [row for row in deepfashion2_rows(tree) if row["part"] == "train"]
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (tree / "train.csv").write_text("\n".join(lines) + "\n")
    with pytest.raises(SettingError, match=r"test' can't be evaluated: .*train\.csv has no image for it"):
        sb.evaluate(network, REMIXED, tree / "train.csv", tmp_path, progress=False)


def test_groups_and_comparisons_of_several_labels_are_by_map(
    run: sb.Run, tree: Path, network: sb.Classifier, tmp_path: Path
) -> None:
    """Over all images of a group, not only those of one label; the mean over the shifts is compared, too."""
    setting = f"{REMIXED}.zoom-large"
    found = run.predictions(setting=setting)
    part = run.workspace.columns_of(run.results[0].spec, run.predictions(setting=run.results[0].setting).ids)
    assert "part" in part and found.scores is not None
    in_train = np.array([name.startswith("train/") for name in found.ids])
    rows = {row["setting"]: row for row in run.groups("part", setting).rows}
    for group, chosen in (("part train", in_train), ("part validation", ~in_train)):
        expected, _ = reference_map(found.scores[chosen], found.multi_hot[chosen])
        assert rows[group]["value"] == pytest.approx(expected, abs=1e-6) and rows[group]["n"] == chosen.sum()
    assert {row["metric"] for row in rows.values()} == {"mean_average_precision"}
    incomplete = tmp_path / "one.csv"
    incomplete.write_text(f"id,camera\n{found.ids[0]},old\n")
    with pytest.raises(sb.ShiftbenchError) as refused:
        run.groups("camera", setting, table=incomplete)
    incomplete.unlink()
    assert refused.value.found == f"{len(found.ids) - 1} of {len(found.ids)}, the first is {found.ids[1]}"

    def disturbed(images: Pixels) -> NDArray[np.float32]:
        noise = np.sin(images.mean(axis=(1, 2, 3))[:, None] * np.arange(1, 14)).astype(np.float32)
        return np.asarray(network.scores(images) + 4 * noise)

    other = sb.load_classifier(disturbed, labels="deepfashion2-13", preprocessing=network.preprocessing)
    both = sb.evaluate([network, other], REMIXED, {REMIXED: tree}, tmp_path, progress=False)
    means = {
        row["classifier"]: row["value"]
        for row in both.table("mean_average_precision").rows
        if row["setting"] == f"{REMIXED}.shifted"
    }
    [one] = both.compare(f"{REMIXED}.shifted").rows
    assert one["difference"] == pytest.approx(means[one["first"]] - means[one["second"]])
    assert one["low"] < one["difference"] < one["high"] and one["metric"] == "mean_average_precision"
    singles = [both.compare(name).rows[0] for name in both.settings if name != f"{REMIXED}.test"]
    assert one["high"] - one["low"] < np.mean([row["high"] - row["low"] for row in singles])
