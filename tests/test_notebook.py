"""What objects show of themselves: short in a terminal, whole in a notebook, and nothing fetched from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.settings.base import build_suite
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder, darkest_channel

SMALL = sb.Preprocessing(sb.Geometry(resize=36, crop=32))
#: Elements that have no end tag.
VOID = {"img", "br"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> sb.Run:
    root = tmp_path_factory.mktemp("notebook")
    functions = {"bright <b>": brightest_channel, "dark": darkest_channel}
    models = [sb.load_classifier(f, labels=COLOURS, preprocessing=SMALL, name=name) for name, f in functions.items()]
    with pytest.warns(UserWarning, match="dark on photos"):
        return sb.evaluate(
            models, "corruptions", colour_folder(root / "photos", per_class=5), root / "w", labels=COLOURS,
            corruptions=("fog", "contrast"), severities=(1, 5), progress=False,
        )  # fmt: skip


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


class Sound(HTMLParser):
    """Checks that elements are closed and that everything is inside the page."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text, self.sources_inside = "", "http" not in source and "<script" not in source
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources_inside &= all((value or "").startswith("data:") for key, value in attrs if key in ("src", "href"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += "" if self.open[-1:] == ["style"] else data
