"""A setting as a task of inspect_ai, run by its own program with a model that answers from a list, and its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shiftbench as sb
from shiftbench.bridges import import_inspect_log, inspect_task
from shiftbench.errors import SettingError
from tests.runs.helpers import brightest_channel, colour_folder


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_answers_stand_beside_networks_and_refusals_count_as_wrong(tmp_path: Path) -> None:
    inspect_ai: Any = pytest.importorskip("inspect_ai")
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    data = colour_folder(tmp_path / "photos", per_class=4)
    images = sb.torch_dataset("photos", data, labels="folders")
    assert images.classes == ["blue", "green", "red"]
    answers = [images.classes[label] for label in images.targets]
    answers[0] = "I cannot help with that."
    answers[5] = "blue"
    answers[7] = f" {answers[7].upper()}.\n"

    def said(answer: str) -> Any:
        output = ModelOutput.from_content("mockllm/model", answer)
        output.usage = ModelUsage(input_tokens=90, output_tokens=10, total_tokens=100, total_cost=0.5)
        return output

    outputs = [said(answer) for answer in answers]
    task = inspect_task(images)
    (log,) = inspect_ai.eval(
        task, model=get_model("mockllm/model", custom_outputs=outputs), log_dir=str(tmp_path / "logs"), display="none",
        max_connections=1, max_samples=1,
    )  # fmt: skip
    assert log.status == "success", log.error
    imported = import_inspect_log(log.location, images, tmp_path / "w", name="vlm")
    assert (imported.images, imported.refused) == (12, 1) and imported.tokens == 1200
    assert "not tied to weights" in imported.text
    model = sb.load_classifier(
        brightest_channel, name="net", labels=["red", "green", "blue"], preprocessing={"size": 32, "outputs": "logits"}
    )
    sb.evaluate(model, [images.setting], data, tmp_path / "w", labels="folders", progress=False)
    run = sb.Run.open(tmp_path / "w")
    assert run.select(["vlm"]).metrics()["photos/top1"] == pytest.approx(10 / 12)
    assert sorted(run.classifiers) == ["net", "vlm"] and len(run.compare("photos").rows) == 1
    assert (run.predictions("vlm", "photos").top[:, 0] == -2).sum() == 1
    other = sb.torch_dataset("photos-c.contrast.1", data, labels="folders")
    with pytest.raises(SettingError):
        import_inspect_log(log.location, other, tmp_path / "w")
    # Shifted images: the answers stand beside the predictions of networks under the same seed, and under no other.
    outputs = [said(other.classes[label]) for label in other.targets]
    (log,) = inspect_ai.eval(
        inspect_task(other), model=get_model("mockllm/model", custom_outputs=outputs), log_dir=str(tmp_path / "logs"),
        display="none", max_connections=1, max_samples=1,
    )  # fmt: skip
    assert log.status == "success", log.error
    import_inspect_log(log.location, other, tmp_path / "w", name="vlm")
    sb.evaluate(model, [other.setting], data, tmp_path / "w", labels="folders", progress=False)
    shifted = sb.Run.open(tmp_path / "w", settings=["photos-c.contrast.1"])
    assert len({result.spec.provenance for result in shifted.results}) == 1
    assert len(shifted.compare("photos-c.contrast.1").rows) == 1
    with pytest.raises(SettingError):
        import_inspect_log(
            log.location, sb.torch_dataset("photos-c.contrast.1", data, labels="folders", seed=1), tmp_path / "w"
        )
    with pytest.raises(SettingError):
        inspect_task(images, question="What is it?")
