from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path

import pytest
from msgspec import structs

from shiftbench.errors import ShiftbenchError, UnknownNameError
from shiftbench.hardening.errors import RecipeError
from shiftbench.hardening.recipe import (
    Part,
    changed,
    differing_keys,
    flat,
    load_recipe,
    recipe_from,
    recipe_names,
    recipe_text,
    tables_of,
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
def test_the_constants_of_the_papers_and_their_sources(fact: dict[str, str]) -> None:
    """What the papers and their released code state, with the place where they do."""
    recipe = load_recipe(fact["recipe"])
    found = flat(json.loads(json.dumps(recipe.as_dict())))[fact["key"]]
    assert (found, recipe.sources[fact["key"]]) == (json.loads(fact["value"]), fact["source"])


@pytest.mark.parametrize("name", recipe_names())
def test_every_constant_of_a_recipe_has_a_source_in_the_recipe_and_a_fact(name: str) -> None:
    """Every key that a recipe or one of its bases states, but for titles and data; "own choice" where nobody does."""
    assert recipe_text(name).startswith("# "), "what it follows, and where it differs"
    free = {"about", "base", "data.train", "data.validation"}

    def stated(tables: dict[str, object]) -> set[str]:
        return {key for key in flat(tables) if not key.startswith("sources.")} - free

    facts = {fact["key"] for fact in FACTS if fact["recipe"] == name}
    own = tomllib.loads(recipe_text(name))
    assert stated(own) <= facts and set(own.get("sources", {})) == facts
    # Values that a base has for a scheme, network or list that is replaced are gone, and their sources with them.
    assert stated(tables_of(name)) == set(load_recipe(name).sources)


def test_a_changed_value_loses_its_source_and_an_own_choice_says_so(tmp_path: Path) -> None:
    recipe = load_recipe("imagenet-stability")
    assert recipe.sources["optimizer.lr"].startswith("own choice: ")
    assert recipe.sources["optimizer.momentum"].startswith("own choice: ")
    (tmp_path / "mine.toml").write_text(
        'base = "imagenet-stability"\n[train]\nepochs = 7\n[scheme]\nname = "noise"\n'
        '[sources]\n"train.epochs" = "mine"\n'
    )
    mine = load_recipe(tmp_path / "mine.toml", ["optimizer.lr=0.5"])
    check_recipe(mine)
    assert mine.sources["train.epochs"] == "mine"
    gone = set(recipe.sources) - set(mine.sources)
    assert gone == {"optimizer.lr", "scheme.name", "scheme.noise", "scheme.weight"}
    assert differing_keys(recipe, structs.replace(recipe, sources={})) == []
    with pytest.raises(UnknownNameError):
        check_recipe(load_recipe("cifar-standard", {"sources": {"train.epoch": "a paper"}}))


def test_the_rows_of_the_tables_have_their_recipes() -> None:
    """000: tables 1 (without WSL and ResNet-152, which are other weights of the baseline's recipe), 2 and 3."""
    names = recipe_names()
    table_1 = ("standard", "21k", "cbam", "wong", "speckle", "stylized", "augmix", "deepaugment", "deepaugment-augmix")
    assert {f"imagenet-{one}" for one in table_1} <= set(names)
    assert len([name for name in names if name.startswith("svsf-")]) == 5
    assert len([name for name in names if name.startswith("dfr-")]) == 9


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
    mine = load_recipe(tmp_path / "mine.toml")
    again = load_recipe(tmp_path / "again.toml")
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
