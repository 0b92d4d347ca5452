"""Assembling: layouts, renditions, tones, what is left out, resuming, and the real packages."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shiftbench.datasets import open_dataset
from shiftbench.datasets.icons import assemble as assembling
from shiftbench.datasets.icons import sources
from shiftbench.datasets.icons.assemble import assemble
from shiftbench.datasets.icons.sources import IconSource, all_sources, choose_sources, drawings, icons, style_names
from shiftbench.errors import DatasetError, MissingExtraError, ShiftbenchError, StoreError, UnknownNameError
from shiftbench.jobs.base import Shard
from shiftbench.jobs.executors import ProcessExecutor
from shiftbench.outputs.record import workshop
from tests.datasets.icons.making import place, png, source, svg, tgz, wheel
from tests.datasets.makers import assert_conforms
from tests.raised import raises

Sources = tuple[IconSource, ...]


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "icons.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_icons_are_sorted_by_class_under_the_original_s_names(small: Sources, tmp_path: Path) -> None:
    made = assemble(tmp_path / "icons", progress=False)
    assert sorted(row["path"] for row in table(tmp_path / "icons")) == [
        "airplane/maker_0_airplane.png",
        "airplane/vector_0_airplane.png",
        "airplane/words_0_small_airplane.png",
        "feline/maker_0_cat.png",
        "feline/maker_1_cat.png",
        "hand/maker_0_waving_hand_sign.png",
        "hand/maker_1_waving_hand_sign.png",
        "hand/vector_0_waving_hand_sign.png",
        "hand/words_0_waving_hand_sign.png",
    ]
    assert made.images == made.written == 9
    assert made.summary()["classes"] == {"airplane": 3, "feline": 2, "hand": 4}
    # the airplane was not drawn anew
    assert made.summary()["left_out"] == {"same drawing as an earlier rendition": 1}
    row = next(row for row in table(tmp_path / "icons") if row["path"] == "feline/maker_1_cat.png")
    assert row == {
        "path": "feline/maker_1_cat.png",
        "class": "feline",
        "subtype": "cat",
        "style": "maker",
        "rendition": "1",
        "version": "maker 1",
        "codepoint": "1F408",
        "package": "maker-new 1.0",
        "licence": "CC0-1.0",
    }
    pixels = np.asarray(Image.open(tmp_path / "icons" / row["path"]))
    assert pixels.shape == (64, 64, 3) and pixels[32, 32].tolist() == [0, 128, 0] and pixels[0, 0].tolist() == [255] * 3
    licences = (tmp_path / "icons" / "LICENCES.md").read_text()
    assert "| maker | maker 0 | maker-old 1.0 | nobody | CC0-1.0 | 3 |" in licences
    assert "| maker | maker 1 | maker-new 1.0 | nobody | CC0-1.0 | 2 |" in licences


def test_skin_tones_are_subtypes_of_their_own_and_mixed_ones_are_left_alone(small: Sources, tmp_path: Path) -> None:
    assemble(tmp_path / "icons", styles="maker", skin_tones=True, progress=False)
    tones = [row for row in table(tmp_path / "icons") if "type" in row["subtype"]]
    assert [(row["path"], row["codepoint"]) for row in tones] == [
        ("hand/maker_1_waving_hand_sign_type_6.png", "1F44B-1F3FF")
    ]


@pytest.mark.parametrize("size", [16, 32, 100])
def test_size(small: Sources, tmp_path: Path, size: int) -> None:
    assemble(tmp_path / "icons", size=size, progress=False)
    assert {Image.open(tmp_path / "icons" / row["path"]).size for row in table(tmp_path / "icons")} == {(size, size)}


def test_bad_and_blank_pictures_are_counted_and_named(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = {
        "package/svg/2708.svg": svg("red", '<image href="/etc/passwd"/>'),
        "package/svg/1f6eb.svg": svg("white"),
        "package/svg/1f408.svg": svg("red"),
    }
    only = source("odd", 0, place(own_cache, "odd-1.0.tgz", tgz(odd)), "package/svg/", ".svg")
    monkeypatch.setattr(sources, "all_sources", lambda: (only,))
    made = assemble(tmp_path / "icons", progress=False)
    assert made.images == 1
    record = json.loads((tmp_path / "icons" / "icons.json").read_text())
    assert record["styles"]["odd"]["left_out"] == {
        "unreadable": ["airplane/odd_0_airplane.png"],
        "blank": ["airplane/odd_0_airplane_departure.png"],
    }


def test_short_names_and_names_that_mean_something_else(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = "emoji/static/emoji/img/"
    data = wheel({f"{folder}{name}.png": png("red") for name in ("airplane", "wave", "unknown", "deep/cat2")})
    named = source("named", 0, place(own_cache, "named-1.0.whl", data), folder, ".png", "aliases")
    monkeypatch.setattr(sources, "all_sources", lambda: (named,))
    assemble(tmp_path / "one", progress=False)
    assert [row["subtype"] for row in table(tmp_path / "one")] == ["airplane", "waving_hand_sign"]
    other = IconSource(**{**vars(named), "not_meant": frozenset({"wave", "air*"}), "style": "other"})
    monkeypatch.setattr(sources, "all_sources", lambda: (other,))
    assert assemble(tmp_path / "two", progress=False).images == 0


def test_finished_styles_are_not_made_again_and_others_are_added(
    small: Sources, own_cache: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "icons"
    assert assemble(folder, styles="maker", progress=False).written == 5
    for archive in (own_cache / "packages").glob("maker-*"):
        archive.unlink()  # it can't be read again
    assert assemble(folder, styles="maker", progress=False).written == 0
    more = assemble(folder, styles="vector,words,maker", progress=False)
    assert (more.written, more.images) == (4, 9)
    assert list(json.loads((folder / "icons.json").read_text())["styles"]) == ["maker", "vector", "words"]


def test_whatever_the_order_the_folder_is_the_same(small: Sources, tmp_path: Path) -> None:
    assemble(tmp_path / "at once", progress=False)
    for style in ("words", "vector", "maker"):
        assemble(tmp_path / "in turn", styles=style, progress=False)
    assert files(tmp_path / "at once") == files(tmp_path / "in turn")


def test_jobs_that_share_the_styles_make_the_same_folder(offline: Path, tmp_path: Path) -> None:
    first = assemble(tmp_path / "both", styles="offline", cap=5, size=32, shard="2/2", progress=False)
    assert len(first.record.counts("style")) == 1
    assemble(tmp_path / "both", styles="offline", cap=5, size=32, shard="1/2", progress=False)
    assert files(tmp_path / "both") == files(offline)


def test_an_executor_makes_the_same_folder(offline: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"styles": "offline", "cap": 5, "size": 32, "progress": False}
    assert assemble(tmp_path / "icons", executor=ProcessExecutor(2), **options).written > 0
    assert files(tmp_path / "icons") == files(offline)


def test_a_lost_icon_or_table_is_made_good(small: Sources, tmp_path: Path) -> None:
    folder = tmp_path / "icons"
    assemble(folder, progress=False)
    whole = files(folder)
    (folder / "feline" / "maker_0_cat.png").unlink()
    assert assemble(folder, progress=False).written == 5
    assert files(folder) == whole
    (folder / "icons.csv").unlink()
    assert assemble(folder, progress=False).written == 9
    assert files(folder) == whole


def test_a_failure_keeps_the_styles_that_are_done(
    small: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "icons"
    real = drawings

    def broken(chosen: IconSource, *rest: Any, **options: Any) -> Any:
        if chosen.style == "vector":
            raise DatasetError("the network is down")
        return real(chosen, *rest, **options)

    monkeypatch.setattr(assembling, "drawings", broken)
    with pytest.raises(DatasetError, match="network"):
        assemble(folder, workers=1, progress=False)
    assert {row["style"] for row in table(folder)} == {"maker"}
    monkeypatch.setattr(assembling, "drawings", real)
    assert assemble(folder, progress=False).written == 4
    assert assemble(tmp_path / "clean", progress=False).images == 9
    assert files(folder) == files(tmp_path / "clean")


def test_a_folder_of_the_first_version_is_continued(small: Sources, tmp_path: Path) -> None:
    """Its record had the options beside the styles."""
    folder = tmp_path / "icons"
    assemble(folder, styles="maker", progress=False)
    record = json.loads((folder / "icons.json").read_text())
    old = {"format": 1, "options": record["recipe"]["options"], "styles": record["styles"]}
    (folder / "icons.json").write_text(json.dumps(old))
    with raises(StoreError, found="64", expected="32"):
        assemble(folder, size=32, progress=False)
    assert assemble(folder, progress=False).written == 4
    assemble(tmp_path / "new", progress=False)
    assert files(folder) == files(tmp_path / "new")


def test_two_runs_in_one_folder_are_refused(small: Sources, tmp_path: Path) -> None:
    with workshop(tmp_path / "icons", Shard()), pytest.raises(StoreError, match="another run"):
        assemble(tmp_path / "icons", progress=False)


@pytest.mark.parametrize(
    "options", [{"size": 32}, {"cap": 5}, {"cap": None}, {"skin_tones": True}, {"styles": "offline"}]
)
def test_options_are_not_mixed_in_one_folder(small: Sources, tmp_path: Path, options: dict[str, Any]) -> None:
    assemble(tmp_path / "icons", progress=False)
    before = files(tmp_path / "icons")
    with pytest.raises(StoreError, match="different option"):
        assemble(tmp_path / "icons", progress=False, **options)
    assert files(tmp_path / "icons") == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 8}, "size"),
        ({"size": 5000}, "size"),
        ({"cap": 1}, "two subtypes"),
        ({"cap": -3}, "two subtypes"),
        ({"styles": ""}, "no style"),
        ({"styles": " , "}, "no style"),
        ({"styles": "makers"}, "did you mean 'maker'"),
        ({"styles": "maker,vectors"}, "did you mean 'vector'"),
    ],
)
def test_bad_options_are_refused_before_anything_is_made(
    small: Sources, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ShiftbenchError, match=message):
        assemble(tmp_path / "icons", progress=False, **options)
    assert not (tmp_path / "icons").exists()


def test_a_folder_of_other_things_is_left_alone(small: Sources, tmp_path: Path) -> None:
    (tmp_path / "airplane").mkdir()
    before = sorted(tmp_path.iterdir())
    with raises(StoreError, found="airplane, cache", expected="an empty folder, or one with icons.json"):
        assemble(tmp_path, progress=False)
    assert sorted(tmp_path.iterdir()) == before
    (tmp_path / "file").write_text("in the way")
    with raises(StoreError, found="a file"):
        assemble(tmp_path / "file", progress=False)
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "icons.json").write_text("{")
    with pytest.raises(StoreError, match="not a valid record"):
        assemble(broken, progress=False)


def test_without_the_rasteriser_nothing_is_fetched(
    small: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with raises(MissingExtraError, hint="pip install 'shiftbench[icons]'"):
        assemble(tmp_path / "icons", progress=False)
    assert not (tmp_path / "icons").exists()


def test_the_sources_name_what_they_need() -> None:
    assert style_names() == (
        "apple",
        "emoji-one",
        "facebook",
        "google",
        "messenger",
        "microsoft",
        "mozilla",
        "openmoji",
        "twitter",
    )
    for found in all_sources():
        assert len(found.package.sha256) == 64 and found.licence and found.holder and found.version
        assert found.package.file.endswith(".whl" if found.package.registry == "pypi" else ".tgz")
    variant, offline = choose_sources("offline")
    assert variant == "offline" and {found.package.registry for found in offline} == {"pypi"}
    for style in style_names():
        _, own = choose_sources(style)
        assert [found.rendition for found in own] == list(range(len(own)))
    assert all(found.is_open for found in choose_sources("open")[1])
    assert "apple" not in {found.style for found in choose_sources("open")[1]}
    with raises(UnknownNameError, name="gogle", hint="did you mean 'google' or 'offline'?"):
        choose_sources(["gogle"])


def test_the_real_offline_variant(offline: Path) -> None:
    dataset = open_dataset(offline)
    assert_conforms(dataset, reopen=lambda: open_dataset(offline))
    assert len(set(dataset.labels.tolist())) == 50
    styles = list(dataset.metadata["style"])
    wanted = {icon.subtype for icon in icons()}
    assert styles.count("openmoji") == len(set(dataset.metadata["subtype"]) & wanted) > 220
    assert 100 < styles.count("apple") < 200
    # icons, not blank paper, and no two of them alike within a style
    pictures = [dataset.read(i).pixels for i in range(len(dataset))]
    assert all(picture.std() > 5 for picture in pictures)
    for style in ("apple", "openmoji"):
        own = {pictures[i].tobytes() for i in range(len(dataset)) if styles[i] == style}
        assert len(own) >= 0.98 * styles.count(style)


def test_the_same_subtype_looks_alike_in_two_styles(offline: Path) -> None:
    """If names or codes were mixed up, an icon would be no nearer to its namesake than to any other of its colours."""
    dataset = open_dataset(offline)
    by_name: dict[str, dict[str, Any]] = {}
    for i, (style, subtype) in enumerate(zip(dataset.metadata["style"], dataset.metadata["subtype"], strict=True)):
        by_name.setdefault(str(subtype), {})[str(style)] = dataset.read(i).pixels.astype(float)
    both = [pair for pair in by_name.values() if len(pair) == 2]
    assert len(both) > 100
    one, other = (np.stack([pair[style].ravel() for pair in both]) for style in ("apple", "openmoji"))
    distance = (one**2).sum(1)[:, None] + (other**2).sum(1)[None] - 2 * one @ other.T
    rank = (distance < np.diag(distance)[:, None]).sum(axis=1)
    assert np.median(rank) < 0.15 * len(both), "by chance it were half of them"


#: So slow that there is a middle to kill it in.
_SLOWLY = """
import sys, time
from shiftbench.datasets.icons import assemble as assembling
png_bytes = assembling.png_bytes
assembling.png_bytes = lambda pixels: (time.sleep(0.01), png_bytes(pixels))[1]
assembling.assemble(sys.argv[1], styles="offline", cap=5, size=32, workers=1, progress=False)
"""


@pytest.mark.reliability("kills")
def test_killed_in_the_middle_it_continues_to_the_same_folder(offline: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", _SLOWLY, str(folder)])
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None and not list(folder.glob("*/openmoji_*.png")):
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert "openmoji" not in json.loads((folder / "icons.json").read_text())["styles"], "it was killed too late"
    made = assemble(folder, styles="offline", cap=5, size=32, progress=False)
    assert 0 < made.written < made.images, "the finished style was made again"
    strays = [name for name in files(folder) if name.endswith(".tmp")]
    assert {n: d for n, d in files(folder).items() if n not in strays} == files(offline)


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_real_npm_packages(tmp_path: Path) -> None:
    """Twitter's and Mozilla's icons, fetched with the npm client (3 MB)."""
    try:
        made = assemble(tmp_path / "icons", styles="twitter,mozilla", cap=4, size=32, progress=False)
    except DatasetError as error:
        if "could not be fetched" not in str(error):
            raise
        pytest.skip(f"the npm registry can't be reached: {error.found}")
    counts = made.record.counts("style")
    expected = sum(min(4, count) for count in Counter(icon.label for icon in icons()).values())
    assert counts["twitter"] == made.summary()["subtypes"] == expected
    assert counts["mozilla"] > 60
    assert len(made.summary()["classes"]) == 50
    assert made.summary()["left_out"] == {}
    colour = np.asarray(Image.open(tmp_path / "icons" / "heart" / "twitter_0_broken_heart.png"))
    assert colour[..., 0].astype(int).sum() > 1.2 * colour[..., 1].astype(int).sum(), "a heart is red"
