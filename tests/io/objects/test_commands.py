"""The command line by URL, with a real classifier on real photographs, against the same on the disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.datasets.catalogue import open_named
from shiftbench.io.paths import place
from shiftbench.settings.base import Setting
from shiftbench.store.export import export_table
from shiftbench.store.workspace import Workspace
from tests.commands import answer, call, output
from tests.io.objects.server import Bucket, Server
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder
from tests.runs.test_evaluate import as_classifier

CLASSIFIERS = ("demo:squeezenet1_1", "demo:efficientnet-lite0")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few of the demo's photographs in class folders."""
    root = tmp_path_factory.mktemp("photographs") / "photos"
    demo = open_named("demo")
    for index in range(0, len(demo), 16):
        path = root / demo.space.keys[demo.labels[index]] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(demo.read(index).pixels).save(path)
    return root


@pytest.fixture(scope="module")
def places(photos: Path, server: Server, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Bucket]:
    """The same evaluation on the disk and by URL."""
    disk = tmp_path_factory.mktemp("disk") / "w"
    bucket = server.new_bucket()
    url = bucket.put_folder(photos, "photos")
    for data, workspace in ((photos, disk), (url, f"{bucket.url}/w")):
        output("eval", *CLASSIFIERS, "--data", data, "--workspace", workspace, "--quiet", "--json")
    # By URL every run writes the catalogue, on a disk only large ones do.
    output("store", "compact", disk)
    return disk, bucket


def test_a_real_evaluation_by_url_writes_the_same_bytes(places: tuple[Path, Bucket]) -> None:
    disk, bucket = places
    local = {str(path.relative_to(disk)): path.read_bytes() for path in disk.rglob("*") if path.is_file()}
    there = bucket.files("w")
    # A source is recorded as it was given, as a path or a URL; each run has a record of its own.
    apart = ("locks/", "runs/")
    assert {name: data for name, data in there.items() if not name.startswith(apart) and "source" not in name} == {
        name: data for name, data in local.items() if not name.startswith(apart) and "source" not in name
    }
    assert len([name for name in there if name.startswith("runs/")]) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("table", "--json", "-w"),
        ("compare", "--json", "-w"),
        ("study", "agreement", "--json", "-w"),
        ("store", "stats", "--json"),
        ("store", "verify", "--quiet", "--json"),
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_commands_say_the_same_by_url(places: tuple[Path, Bucket], words: tuple[str, ...]) -> None:
    disk, bucket = places
    assert json.loads(output(*words, f"{bucket.url}/w")) == json.loads(output(*words, disk))


def test_compaction_export_and_report_by_url(places: tuple[Path, Bucket], tmp_path: Path) -> None:
    disk, bucket = places
    assert answer("store", "compact", f"{bucket.url}/w")["catalogued"] == 2
    output("store", "export", f"{bucket.url}/all.parquet", "-w", f"{bucket.url}/w", "--quiet")
    local = Workspace(disk)
    export_table(local, tmp_path / "all.parquet", local.results())
    assert place(f"{bucket.url}/all.parquet").read_bytes() == (tmp_path / "all.parquet").read_bytes()
    report = tmp_path / "report.html"
    output("report", "-w", f"{bucket.url}/w", "--images", f"photos={bucket.url}/photos", "-o", report)
    text = report.read_text()
    assert "squeezenet1_1" in text and "no pictures of photos" not in text


def test_import_by_url(photos: Path, bucket: Bucket, tmp_path: Path) -> None:
    url = bucket.put_folder(photos, "photos")
    names = [f"{path.parent.name}/{path.name},{path.parent.name}" for path in sorted(photos.rglob("*.png"))]
    (tmp_path / "oracle.csv").write_text("\n".join(["id,prediction", *names]))
    options = ("--setting", "photos", "--labels", "imagenet-1k", "--quiet", "--json")
    there = output("import", tmp_path / "oracle.csv", "--data", url, "-w", f"{bucket.url}/w", *options)
    here = output("import", tmp_path / "oracle.csv", "--data", photos, "-w", tmp_path / "w", *options)
    mine = json.loads(there)
    theirs = json.loads(here)
    assert mine.pop("workspace") == f"{bucket.url}/w" and theirs.pop("workspace") == str(tmp_path / "w")
    assert mine == theirs and mine["scores"][0]["value"] == 1.0


def test_several_data_sets_below_one_url(bucket: Bucket, tmp_path: Path) -> None:
    for seed, role in enumerate(("day", "night")):
        colour_folder(tmp_path / "sets" / role, per_class=3, seed=seed)
    settings = [Setting("day", "day"), Setting("night", "night", reference="day")]
    url = bucket.put_folder(tmp_path / "sets", "sets")
    model = as_classifier(brightest_channel, "bright")
    scores = [
        sb.evaluate(model, settings, data, workspace, labels=COLOURS, progress=False).summary()["scores"]
        for data, workspace in ((url, f"{bucket.url}/w"), (tmp_path / "sets", tmp_path / "w"))
    ]
    assert scores[0] == scores[1] and len(scores[0]) == 2


def test_data_is_checked_by_url(places: tuple[Path, Bucket], photos: Path) -> None:
    _, bucket = places
    here, there = (answer("data", "check", data) for data in (photos, f"{bucket.url}/photos"))
    assert there.pop("path") == f"{bucket.url}/photos" and here.pop("path") == str(photos)
    assert there == here and here["images"] > 5
    missing = call("data", "check", f"{bucket.url}/nowhere")
    assert missing.exit_code == 1 and f"{bucket.url}/nowhere" in str(missing.exception)
