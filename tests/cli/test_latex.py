"""``-f tex`` of tables whose models, classes and groups have names that LaTeX would read as commands."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.reports.images import set_tag
from tests.commands import output
from tests.latex import compile_latex
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder, darkest_channel

ASCII = r"a_b%c&d#e$f^g~h\i{j}k -3 --x `y' <z> |w| ?! [1]*"
UNICODE = "Größe ε=4/255 → 模型 «x» ≥ 5 ½ é e\u0301 ★ 🐸"
FRAME = ("--in", "100%_&", "--out", "new")
COMMANDS = (
    ("table",),
    ("table", "-m", "top1,ece"),
    ("table", "--mce"),
    ("table", "--provenance"),
    ("compare", "-s", "100%_&"),
    ("history",),
    ("history", ASCII),
    ("groups", "-s", "100%_&", "--by", "class"),
    ("groups", "-s", "100%_&", "--by", "photo_#", "--table", "photographs.csv"),
    ("detect", *FRAME, "--score", "all"),
    ("calibrate", "-s", "100%_&"),
    ("study", "fit", "--x", "100%_&", "--y", "new", "--scale", "linear"),
    ("study", "effective", "--x", "100%_&", "--y", "new", "--scale", "linear"),
    ("study", "reproducibility", "--x", "100%_&", "--y", "new"),
    ("study", "gap", "--x", "100%_&", "--y", "new"),
    ("study", "agreement", "-s", "100%_&"),
    ("study", "confusion", "-s", "100%_&"),
    ("study", "tags",),
    ("study", "bins", "-s", "100%_&", "--frequencies", "annotations.csv"),
    ("study", "hypotheses", "-s", "new", "--x", "100%_&", "-m", "models.csv"),
    ("store", "log"),
)  # fmt: skip


def mirrored_channels(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    return brightest_channel(images)[:, ::-1]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("latex")
    models = [(brightest_channel, ASCII), (darkest_channel, UNICODE), (mirrored_channels, "third")]
    small = sb.Preprocessing(sb.Geometry(8, 8))
    classifiers = [sb.load_classifier(one, labels=COLOURS, preprocessing=small, name=name) for one, name in models]
    for name in ("100%_&", "new"):
        colour_folder(root / name, per_class=6, size=12, seed=len(name))
        sb.evaluate(
            classifiers,
            "corruptions",
            root / name,
            root / "w",
            corruptions="contrast",
            severities=3,
            keep_scores=True,
            progress=False,
        )
    run = sb.Run.open(root / "w")
    ids = run.predictions(run.classifiers[0], "100%_&").ids
    people = [f"{one},{'A_&%' if i % 2 else 'ß^'}\n" for i, one in enumerate(ids)]
    (root / "photographs.csv").write_text("id,photo_#\n" + "".join(people))
    chosen = [f"{one},{i % 10},10\n" for i, one in enumerate(ids)]
    (root / "annotations.csv").write_text("id,selected,shown\n" + "".join(chosen))
    (root / "models.csv").write_text(f'model,base_model,changes\n"{ASCII}","{UNICODE}","more_&_%"\n')
    set_tag(run.workspace, run.results[0].spec.dataset, ids[0], "50 %_#", on=True)
    return root


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tables_with_odd_names_are_compiled(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    texts = []
    for words in COMMANDS:
        texts.append(output(*words, "-w", "w", "-f", "tex"))
        assert r"\begin{tabular}" in texts[-1], words
    compile_latex("\n\\clearpage\n".join(texts), tmp_path)
