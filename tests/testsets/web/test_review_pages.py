"""Reviewers and the lead at the real pages: sample, mark, next revision, differences, freeze."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

from shiftbench.testsets.freeze import require_frozen
from shiftbench.testsets.frequencies import CountKind, selection_frequencies
from shiftbench.testsets.keywords import keyword_counts
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.pool.suspects import Suspicion, add_suspicions
from shiftbench.testsets.project import audit_log
from shiftbench.testsets.review import suspicions
from shiftbench.testsets.revisions import difference, find_revision, revision_images, sample, set_status
from shiftbench.testsets.sampling import make_sampling
from shiftbench.testsets.web.lead_pages import BINS, histogram
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import annotators, by_share, fill, on_both_databases, work
from tests.testsets.web.conftest import Site, served


def entries(text: str) -> list[int]:
    return [int(entry) for entry in re.findall(r'id="image-(\d+)"', text)]


@on_both_databases
def test_from_sample_to_frozen_set(new_project: NewProject) -> None:
    project = new_project()
    fill(project)
    work(project, annotators(project, 3), by_share)
    with served(project) as site, site.person("lead") as lead, site.person("reviewer") as reviewer:
        form = {"strategy": "top-images", "name": "top", "per_class": "4", "least": "3"}
        assert reviewer.get("/review").status == 200 and 'action="/review/sets"' not in reviewer.sheet.text
        assert lead.get("/review").status == 200
        assert lead.post("/review/sets", form).headers["location"] == "/review/sets/top"
        assert lead.post("/review/sets", form).status == 400  # taken

        page = reviewer.get("/review/sets/top/classes/cat")
        shown_entries = entries(page.text)
        assert sorted(shown_entries) == sorted(i.entry for i in revision_images(project, "top") if i.class_key == "cat")
        address = "/review/sets/top/classes/cat"
        gone, twin = shown_entries[:2]
        assert (
            reviewer.post(f"{address}/marks", {"entry": str(gone), "kind": "blacklist", "note": "a toy"}).status == 303
        )
        assert reviewer.post(f"{address}/marks", {"entry": str(twin), "kind": "near-duplicate"}).status == 303
        assert reviewer.post(f"{address}/marks", {"entry": str(shown_entries[2]), "kind": "nonsense"}).status == 400
        elsewhere = entries(reviewer.get("/review/sets/top/classes/dog").text)[0]
        assert reviewer.post(f"{address}/marks", {"entry": str(elsewhere), "kind": "blacklist"}).status == 400
        page = reviewer.get(address)
        assert "a toy" in page.text and page.text.count("card marked") == 2
        withdrawn = re.findall(r"/marks/(\d+)/withdraw", page.text)
        back = {"set": "top", "class": "cat", "entry": str(twin)}
        undone = reviewer.post(f"/review/marks/{withdrawn[1]}/withdraw", back)
        assert undone.headers["location"] == f"{address}#image-{twin}"
        assert len(set_status(project, "top").to_remove) == 1

        assert lead.post("/review/sets/top/freeze", {"confirm": "top"}).status == 400  # not converged
        assert reviewer.post("/review/sets/top/revisions", {"note": "no toys"}).status == 303
        assert find_revision(project, "top").number == 2
        change = reviewer.get("/review/sets/top/differences/1/2").text
        assert "blacklist: a toy" in change and f"/review/images/{gone}" in change
        assert len(difference(project, "top", 1, 2).removed) == 1
        for key in ("cat", "dog", "frog"):
            assert reviewer.post(f"/review/sets/top/classes/{key}/finish").status == 303
        assert set_status(project, "top").reviewed_classes == ("cat", "dog", "frog")
        assert reviewer.post(f"{address}/finish", {"undo": "yes"}).headers["location"] == address
        assert set_status(project, "top").reviewed_classes == ("dog", "frog")
        assert reviewer.post(f"{address}/finish").status == 303

        assert "final" in lead.get("/review/sets/top/freeze").text
        assert lead.post("/review/sets/top/freeze", {"confirm": "top"}).status == 400  # never searched
        short = {"allow": ["short", "unsearched"]}
        assert lead.post("/review/sets/top/freeze", {"confirm": "tip", **short}).status == 400
        assert lead.post("/review/sets/top/freeze", {"confirm": "top", **short}).status == 200
        frozen = require_frozen(project, "top")
        assert frozen.fingerprint in lead.sheet.text and frozen.images == find_revision(project, "top").images
        assert lead.get("/review/sets/top/freeze").status == 303  # nothing to confirm any more
        assert reviewer.post("/review/sets/top/revisions").status == 409
        assert "Black-list" not in reviewer.get(address).text
        log = lead.get("/lead/log").text
        for action in ("freeze", "mark", "withdraw mark", "sample", "login", "refused"):
            assert f"<td>{action}<td>" in log


def test_pages_show_nothing_of_models(new_project: NewProject) -> None:
    project = new_project()
    fill(project)
    work(project, annotators(project, 3), by_share)
    with served(project) as site, site.person("lead") as lead:
        form = {"strategy": "top-images", "name": "top", "per_class": "4", "least": "3"}
        lead.get("/review")
        lead.post("/review/sets", form)
        for path in ("/review", "/review/sets/top", "/review/sets/top/classes/cat", "/lead", "/lead/frequencies"):
            text = lead.get(path).text.lower()
            assert not any(word in text for word in ("predict", "confidence", "classifier", "accuracy of"))


def test_options_of_a_new_set(new_project: NewProject) -> None:
    project = new_project()
    fill(project)
    work(project, annotators(project, 3), by_share)
    with served(project) as site, site.person("lead") as lead:
        form = {"strategy": "threshold", "per_class": "2", "least": "3", "percent": "60", "balanced": "yes"}
        lead.get("/review")
        assert lead.post("/review/sets", {**form, "percent": "much"}).status == 400
        assert lead.post("/review/sets", {**form, "percent": "101"}).status == 400
        assert lead.post("/review/sets", form).status == 303
        assert "Mean selection frequency" in lead.get("/review/sets/threshold").text
    plan = find_revision(project, "threshold").sampling
    assert plan["options"] == {"threshold": 0.6, "overrides": {}, "min_annotations": 3}


def test_reviewers_see_whole_images(new_project: NewProject, tmp_path: Path) -> None:
    """Annotators see the centre; what is at the margins may also make an image unsuitable, or a near-duplicate."""
    project = new_project()
    wide = np.full((20, 100, 3), 128, np.uint8)
    wide[:, :10] = (255, 0, 0)
    Pillow.fromarray(wide).save(tmp_path / "wide.png")
    import_images(project, tmp_path, class_key="cat")
    (entry,) = [row.entry for row in selection_frequencies(project)]
    with served(project) as site, site.person("reviewer") as reviewer:
        copy = reviewer.http.get(f"/review/images/{entry}").content
    pixels = np.asarray(Pillow.open(io.BytesIO(copy)))
    middle = pixels[len(pixels) // 2]
    assert pixels.shape[0] == pixels.shape[1] and middle[5, 0] > 200 > 100 > middle[5, 1]


def test_suspected_pairs(new_project: NewProject) -> None:
    project = new_project()
    fill(project)
    rows = selection_frequencies(project)
    candidates = [row.entry for row in rows if row.role == "candidate"]
    references = [row.entry for row in rows if row.role == "reference"]
    add_suspicions(project, [Suspicion(candidates[i], references[i], {"l2": 0.25 + i}) for i in range(2)])
    with served(project) as site, site.person("reviewer") as reviewer:
        assert "2 suspected near-duplicates" in reviewer.get("/review").text
        page = reviewer.get("/review/pairs")
        assert "l2 0.25" in page.text and f"/review/images/{references[0]}" in page.text
        first, second = suspicions(project)
        assert reviewer.post(f"/review/pairs/{first.id}", {"verdict": "duplicate", "note": "same"}).status == 303
        assert reviewer.post(f"/review/pairs/{second.id}", {"verdict": "different"}).status == 303
        assert reviewer.post(f"/review/pairs/{second.id}", {"verdict": "perhaps"}).status == 400
        assert reviewer.post(f"/review/pairs/{second.id}", {"verdict": "duplicate"}).status == 400
        assert suspicions(project) == [] and len(suspicions(project, "confirmed")) == 1


def test_keywords_are_set_and_corrected(new_project: NewProject) -> None:
    """A reviewer labels images without a keyword, corrects one, and the strategy finds them; others may not."""
    project = new_project()
    fill(project)
    with served(project) as site:
        rita = site.person("reviewer", "rita")
        assert "0" in rita.get("/review/keywords").text
        page = rita.get("/review/keywords/cat").text
        entries = re.findall(r'name="entry" value="(\d+)"', page)
        assert len(entries) == 14 and "tabby_cat" in page, "the keywords of table 6 are proposed"
        for word, some in (("tabby_cat", entries[:9]), ("lion", entries[9:])):
            rita.get("/review/keywords/cat")
            assert rita.post("/review/keywords/cat", {"keyword": word, "word": "", "entry": some}).status == 303
        rita.get("/review/keywords/cat?word=lion")
        assert rita.post("/review/keywords/cat", {"keyword": "  tabby_cat ", "entry": entries[9]}).status == 303
        counts = {word: sum(roles.values()) for (key, word), roles in keyword_counts(project, ["cat"]).items()}
        assert counts == {"tabby_cat": 10, "lion": 4}
        assert rita.post("/review/keywords/cat", {"keyword": "x"}).status == 400
        assert rita.post("/review/keywords/cat", {"keyword": "x" * 81, "entry": entries[0]}).status == 400
        assert site.person("annotator").get("/review/keywords/cat").status == 403
    assert [line.who for line in audit_log(project) if line.action == "keyword"] == ["rita"] * 3


def test_exports_are_what_the_service_says(site: Site) -> None:
    with site.person("lead") as lead:
        rows = list(csv.DictReader(io.StringIO(lead.http.get("/lead/frequencies.csv").text)))
        again = json.loads(lead.http.get("/lead/frequencies.json").text)
        assert lead.http.get("/lead/frequencies.parquet").content[:4] == b"PAR1"
        assert [row["image"] for row in rows] == [row["image"] for row in again] and len(rows) > 100
        assert lead.get("/lead/frequencies").status == 200


def frequency(selected: int, annotations: int, role: str = "candidate") -> CountKind:
    return CountKind("cat", role, selected, annotations, 1)


@pytest.mark.parametrize(
    "selected, annotations, place", [(0, 7, 0), (7, 7, 9), (1, 10, 1), (3, 10, 3), (9, 10, 9), (1, 3, 3)]
)
def test_histogram_edges(selected: int, annotations: int, place: int) -> None:
    bars = histogram([frequency(selected, annotations)])
    assert [bar.candidates for bar in bars] == [int(i == place) for i in range(BINS)]
    assert bars[place].low <= selected / annotations <= bars[place].high and bars[place].candidate_share == 1


def test_a_class_shows_the_criteria_and_similar_images(new_project: NewProject) -> None:
    project = new_project()
    fill(project)
    work(project, annotators(project, 3), by_share)
    sample(project, "set", make_sampling("top-images", min_annotations=3), per_class=2)
    image = next(image for image in revision_images(project, "set") if image.class_key == "cat")
    reference = next(row.entry for row in selection_frequencies(project) if row.role == "reference")
    add_suspicions(project, [Suspicion(image.entry, reference, {"l2": 0.25})])
    with served(project) as site, site.person("reviewer") as reviewer:
        page = reviewer.get("/review/sets/set/classes/cat").text
        assert "cartoons, paintings, drawings or renderings" in page
        card = page[page.index(f'id="image-{image.entry}"') :].partition("</article>")[0]
        assert f'src="/review/images/{reference}"' in card and "to be judged: reference, cat" in card
