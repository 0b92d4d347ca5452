"""What is published says what the workspace says: cards, results for a hub, and the leaderboard."""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.bridges.published_scores import published_scores
from shiftbench.bridges.site import write_site
from shiftbench.errors import ShiftbenchError
from tests.commands import answer, output
from tests.runs.helpers import brightest_channel, colour_folder, darkest_channel

hub = pytest.importorskip("huggingface_hub")

STATED = {"size": 32, "resize": "squash", "interpolation": "bilinear", "outputs": "logits"}
NAME = "the <b>best</b> | model"


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two models in the first workspace; in the second a mean over other severities."""
    root = tmp_path_factory.mktemp("published")
    data = colour_folder(root / "photos", per_class=6)
    for folder, name, function, severities in (
        ("one", NAME, brightest_channel, (1, 5)),
        ("one", "wrong", darkest_channel, (1, 5)),
        ("two", "other", brightest_channel, (3,)),
    ):
        model = sb.load_classifier(function, name=name, labels=["red", "green", "blue"], preprocessing=STATED)
        sb.evaluate(
            model, "corruptions", data, root / folder, labels="folders", corruptions=["contrast"],
            severities=severities, progress=False,
        )  # fmt: skip
    return root / "one", root / "two"


def test_a_card_is_completed_and_completed_again(workspaces: tuple[Path, Path], tmp_path: Path) -> None:
    card = "---\nlicense: mit\nmodel-index:\n- name: mine\n  results:\n  - task:\n      type: image-classification\n"
    card += "    dataset:\n      name: x\n      type: x\n    metrics:\n    - type: accuracy\n      value: 0.5\n"
    card += "---\n# Mine\n"
    (tmp_path / "README.md").write_text(card)
    words = ["publish", workspaces[0], "--to", tmp_path, "--model", NAME, "--dataset", "photos=org/photos/colours"]
    shown = output(*words)
    assert (tmp_path / "README.md").read_text() == card and not (tmp_path / ".eval_results").exists()
    assert "+## Robustness" in shown
    for _ in range(2):
        answer(*words, "--write")
    text = (tmp_path / "README.md").read_text()
    assert text.count("## Robustness") == 1 and "# Mine" in text and "<b>best" not in text.partition("# Mine")[2]
    read = hub.ModelCard.load(tmp_path / "README.md").data
    assert read.license == "mit" and read.model_name == "mine"
    found = {result.dataset_name: result for result in read.eval_results}
    assert sorted(found) == ["photos", "photos-c", "x"] and len(read.eval_results) == 3
    for score in published_scores(sb.Run.open(workspaces[0], [NAME])):
        result = found[score.setting]
        assert result.metric_value == pytest.approx(score.value, abs=1e-4)
        assert result.metric_args["interval"] == pytest.approx([score.low, score.high], abs=1e-4)
        assert result.metric_args["n"] == 18 and result.dataset_args["model"] == score.model_id
    import yaml

    results = yaml.safe_load((tmp_path / ".eval_results" / "shiftbench.yaml").read_text())
    (entry,) = hub.parse_eval_result_entries(results)
    assert (entry.dataset_id, entry.task_id) == ("org/photos", "colours")
    assert entry.value == pytest.approx(found["photos"].metric_value) and "n = 18" in entry.notes


def test_what_cannot_be_published_is_an_error(workspaces: tuple[Path, Path], tmp_path: Path) -> None:
    from shiftbench.bridges.publish import is_on_hub, publication

    run = sb.Run.open(workspaces[0])
    with pytest.raises(ShiftbenchError, match="one model at a time"):
        publication(run)
    for datasets in ({"photos": "photos"}, {"no such": "org/name"}):
        with pytest.raises(ShiftbenchError):
            publication(run, model="wrong", datasets=datasets)
    with pytest.raises(ShiftbenchError, match="card"):
        publication(run, model="wrong", card="---\nmodel-index: 3\n---\n# Mine\n")
    assert is_on_hub("org/model") and not is_on_hub("./model") and not is_on_hub(str(tmp_path))


class Cells(HTMLParser):
    """The table of the page, as a browser without scripts reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.strip("\n")


def test_the_leaderboard_has_every_number_and_separates_what_is_not_comparable(
    workspaces: tuple[Path, Path], tmp_path: Path
) -> None:
    write_site(list(workspaces), tmp_path / "site", title="Ours & theirs")
    page = (tmp_path / "site" / "index.html").read_text()
    cells = Cells()
    cells.feed(page)
    heads, *rows = cells.rows[:4]
    # The means over severities 1 and 5, and over 3, have columns of their own.
    assert heads == ["model", "photostop1", "photos-c (1)top1", "photos-c (2)top1"]
    assert "contrast at 1, 5" in page and "contrast at 3" in page
    by_name = {row[0].partition("@")[0]: row for row in rows}
    other = next(row for name, row in by_name.items() if name.startswith("other"))
    best = next(row for name, row in by_name.items() if NAME in name)
    assert other[2] == "–" and best[3] == "–" and "n = 18" in other[3] and "†" not in best[0]
    assert [row[1].partition(" %")[0] for row in rows] == ["100.0", "100.0", "0.0"]
    assert "b" not in cells.tags[: cells.tags.index("tr")] and "&lt;b&gt;best" in page
    assert not re.search(r"https?://|src=", page)
    content = json.loads((tmp_path / "site" / "scores.json").read_text())
    lines = list(csv.DictReader((tmp_path / "site" / "scores.csv").open()))
    values = {(line["model_id"], line["name"]): float(line["value"]) for line in lines}
    for model in content["models"]:
        for score in model["scores"]:
            assert values[score["model_id"], score["name"]] == score["value"]
    assert len(lines) == 6
    with pytest.raises(ShiftbenchError):
        sb.Workspace(tmp_path / "empty")
        write_site([tmp_path / "empty"], tmp_path / "none")


@pytest.mark.slow
def test_the_leaderboard_sorts_and_filters_in_a_browser(workspaces: tuple[Path, Path], tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    if not Path("/usr/bin/chromium").exists():
        pytest.skip("no chromium")
    write_site(list(workspaces), tmp_path / "site")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 390, "height": 844})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.goto((tmp_path / "site" / "index.html").as_uri())
        page.get_by_role("button", name="model").click()
        names = page.locator("tbody tr:visible td:first-child b").all_inner_texts()
        assert names == sorted(names, key=str.lower) and len(names) == 3
        page.get_by_label("Model").fill("OTHER")
        assert page.locator("tbody tr:visible").count() == 1 and page.locator("output").inner_text() == "1 of 3 models"
        page.get_by_label("Model").fill("")
        page.get_by_label("Workspace").select_option("one")
        assert page.locator("tbody tr:visible").count() == 2
        page.get_by_label("Setting").select_option("photos")
        assert page.locator("thead th:visible").count() == 2
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert errors == []
        browser.close()
