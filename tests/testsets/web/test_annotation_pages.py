"""Annotators at the real pages: the whole way of a task, and what is refused on it."""

from __future__ import annotations

import hashlib
import io
import re
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sqlalchemy import select, update

from shiftbench.datasets.catalogue import open_dataset
from shiftbench.testsets.annotation import AnnotationGrid
from shiftbench.testsets.database import Assignment, PoolEntry, SelectedSlot
from shiftbench.testsets.frequencies import annotator_quality, selection_frequencies
from shiftbench.testsets.pool.entries import import_images, pool_counts
from shiftbench.testsets.project import audit_log
from shiftbench.testsets.tasks import make_tasks
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import PETS, cifar, entries_behind, fill
from tests.testsets.web.conftest import Site, served
from tests.testsets.web.visitors import Fields, Sheet

#: Every test here runs on both databases.
DATABASES = ["sqlite", "postgresql"]


def behind(site: Site, sheet: Sheet) -> dict[str, PoolEntry]:
    grid = AnnotationGrid(sheet.task, "", "", "", "", tuple(sheet.images), site.project.now())
    return entries_behind(site.project, grid)


def stored(site: Site, task: str) -> tuple[str, int]:
    """(state, how many selected) of a task as the database has it."""
    with site.project.reading() as session:
        row = session.scalars(select(Assignment).where(Assignment.token == task)).one()
        return row.state, len(session.scalars(select(SelectedSlot).where(SelectedSlot.assignment_id == row.id)).all())


def refusals(site: Site) -> list[str]:
    return [line.details["what"] for line in audit_log(site.project, last=30) if line.action == "refused"]


def test_a_grid_from_link_to_answer(site: Site) -> None:
    with site.person() as person:
        grid = person.sheet
        assert grid.is_grid and len(set(grid.images)) == len(grid.images) > 6
        assert grid.class_name in ("cat", "dog", "frog")
        again = person.get("/task")
        assert (again.task, again.images) == (grid.task, grid.images)  # reload-safe
        second = person.post(f"/tasks/{grid.task}/check", {"image": grid.images[2:5]})
        assert second.images == grid.images[2:5] and second.page == "check"
        assert stored(site, grid.task) == ("leased", 0)
        back = person.post(f"/tasks/{grid.task}", {"image": grid.images[2:5]})
        assert back.text.count(" checked>") == 3 and back.images == grid.images
        assert person.answer(grid.images[2:5], task=grid.task).headers["location"] == "/task"
        assert stored(site, grid.task) == ("submitted", 3)
        following = person.get("/task")
        assert following.task != grid.task and following.page == "task"


def test_none_is_an_answer_and_nothing_is_not(site: Site) -> None:
    with site.person() as person:
        task = person.sheet.task
        unsure = person.post(f"/tasks/{task}/check")
        assert unsure.is_grid and 'role="alert"' in unsure.text
        assert person.post(f"/tasks/{task}/answer").status == 400
        both: Fields = {"image": unsure.images[:1], "none": "1"}
        assert person.post(f"/tasks/{task}/answer", both).status == 400
        assert stored(site, task) == ("leased", 0)
        empty = person.post(f"/tasks/{task}/check", {"none": "1"})
        assert empty.page == "check" and empty.images == []
        assert person.post(f"/tasks/{task}/answer", {"none": "1"}).status == 303
        assert stored(site, task) == ("submitted", 0)


def test_sending_twice_is_one_answer(site: Site) -> None:
    with site.person() as person:
        grid = person.sheet
        assert person.answer(grid.images[:2], task=grid.task).status == 303
        assert person.answer(grid.images[:2], task=grid.task).status == 303
        assert person.answer(grid.images[:3], task=grid.task).status == 409
        assert stored(site, grid.task) == ("submitted", 2)


def test_forged_tasks_and_pictures(site: Site) -> None:
    with site.person() as anna, site.person() as ben:
        mine = anna.sheet
        theirs = ben.sheet
        wrong = [
            ben.answer(mine.images[:1], task=mine.task),
            ben.get(f"/tasks/{mine.task}/images/{mine.images[0]}"),
        ]
        ben.get("/task")
        forged = ben.answer(theirs.images[:1], task="A" * 24)
        ben.get("/task")
        foreign_picture = ben.answer(mine.images[:1], task=theirs.task)
        assert [answer.status for answer in [*wrong, forged, foreign_picture]] == [404] * 4
        # A forged id and another's task can't be told apart.
        plain = [re.sub(r'value="[0-9a-f]+"', "", answer.text) for answer in (wrong[0], forged)]
        assert plain[0] == plain[1]
        assert stored(site, mine.task) == stored(site, theirs.task) == ("leased", 0)
        assert refusals(site)


def test_an_expired_lease(site: Site) -> None:
    with site.person() as person:
        grid = person.sheet
        with site.project.writing() as session:
            over = site.project.now() - timedelta(seconds=1)
            session.execute(update(Assignment).where(Assignment.token == grid.task).values(expires_at=over))
        late = person.answer(grid.images[:2], task=grid.task)
        assert late.status == 410 and late.error == "LeaseExpiredError"
        assert stored(site, grid.task) == ("expired", 0)
        assert person.get("/task").is_grid
        assert person.answer(person.sheet.images[:1]).status == 303


def test_renewal_and_giving_back(site: Site) -> None:
    with site.person() as person:
        grid = person.sheet
        soon = site.project.now() + timedelta(seconds=30)
        with site.project.writing() as session:
            session.execute(update(Assignment).where(Assignment.token == grid.task).values(expires_at=soon))
        renewed = person.post(f"/tasks/{grid.task}/renew")
        assert renewed.status == 200 and 590 < float(renewed.text.partition(":")[2].rstrip("}")) <= 600
        assert person.post(f"/tasks/{grid.task}/return").status == 303
        assert stored(site, grid.task)[0] == "expired"


def test_a_lease_is_not_renewed_for_ever(site: Site) -> None:
    with site.person() as person:
        grid = person.sheet
        long_ago = site.project.now() - timedelta(minutes=39)
        with site.project.writing() as session:
            session.execute(update(Assignment).where(Assignment.token == grid.task).values(leased_at=long_ago))
        person.post(f"/tasks/{grid.task}/renew")
        with site.project.reading() as session:
            expires_at = session.scalars(select(Assignment.expires_at).where(Assignment.token == grid.task)).one()
        assert expires_at < site.project.now() + timedelta(minutes=11)


def test_pictures_tell_nothing(site: Site) -> None:
    """Control images and candidates differ in nothing but what they show, and their order is everybody's own."""
    with site.person() as anna, site.person() as ben:
        entries = behind(site, anna.sheet)
        assert len({(entry.role, entry.class_key) for entry in entries.values()}) >= 3  # candidates, controls of both
        shapes = set()
        for image in anna.sheet.images:
            answer = anna.http.get(f"/tasks/{anna.sheet.task}/images/{image}")
            assert answer.content[:3] == b"\xff\xd8\xff" and b"Exif" not in answer.content
            assert hashlib.blake2b(answer.content, digest_size=20).hexdigest() != entries[image].image.digest
            kept = {k: v for k, v in answer.headers.items() if k not in ("date", "content-length")}
            assert not {"etag", "last-modified", "content-disposition"} & kept.keys()
            assert kept["cache-control"] == "private, max-age=86400, immutable"
            shapes.add((answer.status_code, len(image), tuple(sorted(kept.items()))))
        assert len(shapes) == 1
        tiles = re.findall(r'<div class="tile">.*?</details></div>', anna.sheet.text, re.DOTALL)
        bare = {re.sub(r"[\w-]{20}|\d+", "", tile) for tile in tiles}
        assert len(tiles) == len(entries) and len(bare) == 1
        assert not set(anna.sheet.images) & set(ben.sheet.images)


def test_examples_are_never_controls(site: Site) -> None:
    with site.person() as person:
        examples = re.findall(r'images/([\w-]+)" alt="Example', person.sheet.text)
        assert examples and not set(examples) & set(person.sheet.images)
        inside = {
            person.http.get(f"/tasks/{person.sheet.task}/images/{image}").content for image in person.sheet.images
        }
        for example in examples:
            picture = person.http.get(f"/tasks/{person.sheet.task}/images/{example}")
            assert picture.status_code == 200 and picture.content not in inside


#: How often, of 256, each annotator says the opposite of the truth.
ERRORS = {"careful": 8, "quick": 26, "tired": 60, "guesser": 200}


def says(name: str, entry: PoolEntry, class_name: str) -> bool:
    chance = hashlib.blake2b(f"{name}/{entry.id}/{class_name}".encode(), digest_size=1).digest()[0]
    return (entry.class_key == class_name) != (chance < ERRORS[name])


def test_everybody_works_to_the_end(new_project: NewProject) -> None:
    """Annotators with known error rates; what the database says afterwards is what they did, and no more."""
    project = new_project(annotators=len(ERRORS))
    fill(project)
    with served(project) as site:
        seen: dict[int, PoolEntry] = {}
        right = dict.fromkeys(ERRORS, 0)
        for name in ERRORS:
            with site.person(name=name) as person:

                def choose(sheet: Sheet, name: str = name) -> list[str]:
                    entries = behind(site, sheet)
                    seen.update({entry.id: entry for entry in entries.values()})
                    answers = {image: says(name, entry, sheet.class_name) for image, entry in entries.items()}
                    truth = {image: entry.class_key == sheet.class_name for image, entry in entries.items()}
                    controls = [image for image, entry in entries.items() if entry.role == "reference"]
                    right[name] += sum(answers[image] == truth[image] for image in controls)
                    return [image for image in answers if answers[image]]

                person.work(choose)
                assert person.sheet.page == "done"
        quality = {row.name: row for row in annotator_quality(project)}
        assert {name: row.right for name, row in quality.items()} == right
        with site.person("lead", "boss") as lead:
            overview = lead.get("/lead").text
            for annotator in quality.values():
                assert f"{annotator.right} of {annotator.controls}" in overview
            account = quality["guesser"].account
            assert lead.post(f"/lead/accounts/{account}/exclude", {"because": "guesses"}).status == 303
            assert "excluded: guesses" in lead.get("/lead").text
        candidates = [row for row in selection_frequencies(project) if row.role == "candidate"]
        assert len(candidates) == sum(count.candidates for count in pool_counts(project)) > 20
        for row in candidates:
            votes = [says(name, seen[row.entry], row.class_key) for name in ERRORS if name != "guesser"]
            assert (row.selected, row.annotations) == (sum(votes), 3)


def test_nothing_separates_controls_from_candidates(new_project: NewProject, tmp_path: Path) -> None:
    """Sources of different size, aspect ratio and format: headers, sizes, formats and URLs of a grid are alike."""
    project = new_project()
    for source, size, suffix, role in (("test", (64, 40), "png", "candidate"), ("train", (30, 90), "jpg", "reference")):
        images = cifar(source, 8)
        for i, label in enumerate(images.labels.tolist()):
            path = tmp_path / source / PETS.keys[label] / f"{i}.{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Pillow.fromarray(images.read(i).pixels).resize(size).save(path)
        import_images(project, open_dataset(tmp_path / source, space=PETS), role)  # type: ignore[arg-type]
    make_tasks(project)
    with served(project) as site, site.person() as person:
        grid = person.sheet
        roles = {image: entry.role for image, entry in behind(site, grid).items()}
        assert set(roles.values()) == {"candidate", "reference"}
        seen = set()
        for image in grid.images:
            answer = person.http.get(f"/tasks/{grid.task}/images/{image}")
            headers = {name: value for name, value in answer.headers.items() if name not in ("content-length", "date")}
            with Pillow.open(io.BytesIO(answer.content)) as copy:
                facts = (copy.size, copy.format, copy.mode, tuple(sorted(copy.info)), len(image))
            seen.add((answer.status_code, tuple(sorted(headers.items())), facts))
        assert len(seen) == 1


def traits(copy: bytes) -> list[float]:
    """What gives a source away: the size of the file, and of each margin and of the middle how much it varies."""
    with Pillow.open(io.BytesIO(copy)) as image:
        pixels = np.asarray(image.convert("L"), float)
    edge = len(pixels) // 8
    parts = (pixels[:edge], pixels[-edge:], pixels[:, :edge], pixels[:, -edge:], pixels[edge:-edge, edge:-edge])
    return [len(copy), *(float(channel.std()) for channel in parts)]


@pytest.mark.parametrize(("fit", "told"), [("crop", False), ("pad", True)])
def test_no_classifier_tells_controls_by_the_shape_of_their_source(
    new_project: NewProject, tmp_path: Path, fit: str, told: bool
) -> None:
    """References upright, candidates across, both otherwise of one distribution: the area under the ROC curve of each
    trait, and of logistic regression on all of them, is that of chance; only grey margins tell them apart."""
    project = new_project(copy_pixels=40, copy_fit=fit, grid=48)
    for source, box, role in (("test", (0, 6, 32, 26), "candidate"), ("train", (6, 0, 26, 32), "reference")):
        images = cifar(source, 60)
        for i, label in enumerate(images.labels.tolist()):
            path = tmp_path / source / PETS.keys[label] / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            tall = box[3] - box[1] > box[2] - box[0]
            Pillow.fromarray(images.read(i).pixels).crop(box).resize((64, 102) if tall else (102, 64)).save(path)
        import_images(project, open_dataset(tmp_path / source, space=PETS), role)  # type: ignore[arg-type]
    tasks_made = make_tasks(project)
    assert set(tasks_made.enlarged.values()) == {0}
    samples = []
    with project.reading() as session:
        for entry in session.scalars(select(PoolEntry)):
            copy = project.images.copy(entry.image.digest, entry.image.suffix).read_bytes()
            samples.append((entry.role == "reference", traits(copy)))
    roles = np.array([role for role, _ in samples])
    values = np.array([row for _, row in samples])
    scaled = (values - values.mean(0)) / values.std(0)
    fitted = cross_val_predict(LogisticRegression(), scaled, roles, cv=10, method="decision_function")
    areas = [roc_auc_score(roles, column) for column in (*values.T, fitted)]
    distance = max(abs(area - 0.5) for area in areas)
    assert distance > 0.45 if told else distance < 0.12  # three standard errors of 180 against 180


def test_remarks_undo_and_what_the_lead_sees(new_project: NewProject) -> None:
    project = new_project()
    fill(project)
    with served(project) as site, site.person(name="Anna") as anna, site.person("lead") as lead:
        grid = anna.sheet
        reported: Fields = {"image": grid.images[:2], "unsure": [grid.images[3]], "comment": "a <b>toy</b>"}
        second = anna.post(f"/tasks/{grid.task}/check", reported)
        assert f'name="unsure" value="{grid.images[3]}"' in second.text and "a &lt;b&gt;toy" in second.text
        assert anna.post(f"/tasks/{grid.task}/answer", reported).status == 303
        following = anna.get("/task")
        assert f"/tasks/{grid.task}/undo" in following.text and "Task 2 of at most 3" in following.text
        again = anna.post(f"/tasks/{grid.task}/undo")
        assert f'name="unsure" value="{grid.images[3]}" checked' in again.text and "a &lt;b&gt;toy" in again.text
        assert again.task == grid.task and again.text.count("checked>") == 3  # and unsure
        assert stored(site, grid.task) == ("leased", 0)
        assert anna.post(f"/tasks/{grid.task}/answer", reported).status == 303
        account = re.search(r"/lead/annotators/(\d+)", lead.get("/lead").text)
        assert account
        page = lead.get(f"/lead/annotators/{account[1]}").text
        assert "Anna" in page and "a &lt;b&gt;toy" in page and "unsure: 1" in page and "newer half" not in page
        assert anna.post(f"/tasks/{anna.get('/task').task}/answer", {"none": "1"}).status == 303
        assert "Older and newer half" in lead.get(f"/lead/annotators/{account[1]}").text
        assert anna.get(f"/lead/annotators/{account[1]}").status == 403
        table = lead.http.get("/lead/answers.csv").text.splitlines()
        assert len(table) == 1 + 2 * len(grid.images)
        assert lead.http.get("/lead/answers.exe").status_code == 400


def test_ids_that_fit_no_database(site: Site) -> None:
    with site.person("lead") as lead:
        for path in ("/review/images/{}", "/review/originals/{}", "/lead/annotators/{}", "/review/pairs/{}/other"):
            for number in (2**31, 2**63, 2**64 + 1, -1, 10**400):
                assert lead.get(path.format(number)).status == 404
        for path in ("/review/pairs/{}", "/review/marks/{}/withdraw", "/lead/invitations/{}/revoke"):
            assert lead.post(path.format(2**63), {"verdict": "duplicate"}).status == 404
        for page in (0, -5, 10**30):
            assert lead.get(f"/lead?page={page}").status == 200
