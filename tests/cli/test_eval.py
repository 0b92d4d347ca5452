"""``shiftbench eval`` as a user types it: warnings as exit codes, own classes, JSON beside text."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import Result

import shiftbench as sb
from shiftbench.cli.eval import _resolve_paths
from shiftbench.errors import SettingError, ShiftbenchError
from tests.commands import answer, call, output
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder, darkest_channel

MODEL = """
import shiftbench as sb
from shiftbench.labels.space import LabelSpace

SMALL = sb.Preprocessing(sb.Geometry(36, 32))

def make(sign=1, names=("red", "green", "blue")):
    return sb.load_classifier(
        lambda images: sign * images.mean(axis=(1, 2)) / 20, name="bright" if sign > 0 else "dark",
        labels=LabelSpace("colours", names), preprocessing=SMALL,
    )

def make_wrong():
    return make(-1)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("project")
    colour_folder(root / "pictures", per_class=10)
    (root / "model.py").write_text(MODEL)
    (root / "colours.txt").write_text("red\ngreen\nblue\n")
    return root


def evaluated(project: Path, factory: str, workspace: Path, *more: object) -> Result:
    return call(
        *("eval", f"{project}/model.py:{factory}", "--data", project / "pictures", "-w", workspace),
        *("--labels", project / "colours.txt", "--quiet", *more),
    )


def numbers(text: str) -> set[str]:
    """Numbers with a decimal point; severities and counts are no results."""
    return set(re.findall(r"-?\d+\.\d+", text))


def values(data: object) -> Iterator[float]:
    """Every number of a JSON document."""
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list):
        for one in data:
            yield from values(one)
    elif isinstance(data, int | float) and not isinstance(data, bool):
        yield float(data)


@pytest.mark.parametrize(
    ("suite", "more"),
    [
        ("clean", ()),
        ("corruptions", ("--corruption", "gaussian_noise,contrast", "--severity", "1,5")),
        ("perturbations", ("--per-class", "1", "--corruption", "gaussian_noise,tilt")),
    ],
)
def test_json_has_every_number_that_the_text_has(project: Path, tmp_path: Path, suite: str, more: tuple[str]) -> None:
    options = ("--suite", suite, *more)
    text = evaluated(project, "make", tmp_path / "w", *options).stdout
    data = json.loads(evaluated(project, "make", tmp_path / "w", *options, "--json").stdout)
    data.pop("workspace")
    known = {f"{factor * value:.{places}f}" for value in values(data) for factor in (1, 100) for places in (1, 2, 3, 4)}
    shown = numbers(text.replace(str(tmp_path), ""))
    assert shown and shown <= known | {one.removeprefix("-") for one in known}
    assert {score["unit"] for score in data["scores"]} == {"fraction"}


def test_models_are_compared_on_the_images_that_most_have(project: Path, tmp_path: Path) -> None:
    """A sample first, then everything: the workspace holds two results of one model in one setting."""
    evaluated(project, "make", tmp_path / "w", "--sample", "10")
    for model in ("make", "make_wrong"):
        evaluated(project, model, tmp_path / "w")
    result = output("compare", "-w", tmp_path / "w")
    assert "n = 30" in result and "left out: bright on pictures (10 images" in result


def test_one_value_where_several_are_possible(project: Path, tmp_path: Path) -> None:
    model = sb.load_classifier(brightest_channel, labels=COLOURS, name="net", preprocessing={"size": 32})
    where: dict[str, Any] = {"data": project / "pictures", "workspace": tmp_path / "w", "progress": False}
    run = sb.evaluate(model, "corruptions", severities=3, corruptions="contrast", metric="top1", **where)
    assert run.settings == ["pictures", "pictures-c.contrast.3"]
    refused: list[dict[str, Any]] = [
        {"severities": "3"},
        {"data": np.zeros((2, 8, 8, 3), np.uint8)},
        {"data": ([], [])},
    ]
    for wrong in refused:
        with pytest.raises(SettingError):
            sb.evaluate(model, "corruptions", **where | wrong)


def test_strict_is_silent_where_nothing_is_wrong(project: Path, tmp_path: Path) -> None:
    assert evaluated(project, "make", tmp_path / "w", "--strict").exit_code == 0


def test_strict_prints_and_stores_everything_before_it_fails(project: Path, tmp_path: Path) -> None:
    plain = evaluated(project, "make_wrong", tmp_path / "w", "--json")
    strict = evaluated(project, "make_wrong", tmp_path / "w", "--json", "--strict")
    assert (plain.exit_code, strict.exit_code) == (0, 3)
    data = json.loads(strict.stdout)
    assert all(data[part] == json.loads(plain.stdout)[part] for part in ("scores", "warnings"))
    assert {warning["code"] for warning in data["warnings"]} <= {"permuted-labels", "chance-level"} and data["warnings"]
    assert evaluated(project, "make_wrong", tmp_path / "new", "--strict").exit_code == 3
    assert len(sb.Run.open(tmp_path / "new").results) == 1


def test_strict_counts_skipped_images(tmp_path: Path, project: Path) -> None:
    data = colour_folder(tmp_path / "pictures", per_class=8)
    (data / "red" / "000.png").write_bytes(b"")
    options = ("--data", data, "--labels", project / "colours.txt", "-q", "-w", tmp_path / "w", "--json", "--strict")
    result = call("eval", f"{project}/model.py:make", *options)
    assert result.exit_code == 3
    assert [warning["code"] for warning in json.loads(result.stdout)["warnings"]] == ["skipped-images"]


def test_a_strict_call_in_python_carries_the_run(project: Path, tmp_path: Path) -> None:
    with pytest.raises(sb.StrictRunError) as caught, warnings.catch_warnings():
        warnings.simplefilter("error", sb.ResultWarning)
        sb.evaluate(
            [
                sb.load_classifier(
                    f,
                    name=f.__name__,
                    labels=COLOURS,
                    preprocessing={"size": 32, "resize": "squash", "interpolation": "box"},
                )
                for f in (brightest_channel, darkest_channel)
            ],
            data=project / "pictures",
            workspace=tmp_path / "w",
            labels=COLOURS,
            progress=False,
            strict=True,
        )
    assert len(caught.value.run.results) == 2
    assert any(warning.code in ("permuted-labels", "chance-level") for warning in caught.value.warnings)


UNNAMED = """
import numpy as np

def make():
    \"\"\"Scores of blue, green and red: the folders in sorted order.\"\"\"
    return lambda images: images.mean(axis=(1, 2))[:, ::-1] / 20

def make_many():
    return lambda images: np.zeros((len(images), 7))

def make_imagenet():
    \"\"\"A thousand outputs; red images are tabbies, green ones sports cars, blue ones Samoyeds.\"\"\"
    def scores(images):
        means = images.mean(axis=(1, 2))
        found = np.zeros((len(images), 1000))
        found[:, [281, 817, 258]] = means
        return found
    return scores
"""


@pytest.fixture(scope="module")
def unnamed(project: Path) -> Path:
    (project / "unnamed.py").write_text(UNNAMED)
    return project / "unnamed.py"


def scores_of(result: Result) -> dict[str, float]:
    assert result.exit_code == 0, result.output
    return {score["setting"]: score["value"] for score in json.loads(result.stdout)["scores"]}


def test_folders_are_the_classes_of_a_model_with_as_many_outputs(project: Path, unnamed: Path, tmp_path: Path) -> None:
    first = ("eval", f"{unnamed}:make", "--data", project / "pictures", "-w", tmp_path / "w", "-q", "--json")
    by_default = call(*first)
    asked = call(*first, "--labels", "folders")
    assert scores_of(by_default) == scores_of(asked) == {"pictures": 1.0}
    (note,) = [warning for warning in json.loads(by_default.stdout)["warnings"] if warning["code"] == "own-classes"]
    assert "0 = blue, 1 = green, 2 = red" in note["message"] and "--labels folders" in note["message"]
    assert not any(warning["code"] == "own-classes" for warning in json.loads(asked.stdout)["warnings"])
    assert len(sb.Run.open(tmp_path / "w").results) == 1
    named = sb.load_classifier(f"{unnamed}:make", labels=["blue", "green", "red"], preprocessing={"size": 32})
    with warnings.catch_warnings():
        warnings.simplefilter("error", sb.ResultWarning)  # its classes are stated
        sb.evaluate(named, data=project / "pictures", workspace=tmp_path / "named", progress=False)


def test_another_number_of_outputs_is_refused_with_both_numbers(project: Path, unnamed: Path, tmp_path: Path) -> None:
    result = call("eval", f"{unnamed}:make_many", "--data", project / "pictures", "-w", tmp_path / "w", "-q")
    text = str(result.exception)
    assert "7 outputs" in text and "3 classes" in text and "--labels" in text
    with pytest.raises(sb.ShiftbenchError, match="labels=") as caught:
        sb.evaluate(f"{unnamed}:make_many", data=project / "pictures", workspace=tmp_path / "v", progress=False)
    assert "--labels" not in str(caught.value)


def test_names_count_where_the_model_has_some_whatever_their_order(project: Path, tmp_path: Path) -> None:
    result = call("eval", f"{project}/model.py:make", "--data", project / "pictures", "-w", tmp_path, "-q", "--json")
    assert scores_of(result) == {"pictures": 1.0}
    capitals = sb.load_classifier(brightest_channel, labels=["Red", "Green", "Blue"], name="capitals")
    run = sb.evaluate(capitals, data=project / "pictures", workspace=tmp_path / "c", progress=False)
    assert run.scores("top1")[0][2].value == 1.0


def test_a_list_of_names_is_in_the_models_order(project: Path, unnamed: Path, tmp_path: Path) -> None:
    for names, right in ((["blue", "green", "red"], 1.0), (("red", "green", "blue"), 1 / 3)):
        run = sb.evaluate(
            f"{unnamed}:make", data=project / "pictures", labels=names, workspace=tmp_path / names[0], progress=False
        )
        assert run.scores("top1")[0][2].value == pytest.approx(right)


@pytest.fixture(scope="module")
def renamed(project: Path) -> Path:
    """The same images in folders named by synonyms of ImageNet classes."""
    root = colour_folder(project / "renamed", per_class=4)
    for old, new in (("red", "tabby cat"), ("green", "Sports_Car"), ("blue", "samoyed")):
        (root / old).rename(root / new)
    return root


def test_folders_of_imagenet_synonyms(renamed: Path, unnamed: Path, tmp_path: Path) -> None:
    first = ("eval", f"{unnamed}:make_imagenet", "-w", tmp_path / "w", "-q", "--json")
    result = call(*first, "--data", renamed)
    assert scores_of(result) == {"renamed": 1.0}
    assert any("tabby cat = tabby (281)" in warning["message"] for warning in json.loads(result.stdout)["warnings"])


def test_a_mapping_from_own_classes_to_those_of_imagenet(project: Path, unnamed: Path, tmp_path: Path) -> None:
    first = ("eval", f"{unnamed}:make_imagenet", "--data", project / "pictures", "-w", tmp_path / "w", "-q", "--json")
    assert "data labels" in str(call(*first).exception)
    mappings = {
        "a.csv": "key,members\nred,tabby cat|n02124075\ngreen,817\nblue,Samoyed\n",
        "a.json": '{"red": ["tabby", 285], "green": "sports car", "blue": ["n02111889"]}',
        "a.toml": 'red = ["tabby", 285]\ngreen = 817\nblue = "Samoyed"\n',
    }
    for name, text in mappings.items():
        (tmp_path / name).write_text(text)
        assert scores_of(call(*first, "--labels", tmp_path / name)) == {"pictures": 1.0}
    assert len(sb.Run.open(tmp_path / "w").results) == 1


def keys(workspace: Path) -> set[str]:
    return {path.stem for path in workspace.glob("predictions/*/*/*.parquet")}


@pytest.mark.parametrize("data", ["pictures", "folder:pictures"])
def test_a_recorded_run_is_repeated_exactly(
    data: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)  # the paths of the record are relative to where the run started
    options = ("--suite", "corruptions", "--corruption", "contrast", "--severity", "2", "--seed", 3, "--per-class", 4)
    output("eval", "model.py:make", "--data", data, "-w", tmp_path / "a", "--labels", "colours.txt", "-q", *options)
    [record] = (tmp_path / "a" / "runs").glob("*.json")
    monkeypatch.chdir(tmp_path)
    again = call("eval", "--config", record, "-w", tmp_path / "b", "-q")
    assert again.exit_code == 0, again.output
    assert "not the recorded run" not in again.stderr
    assert keys(tmp_path / "a") == keys(tmp_path / "b") and len(keys(tmp_path / "b")) == 2
    for path in (tmp_path / "a").glob("predictions/*/*/*.parquet"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


def test_options_stand_above_a_configuration_file(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        f'''
        classifiers = ["{project}/model.py:make"]
        suite = "corruptions"
        data = "{project}/pictures"
        labels = "{project}/colours.txt"
        corruptions = ["contrast", "fog"]
        severities = [2]
        select = {{per_class = 3}}
        '''
    )
    scores = answer("eval", "--config", file, "-w", tmp_path / "w", "--corruption", "fog", "-q")["scores"]
    assert {(score["setting"], score["n"]) for score in scores} == {("pictures", 9), ("pictures-c.fog.2", 9)}


@pytest.mark.parametrize("text", ["sweet = 1", "suite = ", "[select]\nper_clas = 3", 'data = "s3://***@bucket/x"'])
def test_bad_configuration_files(tmp_path: Path, text: str) -> None:
    file = tmp_path / "run.toml"
    file.write_text(text)
    done = call("eval", "--config", file, "-w", tmp_path / "w")
    assert isinstance(done.exception, ShiftbenchError)
    assert call("eval", "-w", tmp_path / "w").exit_code == 2


def test_a_run_from_python_says_that_it_cannot_be_repeated(project: Path, tmp_path: Path) -> None:
    model = sb.load_classifier(brightest_channel, name="net", labels=COLOURS, preprocessing={"size": 32})
    sb.evaluate(model, data=project / "pictures", workspace=tmp_path / "w", labels=COLOURS, progress=False)
    [record] = (tmp_path / "w" / "runs").glob("*.json")
    done = call("eval", "--config", record)
    assert isinstance(done.exception, ShiftbenchError) and "net@" in str(done.exception.found)


def _tables(folder: Path) -> Path:
    """A folder of the hub's layout: a training table and a smaller test table."""
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(COLOURS.keys))})
    (folder / "data").mkdir(parents=True)
    for split, count in (("train", 6), ("test", 3)):
        images = [np.full((40, 40, 3), 200 * np.eye(3)[i % 3], np.uint8) for i in range(count)]
        rows = {"image": images, "label": [i % 3 for i in range(count)]}
        table = datasets.Dataset.from_dict(rows, features=features)
        table.to_parquet(str(folder / "data" / f"{split}-00000-of-00001.parquet"))
    return folder


def test_a_split_is_chosen_by_an_option_or_in_the_path(project: Path, tmp_path: Path) -> None:
    tables = _tables(tmp_path / "tables")
    words = ("eval", f"{project}/model.py:make", "-w", tmp_path / "w", "--quiet")
    by_option = answer(*words, "--data", tables, "--split", "test")
    by_path = answer(*words, "--data", tables / "test")
    assert by_option["scores"] == by_path["scores"] and by_option["scores"][0]["n"] == 3
    run = sb.evaluate(f"{project}/model.py:make", data=tables, split="test", workspace=tmp_path / "p", progress=False)
    assert [score.n for _, _, score in run.scores()] == [3]


def test_a_split_is_a_folder_of_class_folders_too(project: Path, tmp_path: Path) -> None:
    colour_folder(tmp_path / "data" / "val", per_class=2)
    done = answer(
        *("eval", f"{project}/model.py:make", "-w", tmp_path / "w", "--quiet"),
        *("--data", tmp_path / "data", "--split", "val"),
    )
    assert done["scores"][0]["n"] == 6


def test_a_split_of_an_opened_dataset_is_refused(project: Path) -> None:
    dataset = sb.open_dataset(project / "pictures", labels="folders")
    with pytest.raises(SettingError) as error:
        sb.evaluate(brightest_channel, data=dataset, split="test", progress=False)
    assert error.value.hint == "open_dataset(..., split='test')"


def test_limit_is_another_name_of_sample(project: Path, tmp_path: Path) -> None:
    done = evaluated(project, "make", tmp_path / "w", "--limit", "6", "--json")
    assert json.loads(done.stdout)["scores"][0]["n"] == 6


def test_data_in_the_place_of_a_model_or_suite_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    for words in (("model.py:make", "pictures"), ("model.py:make", "--suite", "pictures")):
        refused = call("eval", *words, "--labels", "colours.txt")
        assert isinstance(refused.exception, SettingError)
        assert refused.exception.hint == "did you mean --data pictures?"
    with pytest.raises(SettingError) as error:
        sb.evaluate(brightest_channel, "pictures", labels="folders")
    assert error.value.hint == "did you mean data='pictures'?"
    with pytest.raises(SettingError) as error:
        sb.evaluate(brightest_channel, sb.open_dataset("pictures", labels="folders"))  # type: ignore[arg-type]
    assert error.value.hint == "did you mean data=...?"


def test_recorded_names_of_models_lead_to_their_files_from_another_folder(tmp_path: Path) -> None:
    for name in ("network", "weights.pth", "prompts.txt"):
        (tmp_path / name).touch()
    resolved = {
        "hf:network": f"hf:{tmp_path}/network",
        "hf:network?prompts=prompts.txt": f"hf:{tmp_path}/network?prompts={tmp_path}/prompts.txt",
        "hf:org/name?prompts=clip-80": "hf:org/name?prompts=clip-80",
        "timm:resnet50@weights.pth?num_classes=7": f"timm:resnet50@{tmp_path}/weights.pth?num_classes=7",
        "timm:resnet50?checkpoint=weights.pth&num_classes=7": (
            f"timm:resnet50?checkpoint={tmp_path}/weights.pth&num_classes=7"
        ),
        "https://host/model.onnx?version=2": "https://host/model.onnx?version=2",
    }
    assert _resolve_paths(str(tmp_path), list(resolved)) == list(resolved.values())


def test_a_folder_that_is_called_like_a_suite_is_not_taken_for_it(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    colour_folder(tmp_path / "clean", per_class=2)
    done = answer("eval", f"{project}/model.py:make", "--suite", "clean", "--data", "clean", "-q")
    assert done["scores"][0]["n"] == 6
    with pytest.raises(SettingError) as error:
        sb.evaluate(brightest_channel, "clean", labels="folders")
    assert error.value.hint == "data='FOLDER'"


def test_classes_and_confusions_of_a_run(project: Path, tmp_path: Path) -> None:
    run = sb.evaluate(
        [brightest_channel, darkest_channel],
        data=project / "pictures",
        labels=["red", "green", "blue"],
        workspace=tmp_path / "w",
        preprocessing={"size": 32},
        progress=False,
    )
    table = run.per_class()
    assert table.to_csv(tmp_path / "classes.csv") == (tmp_path / "classes.csv").read_text()
    assert table.rows == run.groups("class").rows
    with pytest.raises(ShiftbenchError) as error:
        run.plot.confusion()
    assert error.value.hint == "model='brightest_channel'"
    figure = run.plot.confusion(model="brightest_channel")
    assert figure.write(tmp_path / "confusion.svg").stat().st_size > 1000
