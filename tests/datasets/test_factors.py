"""Factor-split sets: one factor at a time, several labels, DeepFashion2's files, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.datasets.deepfashion2 import CATEGORIES, deepfashion2_rows
from shiftbench.datasets.factors import multi_hot, open_splits, protocols, read_protocol, split_rows
from shiftbench.errors import DatasetError, SettingError
from shiftbench.labels import LabelSpace
from shiftbench.settings.base import build_suite
from shiftbench.settings.factor_suites import factor_settings
from tests.datasets.makers import assert_conforms, png


def shop_rows() -> list[dict[str, Any]]:
    """Every country, year, camera and part once, for two businesses."""
    return [
        {"path": f"{i:03d}.png", "business": kind, "country": country, "year": year, "camera": camera, "part": part}
        for i, (kind, country, year, camera, part) in enumerate(
            (kind, country, year, camera, part)
            for kind in ("bakery", "cafe")
            for country in ("US", "MX", "FR")
            for year in (2017, 2018, 2019)
            for camera in ("new", "old")
            for part in ("train", "test")
        )
    ]


@pytest.mark.parametrize("name", protocols())
def test_each_shift_changes_one_factor_and_shares_no_picture_with_the_rest(name: str) -> None:
    protocol = read_protocol(name)
    for which in protocol.shifts:
        changed = [f for f in protocol.base if protocol.conditions(which)[f] != protocol.base[f]]
        assert len(changed) == 1
        factor, values = protocol.shifts[which]
        assert factor == changed[0] and not set(values) & set(protocol.base[factor])


def test_storefronts_are_split_by_the_papers_protocol() -> None:
    rows = shop_rows()
    sets = split_rows(rows, read_protocol("streetview-storefronts"))
    assert list(sets) == ["train", "test", "year-2018", "year-2017", "old-camera", "france"]
    for which, found in sets.items():
        assert len(found) == (2 if which == "france" else 4)
        assert {rows[i]["part"] for i in found} == {"train" if which == "train" else "test"}
    assert {rows[i]["country"] for i in sets["france"]} == {"FR"}
    assert {rows[i]["year"] for i in sets["france"]} == {2019}
    taken = [i for found in sets.values() for i in found]
    assert len(taken) == len(set(taken)), "no picture in two sets"


def shops_on_disk(root: Path) -> Path:
    rows = shop_rows()
    lines = [",".join(rows[0])] + [",".join(str(v) for v in row.values()) for row in rows]
    (root / "shops.csv").write_text("\n".join(lines) + "\n")
    for i, row in enumerate(rows):
        (root / row["path"]).write_bytes(png(i))
    return root / "shops.csv"


def test_the_sets_of_a_protocol_are_evaluated_as_a_suite(tmp_path: Path) -> None:
    sets = open_splits(shops_on_disk(tmp_path), "streetview-storefronts")
    always_bakery = sb.load_classifier(
        lambda images: np.tile(np.array([1, 0], np.float32), (len(images), 1)),
        name="bakery",
        labels=LabelSpace("shops", ("bakery", "cafe")),
        preprocessing=sb.Preprocessing(sb.Geometry(12, 12)),
    )
    run = sb.evaluate(always_bakery, "streetview-storefronts", sets, tmp_path / "w", progress=False)
    scores = {setting.split(".")[1]: (score.metric, score.value, score.n) for _, setting, score in run.scores()}
    assert scores["test"] == ("error", 0.5, 4) and scores["france"] == ("error", 0.5, 2)
    assert list(scores) == ["test", "year-2018", "year-2017", "old-camera", "france"]


def test_a_table_on_disk_becomes_data_sets_with_factors_as_metadata(tmp_path: Path) -> None:
    sets = open_splits(shops_on_disk(tmp_path), "streetview-storefronts")
    france = sets["streetview-storefronts.france"]
    assert france.space.keys == ("bakery", "cafe") and france.labels.tolist() == [0, 1]
    assert france.metadata["country"] == ["FR", "FR"] and france.metadata["year"] == ["2019", "2019"]
    assert_conforms(france)
    roles = build_suite("streetview-storefronts").roles
    assert roles == [name for name in sets if not name.endswith(".train")]


def test_a_picture_listed_twice_or_outside_is_refused(tmp_path: Path) -> None:
    rows = shop_rows()
    doubled = [{**row, "path": "same.png"} for row in rows]
    with pytest.raises(DatasetError, match="twice"):
        open_splits(doubled, "streetview-storefronts", root=tmp_path)
    outside = [{**row, "path": f"../{row['path']}"} for row in rows]
    with pytest.raises(DatasetError, match="leads out"):
        open_splits(outside, "streetview-storefronts", root=tmp_path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("name = 'p'\nlabel = 'l'\n[base]\na = [1]\n[shifts.both]\na = [2]\nb = [2]\n", "one factor"),
        ("name = 'p'\nlabel = 'l'\n[base]\na = [1]\n[shifts.other]\nb = [2]\n", "one factor"),
        ("name = 'p'\n[base]\na = [1]\n[shifts]\n", "label"),
        ("not toml", "can't be used"),
    ],
)
def test_a_wrong_protocol_is_refused(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(DatasetError, match=match):
        read_protocol(tmp_path / "p.toml")


def test_a_table_without_a_factor_is_refused() -> None:
    with pytest.raises(DatasetError, match="lacks what the protocol"):
        split_rows([{"country": "US"}], read_protocol("streetview-storefronts"))
    with pytest.raises(DatasetError, match="there is no protocol"):
        read_protocol("storefronts")


def deepfashion2(root: Path) -> Path:
    """Three pictures: two items of which one is in the base, one shifted in scale, one of the training part."""

    def item(category: int, scale: int = 2, occlusion: int = 2, viewpoint: int = 2, zoom_in: int = 1) -> dict[str, int]:
        return {
            "category_id": category, "scale": scale, "occlusion": occlusion, "viewpoint": viewpoint, "zoom_in": zoom_in,
        }  # fmt: skip

    pictures = {
        ("validation", "000001"): [item(1), item(8, occlusion=3), item(9)],
        ("validation", "000002"): [item(13, scale=1)],
        ("train", "000001"): [item(2)],
        ("train", "000002"): [item(5, scale=1)],
    }
    for (part, name), items in pictures.items():
        value = {"source": "shop", "pair_id": 1, **{f"item{i}": it for i, it in enumerate(items, start=1)}}
        for folder, ending, data in (("annos", "json", json.dumps(value).encode()), ("image", "jpg", png(len(items)))):
            (root / part / folder).mkdir(parents=True, exist_ok=True)
            (root / part / folder / f"{name}.{ending}").write_bytes(data)
    return root


def test_deepfashion_remixed_keeps_pictures_and_labels_of_the_items_that_fit(tmp_path: Path) -> None:
    root = deepfashion2(tmp_path)
    sets = open_splits(deepfashion2_rows(root), "deepfashion-remixed", root=root, space=CATEGORIES)
    assert {name: list(found.ids) for name, found in sets.items()} == {
        "deepfashion-remixed.train": ["train/image/000001.jpg"],
        "deepfashion-remixed.test": ["validation/image/000001.jpg"],
        "deepfashion-remixed.scale-small": ["train/image/000002.jpg", "validation/image/000002.jpg"],
        "deepfashion-remixed.occlusion-heavy": ["validation/image/000001.jpg"],
    }
    hot = multi_hot(sets["deepfashion-remixed.test"])
    assert hot.shape == (1, 13) and np.flatnonzero(hot[0]).tolist() == [0, 8], "not the trousers: other occlusion"
    assert np.flatnonzero(multi_hot(sets["deepfashion-remixed.occlusion-heavy"])[0]).tolist() == [7]
    assert_conforms(sets["deepfashion-remixed.scale-small"])


def test_several_labels_are_not_scored_as_one() -> None:
    with pytest.raises(SettingError, match="several labels"):
        factor_settings("deepfashion-remixed")
    assert len(read_protocol("deepfashion-remixed").shifts) == 8


def test_a_folder_without_annotations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no annotations of DeepFashion2"):
        deepfashion2_rows(tmp_path)
