from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import shiftbench as sb
from shiftbench.api import IncompleteRunError
from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.errors import SettingError, ShiftbenchError
from shiftbench.io.paths import Location, relative
from shiftbench.runs.plan import work_items
from tests.runs.helpers import COLOURS, brightest_channel, colour_folder, darkest_channel

SMALL = sb.Preprocessing(sb.Geometry(resize=36, crop=32))


class _Sized:
    def __init__(self, images: int) -> None:
        self.images = images

    def __len__(self) -> int:
        return self.images


def as_classifier(function: Any, name: str) -> sb.Classifier:
    classifier = sb.load_classifier(function, labels=COLOURS, preprocessing=SMALL, name=name)
    classifier.self_contained = getattr(function, "self_contained", False)
    return classifier


def run_small(data: Any, workspace: Location, *, functions: dict[str, Any] | None = None, **options: Any) -> sb.Run:
    chosen = functions or {"bright": brightest_channel}
    classifiers = [as_classifier(function, name) for name, function in chosen.items()]
    if options.setdefault("suite", "corruptions") == "corruptions":
        options = {"corruptions": ("gaussian_noise", "contrast"), "severities": (1, 5), **options}
    return sb.evaluate(classifiers, data=data, workspace=workspace, labels=COLOURS, progress=False, **options)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return colour_folder(tmp_path_factory.mktemp("data") / "pictures")


def stored(workspace: Location) -> dict[str, bytes]:
    folder = workspace / "predictions"
    files: list[Location] = sorted(folder.rglob("*.parquet"))
    return {str(relative(path, folder)): path.read_bytes() for path in files}


def test_predictions_equal_a_plain_loop(pictures: Path, tmp_path: Path) -> None:
    """The independent way: decode, resize, corrupt and score one image after the other."""
    run = run_small(pictures, tmp_path / "w")
    found = run.predictions("bright", "pictures-c.gaussian_noise.5")
    for row, image_id in enumerate(found.ids):
        pixels = SMALL.geometry(np.asarray(Image.open(pictures / image_id).convert("RGB")))
        shifted = sb.corrupt(pixels, "gaussian_noise", severity=5, seed=0, image_id=image_id)
        scores = brightest_channel(shifted[None])[0]
        assert found.top[row].tolist() == np.argsort(-scores).tolist()
        expected = np.exp(scores.max()) / np.exp(scores.astype(np.float64)).sum()
        assert found.confidence[row] == pytest.approx(expected, abs=3e-4)
        assert COLOURS.keys[found.labels[row]] == image_id.split("/")[0]


def test_clean_scores_are_right_and_opposite(pictures: Path, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="permuted|chance"):
        run = run_small(
            pictures, tmp_path / "w", suite="clean", functions={"bright": brightest_channel, "dark": darkest_channel}
        )
    scores = {classifier: score for classifier, _, score in run.scores("top1")}
    assert scores["bright"].value == 1.0 and scores["dark"].value == 0.0
    assert scores["bright"].n == 60 and scores["bright"].low == pytest.approx(0.025 ** (1 / 60))


@pytest.mark.parametrize("engine", ["threads", "processes"])
@pytest.mark.parametrize("workers", [1, 3])
def test_any_engine_and_number_of_workers_gives_the_same_bytes(
    pictures: Path, tmp_path: Path, engine: Any, workers: int
) -> None:
    run_small(pictures, tmp_path / "a", workers=1)
    run_small(pictures, tmp_path / "b", workers=workers, executor=engine)
    assert stored(tmp_path / "a") == stored(tmp_path / "b")
    assert len(stored(tmp_path / "a")) == 5


def test_a_second_run_computes_nothing(pictures: Path, tmp_path: Path) -> None:
    calls: list[int] = []

    def counting(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        calls.append(len(images))
        return brightest_channel(images)

    run_small(pictures, tmp_path / "w", functions={"bright": counting}, workers=1)
    # The fixed images, four of them alone and in batches among others, and again; two of them once more in the end.
    fixed = [8, 1, 1, 1, 1, 32, 9, 7, 2]
    assert calls[: len(fixed)] == fixed and calls[-1] == 2
    assert sum(calls[len(fixed) : -1]) == 60 * 5
    calls.clear()
    run_small(pictures, tmp_path / "w", functions={"bright": counting}, workers=1)
    assert calls == [8]  # the fixed images that show that it is still the same model


def test_another_seed_is_kept_beside_and_apart(pictures: Path, tmp_path: Path) -> None:
    run_small(pictures, tmp_path / "w", seed=0)
    run_small(pictures, tmp_path / "w", seed=1)
    both = sb.Run.open(tmp_path / "w")
    noise = [result for result in both.results if "gaussian_noise.5" in result.setting]
    clean = [result for result in both.results if result.setting == "pictures"]
    assert len(noise) == 2 and len(clean) == 1, "the seed must not recompute what does not depend on it"
    text = both.table().to_text(200)
    assert "(a)" in text and "(b)" in text


def test_damaged_and_edited_files_are_redone(pictures: Path, tmp_path: Path) -> None:
    run_small(pictures, tmp_path / "w")
    before = stored(tmp_path / "w")
    paths = sorted((tmp_path / "w" / "predictions").rglob("*.parquet"))
    paths[0].write_bytes(paths[0].read_bytes()[:-100])
    data = bytearray(paths[1].read_bytes())
    data[60] ^= 0xFF
    paths[1].write_bytes(bytes(data))
    paths[2].unlink()
    run_small(pictures, tmp_path / "w")
    assert stored(tmp_path / "w") == before


def test_more_columns_than_stored_are_computed_again(pictures: Path, tmp_path: Path) -> None:
    assert run_small(pictures, tmp_path / "w", suite="clean").predictions().scores is None
    kept = run_small(pictures, tmp_path / "w", suite="clean", keep_scores=True).predictions()
    assert kept.scores is not None and kept.scores.shape == (60, 3)
    assert (kept.scores.argmax(axis=1) == kept.top[:, 0]).all()


def test_bad_pictures_are_named_counted_and_skipped(tmp_path: Path) -> None:
    data = colour_folder(tmp_path / "pictures", per_class=8)
    (data / "red" / "000.png").write_bytes(b"")
    whole = (data / "green" / "003.png").read_bytes()
    (data / "green" / "003.png").write_bytes(whole[: len(whole) // 2])
    run = run_small(data, tmp_path / "w")
    skipped = {problem["id"] for problem in run.problems() if problem["action"] == "skipped"}
    assert skipped == {"red/000.png", "green/003.png"}
    found = run.predictions("bright", "pictures")
    assert found.valid.sum() == 22 and found.top[0].tolist() == [-1, -1, -1]
    assert {score.n for _, _, score in run.scores("top1")} == {22}


def test_each_image_is_read_once_for_all_settings_and_classifiers(pictures: Path, tmp_path: Path) -> None:
    base = sb.open_dataset(pictures, space=COLOURS)
    reads: list[int] = []

    class Counting(Dataset):
        name = base.name
        space = base.space
        ids = base.ids
        labels = base.labels
        fingerprint = base.fingerprint

        def read(self, index: int) -> DecodedImage:
            reads.append(index)
            return base.read(index)

    run_small(Counting(), tmp_path / "w", functions={"bright": brightest_channel, "dark": darkest_channel})
    assert sorted(reads) == list(range(60))


def test_one_failing_batch_does_not_lose_the_rest(pictures: Path, tmp_path: Path) -> None:
    broken = threading.Event()
    broken.set()
    first = sb.open_dataset(pictures, space=COLOURS).read(0)
    poison = SMALL.geometry(first.pixels)

    def throws(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        if broken.is_set() and any(np.array_equal(image, poison) for image in images):
            raise ValueError("the bottom of the sea")
        return brightest_channel(images)

    functions = {"good": darkest_channel, "bad": throws}
    with pytest.raises(IncompleteRunError, match="bottom of the sea"):
        run_small(pictures, tmp_path / "w", functions=functions, suite="clean", workers=1)
    assert list((tmp_path / "w" / "shards").glob("bad/*/*/*.parquet")), "the other blocks are stored"
    broken.clear()
    with pytest.warns(UserWarning):
        run = run_small(pictures, tmp_path / "w", functions=functions, suite="clean", workers=1)
    assert {s.value for c, _, s in run.scores("top1") if c == "bad"} == {1.0}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_refused(pictures: Path, tmp_path: Path, value: float) -> None:
    def poisoned(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        scores = brightest_channel(images)
        scores[0, 0] = value
        return scores

    with pytest.raises(IncompleteRunError, match="nan or inf for image"):
        run_small(pictures, tmp_path / "w", functions={"p": poisoned}, suite="clean")


def test_two_runs_at_once_do_not_harm_each_other(pictures: Path, tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def one(functions: dict[str, Any]) -> None:
        try:
            run_small(pictures, tmp_path / "w", functions=functions, workers=2)
        except BaseException as error:
            errors.append(error)

    both = [
        threading.Thread(target=one, args=({"bright": brightest_channel},)),
        threading.Thread(target=one, args=({"bright": brightest_channel, "dark": darkest_channel},)),
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(300)
    assert errors == []
    run_small(pictures, tmp_path / "alone")
    together = {name: data for name, data in stored(tmp_path / "w").items() if name.startswith("bright/")}
    assert together == stored(tmp_path / "alone")


def test_provenance_says_what_decided_the_numbers(pictures: Path, tmp_path: Path) -> None:
    run = run_small(pictures, tmp_path / "w", seed=7)
    spec = run.predictions("bright", "pictures-c.contrast.5").spec
    text = spec.text
    for part in ("contrast", '"seed":7', "bilinear", '"crop":32', "colours", "fingerprint", "in-memory"):
        assert part in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize("images", [1, 7, 16, 60, 114, 1000, 10_000, 50_000])
def test_blocks_cover_every_image_once_and_are_even(images: int) -> None:
    items = work_items("any", cast(Dataset, _Sized(images)))
    assert [item.start for item in items[1:]] == [item.stop for item in items[:-1]]
    assert items[0].start == 0 and items[-1].stop == images
    sizes = {item.stop - item.start for item in items}
    assert max(sizes) - min(sizes) <= 1 and max(sizes) <= 256


def test_perturbation_sequences_equal_frames_made_by_hand(tmp_path: Path) -> None:
    """Pictures of different sizes, all frames through the line, against a plain loop over the frames."""
    from shiftbench.metrics.flips import flip_probability, stack_frames
    from shiftbench.shifts.perturbations import perturbation_frames

    data = colour_folder(tmp_path / "pictures", per_class=3)
    run = run_small(data, tmp_path / "w", suite="perturbations", corruptions=("rotate", "gaussian_noise"))
    assert len(run.settings) == 62
    frames = [run.predictions("bright", f"pictures-p.rotate.frame{i:02d}") for i in range(31)]
    uncropped = sb.Geometry(resize=36, crop=None)
    by_hand = []
    for image_id in frames[0].ids:
        pixels = uncropped(np.asarray(Image.open(data / image_id).convert("RGB")))
        clip = perturbation_frames(pixels, "rotate", seed=0, image_id=image_id, crop=32)
        by_hand.append(brightest_channel(clip).argmax(axis=1))
    found = stack_frames(frames)[:, :, 0]
    np.testing.assert_array_equal(found, by_hand)
    assert "rotate" in run.overview()[0].to_text(120)
    assert flip_probability(found).n == 9


@pytest.mark.parametrize(
    ("name", "value"), [("name", 3), ("seed", "a"), ("passes", 0), ("workers", "2"), ("suite", 3), ("batch_size", "x")]
)
def test_arguments_of_another_type_are_named_before_anything_is_computed(
    tmp_path: Path, name: str, value: object
) -> None:
    data = colour_folder(tmp_path / "data")
    with pytest.raises(ShiftbenchError) as caught:
        options: dict[str, Any] = {"data": data, "workspace": tmp_path / "w", "progress": False, name: value}
        sb.evaluate(brightest_channel, **options)
    assert name in caught.value.message and repr(value) in str(caught.value.found)
    assert not list((tmp_path / "w").rglob("*.parquet"))


@pytest.mark.parametrize("options", [{"sample": "10"}, {"per_class": 0}, {"sample": 2.5}, {"seed": "a"}])
def test_a_selection_is_of_whole_numbers(options: dict[str, Any]) -> None:
    with pytest.raises(SettingError) as caught:
        sb.Selection(**options)
    assert caught.value.expected and next(iter(options)) in caught.value.message
