"""The suite ``testbed-213``: what each of its settings is made of, and all of them run in miniature."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS, EXTRA_CORRUPTIONS
from shiftbench.metrics.base import metrics
from shiftbench.settings.base import Setting, build_suite
from shiftbench.studies import testbed
from shiftbench.studies.results import results_from_scores
from tests.commands import output
from tests.datasets import official_trees as trees

SUITE = build_suite("testbed-213")
#: A dozen photographs that have something for every restriction of classes.
DOZEN = (0, 6, 8, 18, 28, 40, 43, 55, 60, 66, 69, 98)
ROLES = tuple(role for role in trees.MAKERS if role not in ("imagenet-o", "real-blurry-images"))


def test_the_names_are_those_of_the_published_grid(reference_data: Path) -> None:
    with (reference_data / "imagenet-testbed" / "eval_settings_213.csv").open() as file:
        published = {row["setting"] for row in csv.DictReader(file)}
    assert {setting.name for setting in SUITE.settings} == published and len(SUITE.settings) == 213


def test_each_setting_has_data_a_reference_and_a_label_space() -> None:
    for setting in SUITE.settings:
        role, _, below = setting.dataset.partition("/")
        assert role in (*ROLES, "imagenet-c"), setting
        if role == "imagenet-c":
            corruption, severity = below.split("/")
            assert corruption in (*BENCHMARK_CORRUPTIONS, *EXTRA_CORRUPTIONS) and severity in "12345", setting
        assert setting.metric in metrics, setting
        if setting.name.startswith("val"):
            assert setting.reference is None and role == "imagenet-val", setting
        else:
            reference = SUITE[setting.reference or ""]
            assert _classes(setting) == _classes(reference), f"{setting}: accuracies compare over the same classes"


def _classes(setting: Setting) -> str:
    return setting.space or "imagenet-1k"


def test_every_role_has_a_tree_to_be_tested_with() -> None:
    assert set(SUITE.roles) == {*ROLES, "imagenet-c"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All roles, ImageNet-C as this package writes it."""
    root = tmp_path_factory.mktemp("testbed")
    trees.make_all(root, [trees.photographs()[i] for i in DOZEN], ROLES)
    val = root / "imagenet-val"
    written = sb.write_corruptions(val, root / "imagenet-c", frost_textures="procedural", labels="imagenet-1k")
    assert written.written == 19 * 5 * len(DOZEN)
    return root


def evaluated(root: Path) -> dict[str, Any]:
    arguments = ["eval", "demo:squeezenet1_1", "--suite", "testbed-213", "--data", str(root), "--labels", "imagenet-1k"]
    options = ["--frost-textures", "procedural", "-w", str(root / "w"), "--json", "--quiet"]
    result = output(*arguments, *options)
    found: dict[str, Any] = json.loads(result)
    return found


@pytest.mark.soak
def test_all_213_run(root: Path) -> None:
    """A dozen photographs, attacks of 100 steps included; the second time nothing is left to do."""
    found = evaluated(root)
    assert found["left_out"] == {} and found["problems"] == []
    rows = {row["setting"]: row for row in found["scores"]}
    assert set(rows) == {setting.name for setting in SUITE.settings}
    for setting in SUITE.settings:
        restricted = setting.space is not None and setting.space != "imagenet-1k"
        assert 0 < rows[setting.name]["n"] <= len(DOZEN) and (restricted or rows[setting.name]["n"] == len(DOZEN))
    _check_order(rows)
    _check_grid(root)
    files = {file: file.stat().st_mtime_ns for file in (root / "w" / "predictions").rglob("*.parquet")}
    assert len(files) == 213
    assert evaluated(root)["scores"] == found["scores"]
    assert files == {file: file.stat().st_mtime_ns for file in (root / "w" / "predictions").rglob("*.parquet")}


def _check_order(rows: dict[str, Any]) -> None:
    """More of a corruption costs more, on disk and in memory; attacks take nearly all."""
    for kind in ("on-disk", "in-memory"):
        means = [
            np.mean([row["value"] for name, row in rows.items() if name.endswith(f".{severity}_{kind}")])
            for severity in (1, 3, 5)
        ]
        assert means[0] > means[1] > means[2], kind
        assert means[0] <= rows["val"]["value"]
    assert rows["pgd.linf.eps2"]["value"] <= rows["pgd.linf.eps0.5"]["value"] < rows["val"]["value"]
    assert rows["pgd.linf.eps2"]["value"] <= 1 / len(DOZEN)
    assert rows["imagenetv2-matched-frequency"]["value"] == rows["val"]["value"] > 0.5, "the same photographs"


def _check_grid(root: Path) -> None:
    """The testbed's own means can be taken over our run: no column is missing."""
    table = testbed.with_aggregates(results_from_scores(sb.Run.open(root / "w").scores()))
    for mean in ("avg_corruptions", "avg_pgd"):
        assert np.isfinite(table.column(mean)).all(), mean
