"""docs/papers.md: every command that it names for an element of the papers is run, on small generated data.

Suites are run by tests/test_suites_end_to_end.py, from a folder as on the page.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.published.reproduce import reproduce
from shiftbench.published.reproduce.base import PUBLIC, SAME
from shiftbench.reports.images import set_tag
from shiftbench.settings.base import suites
from shiftbench.testsets.project import Project
from tests.cli.test_help_examples import folder, large
from tests.commands import call, output
from tests.datasets.icons.originals import original_folder
from tests.hardening.training.test_large_recipes import MINIATURE
from tests.test_suites_end_to_end import IMAGENET, MODEL, imagenet
from tests.testsets.helpers import annotators, by_share, fill, small_configuration, work

__all__ = ["folder", "large"]  # fixtures
PAGE = Path(__file__).resolve().parents[1] / "docs" / "papers.md"
ROWS = list(dict.fromkeys(re.findall(r"`shiftbench ([^`]+)`", PAGE.read_text(encoding="utf-8"))))
SUITES = [row for row in ROWS if re.fullmatch(r"eval MODEL --suite \S+ --data FOLDER", row)]
#: Run by other tests: against a local server, with all sources of icons, in a browser, on a frozen set.
ELSEWHERE = {
    "baselines get testbed": "published/test_downloads.py",
    "baselines get testbed-204": "published/test_downloads.py",
    "data icons icons/": "datasets/icons/test_assemble.py",
    "testset serve pets": "browser/test_annotation.py",
    "testset keywords pets tiny-images/manifest.csv": "testsets/test_keywords.py",
    "testset study pets -w W -o study.html": "testsets/followups/test_commands.py",
    "testset follow-up hard pets -w W --study pets-hard": "testsets/followups/test_commands.py",
    "testset follow-up balance pets -w W": "testsets/followups/test_commands.py",
    "testset follow-up revisions pets MODEL -w W": "testsets/followups/test_commands.py",
    "experiment run hyper-parameters --data cifar-10.1=DIR": "hardening/experiments/test_run.py",
    "eval MODEL --suite testbed-213 --data FOLDER --subset testbed-10percent": "datasets/test_subset.py",
    "eval MODEL --suite corruptions --corruption style_transfer --style-network decoder.pth --styles DIR --data DIR":
        "hardening/stylizing/test_corruption.py",
}  # fmt: skip
TINY = [f"--set={one}" for one in (*MINIATURE, "augmentations.0.size=64")]
#: What makes a row small; rows of minutes are for the soak.
SMALL = {
    "harden train imagenet-deepaugment": ["--validation", "none", *TINY],
    "harden train imagenet-pgd": ["--validation", "none", *TINY, "--set=scheme.steps=1"],
    "harden train imagenet-stability": ["--validation", "none", *TINY],
    "harden train imagenet-clahe": ["--validation", "none", *TINY[:-1], "--set=augmentations.1.size=64"],
    "harden train imagenet-msdnet": ["--validation", "none", *TINY[2:], "--set=architecture.exits=2"],
    "harden train cifar-random-features": ["--validation", "none", "--set=data.sample=100"],
    "eval MODEL --data anomalies:gaussian": ["--sample", "20"],
    "eval MODEL --suite corruptions --defence": ["--corruption", "contrast", "--severity", "3"],
    "testset sample": ["--option", "min_references=1", "--per-class", "1"],
    "experiment run": ["--scale", "tiny", "--seeds", "1"],
    "testset follow-up half": ["--draws", "1", "--recipe", "imagenet-standard", *TINY],
}
#: Replaced on the page by what a user has.
WORDS = {"MODEL": "model.py:first", "timm:resnet50.tv_in1k": "model.py:first", "FOLDER": "train", "W": "W"}
LONG = ("harden train", "experiment", "corrupt", "testset follow-up")


def test_all_kinds_of_rows_are_known() -> None:
    assert len(ROWS) > 50 and set(ELSEWHERE) <= set(ROWS)
    assert all((PAGE.parents[1] / "tests" / name).is_file() for name in ELSEWHERE.values())
    assert {shlex.split(row)[shlex.split(row).index("--suite") + 1] for row in SUITES} <= set(suites.names())


def test_every_row_says_what_it_was_checked_against() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    assert {len(row) for row in cells} == {4}
    assert [row[0] for row in cells if not row[3]] == []


@pytest.mark.parametrize("paper", ["001", "003"])
def test_the_counts_of_the_page_are_those_of_the_public_results(paper: str, reference_data: Path) -> None:
    """ "24 of 27 match the public results as printed": recomputed, not remembered."""
    same = 0
    compared = 0
    for checked in reproduce(paper, testbed=reference_data / "imagenet-testbed"):
        if checked.claim.kind == PUBLIC:
            same += checked.counts[SAME]
            compared += sum(row.found is not None for row in checked.rows)
    [row] = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if f"`shiftbench reproduce {paper} " in line
    ]
    assert f"{same} of {compared} match" in row


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Path:
    """A folder in which the rows can be typed as they are: tables, images, a workspace of two models, a project."""
    root = tmp_path_factory.mktemp("papers")
    (root / "results.csv").symlink_to(folder / "results.csv")
    (root / "DIR").symlink_to(folder / "imagenet-testbed")
    (root / "robustness_top1s.csv").symlink_to(root / "DIR" / "robustness_top1s.csv")
    (root / "models.csv").write_text(
        (folder / "models.csv").read_text() + "first,standard,,,5\nsecond,standard,first,larger,9\n"
    )
    (root / "sizes.csv").write_text("model,size\nfirst,25.6\nsecond,60.2\n")
    (root / "map.csv").write_text("printed,model\nResNet-50,first\n")
    (root / "model.py").write_text(MODEL.format(space=IMAGENET))
    imagenet(root / "trees")
    for name, tree in (("imagenet-a", "imagenet-a"), ("new", "imagenet-sketch"), ("hidden-split", "stylized-imagenet")):
        (root / name).symlink_to(root / "trees" / tree)
    for name in ("train", "val", "downloads", "old", "EDSR", "CAE"):
        (root / name).symlink_to(root / "trees" / "imagenet-val")
    original_folder(root / "icons")
    models = [root / "model.py:first", root / "model.py:second"]
    given = ["--corruption", "contrast,gaussian_noise,impulse_noise", "--severity", "3"]
    for suite in ("many-faces", "imagenet-a", "imagenet-o", "imagenetv2"):
        options = given if suite == "many-faces" else []
        output("eval", *models, "--suite", suite, "--data", root / "trees", *options, "-w", root / "W",
               "--keep-scores", "-q")  # fmt: skip
    for name in ("new", "hidden-split"):
        output("eval", *models, "--data", root / name, "--labels", "imagenet-1k", "-w", root / "W", "-q")
    run = sb.Run.open(root / "W", ["first"])
    ids = run.predictions(setting="imagenetv2-matched-frequency").ids
    (root / "annotations.csv").write_text(
        "id,selected,shown\n" + "".join(f"{one},{i % 10},10\n" for i, one in enumerate(ids))
    )
    [wrong] = [result for result in run.results if result.setting == "imagenet-a"]
    set_tag(run.workspace, wrong.spec.dataset, run.predictions(setting="imagenet-a").ids[0], "background", on=True)
    project = Project.create(root / "pets", small_configuration())
    fill(project)
    work(project, annotators(project, 3), by_share)
    project.close()
    return root


def cases() -> list[object]:
    rows = [row for row in ROWS if row not in SUITES and row not in ELSEWHERE]
    return [pytest.param(row, marks=[pytest.mark.soak] if row.startswith(LONG) else []) for row in rows]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("row", cases())
def test_a_row_runs(row: str, place: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [WORDS.get(word, word) for word in shlex.split(row)]
    if "--own" in words:  # with as many images as the published datasets
        monkeypatch.chdir(request.getfixturevalue("large"))
        words = [{"W": "WORKSPACE", "robustness_top1s.csv": "imagenet-testbed"}.get(word, word) for word in words]
    else:
        monkeypatch.chdir(place)
    if "--predictions" in words:
        words[-1] = str(request.getfixturevalue("reference_data"))
    small = next((options for name, options in SMALL.items() if row.startswith(name)), [])
    done = call(*words, *small)
    # --check: the models are not those of the paper.
    assert done.exit_code == (1 if "--check" in words else 0), f"{done.output}\n{done.exception!r}"
    assert done.output.strip()
