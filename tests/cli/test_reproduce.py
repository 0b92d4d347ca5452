"""``shiftbench reproduce`` as a user types it."""

from __future__ import annotations

import csv
from functools import partial
from pathlib import Path

import pytest
from scipy.special import expit, logit

from shiftbench.errors import ShiftbenchError
from shiftbench.published.reproduce import CheckedNumber, Claim, Data, reproduce
from shiftbench.published.tables import PAPERS, PublishedValue, published
from tests.commands import answer, output
from tests.commands import call as shiftbench
from tests.reports.recorded import record

call = partial(shiftbench, "reproduce")


def test_prints_published_beside_recomputed() -> None:
    result = output("reproduce", "002")
    assert "recomputed" in result and "published" in result
    assert "ResNet-50" in result and "76.7" in result and "not recomputed" in result


def test_json_and_nothing_else() -> None:
    data = answer("reproduce", "002", "003")
    assert [paper["paper"] for paper in data["papers"]] == ["002", "003"]
    assert data["counts"]["same"] > 0 and set(data["papers"][0]) == {"paper", "title", "counts", "claims"}


def test_writes_a_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert call("003", "-f", "md", "-o", page).exit_code == 0
    assert page.read_text().startswith("# Published numbers, recomputed\n\n    shiftbench reproduce 003 -f md\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("005",), "unknown paper '005'"),
        (("001", "--testbed", "/no/such/folder"), "--testbed: no file or folder"),
        (("004", "--predictions", "/no/such/folder"), "--predictions: no folder"),
    ],
)
def test_errors_say_what_is_wrong(arguments: tuple[str, ...], message: str) -> None:
    result = call(*arguments)
    assert result.exit_code != 0 and isinstance(result.exception, ShiftbenchError)
    assert message in str(result.exception)


def test_a_paper_must_be_named() -> None:
    assert call().exit_code == 2


def test_check_exits_with_1_if_a_number_differs() -> None:
    assert call("001", "--check").exit_code == 0  # 3 + 1 numbers compared, none differs
    assert call("000", "--check").exit_code == 0  # the text's 37.5 % is 33.3 by its own table, which is known
    assert call("000").exit_code == 0


@pytest.mark.parametrize("paper", PAPERS)
def test_check_passes_on_untouched_public_data(paper: str, reference_data: Path) -> None:
    found = call(paper, "--testbed", reference_data / "imagenet-testbed", "--predictions", reference_data, "--check")
    assert found.exit_code == 0, found.output


@pytest.mark.parametrize(
    ("paper", "model", "setting", "by", "word"),
    [
        # A difference that is expected, and now is another one; a number that was the same.
        ("002", "resnet50", "imagenet-c.fog.3_on-disk", 1, "differs: "),
        ("001", "resnet152-imagenet11k", "imagenetv2-matched-frequency-format-val", 1, "differs: "),
        # Changes that rounding hides; a number that is not there any more.
        ("000", "resnet152", "imagenet-a", 0.001, "changed: "),
        ("001", "resnet50", "objectnet-1.0-beta", 0.01, "changed: "),
        ("001", "resnet50", "pgd.l2.eps0.1", 0.01, "changed: "),
        ("003", "resnet34", "imagenet-a", None, "changed: "),
    ],
)
def test_check_fails_if_public_data_changes(
    paper: str, model: str, setting: str, by: float | None, word: str, reference_data: Path, tmp_path: Path
) -> None:
    with (reference_data / "imagenet-testbed" / "results_204x213.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    column = rows[0].index(setting)
    [row] = [row for row in rows if row[0] == model]
    row[column] = "" if by is None else str(float(row[column]) + by)
    with (tmp_path / "robustness_top1s.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    found = call(paper, "--testbed", tmp_path, "--check")
    assert found.exit_code == 1
    assert word in found.output


@pytest.mark.soak
def test_check_notices_a_change_in_every_column_that_a_number_depends_on(reference_data: Path, tmp_path: Path) -> None:
    """One accuracy of each column is changed by 0.05 points; no printed number is about the columns in the list."""
    unread = ("imagenet-sketch", "imagenetv2-", "val_subsampled", "format-val_subsampled")
    with (reference_data / "imagenet-testbed" / "results_204x213.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    [place] = [i for i, row in enumerate(rows) if row[0] == "resnet50"]
    missed = []
    for column, setting in enumerate(rows[0][1:], start=1):
        before = rows[place][column]
        rows[place][column] = str(float(before) + 0.05)
        with (tmp_path / "robustness_top1s.csv").open("w", newline="") as file:
            csv.writer(file).writerows(rows)
        rows[place][column] = before
        checked = reproduce(["000", "001", "002", "003"], testbed=tmp_path)
        if not any(outcome.change or any(row.is_unexpected() for row in outcome.rows) for outcome in checked):
            missed.append(setting)
    assert all(name.startswith(unread) or name.endswith(unread) for name in missed), missed


@pytest.mark.parametrize(("tolerance", "expected"), [(None, 1), ("1.9", 1), ("2.1", 0)])
def test_a_network_trained_again_may_differ_by_a_tolerance(
    tolerance: str | None, expected: int, tmp_path: Path
) -> None:
    as_printed(tmp_path / "w", "003", 0.02)
    options = [] if tolerance is None else ["--tolerance", tolerance]
    assert call("003", "--workspace", tmp_path / "w", "--check", *options).exit_code == expected


def test_a_tolerance_needs_a_check() -> None:
    assert call("003", "--tolerance", "1").exit_code == 2


def test_a_number_that_the_paper_contradicts_is_no_failure(tmp_path: Path) -> None:
    """003 states ResNet-152's AUPR on ImageNet-O as 17.2 and as 18.0: no network can have both."""
    rows = {row.printed.table: row for row in resnet152_numbers(0.18)}
    assert rows["section 5.2, size"].mark == "same"
    assert rows["section 5.2, self-attention"].expected
    assert not any(row.is_unexpected() for row in rows.values())
    assert all(row.is_unexpected() for row in resnet152_numbers(0.21))


def resnet152_numbers(aupr: float) -> tuple[CheckedNumber, ...]:
    def printed() -> list[PublishedValue]:
        return published("003", model="ResNet-152", metric="AUPR")

    claim = Claim("003.mine", "003", "section 5.2", "AUPR", printed, lambda row, data: aupr)
    return claim.check(Data()).rows


def as_printed(root: Path, paper: str, off: float = 0.0) -> None:
    """A workspace whose models have accuracies that the paper prints; one of them is ``off`` by so much."""
    if paper == "001":  # standard models on a line through its 8.6 points lost, and others at the printed distances
        slope = 0.92
        shift = logit(0.797) - 0.92 * logit(0.883)
        places = {
            "resnet50": (0.76, 0.0), "resnet101": (0.78, 0.0), "vgg16": (0.72, 0.0), "alexnet": (0.565, 0.0),
            "efficientnet-l2-noisystudent": (0.883, 0.011 + off), "resnet152-imagenet11k": (0.762, 0.021),
            "google_resnet101_jft-300M": (0.792, -0.0023), "instagram-resnext101_32x8d": (0.827, 0.015),
        }  # fmt: skip
        for model, (x, rho) in places.items():
            y = expit(slope * logit(x) + shift) + rho
            record(root, "val", 50_000, round(50_000 * x), model=model)
            record(root, "imagenetv2-matched-frequency-format-val", 10_000, round(10_000 * y), model=model)
        for other, n in (("greyscale", 50_000), ("stylized_imagenet", 50_000), ("imagenet-a", 7_500)):
            record(root, other, n, n // 5, model="resnet50")
        return
    for printed, setting, space, n, accuracy in {
        "000": [
            ("ResNet-50", "imagenet-r", "imagenet-r-200", 30_000, 0.361),
            ("ResNet-50", "val-on-imagenet-r-classes", "imagenet-r-200", 10_000, 0.921),
        ],
        "002": [
            ("ResNet", "icons-style.microsoft", "icons-50", 1_000, 0.583),
            ("ResNet-50", "val", "imagenet-1k", 50_000, 0.761),
        ],
        "003": [("ResNeXt-50", "imagenet-a", "imagenet-a-200", 7_500, 0.0131)],
        "004": [
            ("alexnet", "val", "imagenet-1k", 50_000, 0.565),
            ("alexnet", "imagenetv2-matched-frequency", "imagenet-1k", 10_000, 0.44),
        ],
    }[paper]:
        hits = round(n * (accuracy + off))
        record(root, setting, n, hits, model=printed, space=space, labels_of_model="imagenet-1k")
        off = 0.0


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize(("off", "expected"), [(0.0, 0), (0.02, 1)])
def test_check_of_a_workspace_for_each_paper(paper: str, off: float, expected: int, tmp_path: Path) -> None:
    as_printed(tmp_path / "w", paper, off)
    found = call(paper, "--workspace", tmp_path / "w", "--check")
    assert found.exit_code == expected and ("differs: " in found.output) is bool(expected), found.output
    assert call(paper, "--workspace", tmp_path / "w").exit_code == 0


@pytest.mark.parametrize(("hits", "expected"), [(10_830, 0), (10_530, 1)])
def test_check_of_a_workspace_counts_its_own_numbers(tmp_path: Path, hits: int, expected: int) -> None:
    """36.1 % of ImageNet-R is right, as table 1 of 000 has it, or 35.1 %; the paper's own slips do not count."""
    space = {"space": "imagenet-r-200", "labels_of_model": "imagenet-1k", "model": "r50"}
    record(tmp_path / "w", "imagenet-r", 30_000, hits, **space)  # type: ignore[arg-type]
    record(tmp_path / "w", "val-on-imagenet-r-classes", 10_000, 9_210, **space)  # type: ignore[arg-type]
    (tmp_path / "map.csv").write_text("printed,model\nResNet-50,r50\n")
    own = ("--workspace", str(tmp_path / "w"), "--models", str(tmp_path / "map.csv"), "--check")
    found = call("000", *own)
    assert found.exit_code == expected
    assert ("ResNet-50, imagenet-r: error 64.9 instead of 63.9" in " ".join(found.output.split())) is bool(expected)
    lost = call("001", *own)
    assert lost.exit_code == 1 and isinstance(lost.exception, ShiftbenchError)  # nothing of it can be compared


def test_one_network_may_be_several_models_of_a_workspace(tmp_path: Path) -> None:
    """The same weights with another label space are another model; --models names both."""
    first = record(tmp_path / "w", "imagenet-a", 7_500, 705, model="dpn", space="imagenet-a-200")
    second = record(tmp_path / "w", "val-on-imagenet-a-classes", 10_000, 9_000, model="dpn")
    other = {"model": "dpn2", "space": "imagenet-o-200", "confidence": float("nan")}
    for setting, n in (("imagenet-o", 2_000), ("val-on-imagenet-o-classes", 10_000)):
        last = record(tmp_path / "w", setting, n, n // 2, **other)  # type: ignore[arg-type]
    lines = [f"DPN-98,{one.model_id}" for one in (first, second, last)]
    (tmp_path / "map.csv").write_text("\n".join(["printed,model", *lines]))
    found = answer("reproduce", "003", "--workspace", tmp_path / "w", "--models", tmp_path / "map.csv", "--check")
    [claim] = [one for one in found["papers"][0]["claims"] if one["kind"] == "predictions"]
    assert claim["counts"]["same"] == 1 and claim["counts"]["differs"] == 0
    assert any("confidences" in what for what in claim["needed"])


@pytest.mark.parametrize(("hits", "expected"), [(4_030, 0), (4_130, 1)])
def test_a_mean_over_four_networks(tmp_path: Path, hits: int, expected: int) -> None:
    """002, appendix E: the error on held-out subtypes is 59.7 % on average over 1 to 4 of them."""
    for count in (1, 2, 3, 4):
        record(
            tmp_path / "w", f"cifar-100-subtypes-{count}.unseen", 10_000, hits, model=f"wrn{count}", space="cifar-10"
        )
    (tmp_path / "map.csv").write_text("printed,model\n" + "".join(f"WRN-40-2,wrn{count}\n" for count in (1, 2, 3, 4)))
    found = call("002", "--workspace", tmp_path / "w", "--models", tmp_path / "map.csv", "--check")
    assert found.exit_code == expected, found.output
