"""What had to be assumed about a model is recorded with it, and never in the spec of its results."""

from __future__ import annotations

import json
import pickle
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftbench.arrays import Pixels
from shiftbench.classifiers import Preprocessing, load_classifier
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.defences import with_defences
from shiftbench.classifiers.options import assumed_warning, write_sidecar
from shiftbench.errors import ResultWarning
from shiftbench.labels.space import LabelSpace, Scores
from shiftbench.store.run_records import ModelRun, RunHistory, RunRecord, Software

PETS = LabelSpace("pets", ("cat", "dog"))


def brightness(images: Pixels) -> Scores:
    light = images.mean(axis=(1, 2, 3)) / 255
    return np.stack([1 - light, light], axis=1).astype(np.float32)


def test_a_function_normalises_for_itself_so_only_its_geometry_is_assumed() -> None:
    classifier = load_classifier(brightness, labels=PETS)
    assert "resize" in classifier.assumed and "mean" not in classifier.assumed
    assert with_defences(classifier, "clahe").assumed == classifier.assumed
    assert pickle.loads(pickle.dumps(classifier)).assumed == classifier.assumed


def test_nothing_is_assumed_of_a_given_preprocessing() -> None:
    given = load_classifier(brightness, labels=PETS, preprocessing=Preprocessing())
    assert given.assumed == ()
    assert given.describe() == load_classifier(brightness, labels=PETS).describe()


def test_a_torch_module_and_its_onnx_twin_record_the_same_assumptions() -> None:
    module = network()
    with pytest.warns(UserWarning):
        both = [load_classifier(module, labels=PETS, engine=engine) for engine in ("torch", "auto")]
    assert {"resize", "mean", "std"} <= set(both[0].assumed)
    assert both[0].facts == both[1].facts


def network() -> Any:
    """A network whose scores never look like those of sigmoids, which lie between 0 and 1."""
    torch = pytest.importorskip("torch")
    head = torch.nn.Linear(3, 2)
    torch.nn.init.constant_(head.bias, -40.0)
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), head)


def loaded(stated: object, size: tuple[int, int] | None = None) -> Classifier:
    """A network of which nothing is known but what is stated, for images of this size."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        return load_classifier(network(), labels=PETS, preprocessing=stated, image_size=size)


@pytest.mark.parametrize(
    ("stated", "size", "assumed"),
    [
        ("size=24,mean=0.5,std=0.25", None, {"resize", "crop", "interpolation", "colour order"}),
        # All ways to resize a square image to a square agree; the filter still matters.
        ("size=24,mean=0.5,std=0.25", (32, 32), {"interpolation", "colour order"}),
        ("size=24,mean=0.5,std=0.25", (32, 48), {"resize", "crop", "interpolation", "colour order"}),
        # Nothing is resized.
        ("size=24,mean=0.5,std=0.25", (24, 24), {"colour order"}),
        ("size=24,mean=0.5,std=0.25,colour=rgb,interpolation=bicubic", (32, 32), set()),
        ("size=24,resize=squash,interpolation=box,mean=0.5,std=0.25,colour=bgr", None, set()),
        ("size=24,resize=short-side,interpolation=box,mean=0.5,std=0.25,colour=bgr", None, set()),
        ("resize=28,crop=24,interpolation=box,mean=0.5,std=0.25,colour=bgr", None, set()),
        ("resize=28,interpolation=box,mean=0.5,std=0.25,colour=bgr", None, {"crop"}),
        ("crop=24,interpolation=box,mean=0.5,std=0.25,colour=bgr", None, {"resize"}),
        ("resize=none,crop=24,mean=0.5,std=0.25,colour=bgr", None, set()),
        # 0 and 1 are a mean and a deviation of pixels from 0 to 1 and of pixels from 0 to 255.
        ("size=24,mean=0,std=1,colour=rgb", (24, 24), {"scale"}),
        ("size=24,mean=0,std=1,scale=1,colour=rgb", (24, 24), set()),
        ("size=24,mean=127.5,std=127.5,colour=rgb", (24, 24), set()),
        ("size=24,mean=0.5,colour=rgb", (24, 24), {"std", "scale"}),
        ("colour=grey,size=24,mean=0.5,std=0.25", (24, 24), set()),
    ],
)
def test_what_nobody_states_is_assumed(stated: str, size: tuple[int, int] | None, assumed: set[str]) -> None:
    if "grey" in stated:
        torch = pytest.importorskip("torch")
        torch.manual_seed(0)  # the scores of some random networks lie between 0 and 1, as probabilities do
        grey = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(1, 2))
        classifier = load_classifier(grey, labels=PETS, preprocessing=stated, image_size=size)
    else:
        classifier = loaded(stated, size)
    assert set(classifier.assumed) == assumed
    assert not assumed & set(classifier.stated)


def test_the_option_in_the_warning_states_everything_and_changes_nothing() -> None:
    for stated in (None, "size=24,mean=0.49139968,0.48215841,0.44653091,std=0.25", "crop=20", "mean=0,std=1"):
        before = loaded(stated)
        warning = assumed_warning(before)
        assert warning is not None
        [option] = re.findall(r"preprocessing='([^']*)'", str(warning))
        after = loaded(option)
        assert after.assumed == ()
        assert after.preprocessing == before.preprocessing


def test_a_sidecar_keeps_what_is_assumed_apart(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    model = tmp_path / "own.onnx"
    torch.onnx.export(
        network(),
        torch.zeros(1, 3, 24, 24),
        model,
        dynamo=False,
        dynamic_axes={"input": {0: "n"}},
        input_names=["input"],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        first = load_classifier(model, labels=PETS, preprocessing="size=24,mean=0.5,std=0.25")
        content = json.loads(write_sidecar(str(model), first).read_text())
        assert set(content["assumed"]) == {"resize", "interpolation", "colour"}
        again = load_classifier(model)
        assert again.describe()["preprocessing"] == first.describe()["preprocessing"]
        assert set(again.assumed) == set(first.assumed)
        same_size = load_classifier(model, image_size=(24, 24))
        assert same_size.assumed == ("colour order",)
    confirmed = load_classifier(model, preprocessing="resize=squash,interpolation=bilinear,colour=rgb")
    assert confirmed.assumed == ()
    write_sidecar(str(model), confirmed, force=True)
    assert load_classifier(model).assumed == ()


def test_marks_of_a_version_go_when_a_run_states_the_facts() -> None:
    def history(*models: ModelRun) -> tuple[str, ...]:
        software = Software()
        records = [
            RunRecord(id=str(i), kind="evaluate", started=str(i), software=software, models=[model])
            for i, model in enumerate(models)
        ]
        return RunHistory(records).assumed["1"]

    before_facts_were_kept = ModelRun(id="own@1")
    assuming = ModelRun(id="own@1", assumed=["interpolation"], stated=["mean"])
    unused = ModelRun(id="own@1", stated=["mean"])
    stating = ModelRun(id="own@1", stated=["mean", "interpolation"])
    assert history(before_facts_were_kept) == ()
    assert history(ModelRun(id="own@1", assumed=["mean"]), before_facts_were_kept) == ()
    assert history(before_facts_were_kept, assuming) == ("interpolation",)
    assert history(assuming, unused) == ("interpolation",)
    assert history(assuming, stating) == history(stating, assuming) == ()
