"""MatchedFrequency against a second, slower way to say the same."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.sampling import AnnotatedImage, MatchedFrequency, SamplingRequest, draw_rank, largest_remainder
from tests.raised import raises

EDGES = [Fraction(0), Fraction(1, 5), Fraction(2, 5), Fraction(3, 5), Fraction(4, 5)]


def pool(seed: int, count: int, key: str = "nail", people: int = 10) -> list[AnnotatedImage]:
    rng = random.Random(f"{seed}/{key}")
    return [AnnotatedImage(f"{key}{seed}{i:04d}", key, rng.randint(0, people), people) for i in range(count)]


def bin_by_hand(image: AnnotatedImage) -> int:
    share = Fraction(image.selected, image.annotations)
    return max(bin_index for bin_index, edge in enumerate(EDGES) if share >= edge)


def matched_by_hand(request: SamplingRequest, key: str) -> list[tuple[str, int, bool]]:
    """(id, bin it was drawn for, stand-in), by the words of the paper, one image at a time."""
    old = [image for image in request.references if image.class_key == key and image.annotations >= 10]
    shares = [Fraction(sum(bin_by_hand(image) == b for image in old) * request.per_class, len(old)) for b in range(5)]
    targets = [int(share) for share in shares]
    while sum(targets) < request.per_class:  # the largest fraction first; of equal ones the higher bin
        fractions = [(share - int(share), b) for b, share in enumerate(shares) if targets[b] == int(share)]
        targets[max(fractions)[1]] += 1
    bins: list[list[str]] = [[] for _ in range(5)]
    for image in request.candidates:
        if image.class_key == key and image.annotations >= 10:
            bins[bin_by_hand(image)].append(image.id)
    for names in bins:
        names.sort(key=lambda name: draw_rank(request.seed, key, name))
    choices = []
    missing = []
    for b, target in enumerate(targets):
        choices += [(name, b, False) for name in bins[b][:target]]
        missing += [b] * (target - len(bins[b][:target]))
        bins[b] = bins[b][target:]
    for b in missing:
        for higher in range(b + 1, 5):
            if bins[higher]:
                choices.append((bins[higher].pop(0), b, True))
                break
    return choices


@pytest.mark.parametrize("seed", range(30))
def test_the_same_as_by_hand(seed: int) -> None:
    rng = random.Random(seed)
    candidates = [
        image
        for key in ("nail", "elephant")
        for image in pool(seed, rng.randint(8, 60), key, rng.choice([10, 10, 12, 7]))
    ]
    references = [image for key in ("nail", "elephant") for image in pool(seed + 100, rng.randint(20, 50), key)]
    request = SamplingRequest(candidates, references, ("elephant", "nail"), rng.randint(1, 20), seed)
    strategy = MatchedFrequency()
    sample = strategy.sample(request)
    for class_sample in sample.classes:
        choices = [(choice.id, choice.drawn_for, choice.fallback) for choice in class_sample.choices]
        expected = [(i, strategy.bin_name(b), f) for i, b, f in matched_by_hand(request, class_sample.class_key)]
        assert sorted(choices) == sorted(expected)
        assert class_sample.short == request.per_class - len(expected)


def test_enough_candidates_give_the_references_histogram_exactly() -> None:
    references = pool(1, 40)
    request = SamplingRequest(pool(2, 2000), references, ("nail",), 40, seed=7)
    sample = MatchedFrequency().sample(request)
    frequencies = {image.id: image for image in request.candidates}
    assert Counter(bin_by_hand(frequencies[choice.id]) for choice in sample.choices) == Counter(
        bin_by_hand(image) for image in references
    )
    assert sample.fallbacks == 0 and sample.short == {}


def test_shortage_goes_upward_and_is_counted() -> None:
    references = [AnnotatedImage(f"r{i}", "nail", 1, 10) for i in range(20)]  # all in the lowest bin
    candidates = [
        AnnotatedImage("low", "nail", 1, 10),
        AnnotatedImage("mid", "nail", 5, 10),
        AnnotatedImage("top", "nail", 10, 10),
    ]
    request = SamplingRequest(candidates, references, ("nail",), 3)
    sample = MatchedFrequency().sample(request)
    assert {(c.id, c.drawn_for, c.fallback) for c in sample.choices} == {
        ("low", "[0, 0.2)", False),
        ("mid", "[0, 0.2)", True),
        ("top", "[0, 0.2)", True),
    }
    assert sample.fallbacks == 2
    without = MatchedFrequency(upward=False).sample(request)
    assert [c.id for c in without.choices] == ["low"] and without.short == {"nail": 2}


def test_nothing_goes_downward() -> None:
    references = [AnnotatedImage(f"r{i}", "nail", 10, 10) for i in range(20)]
    sample = MatchedFrequency().sample(
        SamplingRequest([AnnotatedImage("low", "nail", 1, 10)], references, ("nail",), 1)
    )
    assert sample.choices == [] and sample.short == {"nail": 1}


def test_the_same_seed_the_same_set_whatever_the_order() -> None:
    candidates = pool(3, 200)
    references = pool(4, 30)
    first = MatchedFrequency().sample(SamplingRequest(candidates, references, ("nail",), 10, seed=5))
    two = MatchedFrequency().sample(SamplingRequest(candidates[::-1], references[::-1], ("nail",), 10, seed=5))
    other_seed = MatchedFrequency().sample(SamplingRequest(candidates, references, ("nail",), 10, seed=6))
    assert first.choices == two.choices
    assert {c.id for c in first.choices} != {c.id for c in other_seed.choices}


def test_every_image_of_a_bin_is_equally_likely() -> None:
    """1000 seeds; 10 of 40 images each: a binomial of mean 250, five standard deviations are 68."""
    references = [AnnotatedImage(f"r{i}", "nail", 10, 10) for i in range(20)]
    candidates = [AnnotatedImage(f"c{i}", "nail", 10, 10) for i in range(40)]
    counts = Counter[str]()
    for seed in range(1000):
        sample = MatchedFrequency().sample(SamplingRequest(candidates, references, ("nail",), 10, seed))
        counts.update(choice.id for choice in sample.choices)
    assert len(counts) == 40 and all(abs(count - 250) < 68 for count in counts.values())


def test_removed_images_are_replaced_and_the_rest_stays() -> None:
    candidates = pool(5, 120)
    references = pool(6, 30)
    request = SamplingRequest(candidates, references, ("nail",), 10, seed=1)
    first = MatchedFrequency().sample(request)
    gone = first.choices[3]
    kept = [choice for choice in first.choices if choice != gone]
    valid = [image for image in candidates if image.id != gone.id]
    second = MatchedFrequency().sample(replace(request, candidates=valid, kept=kept))
    assert set(kept) < set(second.choices) and len(second.choices) == 10
    (new,) = set(second.choices) - set(kept)
    assert new.drawn_for == gone.drawn_for


def test_a_revision_follows_targets_that_moved() -> None:
    """Kept images leave a bin that holds more than its new target, and the class keeps its size."""
    low = [AnnotatedImage(f"a{i}", "nail", 1, 10) for i in range(20)]
    high = [AnnotatedImage(f"b{i}", "nail", 10, 10) for i in range(20)]
    before = MatchedFrequency().sample(SamplingRequest([*low, *high], low, ("nail",), 6))
    mixed = [*low[:10], *high[:10]]
    after = MatchedFrequency().sample(SamplingRequest([*low, *high], mixed, ("nail",), 6, kept=before.choices))
    assert Counter(choice.drawn_for for choice in after.choices) == {"[0, 0.2)": 3, "[0.8, 1]": 3}
    assert len(set(before.choices) & set(after.choices)) == 3


@pytest.mark.parametrize("seed", range(5))
def test_a_revision_matches_the_present_counts(seed: int) -> None:
    """After all counts have changed, a revision has the bins of a fresh sample, and keeps every image that fits."""
    rng = random.Random(seed)
    references = [AnnotatedImage(f"r{i}", "nail", rng.randint(0, 10), 10) for i in range(40)]
    candidates = [AnnotatedImage(f"c{i}", "nail", rng.randint(0, 10), 10) for i in range(300)]
    request = SamplingRequest(candidates, references, ("nail",), 20, seed=seed)
    first = MatchedFrequency().sample(request)
    changed = [replace(image, selected=rng.randint(0, 10)) for image in candidates]
    changed_references = [replace(image, selected=rng.randint(0, 10)) for image in references]
    present = replace(request, candidates=changed, references=changed_references)
    revised = MatchedFrequency().sample(replace(present, kept=first.choices)).classes[0]
    fresh = MatchedFrequency().sample(present).classes[0]
    assert Counter(choice.drawn_for for choice in revised.choices) == Counter(revised.wished) == Counter(fresh.wished)
    present_bins = {image.id: MatchedFrequency().bin_name(bin_by_hand(image)) for image in changed}
    revised_ids = {choice.id for choice in revised.choices}
    first_ids = {choice.id for choice in first.choices}
    assert all(choice.drawn_for == present_bins[choice.id] for choice in revised.choices)
    # An image leaves only if kept images fill its bin, so that no new image is in it.
    bins_of_new = {present_bins[image] for image in revised_ids - first_ids}
    bins_of_gone = {present_bins[image] for image in first_ids - revised_ids}
    assert bins_of_new.isdisjoint(bins_of_gone)


def test_images_with_too_few_annotations_leave() -> None:
    references = [AnnotatedImage(f"r{i}", "nail", 10, 10) for i in range(20)]
    candidates = [AnnotatedImage(f"c{i}", "nail", 10, 10) for i in range(20)]
    request = SamplingRequest(candidates, references, ("nail",), 10)
    first = MatchedFrequency().sample(request)
    gone = first.choices[0].id
    fewer = [replace(image, annotations=9, selected=9) if image.id == gone else image for image in candidates]
    second = MatchedFrequency().sample(replace(request, candidates=fewer, kept=first.choices))
    assert gone not in {choice.id for choice in second.choices}
    assert set(first.choices[1:]) < set(second.choices) and len(second.choices) == 10


def test_a_fallback_leaves_when_its_bin_gets_images() -> None:
    references = [AnnotatedImage(f"r{i}", "nail", 5, 10) for i in range(20)]
    high = [AnnotatedImage(f"b{i}", "nail", 10, 10) for i in range(20)]
    request = SamplingRequest(high, references, ("nail",), 6)
    first = MatchedFrequency().sample(request)
    assert first.fallbacks == 6
    assert set(MatchedFrequency().sample(replace(request, kept=first.choices)).choices) == set(first.choices)
    middle = [AnnotatedImage(f"a{i}", "nail", 5, 10) for i in range(4)]
    second = MatchedFrequency().sample(replace(request, candidates=[*high, *middle], kept=first.choices))
    assert second.fallbacks == 2 and {image.id for image in middle} < {choice.id for choice in second.choices}


def test_too_few_references_are_named() -> None:
    few = [AnnotatedImage(f"r{i}", "nail", 5, 10) for i in range(19)] + [AnnotatedImage("r19", "nail", 5, 9)]
    with raises(WorkshopError, found="nail: 19"):
        MatchedFrequency().sample(SamplingRequest(pool(1, 50), few, ("nail",), 10))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6).filter(sum), st.integers(0, 60), st.booleans())
@settings(deadline=None, max_examples=200)
def test_largest_remainder(weights: list[int], total: int, ties_to_last: bool) -> None:
    shares = largest_remainder(weights, total, ties_to_last=ties_to_last)
    quotas = [Fraction(total * weight, sum(weights)) for weight in weights]
    assert sum(shares) == total
    assert all(int(quota) <= share <= int(quota) + 1 for share, quota in zip(shares, quotas, strict=True))
    raised = [q - int(q) for s, q in zip(shares, quotas, strict=True) if s > int(q)]
    lowered = [q - int(q) for s, q in zip(shares, quotas, strict=True) if s == int(q)]
    assert not raised or not lowered or min(raised) >= max(lowered)
    assert all(share == 0 for share, weight in zip(shares, weights, strict=True) if weight == 0)


def test_equal_fractions_go_to_the_higher_bin() -> None:
    """Ten references, two in each bin, seven images: 1.4 each, so the two highest get one more."""
    assert largest_remainder([2, 2, 2, 2, 2], 7, ties_to_last=True) == [1, 1, 1, 2, 2]


def test_nothing_to_share() -> None:
    with pytest.raises(WorkshopError, match="invalid weights"):
        largest_remainder([0, 0], 5)
