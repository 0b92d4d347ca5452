"""WordNet's nouns and the query plan: a dictionary of our own in its format, and the installed one."""

from __future__ import annotations

import csv
import io
from datetime import date
from pathlib import Path

import pytest

from shiftbench.labels import label_space
from shiftbench.labels.space import LabelSpace
from shiftbench.testsets.configuration import ClassDefinition, Configuration, configuration_for, read_configuration
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.project import Project
from shiftbench.testsets.tasks import make_tasks
from shiftbench.testsets.wordnet import FOLDERS, VARIABLE, WordNet, query_plan, with_wordnet
from tests.commands import answer, output
from tests.raised import raises
from tests.testsets.helpers import cifar

#: key, words, parents, gloss. `house cat` has two parents; `kitten` is below `house cat`.
OURS = [
    (1, ["thing"], [], "what there is"),
    (2, ["animal", "beast"], [1], 'a living thing; "the beast slept"'),
    (3, ["pet"], [2], "an animal at home"),
    (4, ["house_cat", "cat"], [2, 3], "a small animal or pet that purrs"),
    (5, ["dog"], [2, 3], "an animal that barks"),
    (6, ["kitten"], [4], "a young cat"),
    (7, ["vehicle"], [1], "a machine for transport"),
    (8, ["dial_phone", "phone"], [7], "a device"),
    (9, ["cat"], [7], "a boat"),
    (10, ["frog"], [2], "an animal that leaps"),
    (11, ["bird_of_prey"], [2], "an animal with claws"),
    (12, ["eagle"], [11], "the bird of a coat of arms"),
    (13, ["hawk"], [11], "a small bird of prey"),
]


def write_dictionary(folder: Path, version: str = "3.0") -> Path:
    folder.mkdir(exist_ok=True)
    lines = [f"  1 WordNet {version} Copyright of nobody  "]
    senses: dict[str, list[str]] = {}
    for number, words, parents, gloss in OURS:
        named = " ".join(f"{word} 0" for word in words)
        pointers = " ".join([*(f"@ {parent:08d} n 0000" for parent in parents), "~ 00000001 n 0000"])
        lines.append(f"{number:08d} 03 n {len(words):02x} {named} {len(parents) + 1:03d} {pointers} | {gloss}  ")
        for word in words:
            senses.setdefault(word, []).append(f"{number:08d}")
    index = [f"{word} n {len(offsets)} 1 @ {len(offsets)} 0 {' '.join(offsets)}  " for word, offsets in senses.items()]
    (folder / "data.noun").write_text("\n".join(lines) + "\n")
    (folder / "index.noun").write_text("\n".join(["  1 licence", *index]) + "\n")
    return folder


@pytest.fixture
def ours(tmp_path: Path) -> WordNet:
    return WordNet.read(write_dictionary(tmp_path / "dict"))


@pytest.fixture(scope="session")
def installed() -> WordNet:
    if not any((Path(folder) / "data.noun").is_file() for folder in FOLDERS):
        pytest.skip("WordNet is not installed (Debian package wordnet-base)")
    return WordNet.read()


def test_the_dictionary_is_read_as_written(ours: WordNet) -> None:
    cat = ours.synsets["n00000004"]
    assert (cat.words, cat.parents) == (("house cat", "cat"), ("n00000002", "n00000003"))
    assert ours.synsets["n00000002"].gloss == "a living thing"  # without the example
    assert ours.find("x", "Cat") == cat and ours.find("n00000005", "anything") == ours.synsets["n00000005"]
    assert ours.find("x", "unheard of") is None and ours.version == "3.0"
    assert ours.distance("n00000004", "n00000005") == 2 and ours.distance("n00000006", "n00000008") == 5


def test_near_classes_are_those_of_a_plain_search(installed: WordNet) -> None:
    keys = label_space("imagenet-1k").keys[::25]
    for i, nearest in enumerate(installed.near(keys)):
        above = [set(installed.ancestors(key)) for key in keys]
        related = {j for j, key in enumerate(keys) if key in above[i] or keys[i] in above[j]}
        distances = [(installed.distance(keys[i], key), j) for j, key in enumerate(keys) if j not in related]
        assert nearest == [j for _, j in sorted(distances)[:5]]


def test_imagenet_gets_definitions_and_near_classes(installed: WordNet) -> None:
    described = with_wordnet(configuration_for(label_space("imagenet-1k"), "photos"), installed)
    assert all(entry.definition and entry.link and len(entry.near) == 5 for entry in described.classes)
    tench = described.class_of("n01440764")
    assert tench.definition.startswith("freshwater dace-like game fish")
    assert described.class_of("n02123045").near[:2] == ("n02123159", "n02123394")  # tabby: tiger cat, Persian cat
    assert installed.distance("n02123045", "n02123159") == 2


def test_own_texts_are_kept_and_relatives_are_not_near(ours: WordNet) -> None:
    classes = (ClassDefinition("cat", definition="ours"), *map(ClassDefinition, ("kitten", "dog", "frog", "zyzzyva")))
    described = {entry.key: entry for entry in with_wordnet(Configuration("pets", classes), ours).classes}
    assert described["cat"].definition == "ours" and described["dog"].definition == "an animal that barks"
    assert described["cat"].near == ("dog", "frog") and described["kitten"].near == ("dog", "frog")
    assert described["zyzzyva"] == ClassDefinition("zyzzyva")


def test_negative_controls_come_from_near_classes(ours: WordNet, tmp_path: Path) -> None:
    space = LabelSpace("three", ("cat", "dog", "frog"))
    configuration = with_wordnet(configuration_for(space, "pets"), ours, near=1)
    assert configuration.near("cat") == ("dog",)
    project = Project.create(tmp_path / "pets", configuration.with_rules(grid=16, references_per_class=3))
    import_images(project, cifar("test", 5, space))
    import_images(project, cifar("train", 7, space), "reference")
    make_tasks(project)
    with project.reading() as session:
        from shiftbench.testsets.database import PoolEntry, Slot, Task

        rows = session.query(Task.class_key, PoolEntry.class_key).join(Slot, Slot.task_id == Task.id).join(PoolEntry)
        assert {image_class for task, image_class in rows if task == "cat"} == {"cat", "dog"}
    project.close()


def test_problems_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WorkshopError, match="no WordNet dictionary") as error:
        WordNet.read(tmp_path)
    assert "wordnet-base" in str(error.value.hint)
    newer = WordNet.read(write_dictionary(tmp_path / "new", "3.1"))
    space = LabelSpace("two", ("n00000004", "n00000005"))
    with pytest.raises(WorkshopError) as error:
        with_wordnet(configuration_for(space, "x"), newer)
    assert error.value.found == "WordNet 3.1"
    with raises(WorkshopError, found="qwx, qwy"):
        with_wordnet(configuration_for(LabelSpace("two", ("qwx", "qwy")), "x"), newer)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "new"))
    assert WordNet.read().version == "3.1"


@pytest.mark.parametrize(
    ("step", "queries", "images", "until"),
    [
        (0, ["house cat", "cat"], 50, "2013-07-11"),
        (1, ["house cat", "cat", "house cat animal", "house cat pet", "cat animal", "cat pet"], 17, "2013-07-11"),
        (2, ["house cat", "cat", "house cat animal", "house cat pet", "cat animal", "cat pet"], 34, "2013-07-11"),
        (3, ["house cat", "cat", "house cat animal", "house cat pet", "cat animal", "cat pet"], 34, "2014-07-11"),
    ],
)
def test_the_steps_of_the_plan(ours: WordNet, step: int, queries: list[str], images: int, until: str) -> None:
    configuration = configuration_for(LabelSpace("pets", ("cat", "dog")), "pets")
    rows = query_plan(configuration, ours, step=step, classes=["cat"]).rows
    assert [row["query"] for row in rows] == queries
    assert {(row["images"], row["taken_from"], row["taken_until"]) for row in rows} == {(images, "2012-07-11", until)}
    assert {row["sort"] for row in rows} == {"date-posted-asc"}


def test_compound_words_and_words_by_hand(ours: WordNet) -> None:
    configuration = configuration_for(LabelSpace("things", ("phone", "zyzzyva")), "things")
    plan = query_plan(
        configuration, ours, step=5, images=10, until=date(2020, 1, 1), alternatives={"phone": ["Telefon", "phone"]}
    )
    asked = {key: [row["query"] for row in plan.rows if row["class"] == key] for key in ("phone", "zyzzyva")}
    assert asked == {"phone": ["dial phone", "phone", "dialphone", "Telefon"], "zyzzyva": ["zyzzyva"]}
    assert plan.rows[0]["images"] == 5 and plan.rows[0]["uploaded_until"] == "2020-01-01"
    assert "zyzzyva" in plan.notes[0]


def test_renditions_are_asked_for_by_words(ours: WordNet) -> None:
    """As for ImageNet-R: every query once with each word, which share the images of the class."""
    configuration = configuration_for(LabelSpace("pets", ("cat", "dog")), "pets")
    rows = query_plan(configuration, ours, images=100, words=["art", "origami"]).rows
    of_class = {key: [row["query"] for row in rows if row["class"] == key] for key in ("cat", "dog")}
    assert of_class == {
        "cat": ["house cat art", "house cat origami", "cat art", "cat origami"],
        "dog": ["dog art", "dog origami"],
    }
    assert [row["images"] for row in rows] == [25] * 4 + [50] * 2


def test_queries_have_whole_names_of_hypernyms(ours: WordNet) -> None:
    """Single words of "bird of prey" would give "eagle of"."""
    configuration = configuration_for(LabelSpace("birds", ("eagle", "hawk")), "birds")
    rows = query_plan(configuration, ours, step=2).rows
    assert [row["query"] for row in rows] == ["eagle", "hawk", "hawk bird of prey"]


def test_the_commands(tmp_path: Path) -> None:
    dictionary = write_dictionary(tmp_path / "dict")
    folder = tmp_path / "pets"
    (tmp_path / "classes.csv").write_text("key,name\ncat,\ndog,\nfrog,\n")
    where = ("--wordnet-folder", dictionary)
    output("testset", "init", folder, "--labels", tmp_path / "classes.csv", *where)
    assert read_configuration(folder).near("cat") == ("dog", "frog")
    text = output("testset", "queries", folder, "--format", "csv", *where)
    assert [row["query"] for row in csv.DictReader(io.StringIO(text))] == ["house cat", "cat", "dog", "frog"]
    options = ("--step", 5, "--class", "dog", "--alternative", "dog=Hund", "--below", 1)
    assert {row["query"] for row in answer("testset", "queries", folder, *options, *where)["rows"]} == {
        "dog",
        "dog animal",
        "Hund",
    }
    words = ("--class", "dog", "--word", "graffiti")
    assert [row["query"] for row in answer("testset", "queries", folder, *words, *where)["rows"]] == ["dog graffiti"]
