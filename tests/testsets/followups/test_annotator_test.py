"""The standard test of annotators: the same images for everybody, its result, and the card."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiftbench.testsets.accounts import create_account, exclude, find_person
from shiftbench.testsets.annotation import next_task, submit
from shiftbench.testsets.card import ANNOTATOR_TEST
from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.followups.annotator_test import annotator_test, annotator_test_table, make_annotator_test
from shiftbench.testsets.freeze import DEFECTS, freeze
from shiftbench.testsets.frequencies import selection_frequencies
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import sample
from shiftbench.testsets.sampling import make_sampling
from tests.commands import output
from tests.testsets.helpers import cifar, entries_behind


def _answer(test: Project, name: str, wrong: int) -> int:
    """Somebody who confuses the first ``wrong`` images of each grid with the class ``frog``."""
    person = create_account(test, name, "annotator").id
    mistakes = 0
    while (grid := next_task(test, person)) is not None:
        entries = entries_behind(test, grid)
        labels = {image: str(entries[image].class_key) for image in grid.images}
        for image in [image for image, label in labels.items() if label != "frog"][:wrong]:
            labels[image] = "frog"
            mistakes += 1
        submit(test, person, grid.task, labels)
    return mistakes


def test_everybody_classifies_the_same_images(annotated: Project, tmp_path: Path) -> None:
    data = cifar("test", 20)
    assert make_annotator_test(annotated, data, tmp_path / "people", participants=4, per_class=8) == 2
    make_annotator_test(annotated, data, tmp_path / "others", participants=4, per_class=8)
    with pytest.raises(WorkshopError):
        annotator_test(annotated)
    results = []
    for folder in ("people", "others"):
        test = Project.open(tmp_path / folder)
        with pytest.raises(WorkshopError):
            annotator_test(test)
        mistakes = {name: _answer(test, name, wrong) for name, wrong in (("anna", 0), ("bert", 1), ("cem", 5))}
        # Dana has one grid of two, and Emil is excluded: neither counts.
        dana = create_account(test, "dana", "annotator").id
        grid = next_task(test, dana)
        assert grid is not None
        submit(test, dana, grid.task, dict.fromkeys(grid.images, "cat"))
        result = annotator_test(test)
        assert result.images == 24
        assert result.right == {name: 24 - count for name, count in mistakes.items()}
        exclude(test, find_person(test, "cem").id, "a test")
        assert set(annotator_test(test).right) == {"anna", "bert"}
        # Answers of the test are no selection frequencies.
        assert {row.annotations for row in selection_frequencies(test)} == {0}
        results.append(result)
        test.close()
    assert results[0].fingerprint == results[1].fingerprint
    table = annotator_test_table(results[0])
    assert [row["participant"] for row in table.rows] == ["anna", "bert", "cem"]
    assert table.rows[0]["accuracy"] == 1.0 and table.rows[0]["mistake"] == ""
    assert table.rows[2]["mistake"].endswith(" as frog")


def test_the_card_states_the_result_without_names(annotated: Project, tmp_path: Path) -> None:
    test_folder = tmp_path / "people"
    make_annotator_test(annotated, cifar("test", 20), test_folder, participants=4, per_class=8)
    test = Project.open(test_folder)
    mistakes = sum(_answer(test, name, wrong) for name, wrong in (("anna", 0), ("bert", 2)))
    test.close()
    shown = output("testset", "follow-up", "test-result", test_folder, "--card", annotated.folder)
    assert "anna" in shown
    assert (annotated.folder / ANNOTATOR_TEST).is_file()
    sample(annotated, "set", make_sampling("threshold", threshold=0, min_annotations=1), per_class=1)
    frozen = freeze(annotated, "set", allow=DEFECTS)
    card = " ".join((frozen.folder / "README.md").read_text().split())
    mean = 100 * (1 - mistakes / 48)
    assert "2 annotators classified the same 24 images" in card and f"{mean:.1f} % were right" in card
    assert "bert" not in card
