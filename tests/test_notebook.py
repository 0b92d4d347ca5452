"""What objects show of themselves: short in a terminal, whole in a notebook, and nothing fetched from elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.errors import ShiftbenchError, StoreError, UnknownNameError
from shiftbench.settings.base import build_suite
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder, darkest_channel

SMALL = sb.Preprocessing(sb.Geometry(resize=36, crop=32))
ROOT = Path(__file__).resolve().parents[1]
#: Elements that have no end tag.
VOID = {"img", "br"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> sb.Run:
    root = tmp_path_factory.mktemp("notebook")
    functions = {"bright <b>": brightest_channel, "dark": darkest_channel}
    models = [sb.load_classifier(f, labels=COLOURS, preprocessing=SMALL, name=name) for name, f in functions.items()]
    with pytest.warns(UserWarning, match="dark on photos"):
        return sb.evaluate(
            models,
            "corruptions",
            colour_folder(root / "photos", per_class=5),
            root / "w",
            labels=COLOURS,
            corruptions=("fog", "contrast"),
            severities=(1, 5),
            progress=False,
        )


SHOWN: dict[str, Callable[[sb.Run], object]] = {
    "Run": lambda run: run,
    "Table": lambda run: run.table(),
    "table of parts": lambda run: run.compare(),
    "corruption table": lambda run: run.corruption_table(),
    "Dataset": lambda run: sb.open_dataset(run.workspace.root.parent / "photos", space=COLOURS),
    "LabelledImage": lambda run: sb.open_dataset(run.workspace.root.parent / "photos", space=COLOURS)[1],
    "Predictions": lambda run: run.predictions("dark", "photos"),
    "LabelSpace": lambda run: sb.label_space("imagenet-1k"),
    "Score": lambda run: run.scores()[0][2],
    "Classifier": lambda run: sb.load_classifier(brightest_channel, labels=COLOURS),
    "Suite": lambda run: build_suite("imagenet-c"),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_repr_is_short_and_html_is_sound(run: sb.Run, name: str) -> None:
    shown = SHOWN[name](run)
    assert len(repr(shown)) < 300 and repr(shown).count("\n") < 3 and " at 0x" not in repr(shown)
    page = Sound(shown._repr_html_())  # type: ignore[attr-defined]
    assert not page.open and page.sources_inside and len(page.text) < 20_000


def test_one_name_selects_like_a_list_of_one(run: sb.Run) -> None:
    assert run.select("dark", "photos").results == run.select(["dark"], ["photos"]).results
    with pytest.raises(UnknownNameError, match="nosuch"):
        run.select("nosuch")


def test_a_run_shows_numbers_with_intervals_and_warnings(run: sb.Run) -> None:
    text = Sound(run._repr_html_()).text
    assert "bright <b>" in text and str(run.warnings()[0]) in text and "[" in text and "contrast" in text
    part = sb.Run.open(run.workspace, settings=["photos", "photos-c.fog.1", "photos-c.contrast.5"])
    assert "photos-c.fog.1" in Sound(part._repr_html_()).text  # severities differ: no mean, but a table


def test_a_dataset_is_indexed_sliced_and_walked(run: sb.Run) -> None:
    dataset = sb.open_dataset(run.workspace.root.parent / "photos", space=COLOURS)
    last = dataset[-1]
    assert (last.id, last.label, last.label_name) == (dataset.ids[-1], 2, "blue")
    assert last.image.size == last.pixels.shape[1::-1] and last.image.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(last), dataset.read(len(dataset) - 1).pixels)
    assert np.asarray(last, dtype=np.float32).dtype == np.float32
    assert [item.id for item in dataset[::5]] == dataset.ids[::5]
    with pytest.raises(IndexError):
        dataset[len(dataset)]


FIGURES: dict[str, Callable[[sb.Run], object]] = {
    "corruptions": lambda run: run.plot.corruptions(),
    "heatmap": lambda run: run.plot.heatmap(),
    "reliability": lambda run: run.plot.reliability(),
    "response": lambda run: run.plot.response("photos-c.fog.5"),
    "scatter": lambda run: run.plot.scatter(),
    "scatter of a setting": lambda run: run.plot.scatter("photos-c.fog.5"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_run_draws_itself(run: sb.Run, name: str) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figures = [FIGURES[name](run.select(run.classifiers[:models])) for models in (1, 2)]
    assert all(isinstance(figure, Figure) and figure.axes for figure in figures)
    assert figures[1]._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_a_scatter_needs_a_reference(run: sb.Run) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(StoreError, match="x="):
        sb.Run.open(run.workspace, settings=["photos"]).plot.scatter()


def test_scores_as_frames_have_the_values_of_metrics(run: sb.Run) -> None:
    one = sb.Run.open(run.workspace, ["dark"])
    frame = one.to_pandas()
    fog = frame[(frame.corruption == "fog") & (frame.severity == 5)]
    assert fog.value.item() == one.metrics()["photos-c/fog/5/top1"] and fog.low.item() <= fog.value.item()
    assert len(frame) == len(one.metrics()) and set(frame.model) == {"dark"}
    assert frame.model_id.unique().tolist() == [run.find_model("dark").id]
    assert one.to_polars().shape == frame.shape and one.to_arrow().column_names == list(frame.columns)


def test_predictions_as_frames_have_a_row_per_image(run: sb.Run) -> None:
    frame = run.to_pandas("predictions", top_k=2)
    assert len(frame) == 2 * 5 * 15
    clean = frame[(frame.model == "dark") & (frame.setting == "photos")]
    found = run.predictions("dark", "photos")
    assert clean.image.tolist() == list(found.ids) and clean.correct.tolist() == found.correct.tolist()
    assert clean.top1_name.tolist() == [COLOURS.names[i] for i in found.top[:, 0]]
    assert run.to_polars("predictions").height == len(frame)
    with pytest.raises(sb.ShiftbenchError, match="content"):
        run.to_arrow("pictures")  # type: ignore[arg-type]


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_missing_package_is_named(run: sb.Run, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(sb.ShiftbenchError, match=f"pip install {package}"):
        getattr(run, f"to_{package}")()


NOTEBOOK = """
```python
import shiftbench as sb
from tests.runs.helpers import brightest_channel, colour_folder

data = colour_folder(ROOT / "photos", per_class=4)
```
```python
run = sb.evaluate(brightest_channel, "corruptions", data, ROOT / "w", corruptions=["fog"], severities=[3])
```
```python
run
```
```python
sb.open_dataset(data, space="folders")
```
```python
run.plot.reliability()
```
"""


def test_a_kernel_shows_what_objects_offer(tmp_path: Path) -> None:
    """In a real notebook: HTML, an image, and warnings at the line of the cell."""
    notebooks = pytest.importorskip("scripts.notebooks")
    paths = [str(ROOT), str(Path(sb.__file__).parents[1])]
    setup = f"import sys\nfrom pathlib import Path\nsys.path[:0] = {paths}\nROOT = Path({str(tmp_path)!r})\n"
    made = notebooks.run(NOTEBOOK.replace("import shiftbench", f"{setup}import shiftbench", 1), tmp_path)
    _, evaluated, shown, dataset, figure = [cell.outputs for cell in made.cells]
    warned = "".join(output.text for output in evaluated if output.get("name") == "stderr")
    assert "run = sb.evaluate" in warned and "warn_user" not in warned and "shiftbench/" not in warned
    assert "[" in Sound(shown[0].data["text/html"]).text and "data:image/webp" in dataset[0].data["text/html"]
    assert figure[0].data["image/png"]


class Sound(HTMLParser):
    """Checks that elements are closed and that everything is inside the page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.sources_inside = "http" not in source and "<script" not in source
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources_inside &= all((value or "").startswith("data:") for key, value in attrs if key in ("src", "href"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += "" if self.open[-1:] == ["style"] else data


def test_errors_of_a_run_name_python_arguments(run: sb.Run) -> None:
    with pytest.raises(ShiftbenchError) as caught:
        run.detection()
    assert caught.value.hint is not None and "outside=" in caught.value.hint and "--" not in caught.value.hint
