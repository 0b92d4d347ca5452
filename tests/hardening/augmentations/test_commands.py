"""``shiftbench harden augment``, ``list`` and ``gallery`` as a person types them."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shiftbench.errors import ShiftbenchError, StoreError
from shiftbench.hardening.errors import AugmentationError
from tests.commands import call as shiftbench
from tests.outputs.helpers import bytes_below, picture_folder, scene

run = partial(shiftbench, "harden")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return picture_folder(tmp_path / "s", per_class=1)


def test_augment_tells_what_it_did_and_continues(source: Path, tmp_path: Path) -> None:
    (source / "cat" / "bad.jpg").write_text("<html>")
    words = ("augment", source, tmp_path / "out", "-a", "augmix", "-o", "severity=1", "--copies", 2)
    first = run(*words)
    assert first.exit_code == 0, first.output
    assert "6 images x 2 copies: 10 written" in first.output and "cat/bad.jpg" in first.output
    told = json.loads(run(*words, "--json", "--quiet").stdout)
    assert (told["written"], told["already"], told["options"]["severity"]) == (0, 10, 1)
    assert [one["id"] for one in told["skipped"]] == ["cat/bad.jpg"] and "web page" in told["skipped"][0]["why"]
    again = run(*words)
    assert "all 10 already existed" in again.output
    refused = run(*[word if word != "severity=1" else "severity=2" for word in words])
    assert isinstance(refused.exception, StoreError) and "option 'severity'" in str(refused.exception)


def test_shards_make_the_whole(source: Path, tmp_path: Path) -> None:
    for number in (2, 1):
        told = run("augment", source, tmp_path / "parts", "-a", "speckle", "--shard", f"{number}/2", "-j", 1, "-q")
        assert told.exit_code == 0 and f"shard {number}/2" in told.output
    run("augment", source, tmp_path / "whole", "-a", "speckle", "-q")
    assert bytes_below(tmp_path / "parts") == bytes_below(tmp_path / "whole")


def test_wrong_words_are_told(source: Path, tmp_path: Path) -> None:
    def error(*words: object) -> BaseException | None:
        return run("augment", source, tmp_path / "out", *words).exception

    assert isinstance(error("-a", "augmxi"), ShiftbenchError)
    assert isinstance(error("-a", "augmix", "-o", "severety=1"), AugmentationError)
    assert isinstance(error("-a", "augmix", "--shard", "5/4"), ShiftbenchError)
    assert run("augment", source, tmp_path / "out", "-a", "augmix", "-o", "severity").exit_code == 2
    assert run("augment", source, tmp_path / "out").exit_code == 2
    both = run("augment", source, tmp_path / "out", "-a", "augmix", "--network", "x", "--train-network")
    assert both.exit_code == 2 and "exclude" in both.output
    assert "needs no network" in run("augment", source, tmp_path / "out", "-a", "augmix", "--train-network").output
    assert not (tmp_path / "out").exists()


def test_the_list_names_options() -> None:
    assert "severity=3" in run("list").output
    entries = {entry["name"]: entry for entry in json.loads(run("list", "--json").stdout)}
    assert entries["cutmix"]["kind"] == "batch" and entries["crop"]["options"] == {"padding": 4}


def test_the_gallery_shows_what_was_asked_for(tmp_path: Path) -> None:
    Image.fromarray(scene(0, 90, 120)).save(tmp_path / "p.png")
    words = ("--image", tmp_path / "p.png", "--size", 40, "--columns", 3)
    chosen = ("-a", "cutout:size=10,fill=255", "-a", "mixup")
    told = run("gallery", tmp_path / "g.png", *words, *chosen, "--json")
    assert json.loads(told.stdout)["augmentations"] == ["cutout:size=10,fill=255", "mixup"]
    grid = np.asarray(Image.open(tmp_path / "g.png"))
    assert grid.shape[0] >= 3 * 40 and (grid == 255).all(axis=2).any()
    first = (tmp_path / "g.png").read_bytes()
    run("gallery", tmp_path / "g.png", *words, *chosen)
    assert (tmp_path / "g.png").read_bytes() == first
    assert run("gallery", tmp_path / "g.jpg", *words).exit_code == 2


def test_the_gallery_of_all_leaves_out_only_what_needs_a_network(tmp_path: Path) -> None:
    Image.fromarray(scene(0, 40, 40)).save(tmp_path / "p.png")
    told = run("gallery", tmp_path / "g.png", "--image", tmp_path / "p.png", "--size", 32, "--columns", 1, "--json")
    found = json.loads(told.stdout)
    names = {title.split(":")[0] for title in found["augmentations"]}
    assert {"flip", "augmix", "speckle", "mixup", "cutmix", "noise2net"} <= names
    assert all(name.startswith(("deepaugment", "styl")) for name in found["left_out"])


def test_help_stays_light() -> None:
    """The words of the command are there before PyTorch is."""
    code = "import sys; import shiftbench.cli.app; sys.exit('torch' in sys.modules or 'cv2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
