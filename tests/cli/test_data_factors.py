"""Factor-split sets as a user types them: a table, a protocol, a real network."""

from __future__ import annotations

import csv
import json
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.errors import ResultWarning
from tests.commands import answer, call, output
from tests.datasets.factor_trees import LOOKS_AT_PLACES, deepfashion2_tree
from tests.datasets.test_factors import shops_on_disk
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder

SQUEEZENET = "demo:squeezenet1_1"
STOREFRONTS = "streetview-storefronts"
FULL = sb.label_space("imagenet-1k")


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs with the storefronts' columns; the old camera is noisy. Their wnids stand for the businesses."""
    root = tmp_path_factory.mktemp("shops")
    demo = sb.open_dataset("demo")
    with (root / "shops.csv").open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["path", "business", "country", "year", "camera", "part", "photographer"])
        for i in range(0, len(demo), 3):
            country = "FR" if i % 5 == 0 else "US"
            year = 2018 if i % 7 == 0 else 2019
            camera = "old" if i % 4 == 0 else "new"
            part = "train" if i % 9 == 0 else "test"
            pixels = sb.Geometry(resize=256, crop=None)(demo.read(i).pixels)
            if camera == "old":
                pixels = sb.corrupt(pixels, "gaussian_noise", 5, image_id=str(i))
            Image.fromarray(pixels).save(root / f"{i}.png")
            who = f"photographer {i % 2}"
            table.writerow([f"{i}.png", FULL.keys[demo.labels[i]], country, year, camera, part, who])
    (root / "cameras.toml").write_text(
        "name = 'cameras'\nlabel = 'business'\n[base]\ncamera = ['new']\n[shifts.old]\ncamera = ['old']\n"
    )
    # The protocol of the paper, for classes of your own.
    own = [line for line in protocol_text(STOREFRONTS).splitlines() if not line.startswith("classes")]
    (root / "storefronts.toml").write_text("\n".join(own))
    return root


def protocol_text(name: str) -> str:
    return resources.files("shiftbench.datasets").joinpath(f"protocols/{name}.toml").read_text("utf-8")


def right_by_hand(root: Path, **wanted: str) -> tuple[int, int]:
    """Right and all of the rows with these values, with the network called directly."""
    with (root / "shops.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if all(row[key] == value for key, value in wanted.items())]
    network = sb.load_classifier(SQUEEZENET)
    images = [np.asarray(Image.open(root / row["path"]).convert("RGB")) for row in rows]
    best = network.scores(np.stack([network.preprocessing.geometry(image) for image in images])).argmax(axis=1)
    return sum(FULL.keys[k] == row["business"] for k, row in zip(best, rows, strict=True)), len(rows)


@pytest.fixture(scope="module")
def workspace(shops: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    workspace = tmp_path_factory.mktemp("w") / "w"
    result = call(
        *(
            "eval",
            SQUEEZENET,
            "--suite",
            f"factors:{shops}/storefronts.toml",
            "--data",
            f"{STOREFRONTS}={shops}/shops.csv",
        ),
        *("--labels", "imagenet-1k", "-w", workspace, "-q"),
    )
    assert result.exit_code == 0, str(result.exception)
    assert "left out: streetview-storefronts.year-2017" in result.output.replace("\n", " ")
    return workspace


def test_storefronts_from_a_table(shops: Path, workspace: Path) -> None:
    base = {"part": "test", "country": "US", "year": "2019", "camera": "new"}
    found = {row["setting"]: row for row in answer("table", "-w", workspace)["scores"]}
    assert {row["metric"] for row in found.values()} == {"error"}
    for name, changed in (("test", {}), ("old-camera", {"camera": "old"}), ("france", {"country": "FR"})):
        right, n = right_by_hand(shops, **{**base, **changed})
        row = found[f"{STOREFRONTS}.{name}"]
        assert (row["n"], row["value"]) == (n, pytest.approx(1 - right / n))
    assert found[f"{STOREFRONTS}.old-camera"]["value"] > found[f"{STOREFRONTS}.test"]["value"] + 0.2


def test_groups_by_any_column_of_the_table(shops: Path, workspace: Path) -> None:
    """``photographer`` is no factor of the protocol; it was in the table when the run was made."""
    found = answer("groups", "-w", workspace, "-s", f"{STOREFRONTS}.test", "--by", "photographer")["scores"]
    base = {"part": "test", "country": "US", "year": "2019", "camera": "new"}
    for who in ("photographer 0", "photographer 1"):
        right, n = right_by_hand(shops, **base, photographer=who)
        row = next(row for row in found if row["setting"] == f"photographer {who}")
        assert (row["n"], row["value"]) == (n, pytest.approx(right / n))
    everywhere = answer("groups", "-w", workspace, "--by", "camera")["scores"]
    assert {f"{STOREFRONTS}.old-camera camera old", f"{STOREFRONTS}.test camera new"} <= {
        row["setting"] for row in everywhere
    }


def test_a_protocol_of_ones_own_by_its_path(shops: Path, tmp_path: Path) -> None:
    output(
        *("eval", SQUEEZENET, "--suite", f"factors:{shops}/cameras.toml", "--data", shops / "shops.csv"),
        *("--labels", "imagenet-1k", "-w", tmp_path / "w", "-q"),
    )
    found = {row["setting"]: row for row in answer("table", "-w", tmp_path / "w")["scores"]}
    for name, camera in (("test", "new"), ("old", "old")):
        right, n = right_by_hand(shops, camera=camera)
        row = found[f"cameras.{name}"]
        assert (row["metric"], row["n"], row["value"]) == ("top1", n, pytest.approx(right / n))
    listed = call("list", "settings", "--suite", f"factors:{shops}/cameras.toml").stdout
    assert "cameras.test" in listed and "cameras.old" in listed
    assert "factors:PROTOCOL.toml" in call("list", "suites").stdout
    missing = call("eval", SQUEEZENET, "--suite", f"factors:{tmp_path}/no.toml", "--data", shops / "shops.csv")
    assert "protocol" in str(missing.exception)


def test_data_factors_counts_and_says_what_is_left_over(tmp_path: Path) -> None:
    table = shops_on_disk(tmp_path)
    audit = answer("data", "factors", table, STOREFRONTS)
    assert {one["name"]: one["images"] for one in audit["sets"]}["france"] == 2 and audit["ok"]
    for width in (60, 80, 160):
        result = output("data", "factors", table, STOREFRONTS, columns=width)
        assert "differ in country and year" in result and "training and test" in result
        assert all(len(line) <= width for line in result.splitlines() if not line.startswith("use:"))


def test_data_factors_writes_the_set_of_every_row(tmp_path: Path) -> None:
    table = shops_on_disk(tmp_path)
    assert call("data", "factors", table, STOREFRONTS, "-o", tmp_path / "sets.csv").exit_code == 0
    with (tmp_path / "sets.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 72 and {row["set"] for row in rows if row["country"] == "FR"} == {"", "france"}
    again = answer("data", "factors", tmp_path / "sets.csv", STOREFRONTS)
    assert again["rows"] == 72 and again["ok"], "the written table is a table again"


def test_data_factors_ends_with_1_where_something_is_missing(tmp_path: Path) -> None:
    table = shops_on_disk(tmp_path)
    (tmp_path / "003.png").unlink()
    result = call("data", "factors", table, STOREFRONTS)
    assert result.exit_code == 1 and "1 of 72 images, such as 003.png" in result.stdout
    assert "a folder" in str(call("data", "factors", tmp_path, STOREFRONTS).exception)
    assert "protocol" in str(call("data", "factors", table, "storefronts").exception)


def test_deepfashion_remixed_from_its_folder(tmp_path: Path) -> None:
    root = deepfashion2_tree(tmp_path / "DeepFashion2", train=10, validation=40)
    (tmp_path / "model.py").write_text(LOOKS_AT_PLACES)
    result = output(
        *(
            "eval",
            f"{tmp_path}/model.py:make",
            "--suite",
            "deepfashion-remixed",
            "--data",
            f"deepfashion-remixed={root}",
        ),
        *("-w", tmp_path / "w", "-q", "--json"),
    )
    scores = json.loads(result)["scores"]
    assert {row["metric"] for row in scores} == {"mean_average_precision", "mean_average_precision_plain"}
    test = [row for row in scores if row["setting"] == "deepfashion-remixed.test"]
    for metric in ("mean_average_precision", "mean_average_precision_plain"):
        own = {row["setting"].split(".")[1]: row for row in scores if row["metric"] == metric}
        eight = [row["value"] for name, row in own.items() if name not in ("test", "shifted")]
        assert len(eight) == 8 and own["shifted"]["value"] == pytest.approx(np.mean(eight))
        assert own["shifted"]["low"] < own["shifted"]["value"] < own["shifted"]["high"]
    assert len(test) == 2 and all(row["low"] < row["value"] < row["high"] for row in test)
    shown = call("table", "-w", tmp_path / "w", "-s", "deepfashion-remixed.test", columns=80).stdout
    assert "precision_plain" in shown and max(map(len, shown.splitlines())) <= 80


def test_a_group_that_is_not_shown_is_explained(tmp_path: Path) -> None:
    photos = colour_folder(tmp_path / "photos", per_class=3)
    for path in (photos / "green").iterdir():
        path.write_bytes(b"not an image")
    model = sb.load_classifier(brightest_channel, name="m", labels=COLOURS, preprocessing={"size": 32})
    with pytest.warns(ResultWarning, match="3 images"):
        sb.evaluate(model, data=photos, workspace=tmp_path / "w", labels=COLOURS, progress=False)
    shown = " ".join(output("groups", "-w", tmp_path / "w", "--by", "class").split())
    assert "class green of m: none of its 3 images is readable" in shown and "class red of m: none" not in shown
