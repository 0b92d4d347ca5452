"""``shiftbench gate`` as CI runs it: verdicts, exit codes, baselines, files, and bad input."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import Result

import shiftbench as sb
from shiftbench.studies.gate import paired_settings
from tests import processes
from tests.cli.gate_target import gate_until_killed
from tests.commands import call
from tests.reports.page.test_report_command import payload
from tests.runs.helpers import COLOURS, colour_folder

MODEL = """
import numpy as np
import shiftbench as sb
from shiftbench.labels.space import LabelSpace

def make(name, names=("red", "green", "blue"), wrong=0, nan=False):
    def scores(images):
        found = images.mean(axis=(1, 2)) / 20
        chosen = images.astype(np.int64).sum(axis=(1, 2, 3)) % 100 < wrong
        return np.where(chosen[:, None], np.nan if nan else -found, found)
    return sb.load_classifier(
        scores, name=name, labels=LabelSpace("colours", names), preprocessing=sb.Preprocessing(sb.Geometry(36, 32))
    )

def old(): return make("old")
def same(): return make("new")
def worse(): return make("worse", wrong=40)
def broken(): return make("broken", wrong=40, nan=True)
def other(): return make("other", names=("red", "green", "blue", "black"))
"""
OPTIONS = ("--corruption", "gaussian_noise,contrast", "--quiet", "--trust")
PREPROCESS = "size=32,mean=0,std=0.1,scale=1/255,colour=bgr,interpolation=bilinear"
POLICY = """
[[rule]]
of = "clean"
margin = 5
[[rule]]
of = "mean"
margin = 5
[[rule]]
of = "class"
margin = 20
undecided = "allow"
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("gate")
    colour_folder(root / "photos", per_class=40)
    (root / "model.py").write_text(MODEL)
    (root / "colours.txt").write_text("red\ngreen\nblue\n")
    (root / "gate.toml").write_text(POLICY)
    done = call("gate", "pin", f"{root}/model.py:old", "-o", root / "b.parquet", *common(root), "-w", root / "old")
    assert done.exit_code == 0, done.output
    return root


def common(project: Path, severity: str = "1,3") -> tuple[object, ...]:
    return ("--data", project / "photos", "--labels", project / "colours.txt", *OPTIONS, "--severity", severity)


def gate(project: Path, model: str, against: object, *more: object) -> Result:
    usual = {"--policy": project / "gate.toml", "--data": project / "photos", "-w": project / "new"}
    words = [word for option in usual.items() if option[0] not in more for word in option]
    return call("gate", f"{project}/model.py:{model}", "--against", against, *words, "--quiet", "--trust", *more)


@pytest.mark.parametrize(("model", "code", "verdict"), [("same", 0, "PASS"), ("worse", 1, "FAIL")])
def test_baselines_of_all_kinds_give_one_verdict(project: Path, model: str, code: int, verdict: str) -> None:
    found = [
        gate(project, model, f"{project}/model.py:old", *common(project)),
        # The options of a stored baseline are used again.
        gate(project, model, project / "b.parquet"),
        gate(project, model, project / "old"),
    ]
    for one in found:
        assert one.exit_code == code, one.output
        assert one.stdout.startswith(verdict)
    lines = {one.stdout.partition("\n\n")[0] for one in found}
    assert len(lines) == 1
    assert "photos-c" in lines.pop()


def test_not_enough_images(project: Path) -> None:
    few = gate(project, "same", f"{project}/model.py:old", *common(project), "--per-class", 8, "--json")
    assert few.exit_code == 2
    data = json.loads(few.stdout)
    assert data["verdict"] == "not enough images" and data["images"] == 24 and data["images_needed"] > 24
    # Clean, and two corruptions at two severities.
    assert data["passes_needed"] == 5 * data["images_needed"]
    assert all(
        rule["decidable_margin"] > rule["margin"] for rule in data["rules"] if rule["verdict"] == data["verdict"]
    )


def test_a_repeated_gate_bets_on_the_images_of_the_first_one_first(project: Path, tmp_path: Path) -> None:
    """So that the evidence of a larger dataset continues that of the smaller one."""
    options = ("-w", tmp_path / "w", "--policy", project / "gate.toml", "--json")
    few = gate(project, "same", f"{project}/model.py:old", *common(project), "--per-class", 8, *options)
    assert few.exit_code == 2
    more = gate(project, "same", f"{project}/model.py:old", *common(project), *options)
    assert more.exit_code == 0, more.output
    workspace = sb.Run.open(tmp_path / "w").workspace
    results = [result for result in workspace.results(["new"]) if result.spec.images == 120]
    baseline = {result.setting: workspace.read(result, scores=False) for result in results}
    settings, notes = paired_settings(workspace, results, baseline)
    first_look = {
        image_id
        for result in workspace.results(["new"])
        if result.spec.images == 24
        for image_id in workspace.dataset(result.spec.dataset.name, result.spec.dataset.fingerprint).ids
    }
    assert len(first_look) == 24 and not notes
    for setting in settings:
        early = setting.observations.images < 24
        assert set(setting.ids[early]) == first_look


def test_another_seed_on_the_same_candidate_is_reported(project: Path, tmp_path: Path) -> None:
    """Of several draws of the shifts a pass could be chosen."""
    options = ("-w", tmp_path / "w", "--policy", project / "gate.toml", "--json")
    first = gate(project, "same", f"{project}/model.py:old", *common(project), "--seed", 1, *options)
    assert not any("seed" in note for note in json.loads(first.stdout)["notes"])
    second = gate(project, "same", f"{project}/model.py:old", *common(project), *options)
    assert any("seed 1:" in note for note in json.loads(second.stdout)["notes"])


def test_another_sample_for_the_same_candidate_is_reported(project: Path, tmp_path: Path) -> None:
    """Of several samples a pass could be chosen; more images of the same sample are no other choice."""
    options = ("-w", tmp_path / "w", "--policy", project / "gate.toml", "--json", *common(project, severity="3"))
    notes = []
    for size, seed in [(20, 1), (30, 1), (30, 2)]:
        words = ("--sample", size, "--seed", seed)
        judged = gate(project, "same", f"{project}/model.py:old", *words, *options)
        notes.append([note for note in json.loads(judged.stdout)["notes"] if "another sample" in note])
    assert not notes[0] and not notes[1]
    assert len(notes[2]) == 1 and "'photos" in notes[2][0]


def test_one_pass(project: Path) -> None:
    words = ("--design", "one-pass", "--json")
    worse = gate(project, "worse", f"{project}/model.py:old", *common(project, "1-5"), *words)
    assert worse.exit_code == 1
    data = json.loads(worse.stdout)
    mean = data["rules"][1]
    assert mean["verdict"] == "fail" and mean["checks"][0]["images"] == 120
    assert len(data["newly_wrong"]) == 11  # clean, and two corruptions at five severities


def test_groups_of_a_design_whose_settings_met_two_images_each(project: Path, tmp_path: Path) -> None:
    rows = [
        f"{project}/photos/{name}/{i:03}.png,{name},{'fr' if i % 3 else 'us'}"
        for name in COLOURS.keys
        for i in range(7)
    ]
    (tmp_path / "m.csv").write_text("\n".join(["path,label,country", *rows]))
    rule = '[[rule]]\nof = "group"\nby = "country"\nmargin = 5\nonly = ["*-c"]\n'
    (tmp_path / "gate.toml").write_text(rule)
    data = ("--data", tmp_path / "m.csv", "--allow-outside", "--labels", project / "colours.txt", *OPTIONS)
    words = ("-w", tmp_path / "w", "--policy", tmp_path / "gate.toml", "--json", "--design", "one-pass")
    done = gate(project, "worse", f"{project}/model.py:old", *data, *words, "--severity", "1-5")
    assert done.exit_code in (1, 2), done.output
    [rule_found] = json.loads(done.stdout)["rules"]
    assert {check["name"]: check["images"] for check in rule_found["checks"]} == {
        "fr in m.csv-c": 12,
        "us in m.csv-c": 9,
    }
    table = call("groups", "-w", tmp_path / "w", "--by", "country", "--json")
    assert table.exit_code == 0, table.output


def test_files(project: Path, tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("g.md", "g.xml", "g.html")}
    done = gate(
        project,
        "worse",
        project / "b.parquet",
        "--markdown",
        files["g.md"],
        "--junit",
        files["g.xml"],
        "--report",
        files["g.html"],
        "--json",
    )
    assert done.exit_code == 1
    data = json.loads(done.stdout)
    suite = ElementTree.parse(files["g.xml"]).getroot()
    assert [int(suite.attrib[key]) for key in ("tests", "failures")] == [3, 2 + (data["rules"][2]["verdict"] == "fail")]
    assert verdict_of(suite) == "FAIL"
    cases = {case.attrib["name"]: case for case in suite.iter("testcase")}
    assert cases["clean accuracy (margin 5 points)"].find("failure") is not None
    text = files["g.md"].read_text()
    assert text.startswith("<!-- shiftbench gate -->") and "FAIL" in text.splitlines()[2]
    wrong = data["newly_wrong"]["photos"]
    assert wrong and wrong[0] in text
    # The report shows the images that are newly wrong, and no others.
    page = payload(files["g.html"])
    assert page["title"] == data["text"]
    lists = {one["setting"]: one for one in page["sections"]["failures"]["lists"]}  # type: ignore[index]
    shown = {mistake["id"] for mistake in lists["photos"]["images"]}
    assert shown and shown <= set(wrong)
    assert lists["photos"]["total"] == len(wrong)


def verdict_of(suite: ElementTree.Element) -> str:
    [verdict] = [entry.attrib["value"] for entry in suite.iter("property") if entry.attrib["name"] == "verdict"]
    return verdict


def test_a_pass_says_how_many_rules_are_undecided(project: Path, tmp_path: Path) -> None:
    """Equal models, and rules of classes and families that 120 images can't decide."""
    rules = "".join(f'[[rule]]\nof = "{of}"\nmargin = 1\nundecided = "allow"\n' for of in ("class", "family"))
    (tmp_path / "gate.toml").write_text('[[rule]]\nof = "clean"\nmargin = 5\n' + rules)
    words = ("--policy", tmp_path / "gate.toml")
    files = {name: tmp_path / name for name in ("g.md", "g.xml", "g.html")}
    outputs = ("--markdown", files["g.md"], "--junit", files["g.xml"], "--report", files["g.html"])
    done = gate(project, "same", project / "b.parquet", *words, *outputs)
    assert done.exit_code == 0, done.output
    headline = "PASS (2 rules undecided)"
    assert done.stdout.startswith(headline + ":")
    assert "every drop is shown" not in done.stdout
    shown = " ".join(done.stdout.split())
    possible = re.search(r"not shown: each class \(a loss of up to ([\d.]+) points could hide\)", shown)
    assert possible is not None
    assert "probability of 80 %" in shown and "if the candidate is as good as the baseline" in shown
    assert headline in files["g.md"].read_text().splitlines()[2]
    assert "every drop is shown" not in files["g.md"].read_text()
    assert str(payload(files["g.html"])["title"]).startswith(headline)
    suite = ElementTree.parse(files["g.xml"]).getroot()
    assert verdict_of(suite) == headline and suite.attrib["skipped"] == "2"
    data = json.loads(gate(project, "same", project / "b.parquet", *words, "--json").stdout)
    assert data["undecided"] == ["each class", "each corruption family"]
    largest = max(-check["low"] for check in data["rules"][1]["checks"])
    assert float(possible[1]) == pytest.approx(100 * largest, abs=0.051)
    assert data["rules"][1]["needed_if"] == "no drop" and data["rules"][1]["images_needed"] > 120
    assert data["rules"][0]["images_needed"] is None


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network, a copy of it under another name, and another one; all as ONNX files."""
    root = tmp_path_factory.mktemp("networks")
    colour_folder(root / "photos", per_class=10)
    weights = np.eye(3, dtype=np.float32)
    save_network(root / "model.onnx", weights)
    shutil.copy(root / "model.onnx", root / "copy.onnx")
    save_network(root / "other.onnx", 2 * weights)
    return root


def save_network(path: Path, weights: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> None:
    """Mean of each channel, times weights."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["scores"]),
    ]
    inputs = [helper.make_tensor_value_info("image", onnx.TensorProto.FLOAT, ["n", 3, 32, 32])]
    outputs = [helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["n", 3])]
    graph = helper.make_graph(nodes, "colours", inputs, outputs, [onnx.numpy_helper.from_array(weights, "weights")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def judged_networks(root: Path, candidate: str, against: object, *more: object) -> Result:
    usual = {"--preprocess": PREPROCESS, "--data": root / "photos"}
    words = [word for option in usual.items() if option[0] not in more for word in option]
    named = ("--labels", "folders", "--suite", "clean", "--quiet")
    return call("gate", root / candidate, "--against", against, *words, *named, *more)


@pytest.mark.parametrize("candidate", ["model.onnx", "copy.onnx"])
@pytest.mark.parametrize("kind", ["model", "workspace", "pinned"])
def test_the_baseline_itself_is_not_evaluated(networks: Path, tmp_path: Path, candidate: str, kind: str) -> None:
    against = networks / "model.onnx"
    if kind != "model":
        data = ("--data", networks / "photos", "--suite", "clean", "--labels", "folders", "--preprocess", PREPROCESS)
        destination = ("-w", tmp_path / "before", "-o", tmp_path / "b.parquet")
        pinned = call("gate", "pin", against, *data, *destination, "--quiet")
        assert pinned.exit_code == 0, pinned.output
        against = tmp_path / ("before" if kind == "workspace" else "b.parquet")
    here = ("-w", tmp_path / "w")
    files = {name: tmp_path / name for name in ("g.md", "g.xml", "g.html")}
    outputs = ("--markdown", files["g.md"], "--junit", files["g.xml"], "--report", files["g.html"])
    done = judged_networks(networks, candidate, against, *here, *outputs)
    text = "identical to the baseline: nothing to compare"
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("IDENTICAL:") and text in done.stdout and "-2@" not in done.stdout
    assert not list((tmp_path / "w/predictions").rglob("*.parquet")), "nothing is evaluated"
    assert text in files["g.md"].read_text() and "IDENTICAL" in files["g.md"].read_text().splitlines()[2]
    assert text in str(payload(files["g.html"])["title"])
    suite = ElementTree.parse(files["g.xml"]).getroot()
    assert [suite.attrib[key] for key in ("tests", "failures", "errors", "skipped")] == ["1", "0", "0", "1"]
    data = json.loads(judged_networks(networks, candidate, against, *here, "--json").stdout)
    assert data["verdict"] == "identical" and data["rules"] == [] and data["undecided"] == []
    assert data["candidate"].startswith(candidate.partition(".")[0] + "@")
    strict = judged_networks(networks, candidate, against, *here, "--strict", "--junit", files["g.xml"])
    refused(strict, "identical to the baseline")
    assert ElementTree.parse(files["g.xml"]).getroot().attrib["errors"] == "1"


def test_one_file_is_one_model_whatever_the_place_in_the_command(networks: Path, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "other").mkdir()
    for name in ("model", "other"):
        shutil.copy(networks / f"{name}.onnx", tmp_path / name / "model.onnx")

    def models(*files: Path) -> list[str]:
        run = sb.evaluate(
            [str(file) for file in files],
            "clean",
            data=str(networks / "photos"),
            workspace=tmp_path / "w",
            labels="folders",
            preprocessing=PREPROCESS,
            progress=False,
        )
        return list(dict.fromkeys(result.model_id for result in run.results))

    [first] = models(networks / "model.onnx")
    assert models(networks / "model.onnx", networks / "model.onnx") == [first]
    assert models(tmp_path / "model" / "model.onnx", networks / "model.onnx") == [first]
    # Other content under the same name stays another model.
    assert len(models(networks / "model.onnx", tmp_path / "other" / "model.onnx")) == 2


def test_other_content_or_preprocessing_is_compared(networks: Path, tmp_path: Path) -> None:
    against = networks / "model.onnx"
    words = ("-w", tmp_path)
    assert "IDENTICAL" not in judged_networks(networks, "other.onnx", against, *words).stdout
    other = ("--preprocess", PREPROCESS.replace("mean=0,", "mean=0.1,"), "--preprocess", PREPROCESS)
    done = judged_networks(networks, "copy.onnx", against, *words, *other)
    assert done.exit_code in (0, 1, 2) and "IDENTICAL" not in done.stdout, done.output


def test_code_that_may_read_something_else_is_compared_with_its_earlier_answers(project: Path) -> None:
    """A function or a server has one fingerprint, whatever it answers today."""
    done = gate(project, "old", project / "b.parquet")
    assert done.exit_code == 0 and done.stdout.startswith("PASS")


def test_help_shows_the_options_of_a_run() -> None:
    done = call("gate", "--help")
    assert done.exit_code == 0
    shown = " ".join(done.stdout.split())
    assert "gate [OPTIONS] CANDIDATE" in shown
    for words in ("--against", "--policy", "--design", "--strict", "pin"):
        assert words in shown
    assert "--output" in call("gate", "pin", "--help").stdout
    assert "--against" in call("gate", "run", "--help").stdout


def test_what_the_candidate_newly_gets_wrong(project: Path) -> None:
    data = json.loads(gate(project, "worse", project / "b.parquet", "--json").stdout)
    clean = data["rules"][0]["checks"][0]
    assert clean["change"] == pytest.approx(-len(data["newly_wrong"]["photos"]) / 120)


def refused(result: Result, *texts: str) -> None:
    assert result.exit_code == 3, result.output
    for text in texts:
        assert text in " ".join(result.stderr.split())


def test_another_dataset_is_refused(project: Path, tmp_path: Path) -> None:
    shutil.copytree(project / "photos", tmp_path / "photos")
    next((tmp_path / "photos" / "red").iterdir()).unlink()
    for number, against in enumerate(("b.parquet", "old")):
        here = tmp_path / f"w{number}"
        done = gate(project, "same", project / against, "--data", tmp_path / "photos", "-w", here)
        refused(done, "the dataset has changed")
        assert not list((here / "predictions").rglob("*.parquet")), "refused before anything is computed"


def test_other_shifts_are_refused(project: Path) -> None:
    refused(gate(project, "same", project / "b.parquet", "--seed", 5), "the shift is another version", "seed 5")
    refused(gate(project, "same", project / "b.parquet", "--severity", "2"), "no predictions for 2 of 3 settings")


def test_another_design_is_refused(project: Path) -> None:
    words = ("--design", "one-pass")
    refused(
        gate(project, "same", project / "b.parquet", *words), "the design is another", "as in the baseline: design full"
    )


def test_a_baseline_of_a_budget_chooses_the_same_images(project: Path, tmp_path: Path) -> None:
    """Another model needs other time, and has other errors: it must not choose for itself."""
    colour_folder(tmp_path / "photos", per_class=110)
    data = ("--data", tmp_path / "photos", "--labels", project / "colours.txt", *OPTIONS, "--severity", "1,3")
    words = ("gate", "pin", f"{project}/model.py:old", "-o", tmp_path / "b.parquet", "-w", tmp_path / "w")
    assert call(*words, *data, "--design", "one-pass", "--width", "1.2").exit_code == 0
    for against, more in ((tmp_path / "b.parquet", ("--width", "1.2")), (tmp_path / "w", ())):
        done = gate(project, "worse", against, "--data", tmp_path / "photos", "--json", *more)
        assert done.exit_code == 1, done.output
        assert 200 < json.loads(done.stdout)["images"] < 330
    other = gate(project, "worse", tmp_path / "b.parquet", "--data", tmp_path / "photos", "--width", "2")
    refused(other, "--width", "those of the baseline, which had 1.2")


def test_a_design_of_the_baseline_is_repeated_or_refused_before_anything_is_computed(
    project: Path, tmp_path: Path
) -> None:
    words = (*common(project), "--design", "one-pass", "--passes", 2, "-w", tmp_path / "old")
    done = call("gate", "pin", f"{project}/model.py:old", *words, "-o", tmp_path / "b.parquet")
    assert done.exit_code == 0, done.output
    here = ("-w", tmp_path / "new")
    for more, found in (
        (("--passes", 1), "1 of 4 shifts"),
        (("--seed", 3), "design one-pass"),
        (("--design", "full", "--passes", 1), "now design full"),
    ):
        refused(gate(project, "same", tmp_path / "b.parquet", *here, *more), "the design is another", found)
    assert not list((tmp_path / "new/predictions").rglob("*.parquet"))
    # A later run of fewer passes does not take any from the workspace.
    last = (*common(project), "--design", "one-pass", "-w", tmp_path / "old")
    assert call("gate", "pin", f"{project}/model.py:old", *last, "-o", tmp_path / "c.parquet").exit_code == 0
    verdicts = [gate(project, "same", tmp_path / name, *here).exit_code for name in ("b.parquet", "old", "c.parquet")]
    assert verdicts == [0, 0, 0]


def test_files_that_cannot_be_written_are_refused_before_anything_is_computed(project: Path, tmp_path: Path) -> None:
    here = ("-w", tmp_path / "w")
    refused(gate(project, "same", project / "b.parquet", *here, "--junit", tmp_path), "--junit", "is a directory")
    assert not (tmp_path / "w").exists()
    (tmp_path / "file").write_text("")
    inside = tmp_path / "file" / "gate.xml"
    for option in ("--junit", "--markdown", "--report"):
        refused(gate(project, "same", project / "b.parquet", *here, option, inside), "can't be written")
    refused(call("gate", "pin", f"{project}/model.py:old", "-o", inside, *common(project), *here), "can't be written")
    both = ("--junit", tmp_path / "gate.out", "--markdown", tmp_path / "gate.out")
    refused(gate(project, "same", project / "b.parquet", *here, *both), "named for two outputs")
    assert not (tmp_path / "w").exists()
    made = gate(project, "same", project / "b.parquet", *here, "--junit", tmp_path / "reports" / "gate.xml")
    assert made.exit_code == 0 and (tmp_path / "reports/gate.xml").is_file()


def test_settings_of_the_baseline_that_are_left_out_are_noted(project: Path) -> None:
    done = gate(project, "same", project / "b.parquet", "--corruption", "contrast", "--json")
    assert done.exit_code == 0, done.output
    assert any("photos-c.gaussian_noise.3" in note for note in json.loads(done.stdout)["notes"])


def test_bad_models(project: Path) -> None:
    refused(gate(project, "broken", project / "b.parquet"), "nan or inf", "not complete")
    refused(gate(project, "other", project / "b.parquet"), "label space")


def test_images_of_one_class(project: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    shutil.copytree(project / "photos" / "red", tmp_path / "photos" / "red")
    words = ("--data", tmp_path / "photos", "--labels", project / "colours.txt", *OPTIONS)
    refused(gate(project, "same", f"{project}/model.py:old", *words, "-w", tmp_path / "w"), "of one class")
    assert not list((tmp_path / "w/predictions").rglob("*.parquet")), "refused before anything is computed"


def test_rules_that_do_not_fit_are_refused_before_anything_is_computed(project: Path, tmp_path: Path) -> None:
    (tmp_path / "gate.toml").write_text('[[rule]]\nof = "family"\nmargin = 5\nonly = ["weather"]\n')
    here = ("--policy", tmp_path / "gate.toml", "-w", tmp_path / "w")
    refused(gate(project, "same", project / "b.parquet", *here), "matches nothing")
    (tmp_path / "gate.toml").write_text('[[rule]]\nof = "group"\nmargin = 5\nby = "country"\n')
    refused(gate(project, "same", project / "b.parquet", *here), "no column 'country'")
    refused(
        gate(project, "same", project / "b.parquet", *here, "--severity", "2"), "no predictions for 2 of 3 settings"
    )
    assert not list((tmp_path / "w/predictions").rglob("*.parquet"))


def test_calibration_without_confidences_is_refused_before_anything_is_computed(project: Path, tmp_path: Path) -> None:
    rows = [
        f"{path.relative_to(project / 'photos')},{path.parent.name}" for path in (project / "photos").glob("*/*.png")
    ]
    (tmp_path / "made.csv").write_text("\n".join(["id,prediction", *rows]) + "\n")
    words = ("--data", project / "photos", "--labels", project / "colours.txt", "--suite", "clean")
    place = ("-o", tmp_path / "c.parquet", "-w", tmp_path / "before")
    done = call("gate", "pin", tmp_path / "made.csv", *place, *words, "--quiet")
    assert done.exit_code == 0, done.output
    (tmp_path / "gate.toml").write_text('[[rule]]\nof = "calibration"\nmargin = 5\n')
    here = ("--policy", tmp_path / "gate.toml", "-w", tmp_path / "w", *words)
    for against in ("c.parquet", "before", "made.csv"):
        refused(gate(project, "same", tmp_path / against, *here), "without confidences")
    assert not list((tmp_path / "w/predictions").rglob("*.parquet"))


def test_images_without_labels(project: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for i in range(4):
        Image.fromarray(np.full((40, 40, 3), i, np.uint8)).save(tmp_path / "photos" / f"{i}.png")
    words = ("--data", f"unlabelled:{tmp_path}/photos", "--labels", project / "colours.txt", "--suite", "clean")
    refused(gate(project, "same", f"{project}/model.py:old", *words), "label")


def test_errors_are_no_verdicts(project: Path, tmp_path: Path) -> None:
    refused(call("gate"), "CANDIDATE")
    refused(call("gate", "x.onnx", "--against", "y.onnx", "--nosuch"), "--nosuch")
    refused(gate(project, "same", tmp_path / "nosuch.parquet"), "no baseline file")
    refused(gate(project, "same", project / "nosuch.onnx"), "nosuch.onnx")
    refused(gate(project, "same", project / "new"), "which model")
    missing = gate(project, "same", project / "b.parquet", "--policy", tmp_path / "nosuch.toml")
    refused(missing, "error: No such file", "nosuch.toml")
    assert "Traceback" not in missing.stderr
    refused(gate(project, "nosuch", project / "b.parquet"))


def test_a_model_of_a_workspace_is_chosen_by_name(project: Path) -> None:
    gate(project, "same", f"{project}/model.py:old", *common(project))
    done = gate(project, "worse", project / "new", "--model", "old")
    assert done.exit_code == 1, done.output


# A limit of forward passes: single cells, chosen by a baseline of the full grid


def cells(workspace: Path) -> dict[str, Any]:
    """What gates looked at, by candidate."""
    looks = [json.loads(path.read_text()) for path in sorted((workspace / "gates").glob("*.json"))]
    return {look["candidate_id"].partition("@")[0]: look for look in looks}


def test_a_gate_stops_when_it_is_decided_and_repeats_its_verdict(project: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    limited = ("-w", workspace, "--passes")
    few = gate(project, "same", project / "b.parquet", *limited, 60, "--json")
    assert few.exit_code == 2, few.output
    data = json.loads(few.stdout)
    assert data["images"] == 60 and data["in_passes"] and 60 < data["passes_needed"] < 600
    assert data["images_needed"] is None
    enough = gate(project, "same", project / "b.parquet", *limited, 600, "--json")
    assert enough.exit_code == 0, enough.output
    decided_after = json.loads(enough.stdout)["images"]
    assert 60 < decided_after < 600
    evaluated = cells(workspace)["new"]
    # The verdict stays: with fewer passes, and with more, nothing is drawn anew.
    for passes in (60, 600):
        again = gate(project, "same", project / "b.parquet", *limited, passes, "--json")
        assert (again.exit_code, json.loads(again.stdout)["images"]) == (0, decided_after)
    assert cells(workspace)["new"] == evaluated
    # The verdict is about the full grid on these images, which the first line says.
    first_line = gate(project, "same", project / "b.parquet", *limited, 600).output.splitlines()[0]
    assert first_line.endswith(f"on {decided_after} forward passes on these 120 images")


def test_answers_in_cells_are_those_of_the_full_grid(project: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    assert gate(project, "worse", project / "b.parquet", "-w", workspace, "--passes", 200).exit_code == 1
    answers = cells(workspace)["worse"]["answers"]
    assert gate(project, "worse", project / "b.parquet", "-w", workspace).exit_code == 1
    run = sb.Run.open(workspace, ["worse"])
    assert sum(map(len, answers.values())) > 50 and len(answers) == 5
    for setting, of_setting in answers.items():
        predictions = run.predictions("worse", setting)
        top = dict(zip(predictions.ids, predictions.top[:, 0].tolist(), strict=True))
        assert {image: answer[0] for image, answer in of_setting.items()} == {image: top[image] for image in of_setting}


def test_later_candidates_are_asked_where_earlier_ones_disagreed(project: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    gate(project, "worse", project / "b.parquet", "-w", workspace, "--passes", 200)
    assert gate(project, "same", project / "b.parquet", "-w", workspace, "--time", "60s").exit_code == 0
    looks = cells(workspace)
    assert looks["worse"]["rates"] == {} and looks["new"]["rates"] == looks["worse"]["counts"]


def test_another_seed_of_the_policy_is_reported(project: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    seeded = tmp_path / "seeded.toml"
    seeded.write_text("seed = 7\n" + POLICY)
    first = gate(project, "same", project / "b.parquet", "-w", workspace, "--passes", 300)
    second = gate(project, "same", project / "b.parquet", "-w", workspace, "--passes", 300, "--policy", seeded)
    assert "better of several" not in first.output
    assert "better of several" in second.output


def test_an_interrupted_gate_goes_on_with_the_cells_that_it_drew(project: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    parts = tmp_path / "parts"
    gate(project, "same", project / "b.parquet", "-w", whole, "--passes", 600)
    for passes in (30, 90, 600):
        gate(project, "same", project / "b.parquet", "-w", parts, "--passes", passes)
    draws = [cells(workspace)["new"]["answers"]["photos"] for workspace in (whole, parts)]
    shared = draws[0].keys() & draws[1].keys()
    assert shared in (draws[0].keys(), draws[1].keys())


@pytest.mark.reliability("kills")
def test_a_gate_that_is_killed_between_two_looks_draws_and_judges_as_if_it_had_not_been(
    project: Path, tmp_path: Path
) -> None:
    limit = ("--passes", 600, "--json")
    whole = gate(project, "same", project / "b.parquet", "-w", tmp_path / "whole", *limit)
    assert whole.exit_code == 0, whole.output
    words = (
        "gate", f"{project}/model.py:same", "--against", project / "b.parquet", "--policy", project / "gate.toml",
        "--data", project / "photos", "-w", tmp_path / "parts", "--quiet", "--trust", *limit,
    )  # fmt: skip
    # Before the first look is on disk, after it, and before the next one.
    for look, is_written in ((1, False), (1, True), (2, False)):
        process = processes.start(gate_until_killed, words, look, is_written)
        process.join()
        assert process.exitcode == -signal.SIGKILL
    drawn = cells(tmp_path / "parts")["new"]
    assert drawn["draws"] and not drawn["verdict"]
    resumed = gate(project, "same", project / "b.parquet", "-w", tmp_path / "parts", *limit)
    assert (resumed.exit_code, json.loads(resumed.stdout)) == (0, json.loads(whole.stdout))
    assert cells(tmp_path / "parts") == cells(tmp_path / "whole")


@pytest.mark.parametrize("limit", [(), ("--passes", 20)])
def test_warnings_of_the_candidate_are_those_of_a_gate_without_a_limit(
    networks: Path, tmp_path: Path, limit: tuple[object, ...]
) -> None:
    """What its preprocessing has to assume, for example."""
    baseline = tmp_path / "b.parquet"
    complete = f"{PREPROCESS},resize=squash"
    data = ("--data", networks / "photos", "--suite", "clean", "--labels", "folders", "--preprocess", complete)
    pinned = call("gate", "pin", networks / "model.onnx", *data, "-w", tmp_path / "o", "-o", baseline, "--quiet")
    assert pinned.exit_code == 0, pinned.output

    def judged(preprocess: str, *more: object) -> Result:
        words = ("-w", tmp_path / "w", "--preprocess", preprocess, *limit, *more)
        return judged_networks(networks, "other.onnx", baseline, *words)

    assumed = judged(PREPROCESS)
    assert assumed.exit_code in (0, 1, 2) and assumed.output.count("warning:") == 1, assumed.output
    assert judged(PREPROCESS, "--strict").exit_code == 3
    stated = judged(complete, "--strict")
    assert stated.exit_code in (0, 1, 2) and "warning:" not in stated.output, stated.output


def test_a_changed_policy_keeps_the_cells_that_were_drawn(project: Path, tmp_path: Path) -> None:
    """They are evaluated once, and judged by the new rules."""
    workspace = tmp_path / "w"
    strict = tmp_path / "strict.toml"
    strict.write_text(POLICY.replace("margin = 5", "margin = 2"))
    limit = ("-w", workspace, "--passes", 400, "--json")
    assert gate(project, "same", project / "b.parquet", *limit).exit_code == 0
    first = cells(workspace)["new"]
    undecided = gate(project, "same", project / "b.parquet", *limit, "--policy", strict)
    assert undecided.exit_code == 2, undecided.output
    second = cells(workspace)["new"]
    assert sum(second["draws"].values()) == json.loads(undecided.stdout)["images"] == 400
    for setting, answers in first["answers"].items():
        assert answers.items() <= second["answers"][setting].items()
    again = gate(project, "same", project / "b.parquet", *limit)
    assert (again.exit_code, json.loads(again.stdout)["images"]) == (0, 400)


def test_a_baseline_of_version_0_1_limits_passes_after_its_advice_is_followed(project: Path, tmp_path: Path) -> None:
    """Files of this version have no digest."""
    table = pq.read_table(project / "b.parquet")
    metadata = {key: value for key, value in table.schema.metadata.items() if key != b"shiftbench.digest"}
    old = tmp_path / "old.parquet"
    pq.write_table(table.replace_schema_metadata(metadata), old)
    limit = ("-w", tmp_path / "w", "--passes", 600, "--json")
    refused = gate(project, "same", old, *limit)
    assert refused.exit_code == 3 and "--accept-unsigned" in refused.output
    assert not cells(tmp_path / "w")
    accepted = gate(project, "same", old, *limit, "--accept-unsigned")
    assert accepted.exit_code == 0, accepted.output
    signed = gate(project, "same", project / "b.parquet", "-w", tmp_path / "signed", *limit[2:])
    assert json.loads(accepted.stdout) == json.loads(signed.stdout)


def test_a_limit_of_passes_needs_a_baseline_of_the_full_grid(project: Path, tmp_path: Path) -> None:
    beside = gate(project, "worse", f"{project}/model.py:old", "--labels", project / "colours.txt", "--passes", 100)
    assert beside.exit_code == 3 and "gate pin" in beside.output
    pinned = tmp_path / "one.parquet"
    call(
        "gate", "pin", f"{project}/model.py:old", "-o", pinned, *common(project), "-w", tmp_path / "o",
        "--design", "one-pass",
    )  # fmt: skip
    designed = gate(project, "worse", pinned, "--time", "5s", "-w", tmp_path / "w")
    assert designed.exit_code == 3, designed.output
    calibration = tmp_path / "calibration.toml"
    calibration.write_text('[[rule]]\nof = "calibration"\nmargin = 2\n')
    refused = gate(project, "worse", project / "b.parquet", "--passes", 100, "--policy", calibration)
    assert refused.exit_code == 3 and "calibration" in refused.output


# A series of baselines: many small losses


def test_a_series_keeps_its_first_model_and_fails_when_losses_add_up(project: Path, tmp_path: Path) -> None:
    """Each model loses less than the margin against the last one; the gate also compares with the first."""
    (tmp_path / "model.py").write_text(
        MODEL + "\ndef first(): return make('first')\n"
        "def second(): return make('second', wrong=22)\ndef third(): return make('third', wrong=42)\n"
    )
    series = tmp_path / "series.parquet"
    alone = tmp_path / "alone.parquet"
    policy = tmp_path / "policy.toml"
    policy.write_text('[[rule]]\nof = "mean"\nmargin = 20\n')

    def pin(model: str, file: Path, *more: object) -> Result:
        return call(
            "gate", "pin", tmp_path / f"model.py:{model}", "-o", file, *common(project), "-w", tmp_path / "w", *more
        )

    def judged(file: Path, *more: object) -> dict[str, Any]:
        result = call(
            "gate", tmp_path / "model.py:third", "--against", file, "--data", project / "photos", "--policy", policy,
            "--trust", "-q", "--json", "-w", tmp_path / "w", *more,
        )  # fmt: skip
        assert result.exit_code in (0, 1, 2), result.output
        return dict(json.loads(result.stdout))

    assert pin("first", series, "--series", "releases").exit_code == 0
    second = pin("second", series, "--series", "releases")
    assert "number 2" in second.output and "began with first@" in second.output
    again = pin("second", series, "--series", "releases")
    assert "number 2" in again.output
    assert pin("second", alone).exit_code == 0
    assert judged(alone)["verdict"] in ("pass", "not enough images")
    for limit in ((), ("--passes", 400)):
        data = judged(series, *limit)
        assert data["verdict"] == "fail", data["text"]
        failed = [rule["rule"] for rule in data["rules"] if rule["verdict"] == "fail"]
        assert len(data["rules"]) == 2 and len(failed) == 1 and "since first@" in failed[0]
    other = pin("third", series, "--series", "nightly")
    assert other.exit_code == 3 and "releases" in other.output
    assert pin("third", alone, "--series", "releases").exit_code == 3
