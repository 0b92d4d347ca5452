"""Super-classes: the published maps, and that the maximum over members is the published rule."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shiftbench.errors import LabelError
from shiftbench.labels import LabelSpace, label_space
from shiftbench.labels.builtin import objectnet_folders
from tests.raised import raises

SPACES = {"objectnet-113": (113, 125), "vid-robust-30": (30, 288), "ytbb-robust-24": (24, 231)}


def members(space: LabelSpace) -> list[tuple[str, ...]]:
    assert space.members is not None
    return list(space.members)


@pytest.mark.parametrize("name", SPACES)
def test_classes_and_members_are_as_many_as_published_and_disjoint(name: str) -> None:
    space = label_space(name)
    full = label_space("imagenet-1k")
    wnids = [wnid for group in members(space) for wnid in group]
    assert (len(space), len(wnids)) == SPACES[name]
    assert len(set(wnids)) == len(wnids) and all(wnid in full for wnid in wnids)


@pytest.mark.parametrize("name", SPACES)
def test_the_best_super_class_holds_the_best_member(name: str) -> None:
    """ObjectNet: right if the argmax over the 125 is one of the folder's classes. The projection gives just that."""
    space = label_space(name)
    full = label_space("imagenet-1k")
    scores = np.random.default_rng(0).normal(size=(500, 1000)).astype(np.float32)
    columns = sorted(full.index(wnid) for group in members(space) for wnid in group)
    best_member = np.array(columns)[scores[:, columns].argmax(axis=1)]
    owner = {full.index(wnid): i for i, group in enumerate(members(space)) for wnid in group}
    projected = space.projection_from(full)(scores)
    assert projected.argmax(axis=1).tolist() == [owner[i] for i in best_member.tolist()]


def test_objectnet_is_the_published_map(reference_data: Path) -> None:
    folder = reference_data / "imagenet-testbed" / "metadata" / "objectnet_metadata"
    names, to_imagenet, texts = (
        json.loads((folder / f"{file}.json").read_text())
        for file in ("folder_to_objectnet_label", "objectnet_to_imagenet_1k", "imagenet_to_labels")
    )
    space = label_space("objectnet-113")
    full = label_space("imagenet-1k")
    index = {text: int(i) for i, text in texts.items()}
    assert set(objectnet_folders()) == set(names)
    for key, name, group in zip(space.keys, space.names, members(space), strict=True):
        assert names[key] == name
        assert {full.index(w) for w in group} == {index[text] for text in to_imagenet[name].split("; ")}


@pytest.mark.parametrize(
    ("name", "folder"),
    [("vid-robust-30", "imagenet-vid-robust_metadata"), ("ytbb-robust-24", "ytbb-robust_metadata")],
)
def test_video_classes_are_the_published_map(reference_data: Path, name: str, folder: str) -> None:
    path = reference_data / "imagenet-testbed" / "metadata" / folder / "class_idx_map.json"
    published = {int(i): c for i, c in json.loads(path.read_text()).items()}
    full = label_space("imagenet-1k")
    ours = {full.index(w): c for c, group in enumerate(members(label_space(name))) for w in group}
    assert ours == published


def test_ytbb_names_stand_at_the_published_indices(reference_data: Path) -> None:
    path = reference_data / "imagenet-testbed" / "metadata" / "ytbb-robust_metadata" / "ytbb_class_index.json"
    published = {int(i): name for i, name in json.loads(path.read_text()).items()}
    assert dict(enumerate(label_space("ytbb-robust-24").names)) == published


def test_the_eighth_of_the_classes_is_the_published_list(reference_data: Path) -> None:
    path = reference_data / "imagenet-testbed" / "metadata" / "subsample_lists.json"
    full = label_space("imagenet-1k")
    ours = [full.index(key) for key in label_space("imagenet-eighth-125").keys]
    assert ours == json.loads(path.read_text())["class_sublist_1_8"]


def test_a_class_without_members_is_never_the_best_and_can_be_a_label() -> None:
    space = LabelSpace("animals", ("giraffe", "cat"), members=((), ("tabby", "siamese")))
    source = LabelSpace("cats", ("tabby", "siamese"))
    scores = np.array([[-3.0, -2.0], [0.1, 0.9]], np.float32)
    assert space.projection_from(source)(scores).argmax(axis=1).tolist() == [1, 1]
    assert space.relabel_from(LabelSpace("seen", ("giraffe", "tabby"))).tolist() == [0, 1]


def test_a_source_without_the_members_of_a_class_is_refused() -> None:
    space = LabelSpace("animals", ("dog", "cat"), members=(("pug",), ("tabby",)))
    with raises(LabelError, found="dog"):
        space.projection_from(LabelSpace("cats", ("tabby", "siamese")))
    with pytest.raises(LabelError):
        LabelSpace("none", ("dog",), members=((),)).projection_from(LabelSpace("cats", ("tabby",)))
