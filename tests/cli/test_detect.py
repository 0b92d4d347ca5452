"""``groups``, ``detect`` and ``calibrate`` on real photographs and a real network, against scikit-learn and SciPy."""

from __future__ import annotations

import csv
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import shiftbench as sb
from shiftbench.datasets.catalogue import open_named
from shiftbench.metrics import clopper_pearson
from tests.commands import answer, call, output

SQUEEZENET = "demo:squeezenet1_1"
FULL, OF_A, OF_O = (sb.label_space(name) for name in ("imagenet-1k", "imagenet-a-200", "imagenet-o-200"))
DEER = 4  # of CIFAR-10; ImageNet's 1,000 classes have none
Floats = NDArray[np.float64]


def refusal(*arguments: object) -> str:
    result = call(*arguments)
    assert result.exit_code != 0
    return str(result.exception)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs of the classes of ImageNet-A and -O as val and as ImageNet-A; deer as ImageNet-O; a table."""
    root = tmp_path_factory.mktemp("data")
    demo = open_named("demo")
    small = open_named("cifar-10-test")
    with (root / "cameras.csv").open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["id", "camera"])
        for i, label in enumerate(demo.labels.tolist()):
            wnid = FULL.keys[label]
            if wnid in OF_A or wnid in OF_O:
                pixels = sb.Geometry(resize=256, crop=None)(demo.read(i).pixels)
                for role in ["imagenet-val", *(["imagenet-a"] if wnid in OF_A else [])]:
                    (root / role / wnid).mkdir(parents=True, exist_ok=True)
                    Image.fromarray(pixels).save(root / role / wnid / f"{i}.png")
                table.writerow([f"{wnid}/{i}.png", "old" if i % 3 else "new"])
    for place, index in enumerate(np.flatnonzero(small.labels == DEER)[:24]):
        folder = root / "imagenet-o" / OF_O.keys[8 * place]
        folder.mkdir(parents=True)
        large = cv2.resize(small.read(int(index)).pixels, (256, 256), interpolation=cv2.INTER_CUBIC)
        Image.fromarray(large).save(folder / f"{index}.png")
    return root


def evaluated(data: Path, workspace: Path, suite: str, *more: str) -> Path:
    output(
        *("eval", SQUEEZENET, "--suite", suite, "--data", data, "-w", workspace),
        *("--labels", "imagenet-1k", "--quiet", *more),
    )
    return workspace


@pytest.fixture(scope="module")
def workspace(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return evaluated(data, tmp_path_factory.mktemp("w") / "w", "natural-adversarial", "--keep-scores")


@pytest.fixture(scope="module")
def lean(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No scores kept."""
    return evaluated(data, tmp_path_factory.mktemp("w") / "w", "imagenet-o")


@pytest.fixture(scope="module")
def logits(data: Path) -> dict[str, Floats]:
    """By hand, over the 200 classes of ImageNet-O: val images of these classes, and the deer."""
    network = sb.load_classifier(SQUEEZENET)
    columns = [FULL.index(key) for key in OF_O.keys]

    def forward(role: str) -> Floats:
        files = sorted(path for path in (data / role).rglob("*.png") if path.parent.name in OF_O)
        pixels = [network.preprocessing.geometry(np.asarray(Image.open(path).convert("RGB"))) for path in files]
        return network.scores(np.stack(pixels))[:, columns].astype(np.float64)

    return {"in": forward("imagenet-val"), "out": forward("imagenet-o")}


def anomaly(table: Floats, kind: str) -> Floats:
    from scipy.special import logsumexp, softmax
    from scipy.stats import entropy

    found: dict[str, Floats] = {
        "max_softmax": -softmax(table, axis=1).max(axis=1),
        "max_logit": -table.max(axis=1),
        "energy": -logsumexp(table, axis=1),
        "entropy": entropy(softmax(table, axis=1), axis=1),
    }
    return found[kind]


def detection_by_sklearn(logits: dict[str, Floats], kind: str) -> dict[str, float]:
    from sklearn.metrics import average_precision_score, roc_auc_score

    known = anomaly(logits["in"], kind)
    unknown = anomaly(logits["out"], kind)
    truth = np.repeat([0, 1], [len(known), len(unknown)])
    scores = np.concatenate([known, unknown])
    threshold = np.sort(unknown)[::-1][int(np.ceil(0.95 * len(unknown))) - 1]
    return {
        "aupr": average_precision_score(truth, scores),
        "auroc": roc_auc_score(truth, scores),
        "fpr95": float((known >= threshold).mean()),
    }


def test_detect_needs_no_further_word_after_the_suite(workspace: Path, logits: dict[str, Floats]) -> None:
    found = answer("detect", "-w", workspace)
    assert found["title"] == "imagenet-o (out) against val-on-imagenet-o-classes (in)"
    expected = detection_by_sklearn(logits, "max_softmax")
    assert {row["metric"]: row["value"] for row in found["scores"]} == pytest.approx(expected, abs=0.01)
    for row in found["scores"]:
        assert row["low"] <= row["value"] <= row["high"] and row["n"] == len(logits["in"]) + len(logits["out"])
    assert any(f"24 out-images against {len(logits['in'])} in-images" in note for note in found["notes"])


def test_every_score_equals_scikit_learns(workspace: Path, logits: dict[str, Floats]) -> None:
    found = answer("detect", "-w", workspace, "--score", "all")["scores"]
    by_kind: dict[str, dict[str, float]] = {}
    for row in found:
        by_kind.setdefault(row["setting"], {})[row["metric"]] = row["value"]
    assert list(by_kind) == ["max_softmax", "max_logit", "energy", "entropy"]
    for kind, values in by_kind.items():
        # The confidence is kept in half precision: two images may change places.
        assert values == pytest.approx(detection_by_sklearn(logits, kind), abs=0.01 if kind == "max_softmax" else 1e-9)
    assert [row["setting"] for row in answer("detect", "-w", workspace, "--score", "energy,max_logit")["scores"]] == (
        ["max_logit"] * 3 + ["energy"] * 3
    )


def test_scores_that_were_not_kept_name_the_flag(lean: Path) -> None:
    assert "--keep-scores" in refusal("detect", "-w", lean, "--score", "energy")
    found = answer("detect", "-w", lean, "--score", "all")
    assert {row["setting"] for row in found["scores"]} == {"max_softmax"}
    assert any("no max_logit, energy or entropy" in note and "--keep-scores" in note for note in found["notes"])


def test_wrong_names_and_pairs_are_refused(workspace: Path, tmp_path: Path) -> None:
    assert "unknown setting 'imagenet-0'" in refusal("detect", "-w", workspace, "--out", "imagenet-0")
    assert "unknown setting 'vall'" in refusal("detect", "-w", workspace, "--in", "vall")
    assert "are the same" in refusal("detect", "-w", workspace, "--in", "val", "--out", "val")
    assert "label spaces" in refusal("detect", "-w", workspace, "--in", "val")
    assert "names no reference" in refusal("detect", "-w", workspace, "--out", "val")
    assert call("detect", "-w", workspace, "--score", "odds").exit_code == 2
    assert "not a workspace" in refusal("detect", "-w", tmp_path / "none")


def test_any_pictures_without_labels_are_an_out_set(data: Path, workspace: Path, tmp_path: Path) -> None:
    """A folder of deer in no class folders, over all 1,000 classes, against val."""
    (tmp_path / "deer").mkdir()
    for path in sorted((data / "imagenet-o").rglob("*.png"))[:12]:
        (tmp_path / "deer" / path.name).write_bytes(path.read_bytes())
    output(
        *("eval", SQUEEZENET, "--data", f"unlabelled:{tmp_path}/deer", "--labels", "imagenet-1k"),
        *("-w", workspace, "--quiet", "--keep-scores"),
    )
    found = answer("detect", "-w", workspace, "--in", "val", "--out", "deer", "--score", "max_logit")
    assert {row["metric"]: row["value"] > 0.8 for row in found["scores"] if row["metric"] != "fpr95"} == {
        "aupr": True,
        "auroc": True,
    }
    assert any("12 out-images" in note for note in found["notes"])


def test_detect_in_terminals_of_any_width(workspace: Path) -> None:
    for width in (60, 80, 160):
        result = call("detect", "-w", workspace, "--score", "all", columns=width)
        assert result.exit_code == 0 and max(map(len, result.stdout.splitlines())) <= width
        for word in ("aupr", "auroc", "fpr95", "energy", "entropy"):
            assert word in result.stdout


def test_groups_of_a_table_equal_counting(data: Path, workspace: Path) -> None:
    found = answer("groups", "-w", workspace, "-s", "val", "--by", "camera", "--table", data / "cameras.csv")["scores"]
    predictions = sb.Run.open(workspace).predictions(setting="val")
    with (data / "cameras.csv").open() as stream:
        cameras = {row["id"]: row["camera"] for row in csv.DictReader(stream)}
    counts = {}
    for camera in ("new", "old"):
        chosen = np.array([cameras[name] == camera for name in predictions.ids])
        right = int((predictions.top[chosen, 0] == predictions.labels[chosen]).sum())
        counts[camera] = (right, int(chosen.sum()))
        row = next(row for row in found if row["setting"] == f"camera {camera}")
        assert (row["value"], row["n"]) == (right / chosen.sum(), chosen.sum())
        assert (row["low"], row["high"]) == pytest.approx(tuple(clopper_pearson(right, int(chosen.sum()))))
    worst = next(row for row in found if row["setting"] == "worst camera")
    assert worst["value"] == min(right / n for right, n in counts.values())
    ends = [clopper_pearson(right, n, 0.95**0.5) for right, n in counts.values()]
    assert (worst["low"], worst["high"]) == pytest.approx((min(e.low for e in ends), min(e.high for e in ends)))


def test_groups_by_class_and_by_the_columns_of_a_manifest(data: Path, tmp_path: Path) -> None:
    """The columns of the data set's own table are kept with it, so that no table is needed later."""
    manifest = data / "imagenet-val" / "manifest.csv"
    with (data / "cameras.csv").open() as source:
        rows = [(row["id"], row["id"].split("/")[0], row["camera"]) for row in csv.DictReader(source)][:20]
    manifest.write_text("path,label,camera\n" + "".join(f"{','.join(row)}\n" for row in rows))
    workspace = tmp_path / "w"
    arguments = ("--data", manifest, "--labels", "imagenet-1k", "-w", workspace, "-q")
    assert call("eval", SQUEEZENET, *arguments).exit_code == 0
    by_camera = answer("groups", "-w", workspace, "--by", "camera")["scores"]
    assert {row["setting"]: row["n"] for row in by_camera} == {
        "camera new": sum(row[2] == "new" for row in rows),
        "camera old": sum(row[2] == "old" for row in rows),
        "worst camera": 20,
    }
    by_class = answer("groups", "-w", workspace, "--by", "class")["scores"]
    assert len(by_class) == len({row[1] for row in rows}) + 1
    text = refusal("groups", "-w", workspace, "--by", "photographer")
    assert "columns camera, class" in text and "--table" in text


def test_groups_refuse_tables_that_do_not_fit(workspace: Path, tmp_path: Path) -> None:
    def with_table(text: str) -> str:
        (tmp_path / "t.csv").write_text(text)
        return refusal("groups", "-w", workspace, "-s", "val", "--by", "camera", "--table", tmp_path / "t.csv")

    assert "does not give images a group" in with_table("id,lens\na,b\n")
    assert "does not give images a group" in with_table("name,camera\na,b\n")
    assert "into two groups" in with_table("id,camera\na,new\na,old\n")
    assert "images without a group" in with_table("id,camera\na,new\n")
    assert "unknown setting" in refusal("groups", "-w", workspace, "-s", "vall", "--by", "class")


def held_out(ids: list[str]) -> NDArray[np.bool_]:
    """Which half is fitted on, from the ids alone."""
    import hashlib

    digests = [hashlib.blake2b(b"0/" + name.encode(), digest_size=8).digest() for name in ids]
    return np.array([int.from_bytes(digest, "big") < 2**63 for digest in digests])


def test_calibrate_fits_on_one_half_and_scores_the_other(workspace: Path) -> None:
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax
    from sklearn.metrics import log_loss

    predictions = sb.Run.open(workspace).predictions(setting="val")
    assert predictions.scores is not None
    logits = predictions.scores.astype(np.float64)
    labels = predictions.labels
    fit = held_out(list(predictions.ids))

    def loss(temperature: float, rows: NDArray[np.bool_]) -> float:
        table = np.exp(log_softmax(logits[rows] / temperature, axis=1))
        return float(log_loss(labels[rows], table, labels=np.arange(1000)))

    best = minimize_scalar(lambda t: loss(t, fit), bounds=(0.05, 20), method="bounded", options={"xatol": 1e-6}).x
    found = answer("calibrate", "-w", workspace, "-s", "val")
    rows = {(row["classifier"], row["metric"]): row for row in found["scores"]}
    after = f"squeezenet1_1 at T = {best:.3g}"
    assert rows[after, "nll"]["value"] == pytest.approx(loss(best, ~fit), abs=1e-4)
    assert rows["squeezenet1_1", "nll"]["value"] == pytest.approx(loss(1.0, ~fit), abs=1e-5)
    assert {row["n"] for row in found["scores"]} == {int((~fit).sum())}
    names = {"rms_calibration_error", "mad_calibration_error", "ece", "classwise_ece", "brier", "nll"}
    assert {metric for _, metric in rows} == names, "too few images for the published bins"
    assert any("fitted on" in note and f"{int(fit.sum())} images" in note for note in found["notes"])


def test_no_image_is_fitted_on_and_scored(workspace: Path) -> None:
    """Val and val on fewer classes are the same pictures; ImageNet-A's folder is another data set."""
    text = refusal("calibrate", "-w", workspace, "-s", "val-on-imagenet-a-classes", "--fit", "val")
    assert "images in both" in text and "--split" in text
    assert answer("calibrate", "-w", workspace, "-s", "imagenet-a", "--fit", "val")["scores"]
    both = answer("calibrate", "-w", workspace, "-s", "val-on-imagenet-a-classes", "--fit", "val", "--split", 0.5)
    ids = list(sb.Run.open(workspace).predictions(setting="val-on-imagenet-a-classes").ids)
    assert {row["n"] for row in both["scores"]} == {int((~held_out(ids)).sum())}
    assert "0 in the setting 'valley'" in refusal("calibrate", "-w", workspace, "-s", "val", "--fit", "valley")
    for share in ("0", "1.5"):
        assert "hold out" in refusal("calibrate", "-w", workspace, "-s", "val", "--split", share)


def test_without_kept_scores_the_confidences_are_told_and_the_flag_named(lean: Path) -> None:
    found = answer("calibrate", "-w", lean, "-s", "val-on-imagenet-o-classes")
    assert {row["classifier"] for row in found["scores"]} == {"squeezenet1_1"}
    assert {row["metric"] for row in found["scores"]} >= {"ece", "rms_calibration_error"}
    assert any("no temperature" in note and "--keep-scores" in note for note in found["notes"])
    assert "--keep-scores" in refusal("calibrate", "-w", lean, "-s", "val-on-imagenet-o-classes", "--split", "0.5")


def test_the_reliability_diagram(workspace: Path) -> None:
    found = answer("calibrate", "-w", workspace, "-s", "val", "--diagram")
    assert len(found["diagrams"]) == 2
    for bins in found["diagrams"].values():
        assert len(bins) == 10 and sum(one["n"] for one in bins) == found["scores"][0]["n"]
    for width in (50, 160):
        result = call("calibrate", "-w", workspace, "-s", "val", "-d", columns=width)
        assert result.exit_code == 0 and max(map(len, result.stdout.splitlines())) <= width
        assert result.stdout.count("90–100") == 2 and "◇" in result.stdout
    assert "90–100" in call("calibrate", "-w", workspace, "-s", "val", "-d", "-f", "md").stdout
    assert "7 settings" in refusal("calibrate", "-w", workspace)
