"""Factor-split sets: one factor at a time, several labels, DeepFashion2's files, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.datasets.factors import deepfashion2_rows, open_splits, protocols, read_protocol, split_rows
from shiftbench.errors import DatasetError
from shiftbench.labels import LabelSpace, label_space
from shiftbench.settings.base import build_suite
from shiftbench.settings.builtin import factor_settings
from tests.datasets.factor_trees import deepfashion2_tree
from tests.datasets.makers import assert_conforms, png
from tests.raised import raises

STOREFRONTS = "streetview-storefronts"


def shop_rows() -> list[dict[str, Any]]:
    """Every country, year, camera and part once, for two businesses."""
    return [
        {"path": f"{i:03d}.png", "business": kind, "country": country, "year": year, "camera": camera, "part": part}
        for i, (kind, country, year, camera, part) in enumerate(
            (kind, country, year, camera, part)
            for kind in ("bakery", "bank")
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
        [(factor, values)] = protocol.shifts[which].items()
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
        lambda images: np.tile(np.eye(20, dtype=np.float32)[1], (len(images), 1)),
        name="bakery",
        labels="streetview-storefronts-20",
        preprocessing=sb.Preprocessing(sb.Geometry(12, 12)),
    )
    run = sb.evaluate(always_bakery, "streetview-storefronts", sets, tmp_path / "w", progress=False)
    scores = {setting.split(".")[1]: (score.metric, score.value, score.n) for _, setting, score in run.scores()}
    assert {result.spec.dataset.name for result in run.results} == {name for name in sets if "train" not in name}
    assert scores["test"] == ("error", 0.5, 4) and scores["france"] == ("error", 0.5, 2)
    assert list(scores) == ["test", "year-2018", "year-2017", "old-camera", "france"]


def test_each_set_is_a_dataset_of_its_own(tmp_path: Path) -> None:
    table = shops_on_disk(tmp_path)
    whole = open_splits(table, STOREFRONTS)
    for which in ("train", "test", "france"):
        one = sb.open_dataset(f"factors:{STOREFRONTS}:{table}/{which}")
        expected = whole[f"{STOREFRONTS}/{which}"]
        assert (one.name, one.ids, one.fingerprint) == (expected.name, expected.ids, expected.fingerprint)
    for wrong in (f"{table}/spain", table, ""):
        with pytest.raises(DatasetError) as error:
            sb.open_dataset(f"factors:{STOREFRONTS}:{wrong}")
        assert "france" in str(error.value.expected)
    with pytest.raises(DatasetError, match="no image for"):
        only_france = [row for row in table.read_text().splitlines() if ",FR," in row or row.startswith("path")]
        table.write_text("\n".join(only_france))
        sb.open_dataset(f"factors:{STOREFRONTS}:{table}/train")


def test_a_21st_kind_of_business_is_refused(tmp_path: Path) -> None:
    rows = [{**row, "business": "tattoo parlour" if i == 3 else row["business"]} for i, row in enumerate(shop_rows())]
    for space in (None, "folders", LabelSpace("own", ("bakery", "bank", "tattoo parlour"))):
        with pytest.raises(DatasetError) as error:
            open_splits(rows, STOREFRONTS, space=space)
        assert error.value.found == "tattoo parlour" and "dry cleaner" in str(error.value.expected)


def test_images_of_training_in_shifted_sets_are_reported(tmp_path: Path) -> None:
    tree = deepfashion2_tree(tmp_path / "DeepFashion2", train=30, validation=10)
    sets = open_splits(tree, "deepfashion-remixed")
    training = set(sets["deepfashion-remixed/train"].ids)
    shared = {name: len(training & set(one.ids)) for name, one in sets.items() if not name.endswith("/train")}
    assert shared["deepfashion-remixed/test"] == 0 < max(shared.values())
    for name, count in shared.items():
        assert [int(remark.split()[0]) for remark in sets[name].remarks] == [count] * (count > 0)


def test_a_table_on_disk_becomes_data_sets_with_factors_as_metadata(tmp_path: Path) -> None:
    sets = open_splits(shops_on_disk(tmp_path), "streetview-storefronts")
    france = sets["streetview-storefronts/france"]
    assert len(france.space) == 20 and [france.space.keys[i] for i in france.labels] == ["bakery", "bank"]
    assert france.metadata["country"] == ["FR", "FR"] and france.metadata["year"] == ["2019", "2019"]
    assert france.metadata["part"] == ["test", "test"], "all further columns, for scores by group"
    assert_conforms(france)
    suite = build_suite("streetview-storefronts")
    assert suite.roles == ["streetview-storefronts"]
    assert [setting.dataset for setting in suite.settings] == [name for name in sets if not name.endswith("/train")]


def test_a_parquet_table_gives_the_same_sets(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    from_csv = open_splits(shops_on_disk(tmp_path), "streetview-storefronts")
    frame = pandas.DataFrame(shop_rows())
    frame["year"] = frame["year"].astype(float)  # as pandas leaves a column with gaps
    frame["thumbnail"] = [b"\x89PNG"] * len(frame)
    frame.to_parquet(tmp_path / "shops.parquet")
    from_parquet = open_splits(tmp_path / "shops.parquet", "streetview-storefronts")
    assert {name: found.fingerprint for name, found in from_csv.items()} == {
        name: found.fingerprint for name, found in from_parquet.items()
    }
    assert "thumbnail" not in from_parquet["streetview-storefronts/test"].metadata


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 and then nothing")
    (tmp_path / "shops.xlsx").touch()
    for name, found in (
        ("torn.parquet", "can't be read"),
        ("shops.xlsx", "another kind"),
        (".", "a folder"),
        ("no.csv", "nothing"),
    ):
        with pytest.raises(DatasetError, match=found):
            open_splits(tmp_path / name, "streetview-storefronts")


def own_protocol(path: Path, more: str = "") -> Path:
    path.write_text(f"name = 'own'\nlabel = 'l'\n{more}\n[base]\na = [1]\n[shifts.two]\na = [2]\n")
    return path


def test_the_protocol_may_fix_the_order_of_the_classes(tmp_path: Path) -> None:
    rows = [{"path": f"{label}.png", "l": label, "a": 1} for label in ("ant", "bee")]
    plain = open_splits(rows, own_protocol(tmp_path / "p.toml"))["own/test"]
    fixed = open_splits(rows, own_protocol(tmp_path / "q.toml", "classes = ['bee', 'cat', 'ant']"))["own/test"]
    assert plain.space.keys == ("ant", "bee") and plain.labels.tolist() == [0, 1]
    assert fixed.space.keys == ("bee", "cat", "ant") and fixed.labels.tolist() == [2, 0]
    named = open_splits(rows, own_protocol(tmp_path / "r.toml"), space=LabelSpace("s", ("bee", "ant")))["own/test"]
    assert named.labels.tolist() == [1, 0]
    with raises(DatasetError, found="ant", expected="bee"):
        open_splits(rows, own_protocol(tmp_path / "s.toml", "classes = ['bee']"))


def test_a_row_without_a_class_is_refused(tmp_path: Path) -> None:
    rows = [{"path": "a.png", "l": "ant", "a": 1}, {"path": "b.png", "l": " ", "a": 1}]
    with raises(DatasetError, expected="a value in 'l'"):
        open_splits(rows, own_protocol(tmp_path / "p.toml"))
    with raises(DatasetError, found="columns path, a", expected="the classes of the images"):
        open_splits([{"path": "a.png", "a": 1}], own_protocol(tmp_path / "p.toml"))
    with raises(DatasetError, found="columns l, a", expected="a column 'path'"):
        open_splits([{"l": "ant", "a": 1}], own_protocol(tmp_path / "p.toml"))


def test_rows_of_one_picture_make_one_image_with_all_their_values(tmp_path: Path) -> None:
    protocol = own_protocol(tmp_path / "p.toml", "several_labels = true")
    rows = [
        {"path": "x.png", "l": "ant", "a": 1, "light": "dim"},
        {"path": "x.png", "l": "bee", "a": 1, "light": "bright"},
        {"path": "x.png", "l": "cat", "a": 2, "light": "dim"},
        {"path": "y.png", "l": "bee", "a": 1, "light": "dim"},
    ]
    found = open_splits(rows, protocol)["own/test"]
    assert list(found.ids) == ["x.png", "y.png"] and found.label_sets == [(0, 1), (1,)]
    assert found.labels.tolist() == [-1, 1], "an image of several classes has no one label"
    assert found.metadata["light"] == ["bright+dim", "dim"]
    assert read_protocol(protocol).metric == "mean_average_precision"


def test_a_picture_listed_twice_or_outside_is_refused(tmp_path: Path) -> None:
    rows = shop_rows()
    doubled = [{**row, "path": "same.png"} for row in rows]
    with pytest.raises(DatasetError, match="twice"):
        open_splits(doubled, "streetview-storefronts", root=tmp_path)
    outside = [{**row, "path": f"../{row['path']}"} for row in rows]
    with raises(DatasetError, found="../008.png", expected="a path below it"):
        open_splits(outside, "streetview-storefronts", root=tmp_path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("name = 'p'\nlabel = 'l'\n[base]\na = [1]\n[shifts.both]\na = [2]\nb = [2]\n", "one factor"),
        ("name = 'p'\nlabel = 'l'\n[base]\na = [1]\n[shifts.other]\nb = [2]\n", "one factor"),
        ("name = 'p'\n[base]\na = [1]\n[shifts]\n", "label"),
        ("not toml", "TOML"),
        ("name = 'a/b'\nlabel = 'l'\n[base]\na = [1]\n[shifts]\n", "a/b"),
        ("name = 'p'\nlabel = 'l'\n[base]\na = [1]\n[shifts.test]\na = [2]\n", "not train or test"),
        ("name = 'p'\nlabel = 'l'\nlabels = 'l'\n[base]\na = [1]\n[shifts]\n", "did you mean"),
        ("name = 'p'\nlabel = 'l'\n[parts]\ncolumn = 'c'\n[base]\na = [1]\n[shifts]\n", "train"),
    ],
)
def test_a_wrong_protocol_is_refused(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(DatasetError, match=match):
        read_protocol(tmp_path / "p.toml")


def test_a_table_without_a_factor_is_refused() -> None:
    with raises(DatasetError, found="columns country", expected="columns camera, country, part, year"):
        split_rows([{"country": "US"}], read_protocol("streetview-storefronts"))
    with pytest.raises(DatasetError, match="storefronts"):
        read_protocol("storefronts")


def deepfashion2(root: Path) -> Path:
    """Three pictures: two items of which one is in the base, one shifted in scale, one of the training part."""

    def item(category: int, scale: int = 2, occlusion: int = 2, viewpoint: int = 2, zoom_in: int = 1) -> dict[str, int]:
        return {
            "category_id": category,
            "scale": scale,
            "occlusion": occlusion,
            "viewpoint": viewpoint,
            "zoom_in": zoom_in,
        }

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
    sets = open_splits(root, "deepfashion-remixed")
    assert {name: list(found.ids) for name, found in sets.items()} == {
        "deepfashion-remixed/train": ["train/image/000001.jpg"],
        "deepfashion-remixed/test": ["validation/image/000001.jpg"],
        "deepfashion-remixed/scale-small": ["train/image/000002.jpg", "validation/image/000002.jpg"],
        "deepfashion-remixed/occlusion-heavy": ["validation/image/000001.jpg"],
    }
    test = sets["deepfashion-remixed/test"]
    assert test.space == label_space("deepfashion2-13") and len(test.space) == 13
    assert test.label_sets == [(0, 8)], "not the trousers: other occlusion"
    assert sets["deepfashion-remixed/occlusion-heavy"].label_sets == [(7,)]
    assert_conforms(sets["deepfashion-remixed/scale-small"])


def test_deepfashion_remixed_is_scored_by_the_papers_map() -> None:
    settings = factor_settings("deepfashion-remixed")
    assert len(settings) == 9 and {setting.metric for setting in settings} == {"mean_average_precision"}
    assert [setting.name for setting in settings] == [s.name for s in build_suite("deepfashion-remixed").settings]
    assert settings[0].reference is None and {s.reference for s in settings[1:]} == {"deepfashion-remixed.test"}


@pytest.mark.parametrize("category", [0, 14, "top"])
def test_a_category_that_deepfashion2_lacks_is_refused(tmp_path: Path, category: Any) -> None:
    root = deepfashion2(tmp_path)
    file = root / "train" / "annos" / "000001.json"
    value = json.loads(file.read_text())
    value["item1"]["category_id"] = category
    file.write_text(json.dumps(value))
    with pytest.raises(DatasetError, match=r"000001\.json"):
        deepfashion2_rows(root)


def test_a_folder_without_annotations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no annotations of DeepFashion2"):
        deepfashion2_rows(tmp_path)
