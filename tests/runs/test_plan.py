"""A plan of many results stays small: what they have in common is kept, and sent to workers, once."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.labels import label_space
from shiftbench.labels.space import LabelSpace
from shiftbench.metrics.base import Needs
from shiftbench.runs.plan import Common, PlannedResult, all_items, missing_items, plan_result, work_items
from shiftbench.settings.base import SuiteOptions, build_suite
from shiftbench.store.predictions import setting_rows
from shiftbench.store.workspace import Workspace
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder, darkest_channel
from tests.runs.test_evaluate import as_classifier


def plan(root: Path, settings: int) -> tuple[list[PlannedResult], Workspace]:
    dataset = sb.open_dataset(colour_folder(root / "pictures", per_class=200, size=8), space=COLOURS)
    chosen = build_suite("corruptions", SuiteOptions(data_name="pictures")).settings
    classifier = as_classifier(brightest_channel, "bright")
    workspace = Workspace(root / "w")
    common = Common()
    results = [
        plan_result(classifier, setting, dataset, Needs(top_k=1), 0, workspace, common) for setting in chosen[:settings]
    ]
    items = all_items(results, {results[0].dataset: dataset})
    assert items == work_items(results[0].dataset, dataset)
    found, to_do, done = missing_items(workspace, results, items, {results[0].dataset: dataset})
    assert (sorted(found, key=items.index), to_do, done) == (items, 600 * settings, 0)
    assert [len(one) for one in found] == sorted(map(len, items), reverse=True), "the last ones are short"
    return results, workspace


def test_each_further_cell_costs_little(tmp_path: Path) -> None:
    results, _ = plan(tmp_path, 40)
    assert all(result.rows is results[0].rows and result.projection is results[0].projection for result in results)
    one, many = (len(pickle.dumps(results[:count])) for count in (1, 40))
    assert (many - one) / 39 < 3_000 < results[0].rows.nbytes


def test_other_label_spaces_have_their_own_rows() -> None:
    class Tiny:
        name = "tiny"
        fingerprint = "0" * 32
        label_sets = None
        space = label_space("imagenet-1k")
        labels = np.arange(1000, dtype=np.int32)

    common = Common()
    few = label_space("imagenet-a-200")
    whole = common.rows(Tiny(), Tiny.space)
    part = common.rows(Tiny(), few)
    assert len(whole) == 1000 and len(part) == 200
    np.testing.assert_array_equal(part, setting_rows(Tiny.labels, Tiny.space, few).rows)
    assert common.projection(few, Tiny.space).kind == "subset"
    assert common.projection(Tiny.space, Tiny.space).kind == "identity"
    same_name = LabelSpace(few.name, Tiny.space.keys[:10])
    assert len(common.rows(Tiny(), same_name)) == 10


def test_no_step_of_a_run_compares_results_with_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Comparing every result with every other one takes seconds per block where there are thousands of results."""
    data = colour_folder(tmp_path / "pictures")
    comparisons: list[tuple[object, object]] = []

    def counted(self: PlannedResult, other: object) -> bool:
        comparisons.append((self, other))
        return self is other

    monkeypatch.setattr(PlannedResult, "__eq__", counted)
    classifiers = [as_classifier(brightest_channel, "bright"), as_classifier(darkest_channel, "dark")]
    options: dict[str, Any] = {"corruptions": ("contrast",), "severities": (1, 2, 3), "labels": COLOURS}
    plan = sb.dry_run(classifiers, "corruptions", data, tmp_path / "w", **options)
    assert plan.forward_passes == 8 * 60
    run = sb.evaluate(classifiers, "corruptions", data, tmp_path / "w", progress=False, **options)
    assert len(run.results) == 8
    assert sb.dry_run(classifiers, "corruptions", data, tmp_path / "w", **options).done == 8 * 60
    assert comparisons == []
