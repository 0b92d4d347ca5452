from __future__ import annotations

from pathlib import Path

import pytest

from shiftbench.errors import SettingError, UnknownNameError
from shiftbench.settings.base import Setting, SuiteOptions, build_suite, suites
from shiftbench.settings.roles import data_name, open_data
from shiftbench.shifts.compose import ThenJpeg
from shiftbench.shifts.corruptions.catalogue import corruptions
from tests.raised import raises


@pytest.mark.parametrize("name", suites.names())
def test_every_suite_is_sound(name: str) -> None:
    """A table over the registry: names are unique, references exist, the docstring teaches."""
    suite = build_suite(name)
    names = [setting.name for setting in suite.settings]
    assert names and len(set(names)) == len(names)
    assert suites.get(name).__doc__
    for setting in suite.settings:
        assert setting.reference in (None, *names, "val", "data")
        setting.shift.describe()


def test_an_unknown_role_is_named() -> None:
    with pytest.raises(SettingError) as caught:
        open_data(build_suite("clean"), {"photos": "photos/"})
    assert "photos" in str(caught.value) and "data='FOLDER'" not in str(caught.value)


def test_an_unknown_source_is_an_error() -> None:
    with raises(UnknownNameError, name="ondisk"):
        SuiteOptions(source="ondisk")  # type: ignore[arg-type]


def test_a_folder_gives_its_own_name_from_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my photos" / "cat").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "my photos" / "cat")
    assert [data_name(path) for path in ("..", "../", "unlabelled:..", "../../my photos/")] == ["my photos"] * 4
    monkeypatch.chdir(tmp_path / "my photos")
    assert data_name(".") == data_name(Path()) == "my photos"
    assert data_name("folder") == "folder"  # also the name of a kind of dataset
    assert data_name("https://host/val.parquet?token=1") == "val.parquet"


def test_imagenet_c_is_the_published_benchmark() -> None:
    suite = build_suite("imagenet-c")
    assert len(suite.settings) == 1 + 15 * 5
    assert suite.settings[0].name == "val"
    assert [s.name for s in suite.settings[1:6]] == [f"imagenet-c.gaussian_noise.{k}" for k in range(1, 6)]
    assert suite["imagenet-c.fog.3"].shift.name == "fog.3"
    assert list(dict.fromkeys(s.name.split(".")[1] for s in suite.settings[1:])) == corruptions("benchmark")


def test_released_files_are_cropped_and_never_resized() -> None:
    suite = build_suite("imagenet-c", SuiteOptions(source="on-disk"))
    fog = suite["imagenet-c.fog.3"]
    assert fog.dataset == "imagenet-c/fog/3" and fog.crop_only and fog.shift.name == "none"
    assert suite["val"].optional
    assert suite.roles == ["imagenet-val", "imagenet-c"]


def test_jpeg_85_in_memory_is_its_own_provenance() -> None:
    plain = build_suite("imagenet-c")["imagenet-c.fog.3"]
    jpeg = build_suite("imagenet-c", SuiteOptions(source="jpeg-85"))["imagenet-c.fog.3"]
    assert isinstance(jpeg.shift, ThenJpeg)
    assert jpeg.shift.describe() != plain.shift.describe() and jpeg.source != plain.source


def test_fewer_corruptions_and_severities() -> None:
    options = SuiteOptions(severities=(2.5,), corruptions=("fog",), data_name="photos")
    assert [s.name for s in build_suite("corruptions", options).settings] == ["photos", "photos-c.fog.2.5"]


def test_the_testbed_with_fewer_corruptions() -> None:
    names = [s.name for s in build_suite("testbed-213", SuiteOptions((1, 3), ("fog",))).settings if s.member]
    assert names == [f"imagenet-c.fog.{level}_{source}" for level in (1, 3) for source in ("on-disk", "in-memory")]


@pytest.mark.parametrize("suite", ["clean", "imagenet-a", "testbed-213"])
def test_corruptions_that_no_setting_has_are_refused(suite: str) -> None:
    with pytest.raises(SettingError) as error:
        build_suite(suite, SuiteOptions(corruptions=("no_such_noise",)))
    assert error.value.found == "no_such_noise"


def test_suites_join_and_share_settings() -> None:
    joined = build_suite("imagenet-c,imagenet-c-extra")
    assert len(joined.settings) == 1 + 19 * 5


def test_two_meanings_of_one_name_are_refused() -> None:
    with pytest.raises(SettingError, match="two different settings"):
        build_suite(["imagenet", Setting("val", "elsewhere")])


def test_a_mistyped_suite_gets_a_suggestion() -> None:
    with raises(UnknownNameError, name="imagnet-c", hint="did you mean 'imagenet-c' or 'imagenet-r' or 'imagenet-p'?"):
        build_suite("imagnet-c")


def test_masked_and_unmasked_are_named_as_such() -> None:
    suite = build_suite("imagenet-a")
    assert suite["imagenet-a"].space == "imagenet-a-200"
    assert suite["imagenet-a.unmasked"].space == "imagenet-1k"
    assert suite["imagenet-a"].reference == "val-on-imagenet-a-classes"
