"""The whole way of a test set on real pictures: pool, annotation, sample, review, freeze, evaluation."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image as Pillow

import shiftbench as sb
from shiftbench.labels import label_space
from shiftbench.labels.space import LabelSpace
from shiftbench.studies.reproducibility import accuracy_by_frequency
from shiftbench.testsets.freeze import DEFECTS, freeze, predictions_on, require_frozen
from shiftbench.testsets.project import Project
from shiftbench.testsets.review import mark
from shiftbench.testsets.revisions import difference, revision_images, sample, set_status
from shiftbench.testsets.sampling import largest_remainder, make_sampling
from tests.commands import call
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import annotators, by_share, cifar, fill, work
from tests.testsets.test_cli import data, run
from tests.testsets.web.conftest import Site, served
from tests.testsets.web.visitors import Sheet, Visitor

#: Every test here runs on both databases.
DATABASES = ["sqlite", "postgresql"]


def test_from_pool_to_evaluation(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    fill(project)
    work(project, annotators(project, 3), by_share)
    strategy = make_sampling("matched-frequency", min_annotations=3, min_references=6)
    first, changed = sample(project, "matched", strategy, per_class=4)
    assert (first.number, changed, first.images) == (1, True, 12)
    gone = revision_images(project, "matched")[0]
    mark(project, gone.entry, "blacklist", "a drawing")
    assert set_status(project, "matched").to_remove == {gone.digest: "blacklist"}
    second, changed = sample(project, "matched")
    assert (second.number, changed) == (2, True)
    change = difference(project, "matched", 1, 2)
    assert [(image.digest, reason) for image, reason in change.removed] == [(gone.digest, "blacklist: a drawing")]
    assert change.kept == 11 and len(change.added) == 1 - second.report["short"].get(gone.class_key, 0)
    frozen = freeze(project, "matched", allow=DEFECTS)
    assert require_frozen(project, "matched") == frozen

    run = sb.evaluate("demo:resnet8-cifar10", f"testset:{project.folder}", workspace=tmp_path / "w", progress=False)
    assert {setting for _, setting, _ in run.scores()} == {"pets-matched", "pets-reference"}


FOUR = LabelSpace("four", ("airplane", "dog", "frog", "truck"))
SETS = ("top-images", "threshold", "matched-frequency")


@dataclass(frozen=True)
class Size:
    """How much of CIFAR-10, and who looks at it: the error rates of annotators, in percent."""

    space: LabelSpace
    candidates: int
    references: int
    per_class: int
    errors: tuple[int, ...] = (0, 0, 1, 1, 2, 2, 3, 4, 5, 6)


SMALL = Size(FOUR, candidates=60, references=26, per_class=10)
LARGE = Size(label_space("cifar-10"), candidates=100, references=40, per_class=20)


@dataclass
class Picture:
    """What everybody who looks at it sees: which class it shows, and how spoilt it is."""

    pixels: NDArray[np.uint8]
    key: str
    severity: int
    role: str
    digest: str = ""


class Pictures:
    """All pictures of the pool: CIFAR-10's, more or less noisy, in files with a manifest."""

    def __init__(self, folder: Path, size: Size) -> None:
        references = _spoilt("train", size.references, 3, size.space, "reference")
        candidates = _spoilt("test", size.candidates, 5, size.space, "candidate")
        first = references[0]
        #: The mirror image of a reference, among the candidates.
        self.twin = Picture(np.ascontiguousarray(first.pixels[:, ::-1]), first.key, first.severity, "candidate")
        candidates.append(self.twin)
        self.references = _written(folder / "old", references)
        self.candidates = _written(folder / "new", candidates)
        self.all = [*references, *candidates]
        self._rows = np.stack([picture.pixels for picture in self.all]).reshape(len(self.all), -1).astype(np.float32)
        self._squares = np.square(self._rows).sum(axis=1)

    def seen(self, data: bytes) -> Picture:
        """Which picture it is, by nothing but its pixels: what people get is a JPEG without a name."""
        pixels = np.asarray(Pillow.open(io.BytesIO(data)).convert("RGB").resize((32, 32)), np.float32).ravel()
        gaps = self._squares - 2 * (self._rows @ pixels) + pixels @ pixels
        assert 2 * gaps.min() < np.partition(gaps, 1)[1], "a copy looks like its picture, and like no other"
        return self.all[int(gaps.argmin())]


def _spoilt(part: str, each: int, worst: int, space: LabelSpace, role: str) -> list[Picture]:
    originals = cifar(part, each, space)
    spoilt_images = []
    for i, label in enumerate(originals.labels.tolist()):
        severity = i % (worst + 1)
        pixels = originals.read(i).pixels
        spoilt = sb.corrupt(pixels, "gaussian_noise", severity) if severity else pixels
        spoilt_images.append(Picture(spoilt, space.keys[label], severity, role))
    return spoilt_images


def _written(folder: Path, pictures: Sequence[Picture]) -> Path:
    folder.mkdir()
    lines = []
    for i, picture in enumerate(pictures):
        path = folder / f"{i}.png"
        Pillow.fromarray(picture.pixels).save(path)
        picture.digest = hashlib.blake2b(path.read_bytes(), digest_size=20).hexdigest()
        lines.append(json.dumps({"path": path.name, "label": picture.key}) + "\n")
    (folder / "list.jsonl").write_text("".join(lines))
    return folder / "list.jsonl"


def chance(*parts: object) -> float:
    """Of [0, 1), always the same for the same parts."""
    return int.from_bytes(hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=4).digest(), "little") / 2**32


@dataclass
class Person:
    """An annotator who looks at pictures over HTTP, errs at a known rate, and remembers what they said."""

    name: str
    link: str
    errors: float
    pictures: Pictures
    #: The first answer on each picture for its own class, by digest; and right and wrong answers on control images.
    said: dict[str, bool] = field(default_factory=dict)
    controls: Counter[bool] = field(default_factory=Counter)

    def work(self, site: Site) -> int:
        with site.visitor() as visitor:
            visitor.join(self.link)
            return visitor.work(lambda sheet: self._choose(visitor, sheet))

    def _choose(self, visitor: Visitor, sheet: Sheet) -> Iterator[str]:
        for image in sheet.images:
            answer = visitor.http.get(f"/tasks/{sheet.task}/images/{image}")
            assert answer.status_code == 200
            picture = self.pictures.seen(answer.content)
            belongs = picture.key == sheet.class_name
            selected = self._says(picture, belongs, sheet.class_name)
            if belongs:
                self.said.setdefault(picture.digest, selected)
            if picture.role == "reference":
                self.controls[selected == belongs] += 1
            if selected:
                yield image

    def _says(self, picture: Picture, belongs: bool, class_name: str) -> bool:
        """All see what a clean picture shows, fewer and fewer a spoilt one; then comes the person's own error."""
        sees = belongs and chance(self.name, picture.digest, "sees") < 1 - 0.19 * picture.severity
        return sees != (chance(self.name, picture.digest, class_name, "errs") < self.errors)


def pool(folder: Path, tmp_path: Path, size: Size) -> Pictures:
    """From an empty folder to grids, as a lead types it; the mirror image is found."""
    classes = tmp_path / "classes.csv"
    classes.write_text("key,name\n" + "".join(f"{key},{key}\n" for key in size.space.keys))
    pictures = Pictures(tmp_path, size)
    run("init", folder, "--labels", classes, "--annotators", len(size.errors))
    assert data("import", folder, pictures.candidates, "-q")["new"] == size.candidates * len(size.space) + 1
    assert data("import", folder, pictures.references, "--reference", "-q")["new"] == size.references * len(size.space)
    run("dedupe", folder, "--flips", "-q", "--json")
    run("tasks", folder)
    return pictures


def invited(lead: Visitor, role: str, name: str) -> str:
    """The token of the link that a page shows the lead."""
    page = lead.post("/lead/invitations", {"role": role, "name": name})
    link = re.search(r"/join/([\w-]+)", page.text)
    assert page.status == 200 and link
    return link.group(1)


def annotate(site: Site, lead: Visitor, pictures: Pictures, size: Size) -> list[Person]:
    """First a guesser, whom the lead finds out and excludes; then all others, at once."""
    lead.get("/lead")
    guesser = Person("guesser", invited(lead, "annotator", "guesser"), 0.5, pictures)
    people = [
        Person(f"annotator {i}", invited(lead, "annotator", f"annotator {i}"), percent / 100, pictures)
        for i, percent in enumerate(size.errors)
    ]
    grids = guesser.work(site)
    page = lead.get("/lead").text
    assert f"{guesser.controls[True]} of {guesser.controls.total()}" in page
    exclusion = re.search(r"/lead/accounts/\d+/exclude", page)
    assert exclusion and lead.post(exclusion.group(0), {"because": "guesses"}).status == 303
    with ThreadPoolExecutor(len(people)) as threads:
        assert set(threads.map(lambda person: person.work(site), people)) == {grids}, "everybody gets every grid"
    page = lead.get("/lead").text
    for person in people:
        assert f"{person.controls[True]} of {person.controls.total()}" in page
    return people


def check_frequencies(lead: Visitor, people: Sequence[Person], pictures: Pictures) -> None:
    """What the pages export is what people remember to have said."""
    exported = {row["image"]: row for row in json.loads(lead.http.get("/lead/frequencies.json").text)}
    assert exported.keys() == {picture.digest for picture in pictures.all}
    for picture in pictures.all:
        votes = [person.said[picture.digest] for person in people if picture.digest in person.said]
        row = exported[picture.digest]
        assert (row["selected"], row["annotations"]) == (sum(votes), len(votes))
        assert len(votes) == len(people) or picture.role == "reference"


def judge_pairs(reviewer: Visitor, pictures: Pictures) -> None:
    """By looking at both: the mirror image is a duplicate, the others are not."""
    twins = 0
    while pair := re.search(r'/review/pairs/(\d+)"', page := reviewer.get("/review/pairs").text):
        first = reviewer.http.get(re.findall(r"/review/images/\d+", page)[0])
        duplicate = pictures.seen(first.content) is pictures.twin
        twins += duplicate
        verdict = "duplicate" if duplicate else "different"
        assert reviewer.post(f"/review/pairs/{pair.group(1)}", {"verdict": verdict}).status == 303
    assert twins >= 1


def review(lead: Visitor, reviewer: Visitor, size: Size) -> None:
    """Three sets; one picture of the last is black-listed, and every set is sampled again and looked through."""
    lead.get("/review")
    for name in SETS:
        wished = {"strategy": name, "per_class": str(size.per_class), "least": str(len(size.errors))}
        assert lead.post("/review/sets", wished).headers["location"] == f"/review/sets/{name}"
    address = f"/review/sets/{SETS[-1]}/classes/{size.space.keys[0]}"
    gone = re.findall(r'id="image-(\d+)"', reviewer.get(address).text)[0]
    assert reviewer.post(f"{address}/marks", {"entry": gone, "kind": "blacklist", "note": "a drawing"}).status == 303
    lead.get("/review")
    assert lead.post(f"/review/sets/{SETS[-1]}/freeze", {"confirm": SETS[-1]}).status == 400, "not converged"
    reviewer.get("/review")
    for name in SETS:
        assert reviewer.post(f"/review/sets/{name}/revisions", {"note": "no drawings"}).status == 303
        for key in size.space.keys:
            assert f'id="image-{gone}"' not in reviewer.get(f"/review/sets/{name}/classes/{key}").text
            assert reviewer.post(f"/review/sets/{name}/classes/{key}/finish").status == 303
    assert "blacklist: a drawing" in reviewer.get(f"/review/sets/{SETS[-1]}/differences/1/2").text


def frozen_lines(folder: Path, name: str, part: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "frozen" / name / f"{part}.jsonl").read_text().splitlines()]


def histogram(lines: Sequence[dict[str, Any]], key: str) -> list[int]:
    """[0, .2), ..., [.8, 1], from whole numbers."""
    class_lines = [line for line in lines if line["label"] == key]
    bins = Counter(min(4, 5 * line["selected"] // line["annotations"]) for line in class_lines)
    return [bins[bin_index] for bin_index in range(5)]


@pytest.mark.soak
@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["four", "cifar-10"])
def test_over_http_to_the_order_of_effects(size: Size, tmp_path: Path) -> None:
    """Every step by command or page, with people who see nothing but pictures. Paper 004: a real classifier finds
    TopImages easier than Threshold0.7, and that easier than MatchedFrequency, whose selection frequencies are those of
    the reference."""
    folder = tmp_path / "new"
    workspace = tmp_path / "w"
    pictures = pool(folder, tmp_path, size)
    project = Project.open(folder)
    with served(project) as site, site.visitor() as lead, site.visitor() as reviewer:
        assert site.server.lead_link is not None
        lead.join(site.server.lead_link)
        people = annotate(site, lead, pictures, size)
        check_frequencies(lead, people, pictures)
        lead.get("/lead")
        reviewer.join(invited(lead, "reviewer", "rita"))
        judge_pairs(reviewer, pictures)
        review(lead, reviewer, size)
        early = call("eval", "demo:resnet8-cifar10", "--suite", f"testset:{folder}", "-w", workspace, "-q")
        assert early.exit_code == 1 and "no frozen set" in str(early.exception)
        lead.get("/review")
        for name in SETS:
            assert lead.post(f"/review/sets/{name}/freeze", {"confirm": name, "allow": "unsearched"}).status == 200

    lines_by_set = {name: frozen_lines(folder, name, "images") for name in SETS}
    for lines in lines_by_set.values():
        assert Counter(line["label"] for line in lines) == dict.fromkeys(size.space.keys, size.per_class)
        assert pictures.twin.digest not in {Path(line["path"]).stem for line in lines}
    references = frozen_lines(folder, SETS[-1], "reference")
    for key in size.space.keys:
        wished = largest_remainder(histogram(references, key), size.per_class, ties_to_last=True)
        assert histogram(lines_by_set["matched-frequency"], key) == wished
    assert all(line["selection_frequency"] >= 0.7 for line in lines_by_set["threshold"])

    evaluated = call("eval", "demo:resnet8-cifar10", "--suite", f"testset:{folder}", "-w", workspace, "-q")
    assert evaluated.exit_code == 0, evaluated.output
    accuracy = {setting: score.value for _, setting, score in sb.Run.open(workspace).scores("top1")}
    assert accuracy["new-top-images"] > accuracy["new-threshold"] > accuracy["new-matched-frequency"]
    assert abs(accuracy["new-matched-frequency"] - accuracy["new-reference"]) < 0.15
    models = predictions_on(project, "matched-frequency", workspace)
    shares = require_frozen(project, "matched-frequency").open().metadata["selection_frequency"]
    bins = accuracy_by_frequency(np.array([item.correct for item in models]), list(shares))
    by_frequency = [item for item in bins if item.images]
    assert by_frequency[-1].accuracy > by_frequency[0].accuracy  # type: ignore[operator]
    project.close()
