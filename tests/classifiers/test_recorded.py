"""Predictions computed elsewhere."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.recorded import RecordedPredictions
from shiftbench.errors import ClassifierError, LabelError, ResultWarning
from shiftbench.labels.space import LabelSpace
from tests.raised import raises

SPACE = LabelSpace("pets", ("n1", "n2", "n3"), ("cat", "dog", "fish"))
IDS = ["a.jpg", "b.jpg", "c.jpg"]
SCORES = np.array([[0.1, 2.0, 1.0], [3.0, 0.0, -1.0], [0.0, 0.5, 4.0]], np.float32)


def load(path: Path, **options: Any) -> RecordedPredictions:
    recorded = load_classifier(path, labels=SPACE, **options)
    assert isinstance(recorded, RecordedPredictions)
    return recorded


@pytest.mark.parametrize(
    "text",
    [
        "id,prediction\na.jpg,1\nb.jpg,0\nc.jpg,2\n",
        "image,prediction\na.jpg,n2\nb.jpg,n1\nc.jpg,n3\n",
        "filename,class\nb.jpg,cat\na.jpg,dog\nc.jpg,fish\n",
        "\ufeffid,top1,top2\nc.jpg,2,1\na.jpg,1,2\nb.jpg,0,1\n\n",
        "id,score_0,score_1,score_2\na.jpg,.1,2,1\nb.jpg,3,0,-1\nc.jpg,0,.5,4\n",
        "id,n1,n2,n3\na.jpg,.1,2,1\nb.jpg,3,0,-1\nc.jpg,0,.5,4\n",
    ],
)
def test_csv(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.csv").write_text(text, encoding="utf-8")
    top, _, _ = load(tmp_path / "run.csv").lookup(IDS)
    assert top[:, 0].tolist() == [1, 0, 2]
    assert top.dtype == np.int32


def test_confidence_from_the_file_and_from_scores(tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text("id,prediction,confidence\na.jpg,1,0.75\nb.jpg,0,\n")
    _, confidence, scores = load(tmp_path / "run.csv").lookup(["b.jpg", "a.jpg"])
    assert np.isnan(confidence[0])
    assert confidence[1] == 0.75
    assert scores is None
    np.savez(tmp_path / "run.npz", ids=np.array(IDS), scores=SCORES)
    recorded = load(tmp_path / "run.npz")
    _, confidence, scores = recorded.lookup(IDS)
    softmax = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)
    assert np.allclose(confidence, softmax.max(axis=1))
    assert scores is not None and np.array_equal(scores, SCORES)
    np.savez(tmp_path / "p.npz", ids=np.array(IDS), probabilities=softmax)
    recorded = load(tmp_path / "p.npz")
    assert recorded.outputs == "probabilities"
    assert np.allclose(recorded.lookup(IDS).confidence, softmax.max(axis=1))


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_scores_with_a_large_common_offset(tmp_path: Path, suffix: str) -> None:
    """Their differences are lost in float32, but not in the file."""
    scores = np.eye(3)[[0, 2, 1, 2]] + 1e9
    path = tmp_path / f"p{suffix}"
    ids = list("abcd")
    if suffix == ".npz":
        np.savez(path, ids=np.array(ids), scores=scores)
    elif suffix == ".parquet":
        pq.write_table(pa.table({"id": ids, **{f"score_{k}": scores[:, k] for k in range(3)}}), path)
    else:
        rows = [",".join([image, *map(repr, row)]) for image, row in zip(ids, scores.tolist(), strict=True)]
        path.write_text("id,score_0,score_1,score_2\n" + "\n".join(rows))
    with pytest.warns(ResultWarning, match="3 images have other best classes"):
        top, confidence, _ = load(path).lookup(ids)
    assert top[:, 0].tolist() == [0, 2, 1, 2]
    np.testing.assert_allclose(confidence, np.e / (np.e + 2), rtol=1e-6)


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table({"id": IDS, "top": [[1, 2], [0, 1], [2, 1]]}), tmp_path / "run.parquet")
    assert load(tmp_path / "run.parquet").lookup(IDS).top.tolist() == [[1, 2], [0, 1], [2, 1]]
    parquet.write_table(pyarrow.table({"id": IDS, "scores": SCORES.tolist()}), tmp_path / "scores.parquet")
    scores = load(tmp_path / "scores.parquet").lookup(IDS).scores
    assert scores is not None
    assert np.array_equal(scores, SCORES)


def test_ids_stay_text(tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text("id,prediction\n0007,1\n7,2\n")
    assert load(tmp_path / "run.csv").ids == ("0007", "7")


def test_missing_images_are_minus_one() -> None:
    recorded = RecordedPredictions(IDS, name="r", space=SPACE, scores=SCORES)
    top, confidence, scores = recorded.lookup(["x.jpg", "c.jpg"])
    assert top.tolist() == [[-1, -1, -1], [2, 1, 0]]
    assert np.isnan(confidence).tolist() == [True, False]
    assert scores is not None and np.isnan(scores).any(axis=1).tolist() == [True, False]
    assert recorded.coverage(["x.jpg", "c.jpg"]) == (["x.jpg"], ["a.jpg", "b.jpg"])
    recorded.check_ids(["x.jpg", "c.jpg"])
    with raises(ClassifierError, found="ids such as a.jpg, b.jpg, c.jpg", expected="ids such as x, y"):
        recorded.check_ids(["x", "y"])


def test_over_a_smaller_space() -> None:
    wild = LabelSpace("wild", ("n1", "n3"))
    scores = RecordedPredictions(IDS, name="r", space=SPACE, scores=SCORES).lookup(IDS, wild)
    assert scores.top[:, 0].tolist() == [1, 0, 1]
    two = np.exp(SCORES[:, [0, 2]])
    assert np.allclose(scores.confidence, (two / two.sum(axis=1, keepdims=True)).max(axis=1))
    ranks = RecordedPredictions(IDS, name="r", space=SPACE, top=[[1, 2], [0, 1], [2, 1]])
    assert ranks.lookup(IDS, wild).top[:, 0].tolist() == [1, 0, 1]
    assert np.isnan(ranks.lookup(IDS, wild).confidence).all()
    shallow = RecordedPredictions(IDS, name="r", space=SPACE, top=[1, 0, 2])
    assert shallow.lookup(["b.jpg", "c.jpg"], wild).top[:, 0].tolist() == [0, 1]
    with raises(ClassifierError, found="1 recorded classes per image, e.g. for a.jpg"):
        shallow.lookup(IDS, wild)
    with pytest.raises(LabelError):
        ranks.lookup(IDS, LabelSpace("other", ("m1", "m2")))


def test_over_super_classes() -> None:
    groups = LabelSpace("groups", ("land", "water"), members=(("n1", "n2"), ("n3",)))
    assert RecordedPredictions(IDS, name="r", space=SPACE, scores=SCORES).lookup(IDS, groups).top[:, 0].tolist() == [
        0,
        0,
        1,
    ]
    assert RecordedPredictions(IDS, name="r", space=SPACE, top=[1, 0, 2]).lookup(IDS, groups).top[:, 0].tolist() == [
        0,
        0,
        1,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("prediction\n1\n", "does not name its images"),
        ("id,prediction\na.jpg,1\na.jpg,2\n", "more than once"),
        ("id,prediction\na.jpg,1\nb.jpg,7\n", "does not have"),
        ("id,prediction\na.jpg,cat\nb.jpg,horse\n", "horse"),
        ("id,prediction\na.jpg\n", "Expected 2 columns"),
        ("id,prediction,confidence\na.jpg,1,sure\n", "is not numeric"),
        ("id,score_0,score_1\na.jpg,1,2\n", "differ in the number of classes"),
        ("id,score_0,score_1,score_2\na.jpg,1,2,x\n", "could not convert"),
        ("id,score_0,score_1,score_2\na.jpg,1,2,nan\n", "NaN or infinite"),
        ("id,comment\na.jpg,fine\n", "neither classes nor scores"),
        ("id,prediction,prediction\na.jpg,1,2\n", "several columns are called 'prediction'"),
        ("id,prediction, Prediction\na.jpg,1,2\n", "several columns are called 'prediction'"),
        ("id,score_0,score_1,score_7\na.jpg,1,2,3\n", "without gaps"),
        ("id,score_1,score_2,score_3\na.jpg,1,2,3\n", "without gaps"),
        ("id,score_0,score_1,score_01,score_2\na.jpg,1,2,3,4\n", "without gaps"),
        ("id,top1,top3\na.jpg,1,2\n", "without gaps"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "run.csv").write_text(text)
    with pytest.raises(ClassifierError, match=message):
        load(tmp_path / "run.csv")


@pytest.mark.parametrize("rows", [[[1.0, 2.0], [1.0, 2.0, 3.0, 4.0], [1.0] * 3], [[1.0, 2.0, 3.0], None, [1.0] * 3]])
def test_ragged_score_lists_are_refused(tmp_path: Path, rows: list[list[float] | None]) -> None:
    pq.write_table(pa.table({"id": IDS, "scores": rows}), tmp_path / "run.parquet")
    with pytest.raises(ClassifierError, match="different lengths"):
        load(tmp_path / "run.parquet")


def test_labels_are_needed(tmp_path: Path) -> None:
    (tmp_path / "run.csv").write_text("id,prediction\na.jpg,1\n")
    with raises(ClassifierError, hint="labels='imagenet-1k'"):
        load_classifier(tmp_path / "run.csv")


def test_object_arrays_are_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "run.npz", ids=np.array(["a"], dtype=object), top=np.array([1]))
    with pytest.raises(ClassifierError, match="cannot be read"):
        load(tmp_path / "run.npz")


def test_a_record_sees_no_pictures() -> None:
    recorded = RecordedPredictions(IDS, name="r", space=SPACE, top=[1, 0, 2])
    with pytest.raises(ClassifierError, match="recorded predictions"):
        recorded.scores(np.zeros((1, 4, 4, 3), np.uint8))
    twin = pickle.loads(pickle.dumps(recorded))
    assert twin.fingerprint == recorded.fingerprint
    changed = RecordedPredictions(IDS, name="r", space=SPACE, top=[1, 1, 2])
    assert changed.fingerprint != recorded.fingerprint


def test_classes_beside_scores_are_those_of_the_best_score(tmp_path: Path) -> None:
    """A column `class` may hold the true classes, which would be right for every image."""
    text = "id,class,score_0,score_1,score_2\na.jpg,{},.1,2,1\nb.jpg,cat,3,0,-1\n"
    (tmp_path / "run.csv").write_text(text.format("dog"))
    assert load(tmp_path / "run.csv").lookup(["a.jpg"]).top.tolist() == [[1]]
    (tmp_path / "run.csv").write_text(text.format("fish"))
    with pytest.raises(ClassifierError, match="do not have the best score"):
        load(tmp_path / "run.csv")


def test_infinite_scores_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "run.npz", ids=np.array(IDS), scores=np.where(SCORES > 3, np.inf, SCORES))
    with pytest.raises(ClassifierError, match="infinite"):
        load(tmp_path / "run.npz")


def test_names_of_classes_keep_their_zeros_in_wide_files(tmp_path: Path) -> None:
    space = LabelSpace("birds", tuple(f"{i:03d}" for i in range(1, 201)))
    others = "".join(f",x{i}" for i in range(100))
    (tmp_path / "run.csv").write_text(f"id,prediction{others}\n" + f"a.jpg,007{',0' * 100}\n")
    assert load_classifier(tmp_path / "run.csv", labels=space).recorded.lookup(["a.jpg"]).top.tolist() == [[6]]  # type: ignore[union-attr]


def test_a_name_that_two_classes_share_is_refused(tmp_path: Path) -> None:
    space = LabelSpace("birds", ("n1", "n2", "n3"), ("crane", "dog", "crane"))
    (tmp_path / "run.csv").write_text("id,prediction\na.jpg,crane\nb.jpg,dog\n")
    with raises(ClassifierError, found="crane"):
        load_classifier(tmp_path / "run.csv", labels=space)


def test_scores_of_sigmoids_are_probabilities(tmp_path: Path) -> None:
    """Read as logits, 0.99 would become a confidence of 0.57."""
    (tmp_path / "sigmoids.csv").write_text("id,score_0,score_1,score_2\na.jpg,0.02,0.99,0.02\nb.jpg,0.99,0.02,0.4\n")
    with pytest.warns(ResultWarning) as caught:
        recorded = load(tmp_path / "sigmoids.csv")
    assert [getattr(warning.message, "code", "") for warning in caught] == ["assumed-outputs"]
    assert recorded.outputs == "probabilities"
    np.testing.assert_allclose(recorded.confidence, [0.99 / 1.03, 0.99 / 1.41], rtol=1e-6)


@pytest.mark.parametrize(("first", "is_accepted"), [("80", True), ("0.8", False), ("-1", False)])
def test_columns_called_probabilities_hold_probabilities(tmp_path: Path, first: str, is_accepted: bool) -> None:
    (tmp_path / "m.csv").write_text(f"id,prob_cat,prob_dog,prob_fish\na.jpg,{first},15,5\n")
    if is_accepted:
        assert load(tmp_path / "m.csv").outputs == "probabilities"
    else:
        with pytest.raises(ClassifierError):
            load(tmp_path / "m.csv")


def test_a_class_is_among_the_best_once(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("id,top1,top2,top3\na.jpg,cat,dog,fish\nb.jpg,dog,fish,dog\n")
    with pytest.raises(ClassifierError) as caught:
        load(tmp_path / "m.csv")
    assert "dog" in str(caught.value.found)
