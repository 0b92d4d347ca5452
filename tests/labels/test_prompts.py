"""Prompt sets: the published ensemble, files of one's own, and classes that have no names."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.errors import LabelError, UnknownNameError
from shiftbench.labels import label_space
from shiftbench.labels.prompts import prompt_set
from shiftbench.labels.space import LabelSpace

PETS = LabelSpace("pets", ("n02123045", "n02084071"), ("tabby_cat", "dog"))


def test_the_ensemble_is_the_published_one() -> None:
    pytest.importorskip("torch")
    import_torchvision("open_clip")
    open_clip = pytest.importorskip("open_clip", reason="the extra open-clip is not installed")
    prompts = prompt_set("clip-80")
    assert prompts.texts(PETS)[1] == [template("dog") for template in open_clip.OPENAI_IMAGENET_TEMPLATES]
    assert str(prompts) == "clip-80@4d1d35d3"


def test_names_fill_the_templates() -> None:
    assert prompt_set("one").texts(PETS) == [["a photo of a tabby cat."], ["a photo of a dog."]]
    assert len(prompt_set("clip-80").texts(label_space("imagenet-1k"))) == 1000


def test_own_file(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("a {} at night\n\n  the {}, seen from above\n")
    prompts = prompt_set(str(tmp_path / "mine.txt"))
    assert prompts.texts(PETS)[0] == ["a tabby cat at night", "the tabby cat, seen from above"]
    assert prompts.name == "mine.txt" and prompts.version != prompt_set("one").version


def test_what_is_no_prompt_set(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError):
        prompt_set("clip-81")
    for content in ("", "a photo of a dog\n"):
        (tmp_path / "bad.txt").write_text(content)
        with pytest.raises(LabelError):
            prompt_set(str(tmp_path / "bad.txt"))


@pytest.mark.parametrize("names", [("0", "1"), ("n02123045", "n02084071"), ("crane", "crane")])
def test_classes_without_names_of_their_own_are_refused(names: tuple[str, str]) -> None:
    with pytest.raises(LabelError) as refused:
        prompt_set("one").texts(LabelSpace("classes", ("a", "b"), names))
    assert names[0] in str(refused.value.found)
