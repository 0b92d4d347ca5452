"""The suites of natural shifts: names, references, and what is shared."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from shiftbench.datasets.arrays import from_arrays
from shiftbench.errors import UnknownNameError
from shiftbench.labels import label_space
from shiftbench.metrics.base import metrics
from shiftbench.settings.base import Setting, SuiteOptions, build_suite, suites
from shiftbench.settings.roles import open_data
from shiftbench.shifts.base import NoShift
from tests.commands import call


def test_testbed_213_has_exactly_the_published_names(reference_data: Path) -> None:
    result = call("list", "settings", "--suite", "testbed-213", "--json")
    names = [row["name"] for row in json.loads(result.stdout)]
    with (reference_data / "imagenet-testbed" / "eval_settings_213.csv").open() as file:
        published = [row["setting"] for row in csv.DictReader(file)]
    assert len(names) == len(set(names)) == 213
    assert set(names) == set(published)


def test_testbed_213_is_made_of_what_its_names_say() -> None:
    suite = build_suite("testbed-213")
    for setting in suite.settings:
        if setting.name.endswith("_on-disk"):
            assert setting.dataset == setting.name.removesuffix("_on-disk").replace(".", "/")
            assert not setting.crop_only and isinstance(setting.shift, NoShift) and "own resize" in setting.note
        if setting.name.endswith("_in-memory"):
            corruption = setting.name.removesuffix("_in-memory").removeprefix("imagenet-c.")
            assert setting.shift.name == f"testbed_{corruption}" and setting.dataset == "imagenet-val"
    assert suite["greyscale"].shift.name == "greyscale"
    assert suite["val_subsampled_class_1_8"].space == "imagenet-eighth-125"
    shifted = suite["imagenetv2-matched-frequency-format-val_subsampled_class_1_8"]
    assert shifted.reference == "val_subsampled_class_1_8" and shifted.space == "imagenet-eighth-125"


def test_the_attacks_of_the_testbed_have_its_radii_and_steps() -> None:
    suite = build_suite("testbed-213")
    found = {s.name: s.shift.describe() for s in suite.settings if s.name.startswith("pgd.")}
    assert {name: about["steps"] for name, about in found.items()} == dict.fromkeys(found, 100)
    assert {about["away_from"] for about in found.values()} == {"prediction"}, "as published"
    assert [found[f"pgd.{n}"]["eps"] for n in ("l2.eps0.1", "l2.eps0.5")] == [0.1, 0.5]
    assert [found[f"pgd.{n}"]["step_size"] for n in ("l2.eps0.1", "l2.eps0.5")] == [0.01, 0.05]
    assert found["pgd.linf.eps0.5"]["eps"] == pytest.approx(0.00196078, rel=1e-5)
    assert found["pgd.linf.eps0.5"]["step_size"] == pytest.approx(5.88235e-05, rel=1e-5)
    assert found["pgd.linf.eps2"]["eps"] == pytest.approx(0.00784314, rel=1e-5)
    assert found["pgd.linf.eps2"]["step_size"] == pytest.approx(2.35294e-04, rel=1e-5)


@pytest.mark.parametrize("name", ["natural", "many-faces", "natural-adversarial", "imagenetv2", "testbed-213"])
def test_what_is_missing_is_left_out_but_val_is_needed(name: str) -> None:
    suite = build_suite(name)
    assert [s.name for s in suite.settings if not s.optional] == ["val"]


@pytest.mark.parametrize("name", suites.names())
def test_spaces_and_metrics_exist_and_references_are_told(name: str) -> None:
    for setting in build_suite(name).settings:
        assert setting.metric in metrics
        if setting.space is not None:
            assert len(label_space(setting.space)) > 0
        own = setting.name
        reference = own.startswith(("val", "demo", "cifar-10", "data")) or own.endswith((".test", ".seen"))
        assert setting.reference or reference, own


def test_one_name_means_one_setting_in_all_suites() -> None:
    """So that a workspace shares results between suites, and joined suites do not clash."""
    joined = build_suite("natural,natural-adversarial,many-faces,testbed-213,imagenet-a,objectnet,imagenet-vid-robust")
    assert len({s.name for s in joined.settings}) == len(joined.settings)
    assert not joined["imagenet-a"].optional, "one of the suites can't do without it"
    assert joined["imagenet-r"].optional


def test_joining_still_refuses_two_meanings() -> None:
    with pytest.raises(Exception, match="two different settings"):
        build_suite(["imagenet-a", Setting("imagenet-a", "imagenet-a", space="imagenet-1k", optional=True)])


def test_frost_textures_reach_the_testbed_variants() -> None:
    options = SuiteOptions(frost_textures="procedural")
    frost = build_suite("testbed-213", options)["imagenet-c.frost.1_in-memory"]
    assert "procedural" in str(frost.shift.describe()["frost"])


def test_pm_10_is_read_against_pm_0() -> None:
    suite = build_suite("ytbb-robust")
    assert suite["ytbb-robust_pm10"].reference == "ytbb-robust_pm0"
    assert suite["ytbb-robust_pm0"].reference == "val-on-ytbb-robust-classes"
    assert suite["ytbb-robust_pm0"].dataset == suite["ytbb-robust_pm10"].dataset


def test_a_misspelt_role_does_not_leave_its_settings_out_silently() -> None:
    classes = label_space("imagenet-1k")
    images = from_arrays(np.zeros((2, 8, 8, 3), np.uint8), [0, 1], space=classes, name="val")
    suite = build_suite("natural")
    assert "imagenet-r" in open_data(suite, {"imagenet-val": images})[1]
    with pytest.raises(UnknownNameError) as caught:
        open_data(suite, {"imagenet-val": images, "imagnet-r": images})
    assert caught.value.name == "imagnet-r" and "imagenet-r" in caught.value.near
