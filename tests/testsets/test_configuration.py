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
from tests.raised import raises

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
    configuration = read_configuration(tmp_path)
    assert configuration == written
    assert configuration.space.fingerprint == label_space("imagenet-1k").fingerprint
    assert configuration.class_of("n01440764").title == "tench"


def test_near_classes() -> None:
    configuration = Configuration(
        "pets", (ClassDefinition("cat", near=("dog",)), ClassDefinition("dog"), ClassDefinition("frog"))
    )
    assert configuration.near("cat") == ("dog",) and configuration.near("dog") == ("cat", "frog")


WRITTEN_BY_0_1 = """\
# A test-set project of shiftbench. Edit definitions, links and near classes at any time; the rules of
# annotation hold for tasks made from then on. `id` ties this folder to its database.
name = "pets"
id = "0123456789abcdef"
labels = "animals"
seed = 3
database = "sqlite"

[annotation]
grid = 48
annotators = 10
positive_controls = 3
negative_controls = 3
references_per_class = 20
lease_minutes = 30
copy_pixels = 500

[[classes]]
key = "cat"
name = "tabby \\"cat\\""
definition = "A tame — animal\\\\.\\nSecond line"
link = "https://x"
near = ["dog"]

[[classes]]
key = "dog"
"""


def test_files_of_earlier_versions(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(WRITTEN_BY_0_1, encoding="utf-8")
    configuration = read_configuration(tmp_path)
    cat = ClassDefinition("cat", 'tabby "cat"', "A tame — animal\\.\nSecond line", "https://x", ("dog",))
    assert configuration == Configuration(
        "pets",
        (cat, ClassDefinition("dog")),
        "animals",
        3,
        annotation=AnnotationRules(lease_minutes=30, copy_fit="crop", examples=4),
        id="0123456789abcdef",
    )
    write_configuration(tmp_path, configuration)
    assert read_configuration(tmp_path) == configuration
    (tmp_path / FILE).write_text('name = "x"\nid = "1"\n[[classes]]\nkey="a"\n[[classes]]\nkey="b"')
    assert read_configuration(tmp_path) == Configuration("x", (ClassDefinition("a"), ClassDefinition("b")), id="1")


@pytest.mark.parametrize(
    ("classes", "found"),
    [
        ((ClassDefinition("cat"),), "cat"),
        ((), "none"),
        ((ClassDefinition("cat", near=("cow",)), ClassDefinition("dog")), "cow"),
        ((ClassDefinition("cat", near=("cat",)), ClassDefinition("dog")), "cat"),
        ((ClassDefinition("../cat"), ClassDefinition("dog")), "'../cat'"),
        ((ClassDefinition(".."), ClassDefinition("dog")), "'..'"),
        ((ClassDefinition(""), ClassDefinition("dog")), "''"),
    ],
)
def test_bad_classes(classes: tuple[ClassDefinition, ...], found: str) -> None:
    with pytest.raises(WorkshopError) as refused:
        Configuration("pets", classes)
    assert refused.value.found == found


@pytest.mark.parametrize("name", ["", "a b", "../x", "x\n", 'x"', "<b>", "-x", "x" * 61])
def test_bad_names(name: str) -> None:
    with pytest.raises(WorkshopError) as refused:
        Configuration(name, TWO)
    assert refused.value.found == repr(name)


@pytest.mark.parametrize(
    ("rule", "value", "expected"),
    [
        ("annotators", 0, "integer >= 1"),
        ("lease_minutes", 0, "number >= 0.01"),
        ("grid", "48", "integer"),
        ("grid", True, "integer"),
        ("positive_controls", -1, "integer >= 0"),
    ],
)
def test_bad_rules(rule: str, value: object, expected: str) -> None:
    with pytest.raises(WorkshopError, match=rf"annotation\.{rule}") as refused:
        Configuration("pets", TWO).with_rules(**{rule: value})
    assert (refused.value.found, refused.value.expected) == (repr(value), expected)


def test_a_grid_has_room_for_candidates() -> None:
    with pytest.raises(WorkshopError) as refused:
        Configuration("pets", TWO).with_rules(grid=6)
    assert refused.value.found == "3 + 3 controls in a grid of 6"


CLASSES = '\n[[classes]]\nkey="a"\n[[classes]]\nkey="b"'


@pytest.mark.parametrize(
    ("text", "found", "hint"),
    [
        ('name = "x"\nid = "1"\ncolour = 3', "colour", None),
        ('name = "x"\nid = "1"\nlabel = "a"', "label", "did you mean 'labels'?"),
        ('name = "x"\nid = "1"\n[annotation]\ngird = 3', "annotation.gird", "did you mean 'grid'?"),
        ('name = "x"\nid = "1"\n[[classes]]\nkeys = "a"', "classes[0].keys", "did you mean 'key'?"),
        ('name = "x"\nid = "1"\nseed = "one"' + CLASSES, "'one'", None),
        ('id = "1"' + CLASSES, "no name", None),
        ('name = "x"' + CLASSES, "no id", None),
        ('name = "x"\nid = "1"', "no classes", None),
    ],
)
def test_bad_files(tmp_path: Path, text: str, found: str, hint: str | None) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(WorkshopError) as refused:
        read_configuration(tmp_path)
    assert (refused.value.found, refused.value.hint) == (found, hint)


def test_no_toml_and_no_project(tmp_path: Path) -> None:
    with raises(WorkshopError, found="no testset.toml"):
        read_configuration(tmp_path)
    for content in (b"name = ", b"name = \xff"):
        (tmp_path / FILE).write_bytes(content)
        with pytest.raises(WorkshopError, match="TOML"):
            read_configuration(tmp_path)


def test_classes_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "classes.csv"
    path.write_text('key,name,definition,link,near\nn1,cat,"a cat, tame",http://x,n2|n3\nn2,dog,,,\nn3,fox,,,n2\n')
    configuration = read_classes(path, "pets", seed=4)
    assert configuration.classes[0] == ClassDefinition("n1", "cat", "a cat, tame", "http://x", ("n2", "n3"))
    assert (
        configuration.classes[2].near == ("n2",)
        and configuration.seed == 4
        and configuration.space.names == ("cat", "dog", "fox")
    )
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert read_classes(tmp_path / "classes.txt", "pets").space.keys == ("cat", "dog")
