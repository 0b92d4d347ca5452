"""Two versions of one name: each has an id that every command shows and accepts, and they never mix."""

from __future__ import annotations

from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.errors import StoreError, UnknownNameError
from shiftbench.store.models import AmbiguousModelError, ModelVersion, ModelVersions, differences
from shiftbench.store.spec import ClassifierRecord, Json
from tests.runs.helpers import colour_folder
from tests.store.test_run_records import evaluate, model


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ "bright" with two croppings, and "other"."""
    root = tmp_path_factory.mktemp("models")
    data = colour_folder(root / "pictures", per_class=6)
    for classifier in (model(), model(crop=8), model("other")):
        evaluate(data, root / "w", classifier=classifier)
    return root / "w"


def test_both_are_shown_by_id_and_the_other_by_name(workspace: Path) -> None:
    run = sb.Run.open(workspace)
    first, second, other = run.classifiers
    assert first.startswith("bright@") and second.startswith("bright@") and other == "other"
    assert {result.model_id for result in run.results} == {first, second, run.results[2].model_id}
    assert {name for name, _, _ in run.scores()} == {first, second, "other"}


def test_every_name_that_is_shown_is_accepted(workspace: Path) -> None:
    run = sb.Run.open(workspace)
    for name in [*run.classifiers, *(result.model_id for result in run.results)]:
        assert sb.Run.open(workspace, [name]).predictions().classifier in run.classifiers
        assert len(run.predictions(name)) == 18
    assert len(sb.Run.open(workspace, ["bright"]).results) == 2
    assert len(sb.Run.open(workspace, [run.classifiers[0][:-3]]).results) == 1


def test_a_shared_name_is_refused_where_one_model_is_meant(workspace: Path) -> None:
    with pytest.raises(AmbiguousModelError) as caught:
        sb.Run.open(workspace).predictions("bright")
    assert "preprocessing" in caught.value.message
    assert all(name in str(caught.value) for name in sb.Run.open(workspace, ["bright"]).classifiers)


@pytest.mark.parametrize("names", [["brigt"], ["bright@00000000"], ["bright@"]])
def test_unknown_models(workspace: Path, names: list[str]) -> None:
    with pytest.raises(UnknownNameError):
        sb.Run.open(workspace, names)


def test_unknown_settings_and_combinations(workspace: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError) as caught:
        sb.Run.open(workspace, settings=["picture"])
    assert caught.value.near == ["pictures"]
    sb.Workspace(tmp_path / "empty")
    assert not sb.Run.open(tmp_path / "empty").results
    with pytest.raises(StoreError):
        sb.Run.open(tmp_path / "empty", ["bright"])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"preprocessing": {"geometry": {"crop": 8}}, "fingerprint": "b"}, ["preprocessing"]),
        ({"fingerprint": "b"}, ["weights or code"]),
        ({"engine": "torch cuda"}, ["engine"]),
        ({"labels": "cifar-10", "engine": "x"}, ["engine", "label space"]),
    ],
)
def test_what_differs(change: dict[str, Json], what: list[str]) -> None:
    common: dict[str, Json] = {
        "fingerprint": "a",
        "engine": "torch cpu",
        "labels": "pets",
        "preprocessing": {"geometry": {"crop": 4}},
    }
    records = [ClassifierRecord(common), ClassifierRecord({**common, **change})]
    versions = [ModelVersion("m", record, "m") for record in records]
    assert differences(versions) == what
    assert len(ModelVersions(versions).titles) == 2


def test_other_weights_show_among_versions_of_equal_preprocessing() -> None:
    kinds = (("a", 4), ("b", 8), ("c", 8))
    records = [ClassifierRecord({"fingerprint": name, "preprocessing": {"crop": crop}}) for name, crop in kinds]
    versions = [ModelVersion("m", record, "m") for record in records]
    assert differences(versions[:2]) == ["preprocessing"]
    assert differences(versions) == ["preprocessing", "weights or code"]
