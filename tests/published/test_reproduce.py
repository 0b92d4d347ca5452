"""The papers' headline numbers, recomputed; and that the marks can fail."""

from __future__ import annotations

import csv
import importlib
import io
import json
import pkgutil
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import DatasetError, UnknownNameError
from shiftbench.labels.catalogue import label_space
from shiftbench.metrics.corruption import ALEXNET_ERRORS
from shiftbench.published import tables
from shiftbench.published.reproduce import (
    Checked,
    CheckedNumber,
    Data,
    claims,
    open_data,
    paper_004,
    reproduce,
    sources,
)
from shiftbench.published.reproduce.base import (
    ABSENT,
    DIFFERS,
    FITTED,
    INTERVAL,
    KINDS,
    MARKS,
    PREDICTIONS,
    ROUNDING,
    SAME,
    Claim,
    Recomputed,
    mean_of,
)
from shiftbench.published.reproduce.sources import released_annotated, released_revisions
from shiftbench.published.tables import PAPERS, PublishedValue, published, stated
from shiftbench.reports.reproduction import reproduction_table
from shiftbench.runs.import_predictions import import_predictions
from shiftbench.settings.base import Member
from shiftbench.studies import StudyError
from tests.raised import raises
from tests.reports.recorded import record

DOCS = Path(__file__).resolve().parents[2] / "docs" / "reproduction.md"
COMMAND = "shiftbench reproduce all --testbed DIR --predictions DIR -f md"


@pytest.fixture(scope="module")
def built_in() -> dict[str, Checked]:
    """From the package's own tables alone."""
    return {one.claim.name: one for one in reproduce("all")}


@pytest.fixture(scope="module")
def everything(reference_data: Path) -> dict[str, Checked]:
    found = reproduce("all", testbed=reference_data / "imagenet-testbed", predictions=reference_data)
    return {one.claim.name: one for one in found}


def value_of(checked: Checked, name: str) -> CheckedNumber:
    [row] = [row for row in checked.rows if row.name == name]
    return row


def differing(found: dict[str, Checked]) -> dict[str, list[str]]:
    lists = {name: [row.name for row in one.rows if row.mark == DIFFERS] for name, one in found.items()}
    return {name: rows for name, rows in lists.items() if rows}


def test_no_module_is_forgotten() -> None:
    package = importlib.import_module("shiftbench.published.reproduce")
    parts = {found.name for found in pkgutil.iter_modules(package.__path__)}
    assert parts == {"base", "sources", *(f"paper_{paper}" for paper in PAPERS)}


def test_the_lines_of_004(built_in: dict[str, Checked]) -> None:
    line = built_in["004.line"]
    expected = {
        "cifar-10.1-v4, slope": (1.69, 0.005),
        "cifar-10.1-v4, intercept": (-0.727, 0.001),
        "imagenetv2-matched-frequency, slope": (1.11, 0.005),
        "imagenetv2-matched-frequency, intercept": (-0.202, 0.001),
    }
    for name, (value, within) in expected.items():
        row = value_of(line, name)
        assert row.found is not None and row.found.value == pytest.approx(value, abs=within)
        assert row.found.low is not None and row.found.high is not None
        assert row.found.low < value < row.found.high
        assert row.mark == (SAME if "slope" in name else ROUNDING)


def test_average_changes_of_004(built_in: dict[str, Checked]) -> None:
    changes = [row.found.value for row in built_in["004.average_change"].rows if row.found]
    assert np.round(100 * np.array(changes), 1).tolist() == [-11.8, -8.2, -3.2, -1.2, 2.1, 1.8]
    assert built_in["004.average_change"].counts[SAME] == 6


def test_tables_of_004_hold_together(built_in: dict[str, Checked]) -> None:
    for name, numbers in (("gaps", 494), ("ranks", 1455), ("interval_ends", 2048)):
        counts = built_in[f"004.{name}"].counts
        assert counts[SAME] + counts[ROUNDING] == numbers and counts[SAME] > 0.7 * numbers


def test_mce_rows(built_in: dict[str, Checked]) -> None:
    for name, models in (("002.mean_ce", 6), ("002.mean_relative_ce", 6), ("000.mean_ce", 14)):
        counts = built_in[name].counts
        assert counts[SAME] + counts[ROUNDING] == models and counts[SAME] >= 1
    assert built_in["002.alexnet_means"].counts[SAME] == 19


def test_hypotheses_of_000(built_in: dict[str, Checked]) -> None:
    assert built_in["000.evidence"].counts == {SAME: 34, ROUNDING: 0, INTERVAL: 0, DIFFERS: 0, ABSENT: 0}
    assert [group.same for group in built_in["000.evidence"].groups] == [17, 17]


@pytest.mark.parametrize(
    ("relation", "value", "mark"),
    [("over", 23.1, SAME), ("over", 23.0, ROUNDING), ("over", 22.9, DIFFERS), ("at least", 23.0, SAME),
     ("below", 22.9, SAME), ("below", 23.1, DIFFERS)],
)  # fmt: skip
def test_a_sentence_may_state_a_bound(relation: str, value: float, mark: str) -> None:
    printed = PublishedValue("000", "t", "m", "s", "gain", 23.0, 0.5, unit="", relation=relation)
    assert CheckedNumber("", printed, Recomputed(value)).mark == mark


def test_sentences_of_the_papers_hold(everything: dict[str, Checked]) -> None:
    for name in ("000.statements", "001.imagenet_a", "001.kinds_of_shifts", "003.chance"):
        checked = everything[name]
        assert checked.counts[SAME] == len(checked.rows), name


def test_msdnet_and_densenet_on_subtypes(tmp_path: Path) -> None:
    """002: on held-out subtypes both networks differ by only a fraction of a percent."""
    for model, hits in (("MSDNet", 590), ("DenseNet", 587)):
        record(tmp_path, "icons-subtype.unseen", 1000, hits, model=model, space="icons-50")
    [checked] = [entry for entry in reproduce("002", workspace=tmp_path) if entry.claim.name == "002.icons_difference"]
    [row] = checked.rows
    assert row.mark == SAME and row.found is not None and row.found.value == pytest.approx(0.003)


def test_what_differs_without_other_files(built_in: dict[str, Checked]) -> None:
    """No more and no less: a new disagreement is to be understood, a lost one too."""
    assert differing(built_in) == {
        "000.text": ["gain"],
        "001.sizes": ["ytbb-robust_pm0, images"],
        "003.twice": ["AUPR"],
        "004.line_ends": ["imagenetv2-matched-frequency, intercept, lower end"],
        "004.drops": ["imagenetv2-matched-frequency, smallest drop"],
    }


def test_no_printed_number_is_dropped(built_in: dict[str, Checked]) -> None:
    """Every number of the built-in tables is compared, or listed with what it would take."""
    seen = {row.printed for one in built_in.values() for row in one.rows}
    assert not [row for row in (*published(), *stated()) if row not in seen]
    for one in built_in.values():
        assert all(bool(row.needed) == (row.found is None) for row in one.rows)


def test_testbed(everything: dict[str, Checked]) -> None:
    assert everything["001.fits"].counts[SAME] == 4 and everything["001.rho_of_models"].counts[SAME] == 8
    assert everything["002.clean_errors"].counts[SAME] == 10  # of 11: not ResNeXt-50
    known = differing(everything)
    assert known.get("001.rho_of_groups", []) == []
    assert known["001.tau"] == ["feature denoising, PGD-trained, imagenet-r"]
    assert known["001.correlations"] == ["avg_corruptions x imagenetv2", "avg_pgd x imagenetv2"]


def test_predictions(everything: dict[str, Checked]) -> None:
    """Accuracies, gaps and ranks of 004 from images: all print the same; fv_16k's file is read worst first."""
    found = everything["004.accuracies_from_images"]
    assert found.counts[DIFFERS] == 0
    assert found.counts[SAME] == 886 and found.counts[ROUNDING] == 0
    ranks = {group.name: group for group in everything["004.ranks_from_images"].groups}
    assert ranks["table 16"].same == 201 and len(ranks["table 15"].compared) == 201
    assert ranks["table 15"].same == 201
    assert {row.mark for row in everything["004.average_change_from_images"].rows if row.mark is not None} >= {SAME}
    assert "34 models" in everything["004.ranks_from_images"].rows[0].needed


def test_an_altered_number_is_marked() -> None:
    """Whatever could be recomputed is marked as differing once the published number is another one."""
    data = open_data()
    shift = 0.01
    listed = ("004.line", "004.average_change", "002.mean_ce", "000.dfr_means", "001.rho_from_drops")
    counted = ("004.gaps", "004.interval_ends", "000.gaps", "000.evidence")
    for name in (*listed, *counted):
        true = claims.get(name)
        moved = [_moved(row, shift) for row in true.of()]
        altered = replace(true, of=moved.copy)
        assert {row.mark for row in altered.check(data).rows} == {DIFFERS}, name


def _moved(row: PublishedValue, shift: float) -> PublishedValue:
    times = 2.0 if row.unit == "%" else 3.0
    return replace(row, value=row.value + times * shift, low=None, high=None)


def test_marks() -> None:
    printed = PublishedValue("004", "t", "m", "s", "top1", 0.50, 0.005, 0.45, 0.55)
    marks = {
        value: CheckedNumber("", printed, Recomputed(value, slack)).mark
        for value, slack in ((0.5049, 0.0), (0.51, 0.01), (0.52, 0.0), (0.56, 0.0), (0.449, 0.01))
    }
    assert marks == {0.5049: SAME, 0.51: ROUNDING, 0.52: INTERVAL, 0.56: DIFFERS, 0.449: DIFFERS}
    assert CheckedNumber("", printed, None, "images").mark == ABSENT
    sign = replace(printed, value=1.0, rounding=0.0, low=None, high=None, unit="sign")
    assert CheckedNumber("", sign, Recomputed(-1.0)).mark == DIFFERS


def test_the_slack_of_a_mean_is_what_rounding_does_to_it() -> None:
    """Three standard deviations, by simulation; one number alone can be off by its half digit and no more."""
    row = PublishedValue("002", "1", "m", "s", "CE", 0.8, 0.005)
    moved = np.random.default_rng(0).uniform(-0.005, 0.005, (20_000, 15)).mean(axis=1)
    assert mean_of([row] * 15).slack == pytest.approx(3 * moved.std(), rel=0.02)
    assert mean_of([row]).slack == 0.005


def test_one_image_of_any_accuracy_is_noticed(everything: dict[str, Checked]) -> None:
    """The smallest change of released predictions, in the number that weighs least in the mean that is compared."""
    checked = everything["004.accuracies_from_images"]
    assert checked.from_release and not checked.change
    rows = [row for row in checked.rows if row.found is not None]
    assert rows[0].found is not None
    rows[0] = replace(rows[0], found=Recomputed(rows[0].found.value + 1 / 50_000))
    assert "have changed" in replace(checked, rows=tuple(rows)).change


def test_a_claim_says_what_it_lacks() -> None:
    [missing] = [one for one in reproduce("001") if one.claim.name == "001.fits"]
    assert missing.counts[ABSENT] == 4 and "--testbed" in missing.rows[0].needed
    assert missing.as_dict()["needed"] == {missing.rows[0].needed: 4}


def test_data_as_json_and_csv(built_in: dict[str, Checked]) -> None:
    report = reproduction_table(list(built_in.values()))
    data = json.loads(report.to_json())
    assert [one["paper"] for one in data["papers"]] == list(PAPERS) and set(data["marks"]) == set(MARKS)
    assert sum(data["counts"].values()) == sum(len(one.rows) for one in built_in.values())
    line = next(one for one in data["papers"][4]["claims"] if one["name"] == "004.line")
    assert {"name", "place", "claim", "kind", "recomputed_from", "remark", "counts", "groups", "needed"} < set(line)
    assert line["rows"][0]["mark"] == SAME and line["rows"][0]["published"] == 1.69
    numbers = sum(len(claim["rows"]) for paper in data["papers"] for claim in paper["claims"])
    assert numbers == sum(data["counts"].values())
    gaps = next(one for one in data["papers"][4]["claims"] if one["name"] == "004.gaps")
    assert [group["printed"] for group in gaps["groups"]] == [15, 9, 34, 34, 67, 67, 67, 67, 67, 67]
    rows = list(csv.DictReader(io.StringIO(report.to_csv())))
    assert len(rows) == sum(data["counts"].values()) and {row["mark"] for row in rows} <= set(MARKS)


def test_a_terminal_of_any_width(built_in: dict[str, Checked]) -> None:
    report = reproduction_table(list(built_in.values()))
    for width, ascii_only in ((60, True), (140, False)):
        text = report.to_text(width, ascii_only=ascii_only)
        assert max(map(len, text.splitlines())) <= width and (text.isascii() or not ascii_only)
        assert "DIFFERS" in text and "1.69" in text and "-72.7" in text


def test_latex_and_markdown(built_in: dict[str, Checked]) -> None:
    report = reproduction_table([built_in["004.line"]], command="shiftbench reproduce 004")
    assert r"1.69 [1.64, 1.75] & 1.69 [1.63, 1.76]" in report.to_latex()
    assert "### Section 3.3" in report.to_markdown() and "    shiftbench reproduce 004" in report.to_markdown()


def test_the_page_is_current(everything: dict[str, Checked]) -> None:
    expected = reproduction_table(list(everything.values()), command=COMMAND).to_markdown()
    assert DOCS.read_text(encoding="utf-8") == expected, f"write it anew: {COMMAND} -o docs/reproduction.md"


def test_errors(tmp_path: Path) -> None:
    with raises(UnknownNameError, name="005"):
        reproduce("005")
    with pytest.raises(StudyError, match="--testbed: no file or folder"):
        open_data(testbed=tmp_path / "none")
    with pytest.raises(StudyError, match="exactly one table of results"):
        open_data(testbed=tmp_path)
    with pytest.raises(StudyError, match="--predictions: no folder"):
        open_data(predictions=tmp_path / "none")
    with raises(StudyError, found="an empty folder"):
        open_data(predictions=tmp_path)
    (tmp_path / "cifar10_and_10.1_predictions.npz").write_bytes(b"no archive")
    with pytest.raises(DatasetError, match="can't be read"):
        open_data(predictions=tmp_path).accuracies("cifar-10")


def test_a_small_testbed_lists_what_it_lacks(tmp_path: Path) -> None:
    """Three models: nothing breaks, and every number that takes more says so."""
    (tmp_path / "results.csv").write_text("model,val,imagenet-a\nresnet34,73.3,1.9\nvgg11,69.0,1.0\nalexnet,56.5,1.8\n")
    (tmp_path / "models.csv").write_text("model,category\nresnet34,standard\nvgg11,standard\nalexnet,standard\n")
    found = {one.claim.name: one for one in reproduce("all", testbed=tmp_path)}
    assert value_of(found["003.accuracies"], "ResNet-34, imagenet-a").mark == SAME
    assert found["001.fits"].counts[ABSENT] == 4
    assert value_of(found["002.testbed_mce"], "VGG-11, mCE").needed.startswith("vgg11 on imagenet-c")


def test_a_testbed_without_base_models_has_no_tau(tmp_path: Path) -> None:
    settings = ["val", "val-on-imagenet-r-classes", "imagenet-r"]
    rows = "".join(f"{model},{x},{x + 5},{x - 30}\n" for model, x in (("a", 71), ("b", 75), ("c", 80)))
    (tmp_path / "results.csv").write_text(f"model,{','.join(settings)}\n{rows}")
    (tmp_path / "models.csv").write_text("model,category\na,standard\nb,standard\nc,more_data\n")
    found = {one.claim.name: one for one in reproduce("001", testbed=tmp_path)}
    assert "no base models" in found["001.tau"].rows[-1].needed
    assert value_of(found["001.rho_of_groups"], "highest, more data, imagenet-r").mark == DIFFERS
    assert found["001.best_on_r"].counts[DIFFERS] == 1


def test_a_claim_is_ten_lines() -> None:
    row = PublishedValue("002", "1", "mine", "s", "mCE", 0.5, 0.0005)
    mine = Claim("002.mine", "002", "table 1", "half", lambda: [row], lambda row, data: 0.5)
    assert mine.check(Data()).counts[SAME] == 1


def test_the_public_release_is_read_as_it_is(reference_data: Path, tmp_path: Path) -> None:
    """One file of top-5 classes per model, and the images in a file of their own: the same accuracies."""
    source = reference_data / "imagenetv2" / "predictions_top5_imagenetv2-b-33.npz"
    with np.load(source) as data:
        arrays = {name: data[name] for name in ("models", "predictions", "labels")}
    # The checkouts of both releases may lie side by side.
    repository = tmp_path / "ImageNetV2"
    folder = repository / "data" / "predictions" / "imagenetv2-b-33"
    folder.mkdir(parents=True)
    for name in ("fv_16k", "vgg16", "alexnet"):
        ranked = arrays["predictions"][arrays["models"].tolist().index(name)].astype(np.int64)
        if name == "alexnet":
            (folder / f"{name}.json").write_text(json.dumps(ranked.tolist()))
        else:
            # The release calls some files fv_16k_model.npy.
            np.save(folder / (f"{name}_model.npy" if name == "fv_16k" else f"{name}.npy"), ranked)
    wnids = label_space("imagenet-1k").keys
    images = [[f"{i}.jpeg", wnids[label]] for i, label in enumerate(arrays["labels"].tolist())]
    (repository / "data" / "datasets").mkdir()
    (repository / "data" / "datasets" / "imagenetv2-b-33.json").write_text(json.dumps({"image_filenames": images}))
    packed = open_data(predictions=reference_data / "imagenetv2")
    for place in (folder.parent, repository / "data", repository, tmp_path):
        released = open_data(predictions=place)
        for k in (1, 5):
            found = released.accuracies("imagenetv2-matched-frequency", k)
            whole = packed.accuracies("imagenetv2-matched-frequency", k)
            assert found == {name: whole[name] for name in ("fv_16k", "vgg16", "alexnet")}
    # An early revision lacks the best model, without which the mean of the others would jump.
    shutil.copytree(folder, folder.with_name("imagenetv2-b-2"), ignore=shutil.ignore_patterns("vgg16*"))
    images = [[name, wnids[0]] for name, _ in images]
    (repository / "data" / "datasets" / "imagenetv2-b-2.json").write_text(json.dumps({"image_filenames": images}))
    early, last = released_revisions(tmp_path)
    assert (early["revision"], last["revision"], early["released"], last["released"]) == (2, 33, 2, 3)
    assert early["models"] == last["models"] == 2
    assert last["top5"] == pytest.approx((found["fv_16k"] + found["alexnet"]) / 2) and early["top5"] != last["top5"]
    shown = reproduction_table(reproduce("002"), revisions=[early, last])
    assert "imagenetv2-matched-frequency" in shown.to_text(120) and shown.as_data()["revisions"] == [early, last]


def test_the_release_of_cifar_10_1_is_read_as_it_is(reference_data: Path, tmp_path: Path) -> None:
    """A list of classes per model and test set, and labels in another folder: the same accuracies as from arrays."""
    repository = tmp_path / "CIFAR-10.1"
    (repository / "datasets").mkdir(parents=True)
    with np.load(reference_data / "cifar-10.1" / "cifar10_and_10.1_predictions_30models.npz") as data:
        for key, name in (("cifar10", "original"), ("v4", "v4"), ("v6", "v6")):
            folder = repository / "model_predictions" / f"{name}_predictions"
            folder.mkdir(parents=True)
            for model, classes in zip(data["models"], data[key], strict=True):
                (folder / f"{model}_predictions.json").write_text(json.dumps(classes.tolist()))
            if key == "cifar10":
                np.save(folder.parent / "cifar10_test_labels.npy", data["labels_cifar10"])
            else:
                np.save(repository / "datasets" / f"cifar10.1_{key}_labels.npy", data[f"labels_{key}"])
    packed = open_data(predictions=reference_data / "cifar-10.1")
    for place in (repository / "model_predictions", repository, tmp_path):
        released = open_data(predictions=place)
        for setting in ("cifar-10", "cifar-10.1-v4", "cifar-10.1-v6"):
            assert released.accuracies(setting) == packed.accuracies(setting)
    (folder / "nas_predictions.json").write_text("[1, 2]")
    with pytest.raises(DatasetError):
        sources._accuracies.__wrapped__(folder, "cifar-10.1-v6", 1)


def test_the_annotated_originals_stand_beside_all_of_them(reference_data: Path, tmp_path: Path) -> None:
    with np.load(reference_data / "imagenetv2" / "predictions_top5_imagenet-validation-original.npz") as data:
        ranked = data["predictions"][data["models"].tolist().index("vgg16")].astype(np.int64)
        labels = data["labels"].tolist()
    wnids = label_space("imagenet-1k").keys
    (tmp_path / "datasets").mkdir()
    for name, images in (("imagenet-validation-original", 50_000), ("imagenet-annotatedval20k-0", 20_000)):
        (tmp_path / "predictions" / name).mkdir(parents=True)
        np.save(tmp_path / "predictions" / name / "vgg16.npy", ranked[:images])
        listing = [[str(i), wnids[label]] for i, label in enumerate(labels[:images])]
        (tmp_path / "datasets" / f"{name}.json").write_text(json.dumps({"image_filenames": listing}))
    [row] = released_annotated(tmp_path)
    correct = int((ranked[:20_000, 0] == labels[:20_000]).sum())
    assert (row["model"], row["images"], row["annotated_top1"]) == ("vgg16", 20_000, correct / 20_000)
    low, value, high = (float(str(row[f"annotated_top1{end}"])) for end in ("_low", "", "_high"))
    assert low < value < high
    shown = reproduction_table(reproduce("002"), annotated=[row])
    assert shown.as_data()["annotated"] == [row] and "vgg16" in shown.to_text(120)


def test_nothing_is_compared_with_itself(built_in: dict[str, Checked]) -> None:
    """A number that the recomputation reads is not the one that it is compared with; AlexNet's 100 are no result."""
    for name in ("002.mean_ce", "002.mean_relative_ce", "002.testbed_mce", "002.relative_from_ce"):
        assert "AlexNet" not in {row.printed.model for row in built_in[name].rows}
    assert {one.claim.kind for one in built_in.values()} == set(KINDS)
    fitted = {name for name, one in built_in.items() if one.claim.kind == FITTED}
    assert fitted == {"000.evidence"}
    data = reproduction_table(list(built_in.values())).as_data()
    assert data["by_kind"][FITTED][SAME] == 34 and data["by_kind"][PREDICTIONS][SAME] == 0


def test_table_5_follows_from_table_8(built_in: dict[str, Checked]) -> None:
    counts = built_in["000.blur_errors"].counts
    assert counts[SAME] + counts[ROUNDING] == 36 and counts[SAME] >= 28
    row = value_of(built_in["000.blur_means"], "ResNet-152")
    assert row.found is not None and row.found.value == pytest.approx(0.582, abs=5e-4) and row.mark == SAME


@pytest.mark.parametrize(
    ("paper", "step"), [("000", 9), ("001", 4), ("002", 7), pytest.param("004", 48, marks=pytest.mark.soak)]
)
def test_a_changed_number_changes_a_mark(paper: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation test: every few numbers that something offline checks, times 1.2 plus 5 points; a rank plus one."""
    monkeypatch.setattr(paper_004, "RESAMPLES", 200)
    everything = set(published(paper))
    compared = {row.printed for one in reproduce(paper) if one.claim.kind != FITTED for row in one.rows if row.found}
    chosen = sorted(compared & everything, key=lambda row: (row.table, row.model, row.setting, row.metric))[::step]
    before = _marks_of(paper)
    rows = tables._rows(paper)
    missed = []
    for row in chosen:
        by = 1.0 if row.rounding == 0.0 else row.value * 0.2 + (0.05 if row.unit == "%" else 5.0)
        changed = tuple(replace(one, value=one.value + by) if one is row else one for one in rows)
        monkeypatch.setattr(tables, "_rows", lambda number, changed=changed: changed if number == paper else ())
        if _marks_of(paper) == before:
            missed.append(row)
    _forget()
    assert len(missed) <= 1, missed  # one of 000 and one of 004 differ as they are
    assert len(chosen) >= {"000": 13, "001": 1, "002": 14, "004": 40}[paper]


def _forget() -> None:
    for kept in (paper_004._printed, paper_004.printed_line, paper_004._table_ranks, paper_004._value_of_end):
        kept.cache_clear()


def _marks_of(paper: str) -> list[list[str]]:
    _forget()
    cheap = [one for _, one in claims if one.paper == paper and one.kind not in (FITTED, PREDICTIONS)]
    return [[row.mark for row in one.check(Data()).rows] for one in cheap]


def numbers_of_000(root: Path) -> dict[str, CheckedNumber]:
    """The printed numbers of 000 that a workspace is asked for, by name."""
    [checked] = [entry for entry in reproduce(["000"], workspace=root) if entry.claim.name == "000.predictions"]
    return {row.name: row for row in checked.rows}


def test_a_network_imported_over_two_label_spaces_is_one(tmp_path: Path) -> None:
    """The authors' code yields predictions over 200 classes on ImageNet-R, and over all 1,000 on val."""
    wnids_r = label_space("imagenet-r-200").keys
    wnids = label_space("imagenet-1k").keys
    for setting, keys, n, wrong in (("imagenet-r", wnids_r, 30_000, 0.639), ("val", wnids, 50_000, 0.239)):
        truth = np.arange(n) % len(keys)
        answers = np.where(np.arange(n) < round(n * wrong), (truth + 1) % len(keys), truth)
        names = np.array([f"{i:05d}.jpg" for i in range(n)])
        np.savez(tmp_path / "ResNet-50.npz", prediction=answers, label=truth, id=names)
        labels = "imagenet-r-200" if setting == "imagenet-r" else "imagenet-1k"
        import_predictions(tmp_path / "ResNet-50.npz", setting, workspace=tmp_path / "w", labels=labels)
    rows = numbers_of_000(tmp_path / "w")
    assert rows["ResNet-50, imagenet-r, error"].mark == SAME
    assert len({result.title for result in sb.Run.open(tmp_path / "w").results}) == 2


def test_networks_that_were_evaluated_are_not_mixed(tmp_path: Path) -> None:
    """Two versions of one name may have other weights, so that their numbers must not be compared as one network's."""
    network = partial(record, tmp_path, space="imagenet-r-200", model="ResNet-50")
    network("imagenet-r", 30_000, 10_830)
    network("val-on-imagenet-r-classes", 10_000, 9_210, weights="other")
    row = numbers_of_000(tmp_path)["ResNet-50, imagenet-r, error"]
    assert row.mark == ABSENT and "the id of one model for ResNet-50" in str(row.needed)


def test_storefronts_of_another_number_are_not_compared(tmp_path: Path) -> None:
    record(tmp_path, "streetview-storefronts.test", 120, 6, model="ResNet-50", space="streetview-storefronts-20")
    row = numbers_of_000(tmp_path)["ResNet-50, svsf, error"]
    assert (
        row.mark == ABSENT and row.needed == "results on all 10,000 images of streetview-storefronts.test, not on 120"
    )


@pytest.mark.parametrize(
    ("name", "setting", "images", "least"),
    [
        ("dfr", "deepfashion-remixed.test", 40, "42,640"),
        ("dfr.size.large", "deepfashion-remixed.scale-large", 40, "480"),
    ],
)
def test_sets_of_deepfashion_remixed_of_another_size_are_not_compared(
    name: str, setting: str, images: int, least: str, tmp_path: Path
) -> None:
    record(tmp_path, setting, images, 6, model="ResNet-50", space="deepfashion2-13")
    row = numbers_of_000(tmp_path)[f"ResNet-50, {name}, mAP"]
    assert row.mark == ABSENT and f"{least} images of {setting}, not on 40" in row.needed


def test_printed_numbers_are_looked_up_in_a_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A workspace of made-up predictions: those that agree are the same, the others differ."""
    monkeypatch.setattr(sources, "ALL_IMAGES", 1_000)
    root = tmp_path / "w"
    space = {"space": "imagenet-r-200", "labels_of_model": "imagenet-1k", "model": "r50"}
    record(root, "val", 50_000, round(50_000 * (1 - 0.239)), model="r50")
    record(root, "imagenet-r", 30_000, round(30_000 * (1 - 0.639)), **space)  # type: ignore[arg-type]
    record(root, "val-on-imagenet-r-classes", 10_000, 5_000, **space)  # type: ignore[arg-type]
    record(root, "imagenet-a", 750, 10, space="imagenet-a-200", labels_of_model="imagenet-1k", model="r50")
    for name in BENCHMARK_CORRUPTIONS:
        for severity, error in enumerate(ALEXNET_ERRORS[name], start=1):
            member = Member("imagenet-c", name, float(severity))
            record(
                root,
                f"imagenet-c.{name}.{severity}",
                1_000,
                round(1_000 * (1 - 0.8 * error)),
                model="r50",
                member=member,
                source="on-disk",
                reference="val",
            )
    (tmp_path / "map.csv").write_text("printed,model\nResNet-50,r50\n")
    found = {one.claim.name: one for one in reproduce(["000", "002"], workspace=root, models=tmp_path / "map.csv")}
    marks = {row.name: row.mark for row in found["000.predictions"].rows if row.printed.table == "7" and row.found}
    assert marks == {
        "ResNet-50, imagenet-r, error": SAME,
        "ResNet-50, imagenet-200, error": DIFFERS,
        "ResNet-50, imagenet-r, gap": DIFFERS,
    }
    [some] = [row for row in found["000.predictions"].rows if row.name == "ResNet-50, imagenet-a, top1"]
    assert some.mark == ABSENT and some.needed == "results on all 7,500 images of imagenet-a, not on 750"
    by_metric = {row.printed.metric: row for row in found["002.predictions"].rows if row.found}
    mce = by_metric["mCE"].found
    assert mce is not None and mce.value == pytest.approx(0.8, abs=2e-3) and by_metric["mCE"].mark == DIFFERS
    assert set(by_metric) == {"error", "mCE", "CE", "relative CE", "relative mCE"}
    clean = next(row for row in found["002.predictions"].rows if row.name == "ResNet-50, imagenet, error")
    assert clean.mark == SAME and clean.found is not None and clean.found.low is not None
    (tmp_path / "map.csv").write_text("printed,model\nResNet-50,r51\n")
    with raises(UnknownNameError, name="r51"):
        open_data(workspace=root, models=tmp_path / "map.csv")
