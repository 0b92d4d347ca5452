"""testset.toml: what is written is read again, and mistakes are named."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftbench.labels import label_space
from shiftbench.testsets.configuration import (
    FILE,
    AnnotationRules,
    ClassDefinition,
    Configuration,
    configuration_for,
    read_classes,
    read_configuration,
    write_configuration,
)
from shiftbench.testsets.errors import WorkshopError

TWO = (ClassDefinition("cat"), ClassDefinition("dog"))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(name=texts, definition=texts, link=texts, seed=st.integers(-(2**40), 2**40), lease=st.floats(0.1, 1e6))
@settings(deadline=None, max_examples=60)
def test_any_text_comes_back(
    tmp_path_factory: pytest.TempPathFactory, name: str, definition: str, link: str, seed: int, lease: float
) -> None:
    folder = tmp_path_factory.mktemp("toml")
    classes = (ClassDefinition("cat", name, definition, link, ("dog",)), ClassDefinition("dog"))
    written = Configuration("pets", classes, seed=seed, annotation=AnnotationRules(lease_minutes=lease))
    write_configuration(folder, written)
    assert read_configuration(folder) == written
    assert tomllib.loads((folder / FILE).read_text(encoding="utf-8"))["classes"][0]["key"] == "cat"


def test_a_thousand_classes(tmp_path: Path) -> None:
    written = configuration_for(label_space("imagenet-1k"), "v3")
    write_configuration(tmp_path, written)
    found = read_configuration(tmp_path)
    assert found == written
    assert found.space.fingerprint == label_space("imagenet-1k").fingerprint
    assert found.class_of("n01440764").title == "tench"


def test_near_classes() -> None:
    chosen = Configuration(
        "pets", (ClassDefinition("cat", near=("dog",)), ClassDefinition("dog"), ClassDefinition("frog"))
    )
    assert chosen.near("cat") == ("dog",) and chosen.near("dog") == ("cat", "frog")


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ((ClassDefinition("cat"),), "at least two classes"),
        ((ClassDefinition("cat", near=("cow",)), ClassDefinition("dog")), "'cow' can't be a near class"),
        ((ClassDefinition("cat", near=("cat",)), ClassDefinition("dog")), "'cat' can't be a near class"),
        ((ClassDefinition("../cat"), ClassDefinition("dog")), "names a folder"),
        ((ClassDefinition(".."), ClassDefinition("dog")), "names a folder"),
        ((ClassDefinition(""), ClassDefinition("dog")), "names a folder"),
    ],
)
def test_bad_classes(classes: tuple[ClassDefinition, ...], message: str) -> None:
    with pytest.raises(WorkshopError, match=message):
        Configuration("pets", classes)


@pytest.mark.parametrize("name", ["", "a b", "../x", "x\n", 'x"', "<b>", "-x", "x" * 61])
def test_bad_names(name: str) -> None:
    with pytest.raises(WorkshopError, match="a project can't be called that"):
        Configuration(name, TWO)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ({"grid": 6}, "no room for candidates"),
        ({"annotators": 0}, "annotation.annotators"),
        ({"lease_minutes": 0}, "annotation.lease_minutes"),
        ({"grid": "48"}, "annotation.grid"),
        ({"positive_controls": -1}, "annotation.positive_controls"),
    ],
)
def test_bad_rules(rules: dict[str, float], message: str) -> None:
    with pytest.raises(WorkshopError, match=message):
        Configuration("pets", TWO).with_rules(**rules)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "not valid TOML"),
        ('name = "x"\nid = "1"\ncolour = 3', "colour"),
        ('name = "x"\nid = "1"\n[annotation]\ngird = 3', "annotation.gird"),
        ('id = "1"\n[[classes]]\nkey="a"\n[[classes]]\nkey="b"', "lacks name"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(WorkshopError, match=message):
        read_configuration(tmp_path)


def test_no_project(tmp_path: Path) -> None:
    with pytest.raises(WorkshopError, match="testset init"):
        read_configuration(tmp_path)


def test_classes_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "classes.csv"
    path.write_text('key,name,definition,link,near\nn1,cat,"a cat, tame",http://x,n2|n3\nn2,dog,,,\nn3,fox,,,n2\n')
    found = read_classes(path, "pets", seed=4)
    assert found.classes[0] == ClassDefinition("n1", "cat", "a cat, tame", "http://x", ("n2", "n3"))
    assert found.classes[2].near == ("n2",) and found.seed == 4 and found.space.names == ("cat", "dog", "fox")
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert read_classes(tmp_path / "classes.txt", "pets").space.keys == ("cat", "dog")
