"""``shiftbench import``: the papers' released predictions against the papers' tables, every shape of file, mistakes."""

from __future__ import annotations

import csv
import json
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from statsmodels.stats.proportion import proportion_confint

import shiftbench as sb
from shiftbench.classifiers import recorded
from shiftbench.errors import ClassifierError, SettingError, ShiftbenchError, StoreError, UnknownNameError
from shiftbench.metrics.corruption import ALEXNET_ERRORS
from shiftbench.published.reproduce.sources import _TABLE_NAMES
from shiftbench.published.tables import PublishedValue, published
from shiftbench.reports.placement import why_apart
from shiftbench.runs.import_predictions import find_setting, import_predictions
from shiftbench.runs.results import StoredResults
from shiftbench.settings.base import build_suite
from tests.commands import answer, output
from tests.datasets import official_trees as trees
from tests.raised import raises
from tests.runs.helpers import colour_folder

PETS = sb.LabelSpace("pets", ("n1", "n2", "n3"), ("cat", "dog", "fish"))
IDS = ["a.jpg", "b.jpg", "c.jpg", "d.jpg"]
LABELS = [0, 1, 2, 1]
#: Right on the first three, and on the last one alone.
MANY = {"good": [0, 1, 2, 0], "poor": [1, 0, 0, 1]}


# -- the papers' own predictions ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workspace(reference_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """67 models on val and MatchedFrequency, 30 models on CIFAR-10 and CIFAR-10.1, each test set by one command."""
    root = tmp_path_factory.mktemp("published")
    imagenet = reference_data / "imagenetv2"
    for setting, file in (
        ("val", "imagenet-validation-original"),
        ("imagenetv2-matched-frequency", "imagenetv2-b-33"),
    ):
        path = imagenet / f"predictions_top5_{file}.npz"
        output("import", path, "--setting", setting, "--labels", "imagenet-1k", "-w", root, "-q")
    for setting, array in (("cifar-10", "cifar10"), ("cifar-10.1-v4", "v4"), ("cifar-10.1-v6", "v6")):
        path = reference_data / "cifar-10.1" / "cifar10_and_10.1_predictions_30models.npz"
        output("import", path, "-s", setting, "--array", array, "--labels", "cifar-10", "-w", root, "-q")
    return root


#: Table: original and new setting, metric, models that were released, and what is known to differ there.
TABLES: dict[str, tuple[str, str, str, int, set[tuple[str, str, str]]]] = {
    # The released predictions of fv_16k on ImageNetV2 are stored worst first: 2.5 % as they are, not 19.2 %.
    "15": (
        "val",
        "imagenetv2-matched-frequency",
        "top1",
        67,
        {("fv_16k", "imagenetv2-matched-frequency", end) for end in ("value", "low", "high")},
    ),
    "16": ("val", "imagenetv2-matched-frequency", "top5", 67, set()),
    # Ends that are printed up to 0.06 points from the exact interval of the printed accuracy.
    "11": ("cifar-10", "cifar-10.1-v4", "top1", 29, {("shake_shake_64d_cutout", "cifar-10.1-v4", "high")}),
    "12": (
        "cifar-10",
        "cifar-10.1-v6",
        "top1",
        29,
        {
            ("shake_drop", "cifar-10.1-v6", "low"),
            ("resnet_v2_basic_110", "cifar-10.1-v6", "low"),
            ("random_features_32k_aug", "cifar-10.1-v6", "high"),
        },
    ),
}


@pytest.mark.parametrize("table", TABLES)
def test_the_tables_of_004_to_the_printed_digit(workspace: Path, table: str) -> None:
    """Accuracies and both ends of the 95 % intervals."""
    original, new, metric, models, expected = TABLES[table]
    rows = [row for row in published("004", table) if row.metric == metric]
    found = _scores(workspace, [original, new], metric)
    known = [(row, found[row.model, _setting(row)]) for row in rows if (row.model, _setting(row)) in found]
    assert len(known) == 2 * models
    differing = {
        (row.model, _setting(row), end)
        for row, score in known
        for end, printed in (("value", row.value), ("low", row.low), ("high", row.high))
        if printed is None or abs(score[end] - printed) > row.rounding + 1e-9
    }
    assert differing == expected
    for row, score in known:
        right = round(score["value"] * score["n"])
        assert (score["low"], score["high"]) == pytest.approx(proportion_confint(right, score["n"], method="beta"))
        if row.model != "fv_16k":
            assert abs(score["low"] - (row.low or 0)) < 0.0011 > abs(score["high"] - (row.high or 0))


def _setting(row: PublishedValue) -> str:
    return "val" if row.setting == "imagenet" else row.setting


def _scores(workspace: Path, settings: Sequence[str], metric: str) -> dict[tuple[str, str], dict[str, float]]:
    options = [option for setting in settings for option in ("-s", setting)]
    rows = csv.DictReader(output("table", "-w", workspace, "-m", metric, *options, "-f", "csv").splitlines())
    return {
        (_TABLE_NAMES.get(row["classifier"], row["classifier"]), row["setting"]): {
            key: float(row[key]) for key in ("value", "low", "high", "n")
        }
        for row in rows
    }


def test_ranks_and_gaps_from_the_workspace(workspace: Path) -> None:
    """The study reads imported predictions as it reads a run's; ranks are those of table 15 but for fv_16k's doing."""
    options = ("--x", "val", "--y", "imagenetv2-matched-frequency", "--json")
    found = json.loads(output("study", "reproducibility", "-w", workspace, *options))
    rows = {row["model"]: row for row in found["models"]}
    assert len(rows) == 67
    for row in published("004", "15"):
        mine = rows[row.model]
        if row.metric == "gap" and row.model != "fv_16k":
            assert abs(mine["gap"] - row.value) <= row.rounding + 1e-9, row.model
        if row.metric == "rank" and row.setting == "imagenet":
            assert mine["rank"] == row.value, row.model


def test_ranks_by_top_5(workspace: Path) -> None:
    """Ranks, new ranks and changes of table 16, all 201."""
    options = ("--x", "val", "--y", "imagenetv2-matched-frequency", "--metric", "top5", "--json")
    found = json.loads(output("study", "reproducibility", "-w", workspace, *options))
    rows = {row["model"]: row for row in found["models"]}
    ranks = [row for row in published("004", "16") if row.unit == "rank"]
    assert len(ranks) == 201
    for row in ranks:
        key = "rank_change" if row.metric == "rank change" else "rank" if row.setting == "imagenet" else "new_rank"
        assert rows[row.model][key] == row.value, (row.model, key)


def test_imported_models_are_compared_image_by_image(workspace: Path) -> None:
    text = output("compare", "-w", workspace, "-s", "cifar-10.1-v4", "-c", "darc", "-c", "nas", "--json")
    assert {"darc", "nas"} <= set(json.dumps(json.loads(text)).replace('"', " ").split())
    run = sb.Run.open(workspace, ["darc", "nas"], ["cifar-10.1-v4"])
    one, other = (run.predictions(name) for name in ("darc", "nas"))
    assert one.ids == other.ids and one.ids[0] == "cifar-10.1-v4/00000", "no two test sets share a name"


# -- every shape of file -------------------------------------------------------------------------------------


def write_csv(path: Path, header: str, rows: Sequence[Sequence[object]]) -> Path:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return path


def long_csv(folder: Path) -> list[Path]:
    rows = [
        (model, i, PETS.keys[p], PETS.keys[label])
        for model, found in MANY.items()
        for i, p, label in zip(IDS, found, LABELS, strict=True)
    ]
    return [write_csv(folder / "all.csv", "model,id,prediction,label", rows)]


def wide_csv(folder: Path) -> list[Path]:
    rows = list(zip(IDS, LABELS, *MANY.values(), strict=True))
    return [write_csv(folder / "all.csv", f"id,label,{','.join(MANY)}", rows)]


def single_csvs(folder: Path) -> list[Path]:
    return [
        write_csv(folder / f"{model}.csv", "image,prediction,label", list(zip(IDS, found, LABELS, strict=True)))
        for model, found in MANY.items()
    ]


def parquet(folder: Path) -> list[Path]:
    pyarrow = pytest.importorskip("pyarrow")
    files = pytest.importorskip("pyarrow.parquet")
    columns = {"id": IDS * 2, "classifier": ["good"] * 4 + ["poor"] * 4, "label": LABELS * 2}
    top = [[p, (p + 1) % 3] for found in MANY.values() for p in found]
    files.write_table(pyarrow.table({**columns, "top": top}), folder / "all.parquet")
    return [folder / "all.parquet"]


def stacked(folder: Path) -> list[Path]:
    np.savez(folder / "all.npz", models=list(MANY), predictions=list(MANY.values()), filenames=IDS, labels=LABELS)
    return [folder / "all.npz"]


@pytest.mark.parametrize("make", [long_csv, wide_csv, single_csvs, parquet, stacked])
def test_every_shape_gives_the_same_cells(make: Any, tmp_path: Path) -> None:
    imported = import_predictions(make(tmp_path), "survey", tmp_path / "w", labels=PETS)
    values = {model: (score.value, score.n) for model, _, score in imported.results.scores()}
    assert values == {"good": (0.75, 4), "poor": (0.25, 4)}
    assert imported.matched_by == "id" and not imported.missing and not imported.unknown
    found = sb.Run.open(tmp_path / "w").predictions("good", "survey")
    assert found.top[:, 0].tolist() == MANY["good"] and list(found.ids) == IDS
    assert "labels only" in found.provenance


def test_a_model_is_one_row_in_all_settings_and_comes_again_without_harm(tmp_path: Path) -> None:
    for setting in ("first", "second", "first"):
        import_predictions(stacked(tmp_path), setting, tmp_path / "w", labels=PETS, reference="first")
    table = sb.Run.open(tmp_path / "w").scores()
    assert sorted((model, setting) for model, setting, _ in table) == [
        ("good", "first"),
        ("good", "second"),
        ("poor", "first"),
        ("poor", "second"),
    ]


def test_other_predictions_of_the_same_model_are_refused_or_replaced(tmp_path: Path) -> None:
    import_predictions(stacked(tmp_path), "survey", tmp_path / "w", labels=PETS)
    changed = write_csv(tmp_path / "poor.csv", "id,prediction,label", list(zip(IDS, LABELS, LABELS, strict=True)))
    with raises(StoreError, found="poor"):
        import_predictions(changed, "survey", tmp_path / "w", labels=PETS)
    import_predictions(changed, "survey", tmp_path / "w", labels=PETS, replace_old=True)
    assert {model: score.value for model, _, score in sb.Run.open(tmp_path / "w").scores()} == {
        "good": 0.75,
        "poor": 1.0,
    }


def test_scores_and_confidences_are_kept(tmp_path: Path) -> None:
    scores = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2]], np.float32))
    np.savez(tmp_path / "net.npz", ids=IDS, scores=scores, labels=LABELS)
    sure = np.array([[0.7, 0.8, 0.6, 0.5]])
    np.savez(
        tmp_path / "sure.npz", models=["sure"], predictions=[[0, 1, 2, 0]], ids=IDS, confidence=sure, labels=LABELS
    )
    import_predictions([tmp_path / "net.npz", tmp_path / "sure.npz"], "survey", tmp_path / "w", labels=PETS)
    run = sb.Run.open(tmp_path / "w")
    full = run.predictions("net")
    plain = run.predictions("sure")
    assert full.scores is not None and np.allclose(full.scores, scores) and plain.scores is None
    assert np.allclose(full.confidence, sure[0], atol=1e-3) and np.allclose(plain.confidence, sure[0], atol=1e-3)
    ece = {model: score.value for model, _, score in run.scores("ece")}
    assert ece["net"] == pytest.approx(ece["sure"], abs=1e-3)


# -- beside the pictures themselves ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def val(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pictures") / "imagenet-val"
    trees.imagenet_val(root, trees.photographs()[:8])
    return root


def test_predictions_on_pictures_line_up_with_a_run(val: Path, tmp_path: Path) -> None:
    """A run's own answers, written out under bare file names, imported again: the same column, the same hits."""
    run = sb.evaluate("demo:squeezenet1_1", "imagenet", val, tmp_path / "w", labels="imagenet-1k", progress=False)
    own = run.predictions()
    for name in (lambda image: image, lambda image: Path(image).name, lambda image: Path(image).stem):
        rows = [(name(image), trees.FULL.keys[top]) for image, top in zip(own.ids, own.top[:, 0], strict=True)]
        path = write_csv(tmp_path / "elsewhere.csv", "id,prediction", rows[::-1])
        found = answer("import", path, "-s", "val", "--data", val, "-w", tmp_path / "w", "-q")
        assert found["matched_by"] in ("id", "file name", "file name without ending")
    both = {model: score for model, _, score in sb.Run.open(tmp_path / "w").scores("top1")}
    assert both["elsewhere"].value == both["squeezenet1_1"].value and both["elsewhere"].n == 8
    assert both["elsewhere"].provenance == both["squeezenet1_1"].provenance, "so that they share a column"


def test_columns_of_the_images_are_kept_for_groups(tmp_path: Path) -> None:
    """The rendition styles of ImageNet-R, from the released file names."""
    keys = sb.label_space("imagenet-r-200").keys
    styles = ("art", "videogame")
    for number, key in enumerate(keys):
        (tmp_path / "imagenet-r" / key).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "imagenet-r" / key / f"{styles[number % 2]}_{number}.jpg")
    # All of the art is right, and a fourth of the games.
    given = [key if i % 2 == 0 or i % 8 == 1 else keys[i - 1] for i, key in enumerate(keys)]
    rows = [f"{key}/{styles[i % 2]}_{i}.jpg,{given[i]}\n" for i, key in enumerate(keys)]
    (tmp_path / "net.csv").write_text("id,prediction\n" + "".join(rows))
    output(
        "import",
        tmp_path / "net.csv",
        "-s",
        "imagenet-r",
        "--labels",
        "imagenet-1k",
        "-d",
        tmp_path / "imagenet-r",
        "-w",
        tmp_path / "w",
    )
    found = answer("groups", "-w", tmp_path / "w", "-s", "imagenet-r", "--by", "style")["scores"]
    assert [(row["setting"], row["value"], row["n"]) for row in found[:2]] == [
        ("style art", 1.0, 100),
        ("style videogame", 0.25, 100),
    ]


def test_in_order_is_taken_at_the_users_word(val: Path, tmp_path: Path) -> None:
    dataset = sb.open_dataset(val)
    np.savez(tmp_path / "m.npz", models=["m"], predictions=dataset.labels[None])
    with raises(ClassifierError, found="columns models, predictions") as caught:
        import_predictions(tmp_path / "m.npz", "val", tmp_path / "w", data=val)
    assert "in_order=True" in str(caught.value)
    imported = import_predictions(tmp_path / "m.npz", "val", tmp_path / "w", data=val, in_order=True)
    assert imported.matched_by == "order" and imported.results.scores()[0][2].value == 1.0
    np.savez(tmp_path / "n.npz", models=["n"], predictions=dataset.labels[None, :-1])
    with raises(ClassifierError, found="7 predictions of n"):
        import_predictions(tmp_path / "n.npz", "val", tmp_path / "w", data=val, in_order=True)


def test_names_after_a_file_in_order_are_compared_with_those_of_the_dataset(val: Path, tmp_path: Path) -> None:
    dataset = sb.open_dataset(val)
    np.savez(tmp_path / "m.npz", models=["m"], predictions=dataset.labels[None])
    (tmp_path / "n.csv").write_text(f"id,prediction\nelsewhere.png,{dataset.labels[0]}\n")
    with raises(ClassifierError, found="ids such as elsewhere.png"):
        import_predictions([tmp_path / "m.npz", tmp_path / "n.csv"], "val", tmp_path / "w", data=val, in_order=True)


def test_missing_and_unknown_images_are_counted(val: Path, tmp_path: Path) -> None:
    dataset = sb.open_dataset(val)
    rows = [(image, label) for image, label in zip(dataset.ids, dataset.labels, strict=True)]
    path = write_csv(tmp_path / "m.csv", "id,prediction", [*rows[:5], ("n01440764/other.JPEG", 0)])
    with pytest.raises(ClassifierError, match="1 images that 'imagenet-val' lacks"):
        import_predictions(path, "val", tmp_path / "w", data=val)
    with pytest.warns(UserWarning) as told:
        imported = import_predictions(path, "val", tmp_path / "w", data=val, allow_unknown=True)
    assert imported.missing == {"m": 3} and imported.unknown == {"m": 1}
    assert any("lack predictions" in str(one.message) and "m: 3" in str(one.message) for one in told)
    assert imported.results.scores()[0][2].n == 5
    write_csv(path, "id,prediction", [(image, "") for image, _ in rows[:2]] + rows[2:])
    with pytest.warns(UserWarning, match="m: 2"):
        import_predictions(path, "empty", tmp_path / "w", data=val)


def test_labels_that_are_not_the_data_sets_are_refused(val: Path, tmp_path: Path) -> None:
    dataset = sb.open_dataset(val)
    rows = [(image, label, (label + 1) % 1000) for image, label in zip(dataset.ids, dataset.labels, strict=True)]
    path = write_csv(tmp_path / "m.csv", "id,prediction,label", rows)
    with pytest.raises(ClassifierError, match="not those of 'imagenet-val' for 8 of 8 images"):
        import_predictions(path, "val", tmp_path / "w", data=val)


def test_true_classes_from_a_file(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "m.csv", "id,prediction", list(zip(IDS, MANY["good"], strict=True)))
    truth = write_csv(tmp_path / "truth.csv", "id,label", list(zip(reversed(IDS), reversed(LABELS), strict=True)))
    imported = import_predictions(path, "survey", tmp_path / "w", labels=PETS, truth=truth)
    assert imported.results.scores()[0][2].value == 0.75
    np.save(tmp_path / "truth.npy", np.array(LABELS))
    np.savez(tmp_path / "n.npz", models=["n"], predictions=[MANY["good"]])
    ordered = import_predictions(
        tmp_path / "n.npz", "other", tmp_path / "w", labels=PETS, truth=tmp_path / "truth.npy", in_order=True
    )
    assert ordered.results.scores()[0][2].value == 0.75


def test_permuted_labels_are_doubted(tmp_path: Path) -> None:
    truth = np.arange(10).repeat(20)
    np.savez(tmp_path / "m.npz", models=["m"], predictions=[(truth + 1) % 10], labels=truth)
    with pytest.warns(UserWarning, match="one class ahead of the labels"):
        import_predictions(tmp_path / "m.npz", "cifar-10", tmp_path / "w", labels="cifar-10")


def test_a_known_setting_keeps_its_reference_classes_and_metric(tmp_path: Path) -> None:
    """Ranks over 1,000 classes become predictions over the 200 of ImageNet-A, for the images of these."""
    space = sb.label_space("imagenet-a-200")
    inside = [trees.FULL.index(key) for key in space.keys[:3]]
    outside = trees.FULL.index("n01440764")
    assert "n01440764" not in space
    np.savez(
        tmp_path / "m.npz",
        models=["m"],
        ids=["a", "b", "c", "d"],
        labels=[*inside, outside],
        predictions=[[[outside, inside[0]], [inside[1], outside], [inside[0], inside[2]], [outside, outside + 1]]],
    )
    imported = import_predictions(tmp_path / "m.npz", "imagenet-a", tmp_path / "w", labels="imagenet-1k")
    result = imported.results.results[0]
    assert result.spec.reference == "val-on-imagenet-a-classes"
    found = imported.results.predictions()
    assert found.space.keys == space.keys and found.correct.tolist() == [True, True, False]
    assert find_setting("cifar-10.1-v6").reference == "cifar-10"
    with raises(SettingError, found="fog.3, with a generator and seeds of its own"):
        find_setting("imagenet-c.fog.3")


def truths(n: int = 20) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.arange(n) % 1000


def test_released_files_of_imagenet_c_give_its_mce(tmp_path: Path) -> None:
    """What `reproduce` and mCE need, from predictions alone: 0.8 of AlexNet's error in every setting."""
    for name, errors in ALEXNET_ERRORS.items():
        for severity, error in enumerate(errors, start=1):
            wrong = np.arange(1000) < round(1000 * 0.8 * error)
            np.savez(tmp_path / "m.npz", models=["m"], predictions=[(truths(1000) + wrong) % 1000], labels=truths(1000))
            import_predictions(
                tmp_path / "m.npz",
                f"imagenet-c.{name}.{severity}",
                tmp_path / "w",
                labels="imagenet-1k",
                made_by="released-files",
            )
    run = sb.Run.open(tmp_path / "w")
    assert {result.spec.source for result in run.results} == {"on-disk"}
    assert run.metrics()["imagenet-c/mCE"] == pytest.approx(0.8, abs=2e-3)
    assert all("images made by released-files" in result.spec.provenance for result in run.results)
    assert "mCE" in output("table", "-w", tmp_path / "w", "--mce")


def test_every_setting_of_the_testbed_can_be_imported_with_its_origin() -> None:
    settings = {setting.name: setting for setting in build_suite("testbed-213").settings}
    assert len(settings) == 213
    for name, setting in settings.items():
        found = find_setting(name, "testbed")
        assert not found.shifted and found.member == setting.member and found.reference == setting.reference
        assert (found.source == "in-memory") == setting.shifted


def test_only_images_of_the_testbed_stand_in_its_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", models=["m"], predictions=[truths(5000)], labels=truths(5000))

    def own(setting: str, made_by: str | None) -> tuple[str, ...]:
        workspace = tmp_path / f"{setting}-{made_by}"
        import_predictions(tmp_path / "m.npz", setting, workspace, labels="imagenet-1k", made_by=made_by)
        run = StoredResults.open(workspace)
        return tuple(why_apart(run.workspace, result) for result in run.results)

    [unstated] = own("imagenet-c.fog.3_on-disk", None)
    assert "--made-by testbed" in unstated
    # Then only the images count: the names say nothing of which 5,000 they are.
    [stated] = own("imagenet-c.fog.3_on-disk", "testbed")
    assert "testbed-10percent" in stated
    [in_memory] = own("imagenet-c.fog.3_in-memory", "testbed")
    assert "testbed-10percent" in in_memory


def test_images_that_are_not_at_hand_are_not_shown(tmp_path: Path) -> None:
    """With --data, a report would show the photographs without shift as those under it."""
    folder = tmp_path / "val"
    for key in sb.label_space("imagenet-1k").keys[:2]:
        (folder / key).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(folder / key / f"{key}.png")
    keys = sb.label_space("imagenet-1k").keys[:2]
    (tmp_path / "m.csv").write_text("id,prediction\n" + "".join(f"{key}/{key}.png,{key}\n" for key in keys))
    imported = import_predictions(
        tmp_path / "m.csv",
        "imagenet-c.fog.3_in-memory",
        tmp_path / "w",
        labels="imagenet-1k",
        data=folder,
        made_by="testbed",
    )
    [result] = imported.results.results
    assert "labels only" in result.spec.dataset.name and result.spec.made_by == "testbed"


@pytest.mark.parametrize(("name", "made_by"), [("imagenet-r", "released-files"), ("photos", "testbed")])
def test_origins_of_other_settings_are_refused(name: str, made_by: str) -> None:
    with pytest.raises(UnknownNameError):
        find_setting(name, made_by)


# -- mistakes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prediction,label\n0,0\n", None),  # no ids, but labels beside: row i is image i
        ("id,prediction\na,0\n", "the true classes are unknown"),
        ("id,prediction,label\na,0,0\na,1,0\n", "more than once"),
        ("id,prediction,label\na,3,0\n", "does not have"),
        ("id,prediction,label\na,-2,0\n", "does not have"),
        ("id,prediction,label\na,0,horse\n", "does not have"),
        ("id,prediction,label\na,0,0\nb,0\n", "cannot be read"),
        ("id,prediction,label,confidence\na,0,0,1.5\n", "outside 0 to 1"),
        ("model,prediction,label\nm,0,0\n", "does not name its images"),
        ("model,id,prediction,label\nm,a,0,0\nn,a,0,1\n", "one image two true classes"),
        ("id,label\na,0\n", "no model found"),
        ("", "empty"),
    ],
)
def test_wrong_tables_are_refused_in_words(text: str, message: str | None, tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text(text)
    if message is None:
        assert import_predictions(tmp_path / "m.csv", "s", tmp_path / "w", labels=PETS).matched_by == "order"
        return
    with pytest.raises(ShiftbenchError, match=message):
        import_predictions(tmp_path / "m.csv", "s", tmp_path / "w", labels=PETS)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"predictions": [[0, 1]], "labels": [0, 1]}, "neither classes nor scores"),
        ({"models": ["a", "b"], "predictions": [[0, 1]], "labels": [0, 1]}, "no array 'predictions' of 2 models"),
        ({"models": ["a"], "v4": [[0, 1]], "labels": [0, 1]}, "array='v4"),
        ({"models": ["a"], "predictions": [[0, 1]], "labels": [0]}, "do not fit together"),
        ({"models": ["a"], "predictions": [[0, 1]], "labels": [0, 1], "ids": ["x"]}, "do not fit together"),
        ({"models": ["a"], "predictions": [[0, 3]], "labels": [0, 1]}, "predicts classes that 'pets' does not have"),
        ({"models": ["a", "a"], "predictions": [[0, 1], [1, 0]], "labels": [0, 1]}, "models occur more than once"),
        ({"models": ["a"], "predictions": np.array([[0, None]], object), "labels": [0, 1]}, "cannot be read"),
    ],
)
def test_wrong_arrays_are_refused_in_words(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "m.npz", **arrays)
    with pytest.raises(ShiftbenchError, match=message):
        import_predictions(tmp_path / "m.npz", "s", tmp_path / "w", labels=PETS)


def test_what_is_no_file_of_predictions(tmp_path: Path) -> None:
    (tmp_path / "m.pkl").write_bytes(b"pickle")
    for name, message in (("m.pkl", "not a file of predictions"), ("none.csv", "file not found")):
        with pytest.raises(ClassifierError, match=message):
            import_predictions(tmp_path / name, "s", tmp_path / "w", labels=PETS)
    (tmp_path / "m.npz").write_bytes(b"PK torn")
    with pytest.raises(ClassifierError, match="cannot be read"):
        import_predictions(tmp_path / "m.npz", "s", tmp_path / "w", labels=PETS)
    np.savez(tmp_path / "m.npz", models=["m"], predictions=[[0]], labels=[0])
    with pytest.raises(ClassifierError, match="unknown classes of the predictions"):
        import_predictions(tmp_path / "m.npz", "s", tmp_path / "w")


def test_a_file_that_unpacks_to_far_too_much_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "m.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("models.npy", bytes(1 << 20))
    assert (tmp_path / "m.npz").stat().st_size < 10_000
    monkeypatch.setattr(recorded, "_MOST_BYTES", 1 << 19)
    with pytest.raises(ClassifierError, match="unpacks to"):
        import_predictions(tmp_path / "m.npz", "s", tmp_path / "w", labels=PETS)


def test_one_file_of_many_models_is_no_classifier(tmp_path: Path) -> None:
    with raises(ClassifierError, found="good, poor") as caught:
        sb.load_classifier(stacked(tmp_path)[0], labels=PETS)
    assert "shiftbench import" in str(caught.value)


# -- the forms that people have ---------------------------------------------------------------------------------------

#: Logits of four images over the classes of PETS; the last image is taken for a cat.
LOGITS = np.array([[3, 1, 0], [0, 2, 1], [0, 1, 5], [4, 1, 0]], np.float32)


def imported_accuracy(path: Path, tmp_path: Path, **options: Any) -> float:
    done = import_predictions(path, "pets", tmp_path / "w", **options)
    [(_, _, score)] = done.results.scores("top1")
    return score.value


def test_logits_that_numpy_saved(tmp_path: Path) -> None:
    np.save(tmp_path / "net.npy", LOGITS)
    np.save(tmp_path / "truth.npy", np.array(LABELS))
    options = {"labels": PETS, "truth": tmp_path / "truth.npy"}
    with pytest.raises(ClassifierError) as error:
        imported_accuracy(tmp_path / "net.npy", tmp_path, **options)
    assert "in_order=True" in str(error.value.hint)
    assert imported_accuracy(tmp_path / "net.npy", tmp_path, in_order=True, **options) == 0.75
    np.save(tmp_path / "classes.npy", LOGITS.argmax(axis=1))
    assert imported_accuracy(tmp_path / "classes.npy", tmp_path, in_order=True, **options) == 0.75


def test_columns_of_scikit_learn(tmp_path: Path) -> None:
    rows = zip(IDS, ["cat", "dog", "fish", "dog"], ["cat", "dog", "fish", "cat"], strict=True)
    lines = ["filename,y_true,y_pred", *(",".join(row) for row in rows)]
    (tmp_path / "net.csv").write_text("\n".join(lines))
    assert imported_accuracy(tmp_path / "net.csv", tmp_path, labels=PETS) == 0.75


@pytest.mark.parametrize("prefix", ["logit_", "prob_", "score_"])
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_of_scores_are_named_by_their_classes(tmp_path: Path, prefix: str, suffix: str) -> None:
    """In any order: the classes of the data decide, not the order of the columns."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    scores = LOGITS if prefix != "prob_" else LOGITS / LOGITS.sum(axis=1, keepdims=True)
    columns: dict[str, Any] = {"filename": IDS, "label": ["cat", "dog", "fish", "dog"]}
    columns |= {f"{prefix}{PETS.names[i]}": scores[:, i] for i in (2, 0, 1)}
    table = pa.table(columns)
    path = tmp_path / f"net{suffix}"
    if suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    assert imported_accuracy(path, tmp_path, labels=PETS) == 0.75


def test_a_class_without_a_column_of_scores_is_named(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text("id,label,logit_cat,logit_dog\na.jpg,cat,1,0\n")
    with pytest.raises(ClassifierError) as error:
        imported_accuracy(tmp_path / "net.csv", tmp_path, labels=PETS)
    assert "fish" in str(error.value.expected) and "2 columns" in str(error.value.found)


def test_classes_as_a_list(tmp_path: Path) -> None:
    (tmp_path / "net.csv").write_text("id,label,prediction\na.jpg,0,0\nb.jpg,1,0\n")
    assert imported_accuracy(tmp_path / "net.csv", tmp_path, labels=["cat", "dog"]) == 0.5


# -- what the product itself writes -----------------------------------------------------------------------


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A folder of images, and a workspace with two models in two settings."""
    colour_folder(tmp_path / "photos", per_class=4)
    (tmp_path / "m.py").write_text(
        "def bright():\n    return lambda images: images.mean(axis=(1, 2))\n\n"
        "def dark():\n    return lambda images: -images.mean(axis=(1, 2))\n"
    )
    models = [f"{tmp_path}/m.py:bright", f"{tmp_path}/m.py:dark"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sb.evaluate(
            models, "corruptions", tmp_path / "photos", tmp_path / "w", corruptions="fog", severities=3, progress=False
        )
    return tmp_path


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_an_export_is_read_back(exported: Path, suffix: str) -> None:
    table = exported / f"all{suffix}"
    output("store", "export", table, "-w", exported / "w", "--top", "3", "-q")
    done = answer("import", table, "--setting", "photos", "--data", exported / "photos", "-w", exported / "again", "-q")
    before = {name: score.value for name, _, score in sb.Run.open(exported / "w", (), ["photos"]).scores()}
    after = {name: score.value for name, _, score in sb.Run.open(exported / "again").scores()}
    assert len(before) == 2 and after == before and done["unknown"] == {}


def test_an_export_without_the_setting_names_those_it_has(exported: Path) -> None:
    output("store", "export", exported / "all.csv", "-w", exported / "w", "-q")
    with pytest.raises(ClassifierError) as error:
        import_predictions(exported / "all.csv", "other", exported / "again", data=exported / "photos")
    assert "photos-c.fog.3" in str(error.value.found) and error.value.hint == "import one of them: setting='photos'"
