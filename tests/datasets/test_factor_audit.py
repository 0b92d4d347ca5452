"""What a protocol makes of a table, counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiftbench.datasets.factors import NOWHERE, audit_factors, read_protocol, split_rows
from tests.datasets.test_factors import deepfashion2, shop_rows, shops_on_disk
from tests.raised import raises

STOREFRONTS = "streetview-storefronts"


def test_every_row_is_in_a_set_or_has_a_reason(tmp_path: Path) -> None:
    audit = audit_factors(shops_on_disk(tmp_path), STOREFRONTS)
    rows = shop_rows()
    sets = split_rows(shop_rows(), read_protocol(STOREFRONTS))
    assert {one.name: one.rows for one in audit.sets} == {name: len(found) for name, found in sets.items()}
    for i, names in enumerate(audit.sets_of_rows):
        assert list(names) == [which for which, found in sets.items() if i in found]
    outside = sum(not names for names in audit.sets_of_rows)
    assert sum(audit.left_over.values()) == outside == len(rows) - sum(map(len, sets.values()))
    # 2 businesses; France of another year or camera, and other years of the old camera.
    assert audit.left_over["differ in country and year: only one factor may differ"] == 2 * 2 * 1 * 2
    assert audit.left_over["part train: not with these values"] == 2 * (2 * 2 + 2 * 1 + 1)


def test_values_say_where_they_are_used(tmp_path: Path) -> None:
    rows = [{**row, "camera": "broken"} if i == 0 else row for i, row in enumerate(shop_rows())]
    audit = audit_factors(rows, STOREFRONTS, root=tmp_path)
    used = {(value.factor, value.value): (value.rows, value.used) for value in audit.values}
    assert used["country", "FR"] == (24, "france") and used["country", "US"] == (24, "training and test")
    assert used["country", "CA"] == (0, "training and test"), "asked for, and not there"
    assert used["camera", "broken"] == (1, NOWHERE) and used["part", "test"] == (36, "test, shifted")
    assert audit.left_over["camera broken: used in no set"] == 1


def test_what_is_missing(tmp_path: Path) -> None:
    table = shops_on_disk(tmp_path)
    assert audit_factors(table, STOREFRONTS).ok
    (tmp_path / "005.png").unlink()
    assert audit_factors(table, STOREFRONTS).missing == ["1 of 72 images, such as 005.png"]
    rows = [row for row in shop_rows() if row["country"] != "FR"]
    assert audit_factors(rows, STOREFRONTS, root=tmp_path).missing[0] == "no row for france"


def test_classes_that_a_set_lacks_and_pictures_that_train_and_test(tmp_path: Path) -> None:
    rows = [row for row in shop_rows() if row["country"] != "FR" or row["business"] == "bakery"]
    audit = audit_factors(rows, STOREFRONTS, root=tmp_path)
    assert audit.notes[0] == "france lacks 1 of the 2 classes of training, such as bank"
    assert "train 200,000" in audit.notes[1] and "old-camera 8,195" in audit.notes[1]
    (tmp_path / "p.toml").write_text(
        "name = 'p'\nlabel = 'business'\n[base]\nyear = [2019]\n[shifts.old]\nyear = [2017]\n"
    )
    notes = audit_factors(rows, tmp_path / "p.toml").notes
    assert notes[0].startswith("20 of the 20 images of test are also in training") and "[parts]" in notes[1]
    rows[0] = {**rows[0], "business": "tattoo parlour"}
    assert "tattoo parlour" in audit_factors(rows, STOREFRONTS, root=tmp_path).missing[0]


def test_deepfashion2_counts_rows_and_pictures(tmp_path: Path) -> None:
    audit = audit_factors(deepfashion2(tmp_path), "deepfashion-remixed")
    assert (audit.rows, audit.images) == (6, 4)
    sizes = {one.name: (one.rows, one.images, one.classes) for one in audit.sets if one.rows}
    assert sizes["test"] == (2, 1, 2) and sizes["scale-small"] == (2, 2, 2)
    assert "no row for zoom-large" in audit.missing


def test_it_is_json_without_the_rows(tmp_path: Path) -> None:
    value = audit_factors(shops_on_disk(tmp_path), STOREFRONTS).as_dict()
    assert value["ok"] is True and "sets_of_rows" not in value and value["sets"][0]["name"] == "train"


@pytest.mark.parametrize("path", ["../x.png", "/etc/passwd", "C:\\x.png"])
def test_a_path_that_leads_out_is_refused(tmp_path: Path, path: str) -> None:
    from shiftbench.errors import DatasetError

    with raises(DatasetError, expected="a path below it"):
        audit_factors([{**shop_rows()[0], "path": path}], STOREFRONTS, root=tmp_path)
