"""Attacks in a run: per classifier, resumable, in the classifier's label space, and refused in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import shiftbench as sb
from shiftbench.api import IncompleteRunError
from shiftbench.arrays import Pixels
from shiftbench.errors import ClassifierError, SettingError
from shiftbench.labels.space import Labels, LabelSpace, Projection, Scores
from shiftbench.settings.base import Setting, SuiteOptions, build_suite
from shiftbench.shifts.attacks.attack import ATTACKS, Attack
from shiftbench.shifts.attacks.base import Attackable, ClassifierShift
from shiftbench.store.maintenance import compact
from shiftbench.store.spec import canonical_json
from shiftbench.store.workspace import Workspace
from tests.raised import raises
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder

PREPROCESSING = sb.Preprocessing(sb.Geometry(resize=36, crop=32))
PGD = Attack("pgd", "linf", 4 / 255, 3, 2 / 255)
SETTINGS = [Setting("clean", "data"), Setting("attacked", "data", PGD, reference="clean")]


class Colours(nn.Module):
    """The mean of each channel, as in ``brightest_channel``, and any further classes with a constant."""

    def __init__(self, order: Sequence[int] = (0, 1, 2), others: int = 0) -> None:
        super().__init__()
        self.order = list(order)
        self.others = others
        self.scale = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: Tensor) -> Tensor:
        means = self.scale * x.mean(dim=(2, 3))[:, self.order]
        return torch.cat([means, means.new_zeros(len(x), self.others)], dim=1)


def network(labels: LabelSpace = COLOURS, **options: Any) -> sb.Classifier:
    order = [COLOURS.index(key) for key in labels.keys if key in COLOURS]
    module = Colours(order, len(labels) - len(order))
    return sb.load_classifier(
        module, labels=labels, preprocessing=PREPROCESSING, engine="torch", name="network", **options
    )


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_folder(tmp_path_factory.mktemp("data") / "pictures", per_class=12)


def test_time_is_estimated_from_a_few_steps(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()
    forward = Colours.forward

    def counted(self: Colours, x: Tensor) -> Tensor:
        asked.append(len(x))
        return forward(self, x)

    monkeypatch.setattr(Colours, "forward", counted)
    suite = [Setting("clean", "data"), Setting("long", "data", replace(PGD, steps=1000, restarts=2))]
    plan = sb.dry_run(network(), suite, pictures, labels=COLOURS, workers=1)
    assert plan.forward_passes == 2 * 36 and 0 < sum(asked) < 1000
    assert PGD.shorter() == (PGD, 1.0) and replace(PGD, steps=1000, restarts=2).shorter() == (PGD, 2000 / 3)
    assert replace(PGD, steps=0).shorter() == (replace(PGD, steps=0), 1.0)


def run(data: Path, workspace: Path, classifier: Any = None, suite: Any = SETTINGS, **options: Any) -> sb.Run:
    options = {"labels": COLOURS, "progress": False, "keep_scores": True, **options}
    return sb.evaluate(classifier or network(), suite, data, workspace, **options)


def stored(workspace: Path) -> dict[str, bytes]:
    """Predictions, and the images of the most confident mistakes."""
    files = [*sorted(workspace.glob("predictions/*/*/*")), *sorted(workspace.glob("images/*/*/*"))]
    return {str(path.relative_to(workspace)): path.read_bytes() for path in files}


def test_a_run_gives_what_the_attack_gives(pictures: Path, tmp_path: Path) -> None:
    found = run(pictures, tmp_path / "w").predictions(setting="attacked")
    dataset = sb.open_dataset(pictures, space=COLOURS)
    classifier = network()
    images = np.stack([PREPROCESSING.geometry(dataset.read(i).pixels) for i in range(len(dataset))])
    labels = np.asarray(dataset.labels)
    ids = list(dataset.ids)
    expected, _ = PGD.scores_and_images(classifier, images, labels, image_ids=ids, seed=0)
    assert found.scores is not None and len(found) == 36
    np.testing.assert_allclose(found.scores, expected, atol=2e-3)  # scores are kept in half precision
    np.testing.assert_array_equal(found.top[:, 0], expected.argmax(axis=1))


def test_accuracy_falls_and_the_table_shows_it(pictures: Path, tmp_path: Path) -> None:
    wide = [*SETTINGS, Setting("wide", "data", replace(PGD, eps=0.5, step_size=0.25), reference="clean")]
    found = run(pictures, tmp_path / "w", suite=wide)
    accuracy = {setting: score.value for _, setting, score in found.scores("top1")}
    assert accuracy["wide"] == 0 < accuracy["attacked"] < accuracy["clean"]
    found.table()
    spec = found.predictions(setting="attacked").spec
    assert spec.shift.eps == 4 / 255 and spec.shift.seed == 0 and "torch" in str(spec.shift.values["engine"])
    assert "attack 1" in spec.provenance and "pgd" in spec.provenance


@pytest.mark.parametrize(("workers", "engine"), [(3, "threads"), pytest.param(2, "processes", marks=pytest.mark.soak)])
def test_workers_do_not_matter(pictures: Path, tmp_path: Path, workers: int, engine: Any) -> None:
    run(pictures, tmp_path / "one", workers=1)
    run(pictures, tmp_path / "many", workers=workers, executor=engine)
    assert stored(tmp_path / "one") == stored(tmp_path / "many")
    assert [name.split("/")[0] for name in stored(tmp_path / "one")] == ["predictions", "predictions", "images"]


class Stumbling(ClassifierShift):
    """The attack, but for one image on which the first run breaks down."""

    name = PGD.name
    broken = True
    asked: list[str]

    def __init__(self) -> None:
        self.asked = []

    def scores(self, *args: Any, **options: Any) -> Scores:
        scores: Scores = self.scores_and_images(*args, **options)[0]
        return scores

    def scores_and_images(
        self,
        classifier: Attackable,
        images: Pixels,
        labels: Labels,
        *,
        image_ids: Sequence[str],
        seed: int,
        classes: Sequence[int] | None = None,
    ) -> Any:
        if self.broken and image_ids[-1].startswith("blue"):
            raise RuntimeError("no memory left")
        self.asked += image_ids
        return PGD.scores_and_images(classifier, images, labels, image_ids=image_ids, seed=seed, classes=classes)

    def describe(self) -> dict[str, Any]:
        return PGD.describe()

    def identity(self) -> dict[str, Any]:
        """Not its own code, which counts what it was asked for."""
        return PGD.identity()


def test_a_broken_run_continues_where_it_was(pictures: Path, tmp_path: Path) -> None:
    shift = Stumbling()
    suite = [Setting("attacked", "data", shift)]
    with pytest.raises(IncompleteRunError, match="no memory left"):
        run(pictures, tmp_path / "w", suite=suite, workers=1)
    done = set(shift.asked)
    assert done
    shift.broken = False
    shift.asked = []
    run(pictures, tmp_path / "w", suite=suite, workers=1)
    assert not done & set(shift.asked) and len(done) + len(shift.asked) == 36
    run(pictures, tmp_path / "whole", suite=[Setting("attacked", "data", PGD)])
    assert stored(tmp_path / "w") == stored(tmp_path / "whole")
    # Images outlive their result until the workspace is cleared up.
    workspace = Workspace(tmp_path / "w")
    [result] = workspace.results()
    compact(workspace)
    assert workspace.shifted_images(result)
    workspace.predictions_path(result).unlink()
    compact(workspace)
    assert not workspace.shifted_images(result)


def test_labels_are_those_of_the_classifiers_space(pictures: Path, tmp_path: Path) -> None:
    """A classifier that counts its classes otherwise, and knows more: the same images are driven the same way."""
    shuffled = LabelSpace("more-colours", ("blue", "red", "green", "grey"))
    plain = run(pictures, tmp_path / "a").predictions(setting="attacked")
    other = run(pictures, tmp_path / "b", network(shuffled)).predictions(setting="attacked")
    assert plain.space.keys == other.space.keys == COLOURS.keys
    assert plain.scores is not None and other.scores is not None
    np.testing.assert_allclose(plain.scores, other.scores, atol=5e-3)


def test_unreadable_pictures_leave_a_gap(tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "pictures", per_class=6)
    (data / "green" / "002.png").write_bytes(b"no picture")
    found = run(data, tmp_path / "w").predictions(setting="attacked")
    gap = found.ids.index("green/002.png")
    assert np.flatnonzero(found.top[:, 0] < 0).tolist() == [gap] and len(found) == 18


def test_who_has_no_gradients_is_refused_before_the_run(pictures: Path, tmp_path: Path) -> None:
    function = sb.load_classifier(brightest_channel, labels=COLOURS, preprocessing=PREPROCESSING)
    with raises(ClassifierError, found="FunctionClassifier, run by python"):
        run(pictures, tmp_path / "w", [network(), function])
    assert not stored(tmp_path / "w")


def test_what_is_stored_is_shown_without_gradients(pictures: Path, tmp_path: Path) -> None:
    first = run(pictures, tmp_path / "w")
    classifier = network()
    classifier.gradient_model = None  # type: ignore[method-assign, assignment]
    again = run(pictures, tmp_path / "w", classifier)
    assert again.scores("top1")[1][2].value == first.scores("top1")[1][2].value


def test_super_classes_and_missing_labels_are_refused(pictures: Path) -> None:
    fine = LabelSpace("tones", ("crimson", "scarlet", "lime"))
    groups = Projection("max", ((0, 1), (2,)))
    dataset = sb.open_dataset(pictures, space=COLOURS)
    with raises(SettingError, found="a label space whose classes are groups of them"):
        PGD.check_setting(network(fine), "attacked", dataset, groups)
    unlabelled: Any = SimpleNamespace(name="flat", labels=np.full(4, -1, np.int32))
    with raises(SettingError, found="'flat', whose images have none"):
        PGD.check_setting(network(), "attacked", unlabelled, Projection("identity", ((0,), (1,), (2,))))
    away = replace(PGD, away_from="prediction")
    away.check_setting(network(), "attacked", unlabelled, Projection("identity", ((0,), (1,), (2,))))


def test_the_suite_names_its_settings_after_the_data() -> None:
    suite = build_suite("attacks", SuiteOptions(data_name="pets"))
    assert [setting.name for setting in suite.settings] == ["pets", *(f"pets-{name}" for name in ATTACKS)]
    assert "pets-pgd.linf.eps2" in [setting.name for setting in suite.settings]
    assert {setting.reference for setting in suite.settings[1:]} == {"pets"}
    assert len({canonical_json(setting.shift.describe()) for setting in suite.settings}) == len(suite.settings)
