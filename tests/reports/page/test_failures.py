"""The mistakes of the page: the right ones, and pictures of the very pixels that the classifier saw."""

from __future__ import annotations

import base64
import io
import shutil
import threading
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import shiftbench as sb
from shiftbench.arrays import Pixels
from shiftbench.datasets.subset import sample, take
from shiftbench.io.html import LONGEST, thumbnail
from shiftbench.reports.page.sections import failures, methods
from shiftbench.reports.page.thumbnails import ImageFinder, Thumbnail
from shiftbench.settings.base import Setting, suites
from shiftbench.settings.roles import Selection
from shiftbench.shifts.attacks.attack import Attack
from shiftbench.shifts.base import Shift, rebuild_shift, shift_kinds
from shiftbench.shifts.compose import Greyscale
from shiftbench.shifts.corruptions.api import Corruption
from shiftbench.shifts.corruptions.catalogue import corruptions
from tests.reports.page.making import SMALL, channel_network, classifiers, mistakes_of, page_of, part_of, run_colours
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder

Seen = set[bytes]


def recording(classifier: sb.Classifier) -> Seen:
    """Every single image that a run hands to the classifier, as bytes."""
    seen: Seen = set()
    lock = threading.Lock()
    scores = classifier.scores

    def remember(images: NDArray[np.uint8]) -> Any:
        with lock:
            seen.update(image.tobytes() for image in images)
        return scores(images)

    classifier.scores = remember  # type: ignore[method-assign]
    classifier.self_contained = True  # no probe images
    return seen


def recipes(run: sb.Run) -> list[Thumbnail]:
    """What the page would show of every picture in every result."""
    found = []
    for result in run.results:
        source = ImageFinder(run.workspace, {}).source(result.spec.dataset)
        assert source is not None
        shift = rebuild_shift(result.spec.shift.description)
        geometry = result.spec.geometry.rebuild()
        found += [Thumbnail(source, i, geometry, shift, result.spec.shift.seed) for i in source.dataset.ids]
    return found


@pytest.fixture(scope="module")
def photographs() -> sb.Dataset:
    return take(sb.open_dataset("demo"), [0, 40, 95, 113])


@pytest.mark.parametrize(("source", "names"), [("in-memory", corruptions()), ("jpeg-85", ["frost", "snow"])])
def test_shifted_pictures_are_what_a_real_classifier_saw(
    photographs: Any, tmp_path: Path, source: Any, names: list[str]
) -> None:
    """A real network on real photographs under all corruptions: pixel for pixel what the run fed it, and all of it."""
    network = sb.load_classifier("demo:squeezenet1_1")
    seen = recording(network)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        run = sb.evaluate(
            network,
            "demo",
            {"demo": photographs},
            tmp_path / "w",
            severities=(3,),
            seed=7,
            source=source,
            corruptions=names,
            progress=False,
        )
    shown = {recipe.pixels().tobytes() for recipe in recipes(run)}
    assert shown == seen and len(seen) == (1 + len(names)) * 4


def test_shifted_pictures_of_other_shifts_and_crops(photographs: Any, tmp_path: Path) -> None:
    """Released files are cropped without a resize; greyscale is a shift of its own."""
    network = sb.load_classifier("demo:squeezenet1_1")
    seen = recording(network)
    settings = [
        Setting("grey", "demo", Greyscale()),
        Setting("cropped", "demo", Corruption("fog", 2.5), crop_only=True),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        run = sb.evaluate(network, settings, {"demo": photographs}, tmp_path / "w", progress=False)
    assert {recipe.pixels().tobytes() for recipe in recipes(run)} == seen


def test_shifted_images_of_a_design(pictures: Path, tmp_path: Path) -> None:
    """Each image met one of the shifts: the page shows it as the model saw it."""
    unsure = classifiers()[1]
    seen = recording(unsure)
    run = run_colours(pictures, tmp_path / "w", chosen=unsure, design="one-pass", severities=(5,))
    drafts, notes = failures.draft_failures(run.results, ImageFinder(run.workspace, {}), most=99)
    shown = [shifted for draft in drafts for _, shifted in draft.thumbnails]
    assert notes == [] and len({draft.result.setting for draft in drafts}) > 1
    assert all(one is not None and one.pixels().tobytes() in seen for one in shown)


def test_thumbnails_are_small_and_look_alike() -> None:
    pixels = sb.open_dataset("demo").read(0).pixels
    small = Image.open(io.BytesIO(thumbnail(pixels)))
    assert max(small.size) == LONGEST <= 128 and small.format == "WEBP"
    expected = Image.fromarray(pixels).resize(small.size, Image.Resampling.LANCZOS)
    difference = np.abs(np.asarray(small, float) - np.asarray(expected, float)).mean()
    assert difference < 12
    tiny = Image.open(io.BytesIO(thumbnail(np.zeros((20, 30, 3), np.uint8))))
    assert tiny.size == (30, 20)


def test_lists_hold_the_most_confident_mistakes(run: sb.Run, pictures: Path) -> None:
    """Against a plain sort of the stored predictions."""
    found = mistakes_of(run, pictures, most=4)
    lists = {(one["model"], one["setting"]): one for one in found.lists}
    for result in run.results:
        p = run.workspace.read(result)
        wrong = [i for i in range(len(p)) if p.top[i, 0] != p.labels[i]]
        if not wrong:
            assert (result.classifier, result.setting) not in lists
            continue
        shown = lists[result.classifier, result.setting]
        best = sorted(wrong, key=lambda i: -p.confidence[i])[:4]
        assert shown["total"] == len(wrong) and [f["id"] for f in shown["images"]] == [p.ids[i] for i in best]
        first = shown["images"][0]
        assert first["label"] == first["id"].split("/")[0] != first["prediction"]
        assert first["confidence"] == pytest.approx(float(p.confidence[best[0]]), abs=1e-4)
        both = [run.predictions(name, result.setting) for name in run.classifiers]
        row = p.ids.index(first["id"])
        assert first["of"] == 2 and first["wrong"] == sum(int(one.top[row, 0] != one.labels[row]) for one in both)


def test_pictures_are_shared_and_shown_as_data_urls(run: sb.Run, pictures: Path) -> None:
    found = mistakes_of(run, pictures, most=3)
    images = [image for one in found.lists for image in one["images"]]
    assert images and all(image["original"] is not None and image["shifted"] is not None for image in images)
    originals = {image["id"]: image["original"] for image in images}
    assert all(originals[image["id"]] == image["original"] for image in images)
    assert len(found.thumbnails) == len(set(found.thumbnails)) < 2 * len(images)
    prefix = "data:image/webp;base64,"
    assert all(url.startswith(prefix) for url in found.thumbnails)
    first = images[0]
    shown = Image.open(io.BytesIO(base64.b64decode(found.thumbnails[first["original"] or 0].removeprefix(prefix))))
    assert shown.size == Image.open(pictures / first["id"]).size


def test_a_full_album_shortens_the_lists(run: sb.Run, pictures: Path) -> None:
    """The most confident mistake of every list has its picture before the second of any."""
    whole = mistakes_of(run, pictures, most=8)
    half = mistakes_of(run, pictures, most=8, budget=sum(map(len, whole.thumbnails)) / 2)
    assert 0 < len(half.thumbnails) < len(whole.thumbnails)
    assert any("only the most confident mistakes" in note for note in half.notes)
    assert not any("only the most confident" in note for note in whole.notes)
    lengths = [len(one["images"]) for one in half.lists]
    assert sum(lengths) < sum(len(one["images"]) for one in whole.lists)
    for short, long in zip(half.lists, whole.lists, strict=True):
        assert [f["id"] for f in short["images"]] == [f["id"] for f in long["images"]][: len(short["images"])]
        assert all(image["original"] is not None for image in short["images"])


def test_no_pictures_at_hand(pictures: Path, tmp_path: Path) -> None:
    """As in a workspace of version 0.1, which does not know where its images were."""
    run = run_colours(pictures, tmp_path / "w")
    for source in (tmp_path / "w").glob("datasets/*/source.json"):
        source.unlink()
    found = mistakes_of(run, most=3)
    assert found.thumbnails == [] and found.lists[0]["images"][0]["original"] is None
    assert any("--images pictures=FOLDER" in note for note in found.notes)


def test_changed_pictures_are_refused(pictures: Path, tmp_path: Path) -> None:
    """One pixel of one file differs: not a single picture of that folder is shown."""
    folder = shutil.copytree(pictures, tmp_path / "pictures")
    run = run_colours(folder, tmp_path / "w", corruptions=("contrast",), severities=(5,))
    file = next(folder.rglob("*.png"))
    pixels = np.array(Image.open(file))
    pixels[0, 0, 0] ^= 1
    Image.fromarray(pixels).save(file)
    found = mistakes_of(run, folder)
    assert found.lists and found.thumbnails == []
    assert any("36 images" in note and "fingerprint" in note for note in found.notes)
    shutil.rmtree(folder)
    folder.mkdir()
    gone = mistakes_of(run, folder)
    assert gone.thumbnails == [] and any("no images of pictures" in note for note in gone.notes)


def test_the_images_of_a_sample_are_found_in_the_whole_folder(tmp_path: Path) -> None:
    folder = colour_folder(tmp_path / "pictures", per_class=9)
    run = run_colours(
        folder, tmp_path / "w", corruptions=("contrast",), severities=(5,), select=Selection(per_class=4, seed=3)
    )
    found = mistakes_of(run, folder)
    assert found.thumbnails and not any("no images" in note for note in found.notes)


def test_the_images_of_a_list_with_repetitions_are_found(pictures: Path, tmp_path: Path) -> None:
    listed = take(sb.open_dataset(pictures, space=COLOURS), [4, 4, 1, 4])
    run = run_colours(listed, tmp_path / "w", suite="clean")
    found = ImageFinder(run.workspace, {"": [pictures]}).source(run.results[0].spec.dataset)
    assert found is not None
    assert np.array_equal(found.read(f"{listed.base.ids[4]}#3"), listed.base.read(4).pixels)


def test_cifar_pictures_are_found_by_themselves(tmp_path: Path) -> None:
    test_set = sample(sb.open_dataset("cifar-10-test"), 40, seed=1)
    blank = sb.load_classifier(
        lambda images: np.tile(np.arange(10.0), (len(images), 1)),
        labels=test_set.space,
        name="nine",
        preprocessing=sb.Preprocessing(sb.Geometry(None, None)),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        run = sb.evaluate(blank, "clean", test_set, tmp_path / "w", progress=False)
    found = mistakes_of(run, most=5)
    assert found.lists[0]["total"] == 40 - int((test_set.labels == 9).sum())
    assert len(found.thumbnails) > 0


def test_each_data_set_is_found_among_several_folders(photographs: Any, pictures: Path, tmp_path: Path) -> None:
    """One that has nothing to do with it, or can't be opened, does not hide the right one."""
    run_colours(pictures, tmp_path / "w", suite="clean")
    network = sb.load_classifier("demo:squeezenet1_1")
    run_colours({"data": photographs}, tmp_path / "w", chosen=network, suite="clean", labels=None)
    (tmp_path / "odd").mkdir()
    folders = {"odd": [tmp_path / "odd"], "some-role": [pictures]}
    finder = ImageFinder(sb.Workspace(tmp_path / "w"), folders)
    names = {result.spec.dataset.name: result.spec.dataset for result in sb.Run.open(tmp_path / "w").results}
    assert set(names) == {"pictures", "demo"}
    assert all(finder.source(name) is not None for name in names.values()) and finder.notes == []


def test_recorded_predictions_have_no_view_of_their_own(pictures: Path, tmp_path: Path) -> None:
    """What a classifier elsewhere was shown is not known, so only the picture itself is."""
    data = sb.open_dataset(pictures, space=COLOURS)
    lines = [f"{i},red,0.9" for i in data.ids]
    (tmp_path / "made.csv").write_text("id,prediction,confidence\n" + "\n".join(lines) + "\n")
    recorded = sb.load_classifier(str(tmp_path / "made.csv"), labels=COLOURS)
    run = run_colours(pictures, tmp_path / "w", chosen=recorded, suite="clean")
    found = mistakes_of(run, pictures, most=2)
    image = found.lists[0]["images"][0]
    assert image["original"] is not None and image["shifted"] is None


def test_an_unreadable_picture_is_left_out(tmp_path: Path) -> None:
    folder = colour_folder(tmp_path / "pictures", per_class=4)
    (folder / "red" / "broken.png").write_bytes(b"no picture")
    only = [sb.load_classifier(brightest_channel, labels=COLOURS, preprocessing=SMALL, name="bright"), classifiers()[1]]
    run = run_colours(folder, tmp_path / "w", chosen=only, corruptions=("contrast",), severities=(5,))
    page = page_of(run, folders={"": [folder]})
    assert any("red/broken.png was skipped" in warning for warning in page["warnings"])
    assert not any(
        image["id"] == "red/broken.png" for one in part_of(page, failures.SECTION)["lists"] for image in one["images"]
    )


def test_released_files_are_found_below_their_role(pictures: Path, tmp_path: Path) -> None:
    """A folder for each corruption and severity, as ImageNet-C is released; each is a data set of its own."""
    for severity in (1, 5):
        for file in pictures.rglob("*.png"):
            place = tmp_path / "released" / "contrast" / str(severity) / file.relative_to(pictures)
            place.parent.mkdir(parents=True, exist_ok=True)
            pixels = sb.corrupt(np.asarray(Image.open(file)), "contrast", severity, image_id=place.name)
            Image.fromarray(pixels).save(place)
    options = {"source": "on-disk", "corruptions": ("contrast",), "severities": (1, 5)}
    data = {"data": pictures, "pictures-c": tmp_path / "released"}
    run = run_colours(data, tmp_path / "w", **options)
    given = {"pictures-c": [tmp_path / "released"], "pictures": [pictures]}
    finder = ImageFinder(run.workspace, given)
    for result in run.results:
        source = finder.source(result.spec.dataset)
        assert source is not None and source.dataset.fingerprint == result.spec.dataset.fingerprint
    assert finder.notes == []


def test_a_data_set_named_like_a_way_out_is_not_followed(pictures: Path, tmp_path: Path) -> None:
    data = sb.open_dataset(pictures, space=COLOURS, name="../pictures")
    run = run_colours(data, tmp_path / "w", suite="clean")
    (pictures.parent / "given").mkdir(exist_ok=True)
    finder = ImageFinder(run.workspace, {"": [pictures.parent / "given"]})
    assert finder.source(run.results[0].spec.dataset) is None and len(finder.notes) == 1


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_attacked_images_are_those_of_the_run(pictures: Path, tmp_path: Path) -> None:
    attack = Attack("pgd", "linf", 8 / 255, steps=2, step_size=6 / 255)
    settings = [Setting("plain", "data"), Setting("attacked", "data", attack, reference="plain")]
    run = run_colours(pictures, tmp_path / "w", chosen=channel_network(), suite=settings)
    page = page_of(run, failures=4)
    found = part_of(page, failures.SECTION)
    images = [image for one in found["lists"] if one["setting"] == "attacked" for image in one["images"]]
    assert images and all(image["shifted"] not in (None, image["original"]) for image in images)
    assert not any("attacked" in note for note in page["warnings"])
    assert any("linf" in item for section in part_of(page, methods.SECTION) for item in section.get("items", []))
    [result] = [result for result in run.results if result.setting == "attacked"]
    kept = run.workspace.shifted_images(result)
    data = sb.open_dataset(pictures, space=COLOURS)
    for image in images:
        crop = SMALL.geometry(data.read(data.ids.index(image["id"])).pixels)
        moved = np.abs(kept[image["id"]].pixels().astype(int) - crop).max()
        assert 0 < moved <= 8
    run.workspace.images_path(result).unlink()
    page = page_of(run, failures=4)
    assert any("attacked is shown without the shifted images" in note for note in page["warnings"])


@dataclass(frozen=True)
class Inverted(Shift):
    """A kind of shift from elsewhere."""

    name = "inverted"

    def __call__(self, image: Pixels, *, image_id: str, seed: int) -> Pixels:
        return 255 - image

    def describe(self) -> dict[str, Any]:
        return {"shift": "inverted"}


def test_a_new_kind_of_shift_shows_its_images(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind and a suite are registered; nothing else knows of them."""
    monkeypatch.setitem(shift_kinds._items, "inverted", lambda record: Inverted())
    monkeypatch.setitem(suites._items, "negatives", lambda options: [Setting("negative", "data", Inverted())])
    run = run_colours(pictures, tmp_path / "w", suite="negatives")
    found = part_of(page_of(run, failures=2), failures.SECTION)
    images = [image for one in found["lists"] for image in one["images"]]
    assert images and all(image["shifted"] not in (None, image["original"]) for image in images)


def test_images_are_found_where_the_run_read_them(pictures: Path, tmp_path: Path) -> None:
    """Nobody names the folder again; a folder that has changed since is not used."""
    data = Path(shutil.copytree(pictures, tmp_path / "moved"))
    run = run_colours(data, tmp_path / "w", suite="clean")
    assert run.workspace.source("moved", run.results[0].spec.dataset.fingerprint) == ("data", str(data))
    assert ImageFinder(run.workspace, {}).source(run.results[0].spec.dataset) is not None
    next(data.rglob("*.png")).unlink()
    finder = ImageFinder(run.workspace, {})
    assert finder.source(run.results[0].spec.dataset) is None and len(finder.notes) == 1
