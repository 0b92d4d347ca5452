"""Keyword-matched sampling against the published CIFAR-10.1, and by brute force."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftbench.labels import label_space
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.sampling import AnnotatedImage, Keywords, SamplingRequest
from tests.raised import raises

CLASSES = label_space("cifar-10").keys


@pytest.fixture(scope="module")
def published(reference_data: Path) -> dict[str, Any]:
    folder = reference_data / "cifar-10.1"
    loaded = {
        name: json.loads((folder / f"{name}.json").read_text())
        for name in ("keyword_counts_v4", "keyword_counts_v6", "keywords_v4", "cifar10.1_v4_ti_indices")
    }
    labels = np.load(folder / "cifar10.1_v4_labels.npy")
    # The images lie keyword by keyword, and a keyword's pictures lie together in Tiny Images. A keyword of which
    # none was found has none here, so that runs are found by the gaps, never by their number.
    runs = _runs(loaded["cifar10.1_v4_ti_indices"], labels.tolist())
    return {**loaded, "labels": labels, "runs": runs}


def _runs(indices: list[int], labels: list[int]) -> list[tuple[int, int]]:
    """(class, images) of each keyword, in order."""
    runs: list[list[int]] = []
    first = -(10**9)
    for index, label in zip(indices, labels, strict=True):
        if abs(index - first) > 1500 or runs[-1][0] != label:
            runs.append([label, 0])
            first = index
        runs[-1][1] += 1
    return [(label, count) for label, count in runs]


def class_of_keywords(published: dict[str, Any]) -> dict[str, str]:
    """25 keywords a class, in the order of the labels of the images."""
    order = list(dict.fromkeys(published["labels"].tolist()))
    return {word: CLASSES[order[i // 25]] for i, word in enumerate(published["keywords_v4"])}


def reference_images(published: dict[str, Any]) -> list[AnnotatedImage]:
    """CIFAR-10's 60,000 images by keyword."""
    owner = class_of_keywords(published)
    images = []
    for word, count in published["keyword_counts_v4"].items():
        images += [AnnotatedImage(f"{word}-{i}", owner[word], 0, 0, word) for i in range(count)]
    # The published counts are of keywords alone, over all classes; the rest of CIFAR-10 has rarer ones.
    unlisted = 60_000 - len(images)
    images += [AnnotatedImage(f"rest-{i}", "ship", 0, 0, f"rest-{i}") for i in range(unlisted)]
    return images


def test_the_numbers_of_version_4(published: dict[str, Any]) -> None:
    """Of each keyword the share of 2,000, rounded up: 2,028 images, of which seven could not be found.

    Keyword by keyword the published images are as many as wished, in the five classes whose keywords lie apart in
    Tiny Images and had enough pictures; of the dogs one keyword has one more.
    """
    references = reference_images(published)
    assert len(references) == 60_000
    sample = Keywords(top=25, round_up=True).sample(SamplingRequest([], references, CLASSES, 200))
    wished = {word: count for class_sample in sample.classes for word, count in class_sample.wished.items()}
    assert set(wished) == set(published["keyword_counts_v4"])
    assert sum(wished.values()) == 2028 and len(published["labels"]) == 2021
    owner = class_of_keywords(published)
    exact = {}
    for index, key in enumerate(CLASSES):
        counts = [count for label, count in published["runs"] if label == index]
        expected = [wished[word] for word in published["keywords_v4"] if owner[word] == key]
        exact[key] = sum(a == b for a, b in zip(counts, expected, strict=False)) if len(counts) == 25 else None
    assert {key for key, hits in exact.items() if hits == 25} == {"airplane", "frog", "horse", "ship", "truck"}
    assert exact["dog"] == 24


def test_class_sizes_of_version_4(published: dict[str, Any]) -> None:
    """Not balanced: ships have many rare keywords."""
    sample = Keywords(top=25, round_up=True).sample(SamplingRequest([], reference_images(published), CLASSES, 200))
    sizes = {class_sample.class_key: class_sample.target for class_sample in sample.classes}
    published_sizes = np.bincount(published["labels"], minlength=10)
    assert all(abs(size - published_sizes[CLASSES.index(key)]) <= 5 for key, size in sizes.items())
    assert min(sizes, key=lambda key: sizes[key]) == "ship" and sizes["ship"] == published_sizes[8] == 161


def test_version_6_is_balanced_and_nearly_as_published(published: dict[str, Any]) -> None:
    """Later removals changed a few keywords of the published set; the shares are those of the rule."""
    owner = class_of_keywords(published)
    for key in CLASSES:
        counts = {word: count for word, count in published["keyword_counts_v4"].items() if owner[word] == key}
        references = [AnnotatedImage(f"{w}-{i}", key, 0, 0, w) for w, n in counts.items() for i in range(n)]
        candidates = [AnnotatedImage(f"c-{w}-{i}", key, 0, 0, w) for w in counts for i in range(60)]
        sample = Keywords(top=25, balanced=True).sample(SamplingRequest(candidates, references, (key,), 200))
        assert len(sample.choices) == 200 and sample.fallbacks == 0
        theirs = published["keyword_counts_v6"][key]
        drawn = Counter(choice.drawn_for for choice in sample.choices)
        # over 25 keywords instead of 50 a share is a little larger
        total = sum(counts.values())
        near = [abs(theirs.get(word, 0) - drawn[word] * total / 6000) < 2 for word in counts]
        assert sum(near) >= 20


def test_balanced_by_hand() -> None:
    counts = {"tabby": 7, "manx": 5, "puss": 5, "persian": 1}
    references = [AnnotatedImage(f"{w}{i}", "cat", 0, 0, w) for w, n in counts.items() for i in range(n)]
    candidates = [AnnotatedImage(f"c-{w}{i}", "cat", 0, 0, w) for w in counts for i in range(20)]
    sample = Keywords(top=4, balanced=True).sample(SamplingRequest(candidates, references, ("cat",), 10))
    # quotas 3.89, 2.78, 2.78, 0.56: rounded down 3, 2, 2, 0, then one each to .89, .78 and .78
    assert sample.classes[0].wished == {"tabby": 4, "manx": 3, "puss": 3, "persian": 0}


def test_plain_shares_are_rounded_up() -> None:
    counts = {"cat": {"tabby": 70, "manx": 29, "gray": 1}, "dog": {"mutt": 60, "pug": 40}}
    references = [
        AnnotatedImage(f"{w}{i}", key, 0, 0, w)
        for key, words in counts.items()
        for w, n in words.items()
        for i in range(n)
    ]
    sample = Keywords(top=2, round_up=True).sample(SamplingRequest([], references, ("cat", "dog"), 25))
    for class_sample in sample.classes:
        for word, wished in class_sample.wished.items():
            assert wished == math.ceil(Fraction(50 * counts[class_sample.class_key][word], 200))
    assert "gray" not in sample.classes[0].wished


def test_a_set_has_the_size_that_was_asked_for() -> None:
    """With many infrequent keywords, rounding every share up doubles a small set."""
    references = []
    for key in ("cat", "dog"):
        references += [AnnotatedImage(f"{key}{i}", key, 0, 0, f"{key} {i % 20}") for i in range(60)]
    request = SamplingRequest([], references, ("cat", "dog"), 10)
    assert sum(class_sample.target for class_sample in Keywords().sample(request).classes) == 20
    assert sum(class_sample.target for class_sample in Keywords(round_up=True).sample(request).classes) == 40


def test_rejected_candidates_are_not_sampled() -> None:
    references = [AnnotatedImage(f"r{i}", "cat", 0, 0, "tabby") for i in range(4)]
    candidates = [
        AnnotatedImage("rejected", "cat", 2, 10, "tabby"),
        AnnotatedImage("selected", "cat", 5, 10, "tabby"),
        AnnotatedImage("not seen", "cat", 0, 0, "tabby"),
    ]
    request = SamplingRequest(candidates, references, ("cat",), 3)
    assert {choice.id for choice in Keywords().sample(request).choices} == {"selected", "not seen"}
    assert len(Keywords(min_frequency=0).sample(request).choices) == 3


def test_candidates_come_from_their_keywords() -> None:
    references = [AnnotatedImage(f"r{i}", "cat", 0, 0, "tabby" if i < 6 else "manx") for i in range(10)]
    candidates = [AnnotatedImage(f"{w}{i}", "cat", 0, 0, w) for w in ("tabby", "manx", "other") for i in range(50)]
    sample = Keywords(balanced=True).sample(SamplingRequest(candidates, references, ("cat",), 20, seed=2))
    assert Counter(choice.id.rstrip("0123456789") for choice in sample.choices) == {"tabby": 12, "manx": 8}


def test_an_exhausted_keyword_stays_short_or_is_stood_in_for() -> None:
    references = [AnnotatedImage(f"r{i}", "cat", 0, 0, "tabby" if i < 5 else "manx") for i in range(10)]
    candidates = [
        AnnotatedImage("tabby0", "cat", 0, 0, "tabby"),
        *(AnnotatedImage(f"m{i}", "cat", 0, 0, "manx") for i in range(9)),
    ]
    plain = Keywords().sample(SamplingRequest(candidates, references, ("cat",), 8))
    assert len(plain.choices) == 5 and plain.short == {"cat": 3} and plain.fallbacks == 0
    full = Keywords(balanced=True).sample(SamplingRequest(candidates, references, ("cat",), 8))
    assert len(full.choices) == 8 and full.short == {} and full.fallbacks == 3


def test_revision_keeps_and_fills_the_same_keyword() -> None:
    references = [AnnotatedImage(f"r{i}", "cat", 0, 0, "tabby" if i < 5 else "manx") for i in range(10)]
    candidates = [AnnotatedImage(f"{w}{i}", "cat", 0, 0, w) for w in ("tabby", "manx") for i in range(20)]
    first = Keywords(balanced=True).sample(SamplingRequest(candidates, references, ("cat",), 10))
    gone = first.choices[0]
    left = [image for image in candidates if image.id != gone.id]
    second = Keywords(balanced=True).sample(SamplingRequest(left, references, ("cat",), 10, kept=first.choices[1:]))
    (new,) = set(second.choices) - set(first.choices)
    assert new.drawn_for == gone.drawn_for and set(first.choices[1:]) < set(second.choices)


def test_kept_images_are_checked_again() -> None:
    """An image that annotators reject now leaves, and one whose keyword was changed."""
    references = [AnnotatedImage(f"r{i}", "cat", 0, 0, "tabby") for i in range(4)]
    candidates = [AnnotatedImage(f"c{i}", "cat", 8, 10, "tabby") for i in range(8)]
    request = SamplingRequest(candidates, references, ("cat",), 4)
    first = Keywords(min_frequency=0.5).sample(request)
    rejected, renamed = (choice.id for choice in first.choices[:2])
    changed = []
    for image in candidates:
        if image.id == rejected:
            image = replace(image, selected=2)
        if image.id == renamed:
            image = replace(image, keyword="lion")
        changed.append(image)
    second = Keywords(min_frequency=0.5).sample(replace(request, candidates=changed, kept=first.choices))
    assert {rejected, renamed}.isdisjoint(choice.id for choice in second.choices)
    assert set(first.choices[2:]) < set(second.choices) and len(second.choices) == 4


def test_references_without_keywords_are_refused() -> None:
    with raises(WorkshopError, found="cat"):
        Keywords().sample(SamplingRequest([], [AnnotatedImage("r", "cat", 0, 0)], ("cat",), 1))
