"""The guard: what folders are recognised as, and what is refused with which words."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftbench.errors import LabelError
from shiftbench.labels import LabelSpace, label_space
from shiftbench.labels.catalogue import nearest_names
from shiftbench.labels.guard import recognise_folders, recognise_names

FULL = label_space("imagenet-1k")
CIFAR = label_space("cifar-10")


def integers(count: int, start: int = 0, width: int = 0) -> list[str]:
    return [f"{i:0{width}d}" for i in range(start, start + count)]


@pytest.mark.parametrize("width", [0, 3, 5])
def test_imagenetv2_folders_are_integers(width: int) -> None:
    folders = integers(1000, width=width)
    random.Random(0).shuffle(folders)
    space, index = recognise_folders(folders)
    assert space.name == "imagenet-1k"
    assert all(index[folder] == int(folder) for folder in folders)
    # the trap: the 3rd folder in the order of text is "10", not class 2
    assert index[sorted(integers(1000))[2]] == 10 if width == 0 else True


@pytest.mark.parametrize("letter", ["a", "o", "r"])
def test_the_200_classes_are_recognised_exactly(letter: str) -> None:
    subset = label_space(f"imagenet-{letter}-200")
    space, index = recognise_folders(subset.keys)
    assert space == subset
    assert [index[key] for key in subset.keys] == list(range(200))


@pytest.mark.parametrize("change", ["one missing", "one more"])
def test_199_or_201_of_them_are_plain_imagenet(change: str) -> None:
    keys = list(label_space("imagenet-a-200").keys)
    keys = keys[1:] if change == "one missing" else [*keys, "n01440764"]
    space, index = recognise_folders(keys)
    assert space.name == "imagenet-1k"
    assert all(FULL.keys[i] == key for key, i in index.items())


def test_the_200_in_the_full_space_if_asked() -> None:
    keys = label_space("imagenet-r-200").keys
    space, index = recognise_folders(keys, "imagenet-1k")
    assert space is FULL and index[keys[5]] == FULL.index(keys[5])


@pytest.mark.parametrize("spell", [str, str.upper, str.title, lambda n: n.replace(" ", "_"), lambda n: n + " "])
def test_names_of_all_classes(spell: object) -> None:
    assert callable(spell)
    for name in ("cifar-10", "cifar-100", "imagenet-1k"):
        space = label_space(name)
        found, index = recognise_folders([spell(n) for n in space.names])
        assert found is space
        assert [index[spell(n)] for n in space.names] == list(range(len(space)))


def test_some_names_with_the_space_named() -> None:
    assert recognise_folders(["Great_White_Shark", "tench"], "imagenet-1k")[1] == {
        "Great_White_Shark": 2,
        "tench": 0,
    }
    assert recognise_folders(["crane (bird)"], "imagenet-1k")[1] == {"crane (bird)": 134}


def test_own_classes() -> None:
    space, index = recognise_folders(["zebra", "ape", "n99999999"], "folders")
    assert space.keys == ("ape", "n99999999", "zebra") and index["zebra"] == 2
    space, index = recognise_folders(integers(12), "folders")
    assert space.keys[2] == "2" and index["10"] == 10
    user = LabelSpace("pets", ("cat", "dog"), ("a cat", "a dog"))
    assert recognise_folders(["dog"], user)[1] == {"dog": 1}
    assert recognise_folders(["A-Dog"], user)[1] == {"A-Dog": 1}
    assert recognise_folders(["0", "1"], user)[1] == {"0": 0, "1": 1}


def test_keys_that_are_integers_win_over_positions() -> None:
    digits = LabelSpace("odd digits", ("1", "3", "5"))
    assert recognise_folders(["1", "5"], digits)[1] == {"1": 0, "5": 2}


@pytest.mark.parametrize(
    ("folders", "space", "words"),
    [
        ([], None, "no class folders"),
        (integers(10), None, "a named label space"),  # CIFAR-10 or digits?
        (integers(200), None, "a named label space"),
        (integers(998), None, "a named label space"),
        (integers(1001), None, "count from 1|do not fit"),
        (integers(1000, start=1), None, "count from 1"),
        (integers(1000, start=1), "imagenet-1k", "count from 1"),
        ([f for f in integers(1000) if f != "77"], None, "999 of 1000 folders; missing 77"),
        (integers(11), "cifar-10", "0 to 9"),
        (["1", "01"], "cifar-10", "same integer"),
        (["n01440764", "n99999999"], None, "n99999999"),
        (["n01440764", "n0144376"], None, "not classes of 'imagenet-1k'"),
        (["n01440764", "n01443538"], None, "close to 'n01443537'"),
        (["n01440764", "goldfish"], None, "goldfish"),
        (["n01440764"], "imagenet-a-200", "take the subset"),
        (["n01440764"], "cifar-10", "not classes of 'cifar-10'"),
        (["crane", "tench"], "imagenet-1k", "134.*517"),
        (["Maillot"], "imagenet-1k", "wnid or index"),
        (["cardigan"], "imagenet-1k", "wnid or index"),
        (["tench", "Tench"], "imagenet-1k", "same class"),
        (["cat", "dog"], None, "not all of them"),
        (["cat", "dog"], "imagenet-1k", "2 of 2 folders"),
        ([*CIFAR.keys[:9], "trcuk"], None, "did you mean 'truck'"),
        ([*CIFAR.keys[:9]], None, "all 10 classes of 'cifar-10'"),
        (["good", "bad"], None, "match no known label space"),
        (["0", "1", "tench"], None, "2 integers among 3"),
        (["train", "val"], None, "match no known label space"),
        (["x"], "imagenet-2k", "unknown label space"),
    ],
)
def test_refused(folders: list[str], space: str | None, words: str) -> None:
    with pytest.raises(Exception, match=f"(?s){words}") as caught:
        recognise_folders(folders, space)
    assert caught.type.__name__ in ("LabelError", "UnknownClassesError", "UnknownNameError")


def test_a_refusal_says_what_was_found_and_expected() -> None:
    with pytest.raises(LabelError) as caught:
        recognise_folders(["good", "bad"])
    assert caught.value.found and caught.value.expected and caught.value.hint


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(0, 999), min_size=1, max_size=40), st.randoms())
def test_any_subset_of_wnids_in_any_order(chosen: set[int], chance: random.Random) -> None:
    folders = [FULL.keys[i] for i in chosen]
    chance.shuffle(folders)
    space, index = recognise_folders(folders)
    assert space is FULL
    assert {FULL.keys[i] for i in index.values()} == set(folders)
    assert all(FULL.keys[i] == folder for folder, i in index.items())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=12))
def test_any_text_is_recognised_or_refused(folders: list[str]) -> None:
    for space in (None, "cifar-10", "imagenet-1k"):
        try:
            target, index = recognise_folders(folders, space)
        except LabelError:
            continue
        assert set(index) == set(folders)
        assert len(set(index.values())) == len(index)
        assert all(0 <= i < len(target) for i in index.values())


def test_declared_names_in_order() -> None:
    with_synonyms = [f"{name.split(' (')[0]}, and another name" for name in FULL.names]
    space, index = recognise_names(with_synonyms)
    assert space is FULL and index == list(range(1000))


def test_declared_names_in_another_order_are_mapped() -> None:
    backwards = list(CIFAR.keys[::-1])
    space, index = recognise_names(backwards)
    assert space is CIFAR and index == list(range(9, -1, -1))


def test_declared_names_nobody_knows_are_a_space_of_their_own() -> None:
    space, index = recognise_names(["good", "bad"], own="parts")
    assert (space.name, space.keys, index) == ("parts", ("good", "bad"), [0, 1])
    with pytest.raises(LabelError):
        recognise_names(["good", "bad"], "cifar-10")


def test_suggestions_are_misspellings_or_whole_words_of_names() -> None:
    imagenet = label_space("imagenet-1k")
    with pytest.raises(LabelError) as error:
        recognise_folders(["blue", "green", "red"], imagenet)
    # A coho is also called blue jack.
    assert "did you mean" not in str(error.value.hint)
    with pytest.raises(LabelError) as error:
        recognise_folders(["tench", "teapod"], imagenet)
    assert "did you mean 'teapot' for 'teapod'?" in str(error.value.hint)
    assert "coho" not in nearest_names("blue", imagenet) and "little blue heron" in nearest_names("blue", imagenet)
    assert nearest_names("car", imagenet) == []
