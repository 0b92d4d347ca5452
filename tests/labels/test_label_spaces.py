"""The registered label spaces against the published class lists, and spaces from files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shiftbench.errors import LabelError, UnknownNameError
from shiftbench.labels import label_space, label_spaces, load_label_space
from tests.raised import raises


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("imagenet-1k", 1000),
        ("imagenet-a-200", 200),
        ("imagenet-o-200", 200),
        ("imagenet-r-200", 200),
        ("cifar-10", 10),
        ("cifar-100", 100),
    ],
)
def test_registered_spaces(name: str, classes: int) -> None:
    space = label_space(name)
    assert name in label_spaces
    assert space.name == name and len(space) == classes
    assert len(set(space.names)) == classes, "a table with two rows of one name misleads"
    assert all(text == text.strip() and text for text in space.names)


def test_wnids_and_subsets_are_the_published_ones(reference_data: Path) -> None:
    lists = json.loads((reference_data / "class_lists" / "imagenet_a_o_r_classes.json").read_text())
    full = label_space("imagenet-1k")
    assert list(full.keys) == lists["all_wnids"]
    for letter in "aor":
        subset = label_space(f"imagenet-{letter}-200")
        published = lists[f"imagenet_{letter}"]
        assert list(subset.keys) == published["wnids"] == sorted(subset.keys)
        assert [full.index(key) for key in subset.keys] == published["indices_1k"]


def test_names_are_those_of_the_synsets(reference_data: Path) -> None:
    info = json.loads((reference_data / "imagenetv2" / "class_info.json").read_text())
    space = label_space("imagenet-1k")
    for entry in info:
        name = space.names[entry["cid"]]
        assert space.keys[entry["cid"]] == entry["wnid"]
        assert name.split(" (")[0] == entry["synset"][0]


def test_a_few_classes_by_heart() -> None:
    space = label_space("imagenet-1k")
    assert [space.names[i] for i in (0, 285, 517, 967, 999)] == [
        "tench",
        "Egyptian cat",
        "crane (machine)",
        "espresso",
        "toilet tissue",
    ]
    assert label_space("cifar-10").keys[6] == "frog"
    assert label_space("cifar-100").keys[11] == "boy"


def test_projection_to_the_200_classes() -> None:
    full = label_space("imagenet-1k")
    subset = label_space("imagenet-a-200")
    projection = subset.projection_from(full)
    scores = np.arange(1000, dtype=np.float32)[None]
    assert projection.kind == "subset"
    np.testing.assert_array_equal(projection(scores)[0], [full.index(key) for key in subset.keys])


def test_unknown_name_suggests() -> None:
    with raises(UnknownNameError, name="imagenet1k"):
        label_space("imagenet1k")


@pytest.mark.parametrize(
    ("file", "text", "keys", "names"),
    [
        ("a.txt", "cat\ndog\n\n", ("cat", "dog"), ("cat", "dog")),
        ("a.csv", "key,name\nc,Cat\nd,Dog\n", ("c", "d"), ("Cat", "Dog")),
        ("a.csv", "\ufeffwnid,name\nc,Cat\nd,\n", ("c", "d"), ("Cat", "d")),
        ("a.json", '["cat", "dog"]', ("cat", "dog"), ("cat", "dog")),
        ("a.json", '{"keys": ["c", "d"], "names": ["Cat", "Dog"]}', ("c", "d"), ("Cat", "Dog")),
        ("a.json", '{"1": ["d", "Dog"], "0": ["c", "Cat"]}', ("c", "d"), ("Cat", "Dog")),
    ],
)
def test_spaces_from_files(tmp_path: Path, file: str, text: str, keys: tuple[str, ...], names: tuple[str, ...]) -> None:
    (tmp_path / file).write_text(text)
    space = load_label_space(tmp_path / file)
    assert (space.keys, space.names, space.name) == (keys, names, "a")
    assert label_space(str(tmp_path / file)) == space


def test_a_json_object_counts_by_number_not_by_text(tmp_path: Path) -> None:
    path = tmp_path / "many.json"
    path.write_text(json.dumps({str(i): f"class {i}" for i in sorted(range(12), key=str)}))
    assert load_label_space(path).keys[2] == "class 2"


def test_super_classes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "super.csv"
    path.write_text("key,members\nfish,n01440764|n01443537\nbird,n01514668\n")
    space = load_label_space(path)
    projection = space.projection_from(label_space("imagenet-1k"))
    assert projection.kind == "max" and projection.groups[0] == (0, 1)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.txt", ""),
        ("a.txt", "cat\ncat\n"),
        ("a.csv", "id,title\n1,2\n"),
        ("a.json", "{"),
        ("a.json", '{"0": "cat", "2": "dog"}'),
        ("a.json", '"cat"'),
        ("a.xml", "<cat/>"),
    ],
)
def test_files_that_are_no_label_space(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(LabelError):
        load_label_space(tmp_path / file)


def test_a_missing_file() -> None:
    with pytest.raises(LabelError, match="can't be read"):
        label_space("no/such/classes.txt")


def test_a_misspelt_word_for_the_classes_of_the_dataset_is_corrected() -> None:
    with pytest.raises(UnknownNameError) as caught:
        label_space("folder")
    assert caught.value.hint == "did you mean 'folders', the classes of the dataset itself?"
