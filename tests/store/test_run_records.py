"""Every run leaves one record: what was asked for, with which software, and which results came of it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import msgspec
import pytest

import shiftbench as sb
from shiftbench.api import IncompleteRunError
from shiftbench.errors import command_without_credentials
from shiftbench.store.maintenance import verify
from shiftbench.store.run_records import RunHistory, RunRecord, Software, is_alive, mixed_versions, read_runs
from shiftbench.store.workspace import Workspace
from tests import processes
from tests.commands import output
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder
from tests.runs.kill_target import evaluate_slowly


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return colour_folder(tmp_path / "pictures", per_class=6)


def model(name: str = "bright", crop: int = 32) -> sb.Classifier:
    preprocessing = sb.Preprocessing(sb.Geometry(resize=36, crop=crop))
    return sb.load_classifier(brightest_channel, labels=COLOURS, preprocessing=preprocessing, name=name)


def evaluate(data: Path, workspace: Path, *, classifier: object = None, **options: object) -> sb.Run:
    given = {"labels": COLOURS, "progress": False, **options}
    return sb.evaluate(classifier or model(), data=data, workspace=workspace, **given)  # type: ignore[arg-type]


def records(workspace: Path) -> list[RunRecord]:
    return read_runs(Workspace(workspace, create=False))[0]


def test_a_call_from_python(data: Path, tmp_path: Path) -> None:
    run = evaluate(data, tmp_path / "w", seed=3)
    (record,) = records(tmp_path / "w")
    assert (record.kind, record.status, record.command) == ("evaluate", "complete", [])
    assert record.started <= record.ended and record.call.startswith("evaluate(") and "seed=3" in record.call
    assert record.configuration["seed"] == 3 and record.configuration["suite"] == "clean"
    assert record.data == {"data": str(data)}
    assert record.software.versions["shiftbench"] == sb.__version__
    assert {"numpy", "pillow"} <= record.software.versions.keys() and record.software.python and record.software.cpu
    (one,) = record.models
    assert one.id == run.results[0].model_id and one.computed == [run.results[0].key] and not one.reused


def test_a_second_run_reuses_and_changes_no_prediction(data: Path, tmp_path: Path) -> None:
    run = evaluate(data, tmp_path / "w")
    before = {path: path.read_bytes() for path in (tmp_path / "w/predictions").rglob("*.parquet")}
    evaluate(data, tmp_path / "w")
    assert before == {path: path.read_bytes() for path in (tmp_path / "w/predictions").rglob("*.parquet")}
    first, second = records(tmp_path / "w")
    assert second.models[0].reused == first.models[0].computed == [run.results[0].key]
    assert [maker.id for maker in RunHistory.of(run.workspace).makers(run.results[0])] == [first.id]
    assert not list(verify(run.workspace)) and not list((tmp_path / "w/locks").glob("run-*"))


def test_the_command_line_is_kept_as_typed(tmp_path: Path) -> None:
    (tmp_path / "survey.csv").write_text("id,prediction,label\na,0,0\nb,1,0\n")
    typed = ["import", str(tmp_path / "survey.csv"), "--setting", "survey", "--labels", "cifar-10", "-w"]
    output(*typed, tmp_path / "w")
    (record,) = records(tmp_path / "w")
    assert record.kind == "import" and record.command == ["shiftbench", *typed, str(tmp_path / "w")]
    assert record.models[0].computed and record.configuration["setting"] == "survey"


def test_no_credentials_are_kept() -> None:
    typed = ["eval", "m.onnx", "--data", "https://me:secret@host/x.zip?X-Sig=secret", "--token=secret"]
    assert "secret" not in " ".join(command_without_credentials(typed))
    assert command_without_credentials(["eval", "s3://bucket/val"]) == ["eval", "s3://bucket/val"]


def test_a_failed_run_says_why(data: Path, tmp_path: Path) -> None:
    def broken(images: object) -> object:
        raise ValueError("a leak in the roof")

    bad = sb.load_classifier(broken, labels=COLOURS, name="bad")
    with pytest.raises(IncompleteRunError):
        evaluate(data, tmp_path / "w", classifier=bad)
    (record,) = records(tmp_path / "w")
    assert record.status == "incomplete" and "a leak in the roof" in record.error


def test_jobs_of_an_array_each_leave_a_record(data: Path, tmp_path: Path) -> None:
    for job in ("1/2", "2/2"):
        evaluate(data, tmp_path / "w", shard=job)
    first, second = records(tmp_path / "w")
    (key,) = first.models[0].shared
    assert second.models[0].shared == [key]
    (result,) = Workspace(tmp_path / "w").results()
    assert len(RunHistory([first, second]).makers(result)) == 2


@pytest.mark.slow
def test_a_killed_run_leaves_its_record_and_the_next_one_its_own(tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "pictures", per_class=60)
    place = tmp_path / "w"
    process = processes.start(evaluate_slowly, place, data, 1)
    while process.exitcode is None and not list(place.glob("shards/*/*/*/*.parquet")):
        time.sleep(0.01)
    (killed,) = records(place)
    assert is_alive(Workspace(place), killed.id)
    process.kill()
    process.join()
    (killed,) = records(place)
    assert killed.status == "running" and not killed.ended and not is_alive(Workspace(place), killed.id)
    evaluate_slowly(place, data, 1)
    first, second = records(place)
    assert (first.id, second.status) == (killed.id, "complete")
    # Blocks of the killed run were used: both made that result.
    made = RunHistory([first, second])
    assert any(len(made.makers(result)) == 2 for result in Workspace(place).results())


def test_a_damaged_record_disturbs_nothing(data: Path, tmp_path: Path) -> None:
    run = evaluate(data, tmp_path / "w")
    (path,) = (tmp_path / "w/runs").glob("*.json")
    path.write_text(json.dumps({"id": 3}))
    assert [one.file for one in verify(run.workspace)] == [f"runs/{path.name}"]
    assert sb.Run.open(tmp_path / "w").scores() == run.scores()


def test_the_libraries_that_decode_images_are_recorded() -> None:
    import PIL.Image  # noqa: F401
    from PIL import features

    software = Software.present()
    assert software.versions["libjpeg"] == features.version("jpg")
    assert software.versions["zlib"] == features.version("zlib")
    other = msgspec.structs.replace(software, versions={**software.versions, "libjpeg": "6b"})
    assert list(mixed_versions([software, other])) == ["libjpeg"]
    # Records of earlier versions do not name these libraries, which is no difference.
    older = msgspec.structs.replace(software, versions={"pillow": software.versions["pillow"]})
    assert mixed_versions([software, older]) == {}
