"""Own models among the published ones: exact distances, and reasons where nothing can be compared."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.datasets import from_arrays
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.labels.catalogue import label_space
from shiftbench.metrics.base import Score
from shiftbench.published.baselines import baseline_of, baselines
from shiftbench.reports.placement import effective_of, own_results, place_models, published_study, why_apart
from shiftbench.reports.summary import summarise
from shiftbench.settings.base import Member
from shiftbench.store.spec import DatasetRef, ResultSpec, ShiftRecord
from shiftbench.store.workspace import Result, Workspace, space_key
from shiftbench.studies.base import StudyError
from shiftbench.studies.fits import FEW_MODELS
from shiftbench.studies.results import Results
from shiftbench.studies.robustness import effective_robustness
from shiftbench.studies.study import ShiftAxes, Study, unplaced
from shiftbench.studies.testbed import known_settings
from tests.raised import raises
from tests.reports.recorded import record

V2 = "imagenetv2-matched-frequency"


def _exact(value: float, n: int) -> Score:
    return Score("top1", value, value - 0.01, value + 0.01, n)


@pytest.mark.parametrize("baseline", [one for one in baselines() if one.x], ids=lambda one: one.y.setting)
def test_a_model_on_the_line_is_at_zero(baseline) -> None:  # type: ignore[no-untyped-def]
    line = baseline.line()
    x = sum(line.x_range) / 2
    y = float(line.predict(x))
    found = effective_of("mine", _exact(x, 50_000), _exact(y, 10_000), line)
    assert found.rho == pytest.approx(0.0, abs=1e-12)
    assert found.low < -0.01 and found.high > 0.01  # at least as wide as the interval of y
    above = effective_of("mine", _exact(x, 50_000), _exact(y + 0.012, 10_000), line)
    assert above.rho == pytest.approx(0.012)


def test_published_models_have_their_residuals(tmp_path: Path) -> None:
    """A workspace with the accuracies of three models of 004 gives the residuals of the study of all 67."""
    baseline = baseline_of(V2)
    assert baseline is not None
    x, y = zip(*baseline.values.values(), strict=True)
    residual = effective_robustness(x, y, baseline.line(), models=list(baseline.values)).rho
    for model in ("resnet50", "alexnet", "pnasnet_large_tf"):
        clean, shifted = baseline.values[model]
        record(tmp_path / "w", "val", 50_000, round(50_000 * clean), model=model)
        record(tmp_path / "w", V2, 10_000, round(10_000 * shifted), model=model, reference="val")
    placements = place_models(sb.Run.open(tmp_path / "w"))
    assert not placements.unplaced and len(placements) == 3
    for one in placements:
        assert one.effective is not None and one.line_models == 67
        assert one.effective.rho == pytest.approx(residual[one.model], abs=1e-9)
        assert one.effective.low < one.effective.rho < one.effective.high
        assert one.effective.high - one.effective.low < 0.03
    [alexnet] = [placement for placement in placements if placement.model == "alexnet"]
    assert alexnet.lower == sum(value < alexnet.score.value for value in y)


def test_reencoded_files_are_placed_with_a_note(tmp_path: Path) -> None:
    record(tmp_path / "w", "val", 50_000, 38_000)
    record(tmp_path / "w", f"{V2}-format-val", 10_000, 6_400, reference="val")
    [one] = place_models(sb.Run.open(tmp_path / "w"))
    assert one.setting == f"{V2}-format-val" and len(one.notes) == 2


@pytest.mark.parametrize(
    ("images", "space", "expected"),
    [(5_000, "imagenet-1k", "5,000 images"), (10_000, "imagenet-a-200", "imagenet-a-200")],
)
def test_other_images_or_classes_are_not_placed(tmp_path: Path, images: int, space: str, expected: str) -> None:
    record(tmp_path / "w", "val", 50_000, 38_000)
    record(tmp_path / "w", V2, images, images // 2, space=space, reference="val")
    placements = place_models(sb.Run.open(tmp_path / "w"))
    [why] = placements.unplaced
    assert not placements.placed and expected in why.why


def test_a_summary_says_why_its_only_model_is_not_placed(tmp_path: Path) -> None:
    record(tmp_path / "w", V2, 10_000, 6_000, reference="val")
    [model] = summarise(sb.Run.open(tmp_path / "w")).models
    [unplaced_setting] = model.unplaced
    assert unplaced_setting.setting == V2 and "val" in unplaced_setting.why


def test_a_line_is_not_used_far_from_its_models(tmp_path: Path) -> None:
    record(tmp_path / "w", "val-on-imagenet-r-classes", 10_000, 5_000, space="imagenet-r-200")
    record(tmp_path / "w", "imagenet-r", 30_000, 6_000, space="imagenet-r-200")
    [why] = place_models(sb.Run.open(tmp_path / "w")).unplaced
    assert "50.0" in why.why


def test_without_val_there_is_no_place(tmp_path: Path) -> None:
    record(tmp_path / "w", V2, 10_000, 6_000, reference="val")
    [why] = place_models(sb.Run.open(tmp_path / "w")).unplaced
    assert "val" in why.why


def test_corrupted_released_files_are_placed(tmp_path: Path) -> None:
    """Small numbers of images stand in for 50,000: only the check of their number differs."""
    from dataclasses import replace

    from shiftbench.published import baselines as module
    from shiftbench.reports import placement

    [full] = [baseline for baseline in baselines() if baseline.family]
    small = replace(full, y=replace(full.y, images=50), x=replace(full.x, images=50) if full.x else None)
    record(tmp_path / "w", "val", 50, 38)
    for name in BENCHMARK_CORRUPTIONS:
        for severity in range(1, 6):
            record(
                tmp_path / "w",
                f"imagenet-c.{name}.{severity}",
                50,
                25,
                reference="val",
                source="on-disk",
                member=Member("imagenet-c", name, severity),
            )
    run = sb.Run.open(tmp_path / "w")
    assert module.baseline_of("imagenet-c") is full
    found = placement._place("mine", run, small, "imagenet-c", 0.95)
    assert found.score.value == pytest.approx(0.5) and found.line_models == 11
    assert found.effective is not None
    assert found.effective.rho == pytest.approx(0.5 - float(full.line().predict(0.76)), abs=1e-9)
    [why] = place_models(run).unplaced
    assert "50" in why.why


def test_extra_corruptions_do_not_stand_in_for_missing_ones(tmp_path: Path) -> None:
    record(tmp_path / "w", "val", 50, 38)
    for name in ("fog", "speckle_noise"):
        record(
            tmp_path / "w",
            f"imagenet-c.{name}.1",
            50,
            25,
            reference="val",
            source="on-disk",
            member=Member("imagenet-c", name, 1),
        )
    [why] = place_models(sb.Run.open(tmp_path / "w")).unplaced
    assert why.why == "74 of 75 corruptions and severities are missing"


# -- own and published numbers in one column -------------------------------------------------------------------------


def _published_table() -> Results:
    """Two models with the testbed's sizes: natural test sets whole, a corruption on all images or on its list."""
    values = np.array([[70.0, 60.0, 40.0, 50.0, 30.0], [80.0, 72.0, 52.0, 63.0, 41.22]])
    settings = ("val", f"{V2}-format-val", _FOG, "imagenet-sketch", "imagenet-r")
    sizes = {
        name: np.asarray(float(n)) for name, n in zip(settings, (50_000, 10_000, 0, 50_889, 30_000), strict=True) if n
    }
    return Results(("a", "b"), settings, values, "percent", {**sizes, _FOG: np.array([5_000.0, 50_000.0])})


_FOG = "imagenet-c.fog.3_in-memory"


@pytest.mark.parametrize(
    ("setting", "images", "space", "shared"),
    [
        ("val", 50_000, "imagenet-1k", True),
        ("imagenet-val", 50_000, "imagenet-1k", True),  # what a folder of that name is called
        ("val", 49_975, "imagenet-1k", True),  # some files could not be read
        ("val", 5_000, "imagenet-1k", False),
        ("val", 50_000, "imagenet-a-200", False),
        ("imagenet-r", 30_000, "imagenet-r-200", True),
        ("imagenet-r", 300, "imagenet-r-200", False),
        (_FOG, 50_000, "imagenet-1k", True),
        (_FOG, 5_000, "imagenet-1k", False),  # nobody knows which 5,000
        (_FOG, 500, "imagenet-1k", False),
    ],
)
def test_only_the_same_measurement_shares_a_column(
    tmp_path: Path, setting: str, images: int, space: str, shared: bool
) -> None:
    record(tmp_path / "w", setting, images, images // 2, space=space, made_by="testbed")
    name = "val" if setting == "imagenet-val" else setting
    joined = _published_table().with_own(own_results(sb.Run.open(tmp_path / "w")))
    found = joined.of(name)
    assert set(found) == {"a", "b", *(["mine"] if shared else [])} and found["a"] == _published_table().of(name)["a"]
    assert not shared or found["mine"] == pytest.approx(50.0, abs=0.01)
    assert (f"{name} (own)" in joined.settings) is not shared and (name in joined.apart) is not shared
    assert shared or joined.of(f"{name} (own)") == {"mine": pytest.approx(50.0, abs=0.1)}


def test_predictions_on_corruptions_of_unknown_origin_are_kept_apart(tmp_path: Path) -> None:
    record(tmp_path / "w", _FOG, 50_000, 25_000)
    joined = _published_table().with_own(own_results(sb.Run.open(tmp_path / "w")))
    assert set(joined.of(_FOG)) == {"a", "b"} and set(joined.of(f"{_FOG} (own)")) == {"mine"}
    assert "--made-by testbed" in joined.apart[_FOG]


def test_a_sample_and_the_whole_set_of_one_model(tmp_path: Path) -> None:
    for images in (50_000, 500):
        record(tmp_path / "w", "val", images, images // 2)
    joined = _published_table().with_own(own_results(sb.Run.open(tmp_path / "w")))
    assert joined.of("val")["mine"] == 50.0 and set(joined.of("val (own)")) == {"mine"}


def test_own_tables_share_a_column_by_their_numbers_of_images() -> None:
    own = Results(
        ("a", "c", "d"),
        ("val", _FOG),
        np.array([[0.7, 0.4], [0.6, 0.3], [0.5, np.nan]]),
        "fraction",
        {"val": np.array([50_000.0, 1_000, np.nan]), _FOG: np.asarray(5_000.0)},
    )
    joined = _published_table().with_own(own)
    assert set(joined.of("val")) == {"a", "b", "a (own)", "d"} and joined.of("val (own)") == {"c": 60.0}
    assert joined.of(_FOG)["a (own)"] == 40.0 and set(joined.apart) == {"val"}
    study = Study(joined)
    with raises(StudyError, found="results on 1,000 images, not 50,000") as error:
        unplaced(study, ["c"], ShiftAxes("val", _FOG))
    assert "1,000 images" in str(error.value.found)


def test_the_testbeds_list_is_comparable_and_other_images_are_not(tmp_path: Path) -> None:
    """With the list, testbed-213 evaluates corruptions on its 5,000 images and val on all of them."""
    space = label_space("imagenet-1k")
    labels = np.arange(50_000) // 50
    whole = from_arrays(
        (labels[:, None, None, None] % 251 * np.ones((1, 8, 8, 3))).astype(np.uint8),
        labels,
        space=space,
        name="imagenet-val",
    )
    whole.ids = [f"{i:08}" for i in range(50_000)]
    model = sb.load_classifier(_same_for_all, labels=space, preprocessing=sb.Preprocessing(sb.Geometry(8, 8)), name="m")
    suite = [known_settings()[name] for name in ("val", "imagenet-c.brightness.1_in-memory")]
    for select, name in ((sb.Selection(subset="testbed-10percent"), "listed"), (sb.Selection(sample=5_000), "sample")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            run = sb.evaluate(model, suite, whole, tmp_path / name, select=select, progress=False)
        images = {result.setting: result.spec.images for result in run.results}
        apart = set(own_results(run).apart)
        if name == "listed":
            assert images == {"val": 50_000, "imagenet-c.brightness.1_in-memory": 5_000} and not apart
        else:
            assert apart == set(images) and set(images.values()) == {5_000}


def _same_for_all(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    return np.tile(np.arange(1000, dtype=np.float32), (len(images), 1))


def test_no_line_through_too_few_published_models(tmp_path: Path) -> None:
    """Five standard models were published on ImageNet-A: the rank among all is known, a distance from a line is not."""
    record(tmp_path / "w", "val", 50_000, 38_500)
    record(
        tmp_path / "w",
        "imagenet-a",
        7_500,
        1_500,
        space="imagenet-a-200",
        reference="val",
        labels_of_model="imagenet-1k",
    )
    run = sb.Run.open(tmp_path / "w")
    [placed] = run.baselines()
    assert placed.effective is None and 0 < placed.lower <= placed.baseline.n
    assert any(str(FEW_MODELS) in note for note in placed.notes)
    assert placed.sentence.startswith("accuracy 20.0 % is higher than that of")
    with pytest.raises(StudyError) as raised:
        published_study(run, "imagenet-a")
    assert str(FEW_MODELS) in str(raised.value.found)


@pytest.mark.parametrize("textures", ["procedural v1", "original pictures"])
def test_frost_of_our_own_textures_is_another_measurement(tmp_path: Path, textures: str) -> None:
    name = "imagenet-c.frost.3_in-memory"
    setting = known_settings()[name]
    shift = {**setting.shift.describe(), "frost": {"textures": textures}}
    space = label_space(setting.space or "imagenet-1k")
    spec = ResultSpec(
        dataset=DatasetRef({"name": "val", "fingerprint": "f"}),
        images=50,
        shift=ShiftRecord(shift),
        space=space_key(space),
    )
    why = why_apart(Workspace(tmp_path / "w"), Result("m", name, spec))
    assert ("textures" in why) == (textures == "procedural v1")
    assert why
