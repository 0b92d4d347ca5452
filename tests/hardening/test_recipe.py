from __future__ import annotations

import csv
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from shiftbench.errors import ShiftbenchError, UnknownNameError
from shiftbench.hardening.errors import RecipeError
from shiftbench.hardening.recipe import (
    Part,
    changed,
    differing_keys,
    load_recipe,
    recipe_from,
    recipe_names,
    recipe_text,
)
from shiftbench.hardening.recipe_check import check_recipe
from shiftbench.io.schema import to_toml


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_of_the_package_is_whole_and_survives_writing(name: str) -> None:
    recipe = load_recipe(name)
    check_recipe(recipe)
    assert recipe.about
    assert recipe_from(tomllib.loads(to_toml(recipe.as_dict()))) == recipe


FACTS = list(csv.DictReader(Path(__file__).with_name("recipe_facts.csv").open(encoding="utf-8")))


@pytest.mark.parametrize("fact", FACTS, ids=[f"{fact['recipe']}:{fact['key']}" for fact in FACTS])
def test_the_constants_of_the_papers(fact: dict[str, str]) -> None:
    """What the papers and their released code state, with the place where they do."""
    found: object = load_recipe(fact["recipe"]).as_dict()
    for word in fact["key"].split("."):
        found = found[int(word)] if isinstance(found, list) else found[word]  # type: ignore[index]
    assert fact["source"] and json.loads(json.dumps(found)) == json.loads(fact["value"])


@pytest.mark.parametrize("name", recipe_names())
def test_every_constant_of_a_recipe_has_its_source_in_the_table(name: str) -> None:
    """Every key that a recipe states itself, but for titles and data; "assumed" where nobody states it."""

    def keys(table: object, above: str = "") -> Iterator[str]:
        places = enumerate(table) if isinstance(table, list) else table.items()  # type: ignore[attr-defined]
        for key, value in places:
            first = value[0] if isinstance(value, list) and value else value
            nested = isinstance(first, dict) and key != "options"
            yield from keys(value, f"{above}{key}.") if nested else [f"{above}{key}"]

    stated = tomllib.loads(recipe_text(name))
    assert recipe_text(name).startswith("# "), "where its constants come from"
    free = {"about", "base", "data.train", "data.validation"}
    assert set(keys(stated)) - free <= {fact["key"] for fact in FACTS if fact["recipe"] == name}


def test_the_rows_of_the_tables_have_their_recipes() -> None:
    """000: tables 1 (without WSL and ResNet-152, which are other weights of the baseline's recipe), 2 and 3."""
    names = recipe_names()
    table_1 = ("standard", "21k", "cbam", "wong", "speckle", "stylized", "augmix", "deepaugment", "deepaugment-augmix")
    assert {f"imagenet-{one}" for one in table_1} <= set(names)
    assert len([one for one in names if one.startswith("svsf-")]) == 5
    assert len([one for one in names if one.startswith("dfr-")]) == 9


def test_a_wrong_key_is_named_with_the_nearest_and_all_allowed_ones() -> None:
    with pytest.raises(RecipeError) as caught:
        load_recipe("cifar-standard", ["train.epoch=3"])
    assert caught.value.found == "train.epoch"
    assert "epochs, batch_size" in str(caught.value.expected) and caught.value.hint == "did you mean 'epochs'?"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("optimiser.lr=0.1", "optimizer"),
        ("train.epochs='many'", "train.epochs"),
        ("train.epochs=0", "train.epochs"),
        ("train.epochs=2.5", "int"),
        ("train.equal_steps=1", "bool"),
        ("schedule.name='cosin'", "cosine"),
        ("train.ema=1.0", "ema"),
        ("train.keep='first'", "last"),
        ("augmentations='flip'", "list"),
        ("augmentations.7.name='flip'", "number below"),
        ("architecture={depth=3}", "name"),
        ("train.epochs.more=1", "value, not a table"),
        ("train.epochs", "KEY=VALUE"),
    ],
)
def test_bad_changes_say_what_is_wrong(change: str, word: str) -> None:
    with pytest.raises(ShiftbenchError, match=word):
        load_recipe("cifar-standard", [change])


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (['architecture.name="wrn-402"'], "wrn-40-2"),
        (["architecture.deepth=3"], "depth"),
        (['scheme={name="pgd", step=3}'], "steps"),
        (["augmentations.1.paddings=3"], "padding"),
        (['augmentations.0.name="flipp"'], "flip"),
        (['views=[{name="augmix"}]'], "one view"),
        (['scheme.name="jsd"'], "views"),
        (['scheme.name="jsd"', 'views=["augmix"]', 'batch_augmentations=["mixup"]'], "together"),
        (['architecture.name="random-features"'], "fitted once"),
        (["data.labels=imagenet-a"], "imagenet-a-200"),
        (["optimizer.name=adamww"], "adamw"),
        (["train.compile=inductr"], "inductor"),
        (["train.batch_norm=split"], "several views"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_training(changes: list[str], word: str) -> None:
    with pytest.raises(ShiftbenchError, match=word):
        check_recipe(load_recipe("cifar-standard", changes))


def test_changes_reach_into_lists_and_keep_words() -> None:
    tables = {"views": [{"name": "augmix", "severity": 3}], "data": {"train": "a"}}
    found = changed(tables, ["views.0.severity=1", "data.train=photos/train"])
    assert found == {"views": [{"name": "augmix", "severity": 1}], "data": {"train": "photos/train"}}
    assert tables["views"] == [{"name": "augmix", "severity": 3}]


def test_a_recipe_begins_with_another(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        'base = "cifar-augmix"\n[train]\nepochs = 7\n[architecture]\nname = "resnet-20"\n'
    )
    (tmp_path / "again.toml").write_text('base = "mine.toml"\nviews = []\n[scheme]\nname = "standard"\n')
    mine, again = load_recipe(tmp_path / "mine.toml"), load_recipe(tmp_path / "again.toml")
    assert (mine.train.epochs, mine.train.batch_size, mine.scheme.name) == (7, 128, "jsd")
    assert mine.architecture == Part("resnet-20") and again.train.epochs == 7
    # The weight of the divergence is no option of the standard scheme.
    assert again.scheme == Part("standard") and again.views == ()


def test_recipes_that_begin_with_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('base = "b.toml"\n')
    (tmp_path / "b.toml").write_text('base = "a.toml"\n')
    with pytest.raises(RecipeError, match="base"):
        load_recipe(tmp_path / "a.toml")


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="cifar-augmix"):
        load_recipe("cifar-augmx")
    with pytest.raises(RecipeError, match="not found"):
        load_recipe(tmp_path / "none.toml")
    (tmp_path / "broken.toml").write_text("[train\n")
    with pytest.raises(RecipeError, match="not valid TOML"):
        load_recipe(tmp_path / "broken.toml")
    (tmp_path / "empty.toml").write_text("[train]\nepochs = 1\n")
    with pytest.raises(RecipeError, match="architecture"):
        load_recipe(tmp_path / "empty.toml")


def test_only_what_decides_the_weights_differs() -> None:
    base = load_recipe("cifar-augmix")
    moved = load_recipe("cifar-augmix", ['about="x"', "data.train=elsewhere", "train.checkpoint_seconds=1"])
    assert differing_keys(base, moved) == []
    other = load_recipe("cifar-augmix", ["views.0.severity=1", "train.seed=3"])
    assert differing_keys(base, other) == ["train.seed", "views.0.severity"]
