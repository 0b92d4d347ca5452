"""The advice of errors works: situations in which each hint is given, and the hint followed to the letter.

Every hint that names a command, an option or an argument is followed here, or stands in ``NOT_FOLLOWED`` with the
reason. A new hint that is in neither place fails ``test_every_hint_is_followed_or_explained``.
"""

from __future__ import annotations

import ast
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer.main
from PIL import Image

import shiftbench as sb
from shiftbench.cli.app import app
from shiftbench.errors import ShiftbenchError
from tests.commands import call, output
from tests.hints import all_hints, arguments_in, commands_in, options_in
from tests.runs.helpers import colour_folder
from tests.testsets.test_followed_advice import FOLLOWED as FOLLOWED_BY_A_LEAD

HINTS = {hint.key: hint for hint in all_hints()}
MODELS = """
import numpy as np
import shiftbench as sb

def make(name, names=("red", "green", "blue"), sign=1):
    return sb.load_classifier(
        lambda images: sign * images.mean(axis=(1, 2)) / 20, name=name, labels=list(names),
        preprocessing=sb.Preprocessing(sb.Geometry(36, 32)),
    )

def bright(): return make("bright")
def dark(): return make("dark", sign=-1)
def other(): return make("other", names=("cat", "dog", "fish"))
def unnamed(): return lambda images: images.mean(axis=(1, 2)) / 20
def four(): return lambda images: np.pad(images.mean(axis=(1, 2)), ((0, 0), (0, 1)))
"""


class Project:
    """A folder with small models and datasets, and the workspace of an evaluation."""

    def __init__(self, root: Path, key: str) -> None:
        self.root = root
        self.key = key

    def error_of_command(self, *words: object) -> ShiftbenchError:
        """The error of a command, which must come with the hint that is looked at."""
        done = call(*words)
        assert isinstance(done.exception, ShiftbenchError), f"{words}: {done.output}"
        self._check(done.exception)
        return done.exception

    def error_of(self, function: Callable[..., object], **options: Any) -> ShiftbenchError:
        with pytest.raises(ShiftbenchError) as error:
            function(**options)
        self._check(error.value)
        return error.value

    def _check(self, error: ShiftbenchError) -> None:
        assert error.hint is not None and HINTS[self.key].fits(error.hint), error

    def follow(self, *words: object, **values: object) -> None:
        """Give the command again with each option of its hint, in place of the same option if it was given."""
        error = self.error_of_command(*words)
        options = options_in(str(error.hint), values | {f"--{name}": value for name, value in values.items()})
        assert options, error
        for flag, *value in options:
            output(*_without(flag, words), flag, *value)

    def follow_python(self, function: Callable[..., object], **values: object) -> None:
        """Call the function again with each argument of its hint."""
        error = self.error_of(function)
        arguments = arguments_in(str(error.hint), values)
        assert arguments, error
        for name, value in arguments:
            function(**{name: value})

    def copied(self, name: str) -> str:
        """A copy of a file or folder of the project, which a situation may change."""
        target = self.root / f"copy-{len(list(self.root.iterdir()))}"
        source = self.root / name
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            target = target.with_suffix(source.suffix)
            shutil.copy(source, target)
        return target.name


def _without(flag: str, words: tuple[object, ...]) -> list[object]:
    """A command without an option and its value."""
    long = {"-c": "--classifier", "-s": "--setting", "-m": "--metric"}.get(flag, flag)
    given = [i for i, word in enumerate(words) if word in (flag, long)]
    if not given:
        return list(words)
    return [*words[: given[0]], *words[given[0] + 2 :]]


SITUATIONS: dict[str, Callable[[Project], None]] = {}


def situation(*keys: str) -> Callable[[Callable[[Project], None]], Callable[[Project], None]]:
    """Under which hint the decorated function builds the situation, and follows the advice.

    A hint may have several situations; the keys of the later ones end with the name of their function.
    """

    def add(function: Callable[[Project], None]) -> Callable[[Project], None]:
        for key in keys:
            name = f"{key} {function.__name__}" if key in SITUATIONS else key
            SITUATIONS[name] = function
        return function

    return add


@pytest.fixture(scope="module")
def project_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("advice")
    colour_folder(root / "photos", per_class=4)
    (root / "models.py").write_text(MODELS)
    (root / "colours.txt").write_text("red\ngreen\nblue\n")
    for names, folder in ((("cat", "dog"), "pets"), (("0", "1", "2"), "digits"), (("teapod", "beer glass"), "words")):
        for channel, name in enumerate(names):
            (root / folder / name).mkdir(parents=True)
            Image.new("RGB", (32, 32), tuple(200 * np.eye(3, dtype=int)[channel])).save(root / folder / name / "0.png")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sb.evaluate(
            [f"{root}/models.py:bright", f"{root}/models.py:dark"],
            "corruptions",
            root / "photos",
            root / "w",
            corruptions=("fog", "contrast"),
            severities=(1, 3),
            progress=False,
        )
    return root


# -- labels ------------------------------------------------------------------------------------------------------------


@situation("labels/guard.py::_unnamed_words#2")
def classes_of_ones_own(project: Project) -> None:
    project.follow_python(lambda **options: sb.open_dataset("photos", **options))
    project.follow("check", "dataset", "photos")


@situation("labels/guard.py::_unnamed_words#2")
def classes_of_ones_own_in_other_commands(project: Project) -> None:
    """Every command that opens class folders has the option that its error names."""
    checked = ("check", "suite", "clean", "--data", "photos")
    refused = call(*checked)
    assert refused.exit_code == 1 and "--labels folders" in refused.output
    output(*checked, "--labels", "folders")
    project.follow("testset", "follow-up", "splits", "photos", "photos", "--folds", "2")
    project.follow("testset", "follow-up", "discriminator", "photos", "photos", "--folds", "2")


@situation("labels/guard.py::_unnamed_words#2", "hardening/training/data.py::prepare_validation")
def a_training_on_classes_of_ones_own(project: Project) -> None:
    """The recipe names CIFAR-10 to validate on."""
    pytest.importorskip("torch")
    tiny = [word for word in _TINY if not word.startswith("data.labels")]
    tiny.pop(tiny.index("-q") - 1)
    words = ("harden", "train", "cifar-standard", "--data", "photos", "--out", f"own-{len(project.key)}", *tiny)
    if "guard" in project.key:
        error = project.error_of_command(*words)
        [labels, *_] = options_in(str(error.hint), {})
        assert "--labels" not in str(call(*words, *labels).exception)
    else:
        error = project.error_of_command(*words, "--labels", "folders")
        folder, nothing = options_in(str(error.hint), {"FOLDER": "photos"})
        assert folder == ["--validation", "photos"]
        output(*words, "--labels", "folders", *nothing)


@situation("labels/guard.py::_unnamed_words")
def some_classes_of_a_known_space(project: Project) -> None:
    project.follow_python(lambda **options: sb.open_dataset("pets", **options))
    project.follow("check", "dataset", "pets")


@situation("labels/guard.py::_unnamed_integers#2")
def folders_called_by_numbers(project: Project) -> None:
    project.follow_python(lambda **options: sb.open_dataset("digits", **options))
    project.follow("check", "dataset", "digits")


@situation("labels/guard.py::_unknown_words")
def folders_that_the_space_lacks(project: Project) -> None:
    error = project.error_of_command("check", "dataset", "photos", "--labels", "imagenet-1k")
    [command] = commands_in(str(error.hint), {"FOLDER": "photos"})
    output(*command)
    assert ["--labels", "mapping.csv"] in options_in(str(error.hint), {}) and Path("mapping.csv").is_file()


@situation("labels/guard.py::_foreign")
def wnids_that_the_space_lacks(project: Project) -> None:
    Path("strange/n00000001").mkdir(parents=True, exist_ok=True)
    Path("strange/n00000002").mkdir(parents=True, exist_ok=True)
    for name in ("n00000001", "n00000002"):
        Image.new("RGB", (32, 32)).save(f"strange/{name}/0.png")
    project.follow("check", "dataset", "strange")


@situation("labels/guard.py::_foreign#3")
def classes_of_imagenet_outside_a_subset(project: Project) -> None:
    subset = set(sb.label_space("imagenet-a-200").keys)
    outside = [key for key in sb.label_space("imagenet-1k").keys if key not in subset][:2]
    for name in outside:
        Path(f"part/{name}").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (32, 32)).save(f"part/{name}/0.png")
    project.follow("check", "dataset", "part", "--labels", "imagenet-a-200")


@situation("labels/guard.py::_unnamed_integers")
def indices_of_imagenet_with_gaps(project: Project) -> None:
    for index in (*range(0, 300), 999):
        Path(f"indices/{index}").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(f"indices/{index}/0.png")
    project.follow("check", "dataset", "indices")


@situation("labels/catalogue.py::find_label_space")
def a_file_of_classes_that_is_not_there(project: Project) -> None:
    project.follow("eval", "models.py:bright", "--data", "photos", "-q", "--labels", "nothing.txt")
    project.follow_python(
        lambda labels="nothing.txt": sb.evaluate("models.py:bright", data="photos", labels=labels, progress=False)
    )


# -- data --------------------------------------------------------------------------------------------------------------


@situation("settings/roles.py::_missing_data")
def no_data(project: Project) -> None:
    project.follow("eval", "models.py:bright", "-q", FOLDER="photos")
    project.follow_python(lambda **options: sb.evaluate("models.py:bright", progress=False, **options), FOLDER="photos")


@situation("settings/roles.py::_missing_data#2")
def no_data_for_a_role(project: Project) -> None:
    error = project.error_of_command("eval", "models.py:bright", "--suite", "imagenet-r", "-q")
    roles = [value for flag, value in options_in(str(error.hint), {"FOLDER": "photos"}) if flag == "--data"]
    assert roles and all(role.endswith("=photos") for role in roles)


@situation("settings/roles.py::_split_source")
def a_split_of_an_opened_dataset(project: Project) -> None:
    dataset = sb.open_dataset("photos", labels="folders")
    project.error_of(lambda: sb.evaluate("models.py:bright", data=dataset, split="test", progress=False))


@situation("api.py::_misplaced")
def data_in_the_place_of_a_model(project: Project) -> None:
    error = project.error_of_command("eval", "models.py:bright", "photos", "-q")
    [option] = options_in(str(error.hint), {})
    output("eval", "models.py:bright", "-q", *option)


@situation("api.py::suite_options")
def data_that_is_an_array(project: Project) -> None:
    images = np.zeros((3, 32, 32, 3), np.uint8)
    error = project.error_of(lambda: sb.evaluate("models.py:bright", data=images, progress=False))  # type: ignore[arg-type]
    assert "shiftbench.datasets.from_arrays" in str(error.hint)
    from shiftbench.datasets import from_arrays

    dataset = from_arrays(images, [0, 1, 2], space=["red", "green", "blue"])
    sb.evaluate("models.py:bright", data=dataset, progress=False)


@situation("datasets/manifest.py::_check_files")
def a_manifest_that_names_images_elsewhere(project: Project) -> None:
    Path("lists").mkdir(exist_ok=True)
    Path("lists/all.csv").write_text("path,label\n../photos/red/000.png,red\n../photos/blue/000.png,blue\n")
    project.follow(
        "eval", "models.py:bright", "--data", "lists/all.csv", "-q", "--labels", "colours.txt", "-w", "manifest-w"
    )
    project.follow_python(lambda **options: sb.open_dataset("lists/all.csv", labels="colours.txt", **options))


@situation("datasets/folder.py::open_unlabelled", "datasets/anomalies.py::open_anomalies")
def images_without_labels(project: Project) -> None:
    spec = "unlabelled:photos" if "folder.py" in project.key else "anomalies:gaussian"
    project.follow_python(lambda **options: sb.open_dataset(spec, **options))
    project.error_of_command("check", "dataset", spec)


# -- models ------------------------------------------------------------------------------------------------------------


@situation("classifiers/options.py::_unknown_outputs")
def a_model_with_unknown_classes(project: Project) -> None:
    words = ("eval", "models.py:four", "--data", "photos", "-q", "-w", "unknown-w")
    Path("four.txt").write_text("red\ngreen\nblue\nblack\n")
    project.follow(*words, labels="four.txt")


@situation("classifiers/options.py::space_for")
def labels_of_another_length(project: Project) -> None:
    Path("four.txt").write_text("red\ngreen\nblue\nblack\n")
    Path("scores.csv").write_text("id,score_0,score_1,score_2,score_3\nred/000.png,4,1,2,3\n")
    words = ("eval", "scores.csv", "--data", "photos", "-q", "--labels", "colours.txt", "-w", "length-w")
    project.follow(*words, labels="four.txt")


@situation("classifiers/options.py::new_sidecar")
def a_sidecar_that_exists(project: Project) -> None:
    Path("m.onnx").write_bytes(b"")
    Path("m.onnx.json").write_text("{}")
    from shiftbench.classifiers.options import new_sidecar

    error = project.error_of(lambda: new_sidecar("m.onnx", force=False))
    [(name, value)] = arguments_in(str(error.hint), {})
    assert new_sidecar("m.onnx", **{name: value}).name == "m.onnx.json"


@situation("classifiers/onnx_metadata.py::write_metadata")
def a_file_that_is_described(project: Project) -> None:
    from shiftbench.classifiers.onnx_metadata import write_metadata
    from tests.runs.helpers import write_onnx_model

    write_onnx_model(Path("described.onnx"))
    model = sb.load_classifier("described.onnx", labels=["a", "b", "c"])
    write_metadata("described.onnx", model)
    error = project.error_of(lambda: write_metadata("described.onnx", model))
    [(name, value)] = arguments_in(str(error.hint), {})
    assert write_metadata("described.onnx", model, **{name: value}).name == "described.onnx"


@situation("classifiers/description.py::_check_size_against_crop")
def a_size_and_another_crop(project: Project) -> None:
    words = ("eval", "models.py:unnamed", "--data", "photos", "-q", "--labels", "colours.txt", "-w", "sizes-w")
    error = project.error_of_command(*words, "--preprocess", "size=36,crop=24")
    output(*words, "--preprocess", str(error.hint).split()[0])


@situation("classifiers/recorded.py::record")
def predictions_of_unknown_classes(project: Project) -> None:
    Path("net.csv").write_text("id,prediction\na,n01440764\nb,n01443537\n")
    project.follow_python(lambda **options: sb.load_classifier("net.csv", **options))


@situation("classifiers/recorded.py::load_recorded")
def predictions_of_several_models(project: Project) -> None:
    rows = "".join(f"{model},{name}/{i:03d}.png,{name}\n" for model in "ab" for name in ("red", "blue") for i in (0, 1))
    Path("both.csv").write_text("model,id,prediction\n" + rows)
    error = project.error_of_command("eval", "both.csv", "--data", "photos", "--labels", "colours.txt", "-q")
    [command] = commands_in(str(error.hint), {"FILE": "both.csv", "NAME": "photos"})
    output(*command, "--data", "photos", "--labels", "colours.txt", "-w", "both-w", "-q")


@situation("classifiers/recorded.py::_exported_columns")
def an_export_of_other_settings(project: Project) -> None:
    output("store", "export", "all.csv", "-w", "w", "-q")
    project.follow("import", "all.csv", "--setting", "nothing", "--data", "photos", "-w", "export-w", "-q")


@situation("classifiers/recorded.py::_no_such_array#2")
def an_array_of_another_name(project: Project) -> None:
    answers = np.array([["red", "blue"], ["red", "red"]])
    np.savez("many.npz", models=["a", "b"], ids=["x", "y"], labels=["red", "blue"], v4=answers)
    project.follow("import", "many.npz", "--setting", "v", "--labels", "colours.txt", "-w", "array-w", "-q")


@situation("runs/plan.py::plan_result")
def recorded_predictions_of_shifted_images(project: Project) -> None:
    rows = "".join(f"{path.parent.name}/{path.name},{path.parent.name}\n" for path in Path("photos").rglob("*.png"))
    Path("rec.csv").write_text("id,prediction\n" + rows)
    words = ("eval", "rec.csv", "--data", "photos", "--labels", "colours.txt", "-q", "-w", "recorded-w")
    project.follow(*words, "--suite", "corruptions")


@situation("runs/import_predictions.py::_made_here#2")
def predictions_on_images_that_others_made(project: Project) -> None:
    Path("foggy.csv").write_text("id,label,prediction\na,n01440764,n01440764\n")
    words = ("import", "foggy.csv", "--labels", "imagenet-1k", "-q", "-w", "foggy-w")
    project.follow(*words, "--setting", "imagenet-c.fog.3")
    project.follow(*words, "--setting", "imagenet-c.fog.3_in-memory")


# -- predictions -------------------------------------------------------------------------------------------------------


@situation("runs/import_predictions.py::_dataset")
def predictions_without_classes(project: Project) -> None:
    Path("plain.csv").write_text("id,label,prediction\na,n01440764,n01440764\n")
    project.follow("import", "plain.csv", "--setting", "s", "-w", "plain-w", "-q")
    project.follow_python(lambda **options: sb.import_predictions("plain.csv", "s", "plain-p", **options))


@situation("runs/import_predictions.py::_dataset#2")
def predictions_without_true_classes(project: Project) -> None:
    rows = "".join(f"{path.parent.name}/{path.name},{path.parent.name}\n" for path in Path("photos").rglob("*.png"))
    Path("untrue.csv").write_text("id,prediction\n" + rows)
    Path("truth.csv").write_text("id,label\n" + rows)
    words = ("import", "untrue.csv", "--setting", "s", "--labels", "colours.txt", "-q")
    error = project.error_of_command(*words, "-w", "untrue-w")
    options = options_in(str(error.hint), {"FILE": "truth.csv", "FOLDER": "photos"})
    assert len(options) == 2
    for number, option in enumerate(options):
        output(*words, "-w", f"untrue-{number}", *option)


@situation("runs/import_predictions.py::_other_answers")
def other_predictions_of_a_model(project: Project) -> None:
    for answer in ("red", "blue"):
        Path("twice.csv").write_text(f"id,label,prediction\na,red,{answer}\n")
        words = ("import", "twice.csv", "--setting", "s", "--labels", "colours.txt", "-q", "-w", "twice-w")
        if answer == "red":
            output(*words)
    project.follow(*words)


@situation("runs/import_predictions.py::ids_of")
def predictions_without_names(project: Project) -> None:
    np.save("logits.npy", np.eye(3)[[0, 1, 2] * 4])
    project.follow("import", "logits.npy", "--setting", "s", "--data", "photos", "-q", "-w", "names-w")


@situation("runs/import_predictions.py::ids_of#2")
def predictions_of_other_images(project: Project) -> None:
    Path("more.csv").write_text("id,prediction\nred/000.png,red\nnowhere.png,red\n")
    project.follow("import", "more.csv", "--setting", "s", "--data", "photos", "-q", "-w", "more-w")


@situation("runs/import_predictions.py::check_agreement")
def labels_in_another_order(project: Project) -> None:
    rows = "".join(
        f"{path.parent.name}/{path.name},{['red', 'green', 'blue'].index(path.parent.name)},0\n"
        for path in Path("photos").rglob("*.png")
    )
    Path("order.csv").write_text("id,label,prediction\n" + rows)
    words = ("import", "order.csv", "--setting", "s", "--data", "photos", "-q", "-w", "order-w")
    project.follow(*words, labels="colours.txt")


# -- tables, studies and figures ---------------------------------------------------------------------------------------


@situation("api.py::calibration")
def several_settings(project: Project) -> None:
    run = sb.Run.open("w")
    error = project.error_of(run.calibration)
    assert arguments_in(str(error.hint), {"NAME": "photos"}) == [("setting", "photos")]
    run.calibration(setting="photos")


@situation("metrics/arrays.py::kept_scores")
def scores_that_were_not_kept(project: Project) -> None:
    words = ("--data", "photos", "-q", "-w", "kept-w")
    output("eval", "models.py:bright", *words)
    error = project.error_of_command("table", "-w", "kept-w", "-m", "brier")
    [option] = options_in(str(error.hint), {})
    output("eval", "models.py:bright", *words, *option)
    output("table", "-w", "kept-w", "-m", "brier")


@situation("reports/confidence.py::_only_result#2")
def calibration_on_images_that_were_not_evaluated(project: Project) -> None:
    colour_folder(project.root / "fit", per_class=6, seed=5)
    words = ("eval", "models.py:bright", "-q", "-w", "temperature-w")
    output(*words, "--data", "photos", "--keep-scores")
    calibrate = ("calibrate", "-w", "temperature-w", "-s", "photos", "--fit", "fit")
    error = project.error_of_command(*calibrate)
    [option] = options_in(str(error.hint), {})
    output(*words, "--data", "fit", *option)
    output(*calibrate)


@situation("metrics/temperature.py::_refuse_common_images")
def calibration_on_its_own_images(project: Project) -> None:
    output("eval", "models.py:bright", "--data", "photos", "-q", "-w", "own-w", "--keep-scores")
    words = ("calibrate", "-w", "own-w", "-s", "photos", "--fit", "photos")
    error = project.error_of_command(*words)
    [option] = options_in(str(error.hint), {})
    output("calibrate", "-w", "own-w", "-s", "photos", *option)


@situation("reports/images.py::group_table")
def groups_of_an_unknown_column(project: Project) -> None:
    rows = "".join(f"{path.parent.name}/{path.name},{i % 2}\n" for i, path in enumerate(Path("photos").rglob("*.png")))
    Path("meta.csv").write_text("id,camera\n" + rows)
    project.follow("groups", "-w", "w", "-s", "photos", "--by", "camera", **{"META.csv": "meta.csv"})


@situation("reports/accuracy_grids.py::only_family")
def a_figure_of_corruptions_without_any(project: Project) -> None:
    output("eval", "models.py:bright", "--data", "photos", "-q", "-w", "clean-w")
    words = ("figure", "corruptions", "-w", "clean-w", "-o", "c.svg")
    error = project.error_of_command(*words)
    [option] = options_in(str(error.hint), {})
    more = ("--corruption", "fog", "--severity", "1,3")
    output("eval", "models.py:bright", "--data", "photos", "-q", "-w", "clean-w", *option, *more)
    output(*words)


@situation("reports/accuracy_grids.py::only_family#2")
def a_figure_of_one_of_two_families(project: Project) -> None:
    shutil.copytree("photos", "others")
    for data in ("photos", "others"):
        words = ("--suite", "corruptions", "--corruption", "fog", "--severity", "1,3")
        output("eval", "models.py:bright", "--data", data, "-q", "-w", "families-w", *words)
    words = ("figure", "corruptions", "-w", "families-w", "-o", "c.svg")
    error = project.error_of_command(*words)
    assert "--family" in str(error.hint)
    output(*words, "--family", "others-c")


@situation("reports/figures/run_figures.py::confusion")
def the_confusions_of_two_models(project: Project) -> None:
    project.follow_python(lambda **options: sb.Run.open("w").plot.confusion("photos", **options))


@situation("reports/figures/run_figures.py::scatter")
def a_scatter_plot_without_reference(project: Project) -> None:
    run = sb.Run.open("w", (), ["photos"])
    error = project.error_of(lambda: run.plot.scatter("photos"))
    assert "x=" in str(error.hint)
    sb.Run.open("w").plot.scatter("photos-c.fog.3", x="photos")


@situation("studies/base.py::recognise_unit")
def a_table_of_two_units(project: Project) -> None:
    Path("mixed.csv").write_text("model,val,new\na,70.5,0.6\nb,60.5,0.5\nc,80.5,0.7\n")
    words = ("study", "fit", "-r", "mixed.csv", "--x", "val", "--y", "new")
    project.follow(*words)


@situation("settings/designs.py::one_pass")
def a_budget_without_a_design(project: Project) -> None:
    words = ("eval", "models.py:bright", "--suite", "corruptions", "--data", "photos", "-q", "-w", "design-w")
    project.follow(*words, "--budget", "500", "--corruption", "fog,contrast", "--severity", "3")


@situation("api.py::_plan_and_execute")
def a_budget_for_jobs(project: Project) -> None:
    words = ("eval", "models.py:bright", "--suite", "corruptions", "--data", "photos", "-q", "-w", "jobs-w")
    design = ("--budget", "500", "--design", "one-pass", "--corruption", "fog,contrast", "--severity", "3")
    project.error_of_command(*words, *design, "--shard", "1/2")
    output(*words, *design)


# -- the workspace -----------------------------------------------------------------------------------------------------


@situation("store/workspace.py::_create")
def a_folder_that_is_no_workspace(project: Project) -> None:
    project.error_of_command("table", "-w", "photos")
    output("eval", "models.py:bright", "--data", "photos", "-q", "--workspace", "named-w")
    output("table", "-w", "named-w")


@situation("store/workspace.py::_create#3")
def a_workspace_without_its_file(project: Project) -> None:
    workspace = project.copied("w")
    Path(workspace, "workspace.json").unlink()
    words = ("eval", "models.py:bright", "--data", "photos", "-q", "-w", workspace)
    error = project.error_of_command(*words)
    [command] = commands_in(str(error.hint), {})
    output(*command, "-w", workspace, "--yes")  # at a terminal, the command asks
    output(*words)


@situation("store/sealed.py::damaged")
def a_damaged_result(project: Project) -> None:
    workspace = project.copied("w")
    file = next(Path(workspace).glob("predictions/bright*/photos/*.parquet"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 255
    file.write_bytes(bytes(data))
    project.error_of_command("table", "-w", workspace)
    assert call("store", "verify", "-w", workspace).exit_code == 1
    output("store", "repair", "--yes", "-w", workspace)
    output("eval", "models.py:bright", "--data", "photos", "-q", "-w", workspace)
    output("table", "-w", workspace)


@situation("cli/console.py::confirm_removal")
def a_question_that_nobody_answers(project: Project) -> None:
    workspace = project.copied("w")
    words = ("store", "remove", "bright", "-w", workspace)
    error = project.error_of_command(*words)
    assert "--yes" in str(error.hint)
    output(*words, "--yes")


@situation("store/baseline.py::read_baseline")
def a_baseline_without_a_digest(project: Project) -> None:
    import pyarrow.parquet as pq

    from shiftbench.store.baseline import read_baseline

    evaluation = ("--data", "photos", "--corruption", "fog", "--severity", "1", "-q")
    path = Path("unsigned.parquet")
    output("gate", "pin", "models.py:bright", "-o", path, *evaluation, "-w", "unsigned-w")
    table = pq.read_table(path)
    metadata = {key: value for key, value in table.schema.metadata.items() if b"digest" not in key}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    refused = call("gate", "models.py:bright", "--against", path, *evaluation, "-w", "gate-w")
    assert refused.exit_code == 3 and "--accept-unsigned" in refused.output
    read_baseline(path, accept_unsigned=True)
    judged = call("gate", "models.py:bright", "--against", path, "--accept-unsigned", *evaluation, "-w", "gate-w")
    assert judged.exit_code in (0, 2) and "images" in judged.output, judged.output
    error = project.error_of(lambda: read_baseline(path))
    [command] = commands_in(str(error.hint), {"MODEL": "models.py:bright"})
    output(*command, *evaluation, "-w", "unsigned-w")
    read_baseline(path)


@situation("store/baseline.py::read_baseline#2")
def a_baseline_that_is_damaged(project: Project) -> None:
    from shiftbench.store.baseline import read_baseline

    Path("bad.parquet").write_bytes(b"PAR1nothing")
    error = project.error_of(lambda: read_baseline(Path("bad.parquet")))
    [command] = commands_in(str(error.hint), {"MODEL": "models.py:bright"})
    output(*command, "--data", "photos", "--corruption", "fog", "--severity", "1", "-q", "-w", "pin-w")
    read_baseline(Path("bad.parquet"))


@situation("classifiers/base.py::scores")
def a_model_that_gives_other_scores(project: Project) -> None:
    def four(images: Any) -> Any:
        return np.pad(images.mean(axis=(1, 2)), ((0, 0), (0, 1)))

    def score(labels: list[str]) -> object:
        model = sb.load_classifier(four, labels=labels, preprocessing={"size": 32})
        return model.scores(np.zeros((1, 32, 32, 3), np.uint8))

    error = project.error_of(lambda: score(["red", "green", "blue"]))
    assert "labels=" in str(error.hint)
    score(["red", "green", "blue", "black"])


@situation("classifiers/recorded.py::_check_agreement")
def classes_that_contradict_their_scores(project: Project) -> None:
    Path("class.csv").write_text("id,class,score_0,score_1,score_2\na,blue,3,1,0\nb,red,3,1,0\n")
    Path("class-truth.csv").write_text("id,label\na,blue\nb,red\n")
    words = ("import", "class.csv", "--setting", "s", "--labels", "colours.txt", "-w", "class-w", "-q")
    project.error_of_command(*words, "--truth", "class-truth.csv")
    Path("class.csv").write_text("id,label,score_0,score_1,score_2\na,blue,3,1,0\nb,red,3,1,0\n")
    output(*words)


@situation("classifiers/weights.py::untrusted")
def a_pickled_module(project: Project) -> None:
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 3)), "pickled.pt")
    words = ("describe", "pickled.pt", "--labels", "colours.txt", "--preprocess", "size=32,mean=0.5,std=0.5")
    project.follow(*words)


@situation("cli/gate.py::_baseline", "cli/gate.py::_baseline#2")
def a_baseline_that_is_not_there(project: Project) -> None:
    name = "none.parquet" if "#" not in project.key else "w"
    small = ("--data", "photos", "--corruption", "fog,contrast", "--severity", "1,3", "-q")
    words = ("gate", "models.py:bright", "--against", name, *small, "-w", "gate-w")
    refused = call(*words)
    assert refused.exit_code == 3
    hint = refused.stderr.partition("try:")[2].strip()
    assert HINTS[project.key].fits(hint), refused.output
    if name == "w":
        [option] = options_in(hint, {"NAME": "bright"})
        assert call(*words, *option).exit_code in (0, 2)
        return
    [command] = commands_in(hint, {"MODEL": "models.py:bright"})
    output(*command, *small, "-w", "gate-w")
    assert call(*words).exit_code in (0, 2)


@situation("cli/gate.py::_pass_limit")
def a_limit_of_passes_without_a_baseline(project: Project) -> None:
    small = ("--data", "photos", "--corruption", "fog,contrast", "--severity", "1,3", "-q")
    limited = ("--passes", 60, *small, "-w", "passes-w")
    refused = call("gate", "models.py:bright", "--against", "models.py:dark", *limited)
    hint = refused.stderr.partition("try:")[2].strip()
    assert refused.exit_code == 3 and HINTS[project.key].fits(hint), refused.output
    [command] = commands_in(hint, {"MODEL": "models.py:dark"})
    output(*command, *small, "-w", "passes-w")
    judged = call("gate", "models.py:bright", "--against", "baseline.parquet", *limited)
    assert judged.exit_code in (0, 1, 2) and "forward passes" in judged.output, judged.output


@situation("outputs/layouts.py::_survey")
def arrays_of_images_of_several_sizes(project: Project) -> None:
    words = ("corrupt", "photos", "arrays-c", "-c", "fog", "-s", "1", "--labels", "folders", "-q", "--format", "arrays")
    error = project.error_of_command(*words, "--no-resize")
    [option] = options_in(str(error.hint), {"--size": 32})
    output(*words, *option)


@situation("reports/confidence.py::_pair")
def unknown_images_that_nobody_names(project: Project) -> None:
    for data in ("photos", "fit-2"):
        if not Path(data).exists():
            colour_folder(Path(data), per_class=3, seed=7)
        output("eval", "models.py:bright", "--data", data, "-q", "-w", "detect-w", "--keep-scores")
    error = project.error_of_command("detect", "-w", "detect-w")
    flags = [flag for flag, *_ in options_in(str(error.hint), {})]
    assert flags == ["--out", "--in"]
    output("detect", "-w", "detect-w", "--out", "fit-2", "--in", "photos")


@situation("reports/corruption.py::_corruption_entries")
def relative_errors_without_a_divisor(project: Project) -> None:
    error = project.error_of_command("table", "-w", "w", "--mce", "--relative")
    assert options_in(str(error.hint), {}) == [["--relative"]]
    output("table", "-w", "w", "--mce")


@situation("shifts/corruptions/frost.py::_folder")
def frost_images_that_are_not_there(project: Project) -> None:
    words = ("eval", "models.py:bright", "--suite", "corruptions", "--corruption", "frost", "--severity", "1", "-q")
    project.follow(*words, "--data", "photos", "-w", "frost-w", "--frost-textures", "photos")
    project.follow_python(
        lambda frost_textures="photos": sb.corrupt(
            np.zeros((32, 32, 3), np.uint8), "frost", 3, frost_textures=frost_textures
        )
    )


@situation("jobs/base.py::parse")
def a_shard_that_counts_from_zero(project: Project) -> None:
    words = ("eval", "models.py:bright", "--data", "photos", "-q", "-w", "shard-w")
    error = project.error_of_command(*words, "--shard", "0/2")
    assert "--shard" in str(error.hint)
    output(*words, "--shard", "1/2")
    output(*words, "--shard", "2/2")


@situation("metrics/paired.py::_check_comparable")
def models_on_other_images(project: Project) -> None:
    from shiftbench.metrics.paired import compare

    read = [sb.Run.open("w", ["bright"], [name]) for name in ("photos", "photos-c.fog.3")]
    first, second = (run.workspace.read(run.results[0]) for run in read)
    error = project.error_of(lambda: compare(first, second))
    assert "mixed=True" in str(error.hint)
    compare(first, second, mixed=True)


@situation("reports/page/server.py::bind")
def a_port_that_is_taken(project: Project) -> None:
    server = pytest.importorskip("shiftbench.reports.page.server")
    with server.bind("127.0.0.1", 0) as listener:
        taken = listener.getsockname()[1]
        error = project.error_of(lambda: server.bind("127.0.0.1", taken))
        assert ("port", 0) in arguments_in(str(error.hint), {})
        server.bind("127.0.0.1", port=0).close()


@situation("published/importers.py::_models_table")
def several_tables_of_models(project: Project) -> None:
    Path("tables").mkdir(exist_ok=True)
    Path("tables/results.csv").write_text("model,val,new\na,70.5,60\nb,60.5,50\nc,80.5,70\n")
    for name in ("models.csv", "models-old.csv"):
        Path("tables", name).write_text("model,category\na,standard\nb,standard\nc,standard\n")
    words = ("study", "fit", "-r", "tables", "--x", "val", "--y", "new")
    project.follow(*words, FILE="tables/models.csv")


@situation("published/importers.py::read_tables")
def several_tables_of_results(project: Project) -> None:
    Path("two").mkdir(exist_ok=True)
    for name in ("results_a.csv", "results_b.csv"):
        Path("two", name).write_text("model,val,new\na,70.5,60\nb,60.5,50\nc,80.5,70\n")
    Path("two/models.csv").write_text("model,category\na,standard\nb,standard\nc,standard\n")
    error = project.error_of_command("study", "fit", "-r", "two", "--x", "val", "--y", "new")
    [option] = options_in(str(error.hint), {"FILE": "two/models.csv"})
    output("study", "fit", "-r", "two/results_a.csv", "--x", "val", "--y", "new", *option)


@situation("store/workspace.py::_read_format")
def a_workspace_of_a_later_version(project: Project) -> None:
    workspace = project.copied("w")
    file = Path(workspace, "workspace.json")
    file.write_text(re.sub(r'"format": *\d+', '"format": 999', file.read_text()))
    error = project.error_of_command("table", "-w", workspace)
    [command] = commands_in(str(error.hint), {})
    assert call(*command, "-w", workspace).exit_code != 0


@situation("studies/study.py::_no_result#2")
def ones_own_model_without_the_setting(project: Project) -> None:
    Path("public.csv").write_text("model,val,new\na,70.5,60\nb,60.5,50\nc,80.5,70\n")
    Path("public-models.csv").write_text("model,category\na,standard\nb,standard\nc,standard\n")
    Path("mine.csv").write_text("model,val\nme,75.5\n")
    words = ("study", "effective", "-r", "public.csv", "-m", "public-models.csv", "--own", "mine.csv")
    project.follow(*words, "--x", "val", "--y", "new")


@situation("studies/study.py::others")
def categories_that_nobody_knows(project: Project) -> None:
    Path("public.csv").write_text("model,val,new,fog\na,70.5,60,50\nb,60.5,50,30\nc,80.5,70,55\nd,85.5,75,60\n")
    Path("public-models.csv").write_text(
        "model,category\na,standard\nb,standard\nc,standard\nd,robustness_intervention\n"
    )
    words = ("study", "interventions", "-r", "public.csv", "--shift", "new")
    project.follow(*words, models="public-models.csv")


@situation("reports/figures/confidence.py::_titles")
def more_panels_than_a_figure_has(project: Project) -> None:
    rows = "".join(f"m{number},a,red,red,0.8\nm{number},b,blue,red,0.6\n" for number in range(13))
    Path("thirteen.csv").write_text("model,id,label,prediction,confidence\n" + rows)
    output("import", "thirteen.csv", "--setting", "s", "--labels", "colours.txt", "-w", "thirteen-w", "-q")
    words = ("figure", "reliability", "-w", "thirteen-w", "-o", "panels.svg")
    error = project.error_of_command(*words)
    assert [flag for flag, *_ in options_in(str(error.hint), {})] == ["-c", "-s"]
    output(*words, "-c", "m0", "-s", "s")
    assert "run.select(models=..., settings=...)" in str(error.hint)
    sb.Run.open("thirteen-w").select(models=["m0"], settings=["s"]).plot.reliability()


@situation("studies/study.py::group_means")
def groups_of_models_that_nobody_knows(project: Project) -> None:
    Path("public.csv").write_text("model,val,new\na,70.5,60\nb,60.5,50\nc,80.5,70\nd,85.5,75\n")
    Path("public-models.csv").write_text("model,category\na,standard\nb,standard\nc,standard\nd,other\n")
    words = ("study", "interventions", "-r", "public.csv", "--shift", "new")
    project.follow(*words, models="public-models.csv")


@situation("studies/reproducibility.py::_cells")
def a_gap_of_unknown_size(project: Project) -> None:
    Path("public.csv").write_text("model,val,new\na,70.5,60\nb,60.5,50\nc,80.5,70\n")
    words = ("study", "gap", "-r", "public.csv", "--x", "val", "--y", "new")
    error = project.error_of_command(*words)
    flags = [flag for flag, *_ in options_in(str(error.hint), {})]
    assert flags[:2] == ["--n-x", "--n-y"]
    output(*words, "--n-x", "1000", "--n-y", "1000")


@situation("studies/robustness.py::effective_robustness")
def accuracies_in_another_unit_than_the_line(project: Project) -> None:
    from shiftbench.studies import effective_robustness, fit

    x = [0.565, 0.698, 0.761, 0.827]
    y = [0.44, 0.572, 0.633, 0.721]
    line = fit(x, y, models=list("abcd"))
    low = [0.5, 0.6, 0.7, 0.8]

    def robustness(**options: Any) -> object:
        return effective_robustness([100 * v for v in x], [100 * v for v in low], line, models=list("abcd"), **options)

    error = project.error_of(robustness)
    assert arguments_in(str(error.hint), {}) == [("unit", "fraction")]
    effective_robustness(x, low, line, models=list("abcd"), unit="fraction")


@situation("studies/gate.py::rule_scopes", "studies/gate.py::_check_column")
def a_policy_that_matches_nothing(project: Project) -> None:
    rule = '[[rule]]\nof = "corruption"\nmargin = 50\n'
    about_columns = project.key.endswith("::_check_column")
    if about_columns:
        rule = '[[rule]]\nof = "group"\nby = "camera"\nmargin = 90\n'
    Path("policy.toml").write_text(rule)
    words = ("gate", "models.py:bright", "--against", "models.py:bright", "-q", "--policy", "policy.toml")
    refused = call(*words, "--data", "photos", "--suite", "clean", "-w", "policy-w")
    hint = " ".join(refused.stderr.partition("try:")[2].split())
    assert refused.exit_code == 3 and HINTS[project.key].fits(hint), refused.output
    if not about_columns:
        more = ("--data", "photos", "--suite", "corruptions", "--corruption", "fog", "--severity", "1")
    else:
        rows = [f"{path},{path.parent.name},{i % 2}\n" for i, path in enumerate(sorted(Path("photos").rglob("*.png")))]
        Path("cameras.csv").write_text("path,label,camera\n" + "".join(rows))
        more = ("--data", "cameras.csv", "--suite", "clean", "--labels", "colours.txt", "-w", "camera-w")
    assert call(*words, *more).exit_code in (0, 2)


# -- the doctor, metrics, transforms -----------------------------------------------------------------------------------


def _many(project: Project) -> str:
    """Enough images for the doctor."""
    folder = project.root / "many"
    if not folder.exists():
        colour_folder(folder, per_class=20, seed=9)
    return "many"


@situation("diagnosis/images.py::admit")
def a_doctor_without_images(project: Project) -> None:
    images = _many(project)

    def examine(data: Any = None) -> object:
        return sb.doctor("models.py:bright", data, progress=False)

    project.follow_python(examine, FOLDER=images)


@situation("diagnosis/images.py::check_labels")
def a_doctor_on_images_without_labels(project: Project) -> None:
    images = _many(project)
    project.error_of(
        lambda: sb.doctor("models.py:bright", f"unlabelled:{images}", labels="colours.txt", progress=False)
    )
    # Folders, a manifest, or a label space.
    assert call("doctor", "models.py:bright", "--data", images, "-q").exit_code == 0
    assert call("doctor", "models.py:bright", "--data", images, "--labels", "colours.txt", "-q").exit_code == 0
    rows = [f"{path},{path.parent.name}" for path in sorted(Path(images).rglob("*.png"))]
    Path("many.csv").write_text("\n".join(["path,label", *rows]) + "\n")
    assert call("doctor", "models.py:bright", "--data", "many.csv", "--labels", "colours.txt", "-q").exit_code == 0


@situation("diagnosis/exports.py::_check_same_classes")
def two_models_of_other_classes(project: Project) -> None:
    images = _many(project)

    def compare(labels: list[str]) -> object:
        export = sb.load_classifier(
            lambda batch: batch.mean(axis=(1, 2)) / 20,
            labels=labels,
            name="export",
            preprocessing=sb.Preprocessing(sb.Geometry(36, 32)),
        )
        return sb.verify_export("models.py:bright", export, images, progress=False)

    error = project.error_of(lambda: compare(["red", "green", "grey"]))
    assert "labels=" in str(error.hint)
    compare(["red", "green", "blue"])


@situation("metrics/calibration.py::adaptive_error")
def a_published_error_of_few_images(project: Project) -> None:
    from shiftbench.metrics import rms_calibration_error

    project.follow_python(lambda published=True: rms_calibration_error([0.5, 0.9], [1, 0], published=published))


@situation("metrics/corruption.py::_check_lengths")
def errors_of_fewer_severities(project: Project) -> None:
    from shiftbench.metrics.corruption import corruption_errors

    error = project.error_of(lambda: corruption_errors({"fog": [0.5, 0.6]}))
    assert "severities=" in str(error.hint)
    corruption_errors({"fog": [0.5, 0.6]}, severities=(1, 3))


@situation("metrics/corruption.py::mean_corruption_error")
def errors_of_fewer_corruptions(project: Project) -> None:
    from shiftbench.metrics.corruption import mean_corruption_error

    errors = {"fog": [0.5] * 5, "snow": [0.6] * 5}
    error = project.error_of(lambda: mean_corruption_error(errors))
    assert "corruptions=" in str(error.hint)
    mean_corruption_error(errors, corruptions=("fog", "snow"))


@situation("datasets/geometry.py::__post_init__")
def a_short_side_of_two_numbers(project: Project) -> None:
    error = project.error_of(lambda: sb.Geometry((30, 40)))
    rules = re.findall(r'"(\w+)"', str(error.hint))
    assert rules
    for rule in rules:
        sb.Geometry((30, 40), resize_rule=rule)


@situation("classifiers/torch_.py::torch_device")
def a_device_that_torch_lacks(project: Project) -> None:
    torch = pytest.importorskip("torch")
    network = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 3))

    def load(device: str = "cuda:7") -> object:
        return sb.load_classifier(network, device=device, labels=["red", "green", "blue"], preprocessing="size=32")

    error = project.error_of(load)
    assert arguments_in(str(error.hint), {}) == [("device", "cpu")]
    load("cpu")


@situation("hardening/transforms.py::collate")
def a_batch_of_single_views(project: Project) -> None:
    torch = pytest.importorskip("torch")
    from shiftbench.hardening import Augment

    image = Image.new("RGB", (32, 32), (200, 10, 10))
    error = project.error_of(lambda: Augment.collate([(image, 0), (image, 1)]))
    [(name, value)] = arguments_in(str(error.hint), {})
    augment = Augment("augmix", **{name: value})
    images, labels = Augment.collate([(augment(image), 0), (augment(image), 1)])
    assert images.shape == (2 * value, 3, 32, 32) and torch.equal(labels, torch.tensor([0, 1]))


# -- training ----------------------------------------------------------------------------------------------------------

_TINY = (
    "--set",
    "train.epochs=1",
    "--set",
    "architecture.name=resnet-20",
    "--set",
    "architecture.depth=8",
    "--set",
    "train.batch_size=4",
    "--set",
    "data.labels=folders",
    "-q",
)


@situation("hardening/training/data.py::open_training_set")
def a_training_without_data(project: Project) -> None:
    pytest.importorskip("torch")
    Path("own.toml").write_text('[data]\ntrain = ""\n[architecture]\nname = "resnet-20"\ndepth = 8\n')
    words = ("harden", "train", "own.toml", "--out", "nothing-run", *_TINY)
    done = call(*words)
    assert isinstance(done.exception, ShiftbenchError), done.output
    assert HINTS[project.key].fits(str(done.exception.hint)), done.exception
    output(*words, "--data", "photos")


@situation("hardening/training/data.py::_check_selection")
def best_epochs_without_validation(project: Project) -> None:
    pytest.importorskip("torch")
    words = ("harden", "train", "cifar-standard", "--data", "photos", "--out", "best-run", *_TINY)
    error = project.error_of_command(*words, "--set", "train.keep=best", "--set", "data.validation=")
    [option] = options_in(str(error.hint), {"FOLDER": "photos"})
    output(*words, "--set", "train.keep=best", *option)


@situation("hardening/training/checkpoint.py::refuse_other", "hardening/training/checkpoint.py::refuse_other#2")
def a_folder_of_another_training(project: Project) -> None:
    pytest.importorskip("torch")
    words = ("harden", "train", "cifar-standard", "--data", "photos", "--validation", "photos", *_TINY)
    begun = f"begun-{project.key.count('#')}"
    output(*words, "--out", begun)
    other: tuple[object, ...] = (*words, "--set", "train.seed=5")
    if "#2" in project.key:
        other = tuple(_many(project) if word == "photos" else word for word in words)
    error = project.error_of_command(*other, "--out", begun)
    assert [flag for flag, *_ in options_in(str(error.hint), {})] == ["--out"]
    output(*other, "--out", f"{begun}-again")


# -- what needs no rare machine, dataset or service -----------------------------------------------------------------


@situation("classifiers/onnx_.py::_providers")
def a_device_that_this_machine_lacks(project: Project) -> None:
    from tests.runs.helpers import write_onnx_model

    write_onnx_model(Path("device.onnx"))
    words = ("eval", "device.onnx", "--data", "photos", "--labels", "colours.txt", "-q", "-w", "device-w")
    project.follow(*words, "--device", "cuda")


@situation("studies/gate.py::check_same_images")
def a_baseline_of_other_images(project: Project) -> None:
    colour_folder(project.root / "newer" / "photos", per_class=5, seed=9)
    words = ("--corruption", "fog", "--severity", "1", "-q")
    pin = ("gate", "pin", "models.py:bright", "-o", "older.parquet", *words)
    output(*pin, "--data", "photos", "-w", "older-w")
    gate = ("gate", "models.py:dark", "--against", "older.parquet", "--data", "newer/photos", *words, "-w", "newer-w")
    refused = call(*gate)
    assert refused.exit_code == 3 and f"try:      {ast.literal_eval(HINTS[project.key].text)}" in refused.output
    output(*pin, "--data", "newer/photos", "-w", "newer-w")
    judged = call(*gate)
    assert judged.exit_code in (0, 1, 2) and "models.py" not in judged.stderr, judged.output


@situation("metrics/flips.py::stack_scores")
def zipf_distances_without_scores(project: Project) -> None:
    from shiftbench.metrics.flips import stack_scores

    def scores_of_two_frames(*options: str) -> object:
        output("eval", "models.py:bright", "--data", "photos", "-q", "-w", "zipf-w", *options)
        frame = sb.Run.open("zipf-w").predictions()
        return stack_scores([frame, frame])

    error = project.error_of(scores_of_two_frames)
    [option] = options_in(f"{error.hint}".replace("keep_scores=True", "--keep-scores"), {})
    scores_of_two_frames(*option)


@situation("runs/budget.py::pilot")
def a_budget_for_too_few_images(project: Project) -> None:
    colour_folder(project.root / "for-a-pilot", per_class=8)
    words = ("eval", "models.py:bright", "--suite", "corruptions", "--data", "for-a-pilot", "-q", "-w", "budget-w")
    design = ("--design", "one-pass", "--corruption", "fog,contrast", "--severity", "3")
    error = project.error_of_command(*words, *design, "--budget", "4")
    assert "--budget" in str(error.hint)
    [enough] = re.findall(r"(\d+) or more", str(error.expected))
    output(*words, *design, "--budget", enough)


@situation("reports/corruption.py::modelled")
def a_model_of_the_settings_of_a_full_grid(project: Project) -> None:
    grid = ("--suite", "corruptions", "--corruption", "fog,contrast", "--severity", "3")
    output("eval", "models.py:bright", *grid, "--data", "photos", "-q", "-w", "modelled-w")
    words = ("table", "--mce", "--modelled", "-w", "modelled-w")
    error = project.error_of_command(*words)
    [unwanted] = options_in(str(error.hint), {})
    output(*(word for word in words if word not in unwanted))


@situation("runs/stateful.py::check_stateful", "runs/stateful.py::check_stateful#2")
def an_adapting_model_in_a_design_or_in_jobs(project: Project) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 3))
    words: dict[str, Any] = {"suite": "corruptions", "data": "photos", "labels": "folders", "stateful": True}
    words["progress"] = False
    less: dict[str, Any] = {"corruptions": "fog", "severities": (3,)}
    where: dict[str, Any] = {"workspace": "stateful-w", "preprocessing": {"size": 32, "interpolation": "bilinear"}}
    if project.key.endswith("#2"):
        error = project.error_of(lambda: sb.evaluate(module, **words, **less, **where, shard="1/2"))
        assert "leave shard=... out" in str(error.hint)
    else:
        error = project.error_of(lambda: sb.evaluate(module, **words, **where, design="one-pass"))
        assert arguments_in(str(error.hint), {})[0] == ("design", "full")
        assert all(f"{name}=" in str(error.hint) for name in less)
    assert sb.evaluate(module, **words, **less, **where).settings == ["photos", "photos-c.fog.3"]


@situation("classifiers/loading.py::load_spec")
def a_loader_that_ignores_what_is_stated(project: Project) -> None:
    from shiftbench.classifiers import classifier_loaders

    def load(target: str, options: Any) -> Any:
        return sb.load_classifier(
            lambda images: images.mean(axis=(1, 2)),
            name="own",
            labels=["red", "green", "blue"],
            preprocessing=options.preprocessing or sb.Preprocessing(sb.Geometry(36, 32)),
        )

    classifier_loaders.register("of-an-advice")(load)
    try:
        error = project.error_of(lambda: sb.load_classifier("of-an-advice:x", preprocessing={"size": 24}))
        assert "preprocessing=Preprocessing(...)" in str(error.hint)
        model = sb.load_classifier("of-an-advice:x", preprocessing=sb.Preprocessing(sb.Geometry(24, 24)))
        assert model.preprocessing.geometry.crop == 24
    finally:
        classifier_loaders._items.pop("of-an-advice")


@situation("classifiers/base.py::trial_scores")
def a_function_for_images_of_one_size(project: Project) -> None:
    Path("fixed.py").write_text(
        "import numpy as np\n\n"
        "def net():\n    def scores(images):\n        return images.reshape(len(images), 48, 40, 3).mean(axis=(1, 2))\n"
        "    return scores\n"
    )
    words = ("eval", "fixed.py:net", "--data", "photos", "--labels", "folders", "-q", "-w", "fixed-w")
    error = project.error_of_command(*words)
    [size] = re.findall(r"--preprocess (size=\d+x\d+)", str(error.hint))
    output(*words, "--preprocess", size)


@situation("labels/space.py::projection_from")
def a_model_that_lacks_classes_of_the_data(project: Project) -> None:
    words = ("eval", "models.py:unnamed", "--data", "pets", "-q", "-w", "lacking-w")
    Path("pets.txt").write_text("cat\ndog\nfish\n")
    space = sb.label_space("colours.txt")
    error = project.error_of(lambda: sb.label_space("pets.txt").projection_from(space))
    assert "labels=" in str(error.hint)
    refused = call(*words, "--labels", "colours.txt")
    assert isinstance(refused.exception, ShiftbenchError), refused.output
    output(*words, "--labels", "pets.txt")


@situation("testsets/near_duplicates/find.py::find_near_duplicates")
def near_duplicates_of_nothing(project: Project) -> None:
    from shiftbench.testsets.near_duplicates import find_near_duplicates

    photos = sb.open_dataset("photos", labels="folders")
    project.follow_python(
        lambda within=False: find_near_duplicates(photos, within=within)  # the other advice is a reference set
    )
    find_near_duplicates(photos, [sb.open_dataset("digits", labels="folders")], within=False)


@situation("testsets/near_duplicates/find.py::duplicate_effect")
def the_effect_of_near_duplicates_on_no_model(project: Project) -> None:
    output("eval", "models.py:bright", "--data", "photos", "--sample", "6", "-q", "-w", "effect-w")
    words = ("data", "duplicates", "photos", "digits", "--labels", "folders", "-q", "-w", "effect-w")
    error = project.error_of_command(*words)
    [command] = commands_in(str(error.hint), {"MODEL": "models.py:bright", "A": "photos", "WORKSPACE": "effect-w"})
    output(*command, "-q")
    assert "without near-duplicates" in " ".join(output(*words).split())


_OTHER_MACHINE = "needs a cluster, or a machine with too little memory"
_PACKAGE = "installs a package"
_RELEASED = "needs a released dataset, whose tests build a copy and follow the advice: tests/datasets"
_WEIGHTS = "needs weights of a model zoo"
_TRAINING = "needs a training run; its options are checked by name only"
_BY_NAME = "its options are checked by name only"
#: Hints that no situation above follows, and why.
_FINETUNING = "tests/hardening/finetuning has each error, and does what the hint says"
NOT_FOLLOWED = {
    "studies/study.py::_check_entries": _BY_NAME,
    "reports/figures/mce.py::of": _BY_NAME,
    "reports/figures/heatmaps.py::corruptions": _BY_NAME,
    "runs/compute.py::checked": _BY_NAME,
    "datasets/images.py::_memory_ran_out": "needs a machine without memory; test_images.py has the error",
    "classifiers/model_files.py::load_model_file": "names the default device; test_openvino.py has the error",
    "classifiers/zero_shot.py::classifier": "needs a pair of encoders; test_zero_shot.py loads one with labels",
    "classifiers/model_files.py::_shrink": "needs a machine without memory",
    "classifiers/torch_.py::forward": "followed in tests/runs/test_stateful.py, with a model that adapts",
    "classifiers/weights.py::load_pickled": "needs a torch before 2.6; test_torch_file.py follows it",
    "classifiers/weights.py::fill": "asks what the architecture is; test_weights.py states num_classes",
    "classifiers/zoo.py::_pretrained": _WEIGHTS,
    "classifiers/defences.py::__post_init__": _RELEASED,
    "classifiers/description.py::_sizes_by_word": "no loader leaves the size of the input open",
    "classifiers/onnx_.py::open_session": "needs a device that onnxruntime cannot use",
    "classifiers/zoo.py::_pretrained#2": _WEIGHTS,
    "classifiers/zoo.py::_load_hf_module": _WEIGHTS,
    "cli/commands.py::load_command": "asks to update another package",
    "cli/report.py::run": "asks to wait for another process",
    "datasets/factors.py::open_deepfashion2": _RELEASED,
    "datasets/factors.py::open_factors": _RELEASED,
    "datasets/icons/opening.py::_open_original_folder": _RELEASED,
    "datasets/videos.py::_require_files": _RELEASED,
    "errors.py::__init__#2": _PACKAGE,
    "hardening/augmentations/copies.py::_labelled_copies": _TRAINING,
    "hardening/augmentations/networks.py::load_network": _TRAINING,
    "hardening/augmentations/networks.py::missing_network": _TRAINING,
    "hardening/augmentations/stylize.py::stylizer": _TRAINING,
    "hardening/classifier.py::load_hardened": _TRAINING,
    "hardening/architectures/own.py::unknown_network": _FINETUNING,
    "hardening/finetuning/model.py::_check_trainable": _FINETUNING,
    "hardening/finetuning/model.py::_in_classes_of": _FINETUNING,
    "hardening/finetuning/model.py::_settle_input_size": _FINETUNING,
    "hardening/finetuning/model.py::open_inputs": _FINETUNING,
    "hardening/finetuning/model.py::open_inputs#2": _FINETUNING,
    "hardening/finetuning/plan.py::make_plan": _FINETUNING,
    "hardening/finetuning/plan.py::read_plan#2": _FINETUNING,
    "hardening/finetuning/run.py::harden": _FINETUNING,
    "hardening/experiments/ranks.py::train_on_devices#2": "needs a machine with GPUs, too few of which are free",
    "hardening/experiments/run.py::_check_reference": _TRAINING,
    "hardening/training_schemes.py::open_teacher": _TRAINING,
    "hardening/experiments/run.py::_check_suite": _TRAINING,
    "hardening/experiments/run.py::_scored_settings": _TRAINING,
    "hardening/experiments/run.py::_training_data": _TRAINING,
    "hardening/training/batches.py::__getitem__": _OTHER_MACHINE,
    "hardening/training/checkpoint.py::read_checkpoint": _OTHER_MACHINE,
    "hardening/training/data.py::_copy": _TRAINING,
    "hardening/training/devices.py::check_splits": _OTHER_MACHINE,
    "hardening/training/devices.py::sharing": _TRAINING,
    "hardening/training/loop.py::go": _OTHER_MACHINE,
    "integrations/monitor.py::_other_monitor": "asks for any other name",
    "bridges/chat.py::load_chat": "asks a server; the classes are given in tests/bridges/test_chat.py",
    "bridges/json_server.py::_text": "starts a server; the option is tried in tests/bridges/test_served.py",
    "integrations/sinks.py::__init__": _PACKAGE,
    "io/paths.py::_file_system": _PACKAGE,
    "jobs/ray_executor.py::_connect": _OTHER_MACHINE,
    "jobs/ray_executor.py::_import_ray": _PACKAGE,
    "jobs/ray_executor.py::_reading": _OTHER_MACHINE,
    "jobs/ray_executor.py::_check_idle_time": _OTHER_MACHINE,
    "metrics/video.py::_number": _RELEASED,
    "published/downloads.py::download": "needs a network",
    "testsets/project.py::_claimed": "needs PostgreSQL; tests/testsets/test_project.py has the error",
    "reports/confidence.py::_pair#2": _RELEASED,
    "reports/figures/heatmaps.py::_map": _BY_NAME,
    "reports/figures/mce.py::error_points": _BY_NAME,
    "reports/frames.py::_import": _PACKAGE,
    "reports/images.py::tag_table": "asks to use a page in the browser",
    "shifts/write.py::tree_files": "needs an object store",
    "studies/study.py::_no_result": _BY_NAME,
}
_FOR_AUTHORS = "asks the author of an extension to write code; tests/test_extension_checks.py has what conforms"
NOT_FOLLOWED |= {
    "metrics/check.py::_check_needs": _FOR_AUTHORS,
    "metrics/check.py::_check_score": _FOR_AUTHORS,
    "metrics/check.py::_check_score#3": _FOR_AUTHORS,
    "runs/check.py::_check_shifts": _FOR_AUTHORS,
}
#: Options of other programs.
FOREIGN = {"--array", "--head", "--shm-size", "--force-reinstall"}


def test_every_hint_is_followed_or_explained() -> None:
    typed = {key for key, hint in HINTS.items() if hint.is_typed}
    followed = {key.partition(" ")[0] for key in SITUATIONS} | FOLLOWED_BY_A_LEAD
    assert typed - followed - NOT_FOLLOWED.keys() == set(), "a new hint: follow it in a situation"
    assert (followed | NOT_FOLLOWED.keys()) - HINTS.keys() == set(), "a hint that is gone"
    assert followed & NOT_FOLLOWED.keys() == set()


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "list_commands"):
        yield path, command
        return
    for name in command.list_commands(None):
        yield from _leaves(command.get_command(None, name), (*path, name))


@cache
def program() -> dict[tuple[str, ...], Any]:
    """Every command by its words."""
    return dict(_leaves(typer.main.get_command(app), ()))


@cache
def every_option() -> frozenset[str]:
    options = {"--help", "--debug", "--version"}
    for command in program().values():
        for parameter in command.params:
            options.update(parameter.opts, parameter.secondary_opts)
    return frozenset(options)


def unknown_words(text: str) -> list[str]:
    """Commands in a text that the program does not have, and options that none of its commands has.

    A command stands in backticks, or behind the name of the program at the beginning of a line or of a hint's part.
    """
    names = {path[0] for path in program()}
    quoted = [words for words in re.findall(r"`(?:shiftbench )?([^`]+)`", text) if words.split()[0] in names]
    plain = re.findall(r"(?:^|[(:,`] ?)\s*shiftbench ([a-z][^`]*)", text, re.MULTILINE)
    unknown = [f"shiftbench {words}" for words in [*quoted, *plain] if not _is_command(words.split())]
    options = re.findall(r"(?<![\w-])--[a-z][a-z-]*[a-z]", text)
    return unknown + [option for option in options if option not in every_option() | FOREIGN]


def _is_command(words: list[str]) -> bool:
    """Whether the first words are those of a command, or of a group."""
    command: Any = typer.main.get_command(app)
    for word in words:
        if not hasattr(command, "list_commands"):
            return True
        name = word.strip(").,;:")
        if name in command.list_commands(None):
            command = command.get_command(None, name)
        else:
            has_default = getattr(command, "default_command", None) is not None
            return has_default or re.fullmatch(r"[a-z-]+", name) is None
    return True


def test_hints_name_commands_and_options_that_exist() -> None:
    wrong = {}
    for key, hint in HINTS.items():
        constants = " ".join(str(node.value) for node in ast.walk(hint.expression) if isinstance(node, ast.Constant))
        flags = [flag.strip() for flag in hint.option_names()]
        unknown = unknown_words(constants) + [flag for flag in flags if flag not in every_option()]
        if unknown:
            wrong[key] = unknown
    assert wrong == PYTHON_ONLY


#: Arguments that no command has: their errors are raised in Python only.
PYTHON_ONLY: dict[str, list[str]] = {}


def test_help_names_commands_and_options_that_exist() -> None:
    wrong = {}
    for path, command in program().items():
        texts = [command.help or "", *(parameter.help or "" for parameter in command.params)]
        unknown = [word for text in texts for word in unknown_words(text)]
        if unknown:
            wrong[" ".join(path)] = unknown
    assert wrong == {}


@pytest.mark.parametrize("key", SITUATIONS)
def test_advice_can_be_followed(key: str, project_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project_folder)
    SITUATIONS[key](Project(project_folder, key.partition(" ")[0]))
