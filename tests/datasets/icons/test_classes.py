"""The table of classes: against Unicode's names, the published held-out names and another reading of the classes."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from shiftbench.datasets.icons.sources import (
    HELD_OUT_SUBTYPES,
    TONES,
    capped,
    code_key,
    icons,
    is_held_out,
    without_tone,
)
from shiftbench.labels import label_space


def test_every_class_has_icons_and_every_icon_is_one_of_a_kind() -> None:
    assert tuple(sorted({icon.label for icon in icons()})) == label_space("icons-50").keys
    assert min(Counter(icon.label for icon in icons()).values()) >= 3
    for field in ("subtype", "key", "alias"):
        counts = Counter(getattr(icon, field) for icon in icons())
        assert [value for value, count in counts.items() if count > 1] == []
    assert all(re.fullmatch(r"[a-z0-9_]+", icon.subtype) for icon in icons())


def test_single_characters_are_called_as_unicode_calls_them() -> None:
    checked = 0
    for icon in icons():
        parts = [part for part in icon.codepoint.split("-") if part != "FE0F"]
        name = unicodedata.name(chr(int(parts[0], 16)), None) if len(parts) == 1 else None
        if name is None:  # a sequence, or younger than this Python
            continue
        assert icon.subtype == re.sub(r"[^a-z0-9]+", "_", name.lower().replace("'", "")), icon
        checked += 1
    assert checked > 560


def test_flags_are_called_by_the_letters_that_they_are_made_of() -> None:
    flags = [icon for icon in icons() if re.fullmatch("flag_[a-z]{2}", icon.subtype)]
    assert len(flags) == 259  # 258, and Sark since Unicode 16
    for icon in flags:
        letters = "".join(chr(int(part, 16) - 0x1F1E6 + ord("a")) for part in icon.codepoint.split("-"))
        assert icon.subtype == f"flag_{letters}"


def test_the_published_held_out_names_are_all_in_the_table() -> None:
    """All but one: the paper's 50 names are the evidence that subtypes are named after Unicode."""
    assert len(HELD_OUT_SUBTYPES) == len(set(HELD_OUT_SUBTYPES)) == 50
    toned = [f"{icon.subtype}_{tone}" for icon in icons() for tone in TONES.values()]
    plain = [icon.subtype for icon in icons()]
    without = [name for name in HELD_OUT_SUBTYPES if not any(is_held_out(subtype, [name]) for subtype in plain)]
    assert without == ["cartwheel_type_6"]
    assert any(is_held_out(subtype, without) for subtype in toned)


def test_no_class_is_held_out_as_a_whole() -> None:
    left = {icon.label for icon in icons() if not is_held_out(icon.subtype)}
    assert left == set(label_space("icons-50").keys)
    assert not is_held_out("stopwatch") and not is_held_out("booksellers") and not is_held_out("monkey_face")


def test_another_reading_of_the_classes_agrees(reference_data: Path) -> None:
    with (reference_data / "icons50_classes.csv").open(encoding="utf-8") as file:
        theirs = {code_key(row["unified"]): row["class"].lower() for row in csv.DictReader(file)}
    ours = {icon.key: label_space("icons-50").names[label_space("icons-50").index(icon.label)] for icon in icons()}
    both = set(ours) & set(theirs)
    assert len(both) > 0.98 * max(len(ours), len(theirs))
    assert {ours[key] == theirs[key] for key in both} == {True}


@pytest.mark.parametrize("cap", [2, 5, 60, 100])
def test_a_cap_keeps_what_is_held_out_and_grows_with_itself(cap: int) -> None:
    chosen = capped(icons(), cap)
    counts = Counter(icon.label for icon in chosen)
    assert max(counts.values()) == cap
    everything = Counter(icon.label for icon in icons())
    assert all(counts[label] == min(cap, total) for label, total in everything.items())
    assert set(chosen) <= set(capped(icons(), cap + 1)) <= set(capped(icons(), None))
    held_out = Counter(icon.label for icon in icons() if is_held_out(icon.subtype))
    kept = Counter(icon.label for icon in chosen if is_held_out(icon.subtype))
    assert all(kept[label] >= min(cap // 2, total) for label, total in held_out.items())
    assert all(kept[label] < counts[label] for label in counts), "every class can be trained on"


@pytest.mark.parametrize(
    ("written", "key", "tone"),
    [
        ("1F44B", "1f44b", None),
        ("1f44b-1f3ff", "1f44b", "type_6"),
        ("1f468-1f3fb-200d-2708-fe0f", "1f468-2708", "type_1_2"),
        ("1f9d1-1f3fb-200d-1f91d-200d-1f9d1-1f3ff", "1f9d1-1f3fb-1f91d-1f9d1-1f3ff", None),
        ("0031-fe0f-20e3", "31-20e3", None),
    ],
)
def test_codepoints_however_they_are_written(written: str, key: str, tone: str | None) -> None:
    assert without_tone(code_key(written)) == (key, tone)
