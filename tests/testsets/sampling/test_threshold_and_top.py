"""Threshold and TopImages against brute force, and the overrides that ImageNetV2 used."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from shiftbench.errors import UnknownNameError
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.sampling import (
    AnnotatedImage,
    Choice,
    SamplingRequest,
    Threshold,
    TopImages,
    make_sampling,
    samplings,
)
from tests.raised import raises
from tests.testsets.sampling.test_matched_frequency import pool


def test_only_images_at_or_above_the_threshold() -> None:
    candidates = [AnnotatedImage(f"c{k}-{i}", "nail", k, 10) for k in range(11) for i in range(3)]
    sample = Threshold().sample(SamplingRequest(candidates, (), ("nail",), 100))
    assert sorted(choice.id for choice in sample.choices) == sorted(
        image.id for image in candidates if image.selected >= 7
    )
    assert sample.short == {"nail": 88}


@pytest.mark.parametrize("people", [3, 7, 9, 10, 20, 30, 70])
def test_exactly_seven_tenths_is_enough(people: int) -> None:
    candidates = [AnnotatedImage(f"c{k}", "nail", k, people) for k in range(people + 1)]
    sample = Threshold(min_annotations=1).sample(SamplingRequest(candidates, (), ("nail",), 1000))
    assert {choice.id for choice in sample.choices} == {f"c{k}" for k in range(people + 1) if 10 * k >= 7 * people}


def test_few_annotations_are_not_enough() -> None:
    candidates = [AnnotatedImage("nine", "nail", 9, 9), AnnotatedImage("ten", "nail", 10, 10)]
    assert [c.id for c in Threshold().sample(SamplingRequest(candidates, (), ("nail",), 5)).choices] == ["ten"]
    assert [c.id for c in TopImages().sample(SamplingRequest(candidates, (), ("nail",), 5)).choices] == ["ten"]


def test_the_published_overrides(reference_data: Path) -> None:
    overrides = json.loads((reference_data / "imagenetv2" / "sampling_thresholds_a.json").read_text())
    assert overrides == {"n03014705": 0.6, "n02090379": 0.6, "n03804744": 0.5}
    keys = (*overrides, "n01440764")
    candidates = [AnnotatedImage(f"{key}-{k}", key, k, 10) for key in keys for k in range(11)]
    sample = Threshold(overrides=overrides).sample(SamplingRequest(candidates, (), keys, 11))
    lowest = {
        class_sample.class_key: min(int(c.id.rpartition("-")[2]) for c in class_sample.choices)
        for class_sample in sample.classes
    }
    assert lowest == {"n03014705": 6, "n02090379": 6, "n03804744": 5, "n01440764": 7}


def test_threshold_keeps_valid_images_of_the_revision_before() -> None:
    candidates = pool(1, 100)
    request = SamplingRequest(candidates, (), ("nail",), 10, seed=3)
    first = Threshold().sample(request)
    gone = first.choices[0]
    left = [image for image in candidates if image.id != gone.id]
    second = Threshold().sample(replace(request, candidates=left, kept=first.choices[1:]))
    assert set(first.choices[1:]) < set(second.choices) and len(second.choices) == 10


def test_kept_images_below_the_threshold_leave() -> None:
    candidates = [AnnotatedImage(f"c{i}", "nail", 10, 10) for i in range(20)]
    request = SamplingRequest(candidates, (), ("nail",), 10)
    first = Threshold().sample(request)
    rejected, unfinished = (choice.id for choice in first.choices[:2])
    changed = []
    for image in candidates:
        if image.id == rejected:
            image = replace(image, selected=5)
        if image.id == unfinished:
            image = replace(image, selected=9, annotations=9)
        changed.append(image)
    second = Threshold().sample(replace(request, candidates=changed, kept=first.choices))
    assert {rejected, unfinished}.isdisjoint(choice.id for choice in second.choices)
    assert set(first.choices[2:]) < set(second.choices) and len(second.choices) == 10


def test_bad_thresholds() -> None:
    with raises(WorkshopError, found=70):
        Threshold(threshold=70)
    with raises(WorkshopError, found="nial"):
        Threshold(overrides={"nial": 0.5}).sample(SamplingRequest(pool(1, 5), (), ("nail",), 1))


@pytest.mark.parametrize("seed", range(10))
def test_top_images_by_brute_force(seed: int) -> None:
    """No image outside is better than one inside, by frequency, then annotations, then membership, then id."""
    rng = random.Random(seed)
    candidates = []
    for i in range(60):
        people = rng.randint(8, 14)
        candidates.append(AnnotatedImage(f"c{i}", "nail", rng.randint(people - 3, people), people))
    before = [Choice(image.id, "nail", "top") for image in rng.sample(candidates, 20)]
    members = {choice.id for choice in before}
    sample = TopImages().sample(SamplingRequest(candidates, (), ("nail",), 12, kept=before))
    inside = {choice.id for choice in sample.choices}

    def better(a: AnnotatedImage, b: AnnotatedImage) -> bool:
        left = a.selected * b.annotations
        right = b.selected * a.annotations
        if left != right:
            return left > right
        if a.annotations != b.annotations:
            return a.annotations > b.annotations
        if (a.id in members) != (b.id in members):
            return a.id in members
        return a.id > b.id

    valid = [image for image in candidates if image.annotations >= 10]
    assert len(inside) == 12
    for a in valid:
        for b in valid:
            if a.id not in inside and b.id in inside:
                assert not better(a, b)


def test_top_needs_no_seed() -> None:
    request = SamplingRequest(pool(1, 100), (), ("nail",), 10, seed=1)
    assert {c.id for c in TopImages().sample(request).choices} == {
        c.id for c in TopImages().sample(replace(request, seed=2)).choices
    }


def test_the_order_of_difficulty_of_the_paper() -> None:
    """TopImages is easier than Threshold0.7, and that easier than MatchedFrequency: by mean selection frequency."""
    candidates = pool(1, 500)
    references = pool(2, 40)
    shares = {image.id: image.frequency for image in candidates}
    means = []
    for name in ("top-images", "threshold", "matched-frequency"):
        sample = make_sampling(name).sample(SamplingRequest(candidates, references, ("nail",), 30))
        means.append(sum(shares[choice.id] for choice in sample.choices) / 30)
    assert means[0] > means[1] > means[2]


def test_strategies_by_name() -> None:
    assert set(samplings.names()) >= {"matched-frequency", "threshold", "top-images", "keywords"}
    for name in samplings.names():
        assert make_sampling(name).name == name
        assert make_sampling(name, **make_sampling(name).options()) == make_sampling(name)
    with pytest.raises(WorkshopError, match="'treshold'"):
        make_sampling("threshold", treshold=0.5)
    with raises(UnknownNameError, name="treshold"):
        make_sampling("treshold")
    with pytest.raises(WorkshopError, match="images per class"):
        SamplingRequest((), (), ("nail",), 0)
