"""``shiftbench data check`` on trees of the official make: whole, with gaps, and of no known kind."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import shiftbench as sb
from shiftbench.errors import LabelError
from shiftbench.labels import label_space
from shiftbench.labels.builtin import objectnet_folders
from shiftbench.settings.base import build_suite
from shiftbench.settings.roles import open_data
from tests.commands import call, output
from tests.datasets.makers import CIFAR_NAMES, class_folders, small_images
from tests.datasets.test_natural_layouts import cifar102
from tests.datasets.test_videos import small_vid, small_ytbb
from tests.raised import raises

FULL = label_space("imagenet-1k").keys


def check(path: Path) -> dict[str, Any]:
    result = call("data", "check", path, "--json")
    report: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if report["ok"] else 1)
    return report


def tree(root: Path, classes: Iterable[str], each: int, name: str = "{}.JPEG") -> Path:
    """Empty files: names and counts are all that is looked at."""
    for key in classes:
        (root / key).mkdir(parents=True)
        for i in range(each):
            (root / key / name.format(i)).touch()
    return root


def test_a_whole_imagenetv2_is_whole_and_its_packing_told(tmp_path: Path) -> None:
    root = tree(tmp_path / "imagenetv2-matched-frequency-format-val", map(str, range(1000)), 10)
    report = check(root)
    assert report["what"] == "ImageNetV2 MatchedFrequency, -format-val" and report["missing"] == []
    assert (report["images"], report["classes"]) == (10_000, 1_000)
    assert report["role"] == "imagenetv2-matched-frequency-format-val"
    assert any("read as integers" in note for note in report["notes"])
    (root / "10" / "3.JPEG").unlink()
    for file in (root / "11").iterdir():
        file.unlink()
    (root / "11").rmdir()
    report = check(root)
    assert report["missing"] == [
        "1 of 1000 classes: 11",
        "10 images in each of 1 classes: 10 has 9",
        "11 of 10,000 images",
    ]
    assert "vaishaal/ImageNetV2" in report["home"]


def test_the_wnid_packing_of_imagenetv2_is_told_apart(tmp_path: Path) -> None:
    report = check(tree(tmp_path / "imagenetv2-threshold0.7-format-val", FULL[:20], 10))
    assert report["what"].startswith("ImageNetV2 Threshold0.7")
    assert any(note.startswith("wnid folders") for note in report["notes"])


@pytest.mark.parametrize(
    ("folder", "space", "images", "what"),
    [
        ("imagenet-a", "imagenet-a-200", 7_500, "ImageNet-A"),
        ("imagenet-o", "imagenet-o-200", 2_000, "ImageNet-O"),
        ("unpacked", "imagenet-r-200", 30_000, "ImageNet-R"),  # by its classes
        ("sketch", "imagenet-1k", 50_889, "ImageNet-Sketch"),
    ],
)
def test_class_folders_by_name_or_classes(tmp_path: Path, folder: str, space: str, images: int, what: str) -> None:
    root = tree(tmp_path / folder, label_space(space).keys, 2)
    report = check(root)
    assert report["what"] == what and report["classes"] == report["classes_expected"] == len(label_space(space))
    assert report["missing"] == [f"{images - report['images']:,} of {images:,} images"]


def test_a_whole_imagenet_a(tmp_path: Path) -> None:
    keys = label_space("imagenet-a-200").keys
    root = tree(tmp_path / "imagenet-a", keys, 37)
    for i in range(100):
        (root / keys[0] / f"more{i}.jpg").touch()
    report = check(root)
    assert report["images"] == 7_500 and report["ok"] and report["suite"] == "imagenet-a"


def test_classes_that_are_missing_or_foreign_are_named(tmp_path: Path) -> None:
    keys = label_space("imagenet-a-200").keys
    report = check(tree(tmp_path / "imagenet-a", [*keys[3:], "n99999999"], 1))
    assert "a known class for 1 folders: n99999999" in report["missing"]
    assert f"3 of 200 classes: {', '.join(keys[:3])}" in report["missing"]


def test_val_as_the_archive_leaves_it_and_sorted(tmp_path: Path) -> None:
    flat = tmp_path / "val"
    flat.mkdir()
    (flat / "ILSVRC2012_val_00000001.JPEG").touch()
    report = check(flat)
    assert report["what"] == "ImageNet val" and "carry no labels" in report["missing"][0]
    report = check(tree(tmp_path / "sorted", FULL[:3], 2, "ILSVRC2012_val_{:08d}.JPEG"))
    assert report["what"] == "ImageNet val" and report["role"] == "imagenet-val"


def test_objectnet(tmp_path: Path) -> None:
    report = check(tree(tmp_path / "objectnet-1.0" / "images", objectnet_folders(), 1).parent)
    assert report["what"] == "ObjectNet" and report["classes"] == 113 and report["images"] == 113
    assert report["missing"] == ["18,401 of 18,514 images"]
    assert "200 folders of classes that ImageNet lacks are left out" in report["notes"]


def test_real_blurry_images(tmp_path: Path) -> None:
    # The paper states the number of images, and not of how many classes of ImageNet they are.
    assert check(tree(tmp_path / "blurry_images", FULL[:100], 10))["ok"]
    assert check(tree(tmp_path / "more" / "blurry_images", FULL[:250], 4))["ok"]
    missing = check(tree(tmp_path / "real-blurry-images", FULL[:90], 10))["missing"]
    assert missing == ["100 of 1,000 images"]


def test_imagenet_c_says_which_folders_lack_what(tmp_path: Path) -> None:
    for severity in "1245":
        tree(tmp_path / "ImageNet-C" / "fog" / severity, FULL[:2], 1)
    report = check(tmp_path / "ImageNet-C")
    assert report["what"] == "ImageNet-C" and report["images"] == 8
    assert any("14 of the 15 corruptions" in text for text in report["missing"])
    assert "1 severities: fog/3" in report["missing"]
    assert any("fog/1 has 2" in text for text in report["missing"])


def test_video_sets(tmp_path: Path) -> None:
    report = check(small_vid(tmp_path / "vid"))
    assert report["what"] == "ImageNet-Vid-Robust" and report["images"] == 4
    assert report["missing"] == ["1,107 of 1,109 anchors in the annotations"]
    assert check(small_ytbb(tmp_path / "ytbb"))["notes"] == ["2 anchors, 2 neighbours"]
    next((tmp_path / "ytbb").glob("a_100/*")).unlink()
    assert "lacks 1 of its 4 frames" in check(tmp_path / "ytbb")["missing"][0]


def test_cifar_relatives(tmp_path: Path) -> None:
    new = tmp_path / "datasets"
    new.mkdir()
    np.save(new / "cifar10.1_v6_data.npy", small_images(2000))
    np.save(new / "cifar10.1_v6_labels.npy", (np.arange(2000) % 10).astype(np.int32))
    report = check(new)
    assert report["what"] == "CIFAR-10.1" and report["missing"] == ["v4: cifar10.1_v4_data.npy"]
    report = check(cifar102(tmp_path / "cifar102_test.npz", CIFAR_NAMES))
    assert report["what"] == "CIFAR-10.2" and report["missing"] == ["1,980 of 2,000 images"]
    corrupted = tmp_path / "CIFAR-10-C"
    corrupted.mkdir()
    for name in ("fog", "snow", "labels"):
        np.save(corrupted / f"{name}.npy", np.zeros(50_000 if name != "snow" else 7, np.uint8))
    report = check(corrupted)
    assert report["what"] == "CIFAR-10-C"
    assert report["missing"][1] == "50,000 rows in each of 1 files: snow.npy has 7"


def test_cifar_10_in_its_batches(tmp_path: Path) -> None:
    rows = np.zeros((10, 3073), np.uint8)
    rows[:, 0] = np.arange(10)
    rows.tofile(tmp_path / "test_batch.bin")
    report = check(tmp_path)
    assert report["what"] == "CIFAR-10" and report["missing"] == ["9,990 of 10,000 images"]
    assert report["notes"][0].startswith("the train set: no data_batch_1.bin")


def test_a_folder_of_data_sets_and_one_of_the_users_own(tmp_path: Path) -> None:
    tree(tmp_path / "imagenet-a", label_space("imagenet-a-200").keys, 1)
    tree(tmp_path / "imagenetv2-top-images", map(str, range(1000)), 10)
    class_folders(tmp_path / "cifar-pictures", CIFAR_NAMES)
    report = check(tmp_path)
    assert {part["what"] for part in report["parts"]} == {"ImageNet-A", "ImageNetV2 TopImages", None}
    assert not report["ok"]
    own = check(tmp_path / "cifar-pictures")
    assert own["ok"] and own["space"] == "cifar-10" and own["images"] == 20


def test_the_table_for_people_names_what_to_type(tmp_path: Path) -> None:
    tree(tmp_path / "imagenet-a", label_space("imagenet-a-200").keys, 1)
    result = call("data", "check", tmp_path / "imagenet-a")
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "incomplete" in text and "7,300 of 7,500 images" in text and "hendrycks/natural-adv-examples" in text
    assert "--suite imagenet-a --data imagenet-a=" in text and "imagenet-val=" not in text
    tree(tmp_path / "imagenetv2-top-images", map(str, range(3)), 1)
    text = call("data", "check", tmp_path / "imagenetv2-top-images").stdout
    assert "--data imagenet-val=FOLDER" in text, "the suite needs its reference"


def test_what_is_no_data_set_says_why(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    report = check(tmp_path)
    assert report["what"] is None and "notes.txt" in report["missing"][0]
    result = call("data", "check", tmp_path / "nowhere")
    assert result.exit_code != 0 and "nowhere" in str(result.exception)


def test_classes_of_ones_own_are_usable_and_strays_are_named(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "own", ["frog", "ship", "truck"], each=2)
    for stray in ("__MACOSX", ".ipynb_checkpoints"):
        class_folders(root, [stray], each=1)
    (root / "Thumbs.db").touch()
    report = check(root)
    assert report["ok"] and report["classes"] == 3
    assert any(
        all(name in note for name in ("__MACOSX", ".ipynb_checkpoints", "Thumbs.db")) for note in report["notes"]
    )
    result = call("data", "check", root, "--labels", "folders")
    assert result.exit_code == 0 and f"shiftbench eval MODEL --data {root} --labels folders\n" in result.stdout
    wrong = call("data", "check", root, "--labels", "imagenet-1k", "--json")
    assert wrong.exit_code == 1 and json.loads(wrong.stdout)["missing"]


def test_commands_for_paths_with_spaces_can_be_copied(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "my photos", ["cat", "dog"], each=1)
    shown = output("data", "check", folder, "--labels", "folders")
    [command] = [line.partition("use:")[2] for line in shown.splitlines() if "use:" in line]
    assert shlex.split(command)[3:] == ["--data", str(folder), "--labels", "folders"]


def test_a_manifest_with_absolute_paths(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "elsewhere", ["frog", "ship"], each=2)
    rows = [f"{path},{path.parent.name}" for path in sorted(root.glob("*/*"))]
    (tmp_path / "list").mkdir()
    manifest = tmp_path / "list" / "images.csv"
    manifest.write_text("\n".join(["path,label", *rows]) + "\n")
    refused = call("data", "check", manifest, "--labels", "folders", "--json")
    assert "--allow-outside" in json.loads(refused.stdout)["missing"][0]
    allowed = ["data", "check", str(manifest), "--labels", "folders", "--allow-outside", "--json"]
    assert json.loads(call(*allowed).stdout)["images"] == 4


def test_the_draft_of_a_mapping_is_a_label_space_once_it_is_complete(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "own", ["tabby cat", "dog", "golden_retriever", "bannana"], each=1)
    draft = tmp_path / "mapping.csv"
    output("data", "labels", root, "-o", draft)
    with raises(LabelError, found="bannana"):
        label_space(str(draft))
    draft.write_text(draft.read_text().replace("bannana,,", "bannana,banana,"))
    space = label_space(str(draft))
    members = dict(zip(space.keys, space.members or (), strict=True))
    assert members["tabby cat"] == ("n02123045",) and members["bannana"] == ("n07753592",)
    assert len(members["dog"]) > 100 and members["golden_retriever"][0] not in members["dog"]


def test_the_command_for_cifar_10_1_in_the_present_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for part, array in (("data", np.zeros((20, 32, 32, 3), np.uint8)), ("labels", np.arange(20) % 10)):
        np.save(tmp_path / f"cifar10.1_v6_{part}.npy", array)
    monkeypatch.chdir(tmp_path)
    opened, _ = open_data(
        build_suite("cifar"), {"cifar-10": sb.open_dataset("cifar10.1_v6_data.npy"), "cifar-10.1": "."}
    )
    assert len(opened["cifar-10.1/cifar10.1_v6_data.npy"]) == 20


def test_splits_of_folders_and_of_tables(tmp_path: Path) -> None:
    """`data check` reports on a split, and the command that it names evaluates that split."""
    class_folders(tmp_path / "photos" / "test", ("cat", "dog"))
    images = []
    for path in sorted((tmp_path / "photos" / "test").rglob("*.*")):
        images.append({"bytes": path.read_bytes(), "path": path.name})
    labels = pa.array([0, 1] * (len(images) // 2), pa.int64())
    (tmp_path / "tables").mkdir()
    features = {"label": {"names": ["cat", "dog"], "_type": "ClassLabel"}, "image": {"_type": "Image"}}
    for split in ("test", "train"):
        table = pa.table({"image": images, "label": labels})
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
        pq.write_table(table, tmp_path / "tables" / f"{split}-00000-of-00001.parquet")
    for folder in ("photos", "tables"):
        text = output("data", "check", tmp_path / folder, "--split", "test")
        assert f"{folder}/test" in text and str(len(images)) in text
        words = ("check", "dataset", tmp_path / folder, "--labels", "folders")
        assert "2 images" in output(*words, "--split", "test", "--limit", "2")
