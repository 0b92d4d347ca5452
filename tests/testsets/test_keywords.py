"""Keywords from a dataset with the same pixels, beside the shares that 004 printed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shiftbench.testsets.errors import WorkshopError
from shiftbench.testsets.keywords import keyword_table, label_keywords
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.project import Project
from tests.commands import call
from tests.raised import raises
from tests.testsets.helpers import cifar, small_configuration


def test_identical_images_give_their_keyword(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "pets", small_configuration())
    references = cifar("train", 3)
    candidates = cifar("test", 2)
    import_images(project, references, "reference")
    import_images(project, candidates)
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    lines = ["path,label,keyword"]
    cats, frogs = (np.flatnonzero(references.labels == references.space.index(key)) for key in ("cat", "frog"))
    for i, word in ((int(cats[0]), "tabby_cat"), (int(cats[1]), "tabby_cat"), (int(frogs[0]), "toad")):
        Image.fromarray(references.read(i).pixels).save(tiny / f"{i}.png")
        lines.append(f"{i}.png,{word},{word}")
    Image.fromarray(candidates.read(int(np.flatnonzero(candidates.labels == 0)[0])).pixels).save(tiny / "new.png")
    (tiny / "manifest.csv").write_text("\n".join([*lines, "new.png,tabby_cat,tabby_cat"]) + "\n")
    command = ["testset", "keywords", str(tmp_path / "pets"), str(tiny / "manifest.csv"), "--json"]
    done = call(*command)
    assert done.exit_code == 0, done.output
    assert "4 of 15 images" in done.stderr
    rows = {(row["class"], row["keyword"]): row for row in json.loads(done.stdout)["rows"]}
    tabby = rows["cat", "tabby_cat"]
    assert (tabby["references"], tabby["share"], tabby["candidates"]) == (2, pytest.approx(2 / 9), 1)
    assert (tabby["cifar-10"], tabby["cifar-10.1-v4"]) == (0.0178, 0.0178)  # as printed
    assert rows["frog", "toad"]["cifar-10"] == 0.0046 and rows["cat", ""]["cifar-10"] is None
    with raises(WorkshopError, found="no columns"):
        label_keywords(project, references)
    assert keyword_table(project).lead == ["3 of 9 references have a keyword"]
    project.close()
