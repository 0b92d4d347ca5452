"""Style transfer as a corruption: five severities, files that decide the pixels on record, published weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import shiftbench as sb
from shiftbench.hardening.augmentations.stylize import load_adain
from shiftbench.hardening.errors import AugmentationError, NetworkError
from shiftbench.shifts.base import rebuild_shift
from shiftbench.shifts.corruptions.api import Corruption
from tests.commands import call
from tests.outputs.helpers import picture_folder, scene


def published() -> tuple[nn.Sequential, nn.Sequential]:
    """As the port of Huang and Belongie's code has them, with random weights; VGG goes on after relu4_1."""
    pad = nn.ReflectionPad2d(1)
    relu = nn.ReLU()
    up = nn.Upsample(scale_factor=2, mode="nearest")
    pool = nn.MaxPool2d((2, 2), (2, 2), (0, 0), ceil_mode=True)
    torch.manual_seed(0)

    def conv(inputs: int, outputs: int) -> nn.Conv2d:
        return nn.Conv2d(inputs, outputs, (3, 3))

    vgg = nn.Sequential(
        nn.Conv2d(3, 3, (1, 1)), pad, conv(3, 64), relu, pad, conv(64, 64), relu, pool,
        pad, conv(64, 128), relu, pad, conv(128, 128), relu, pool,
        pad, conv(128, 256), relu, pad, conv(256, 256), relu, pad, conv(256, 256), relu,
        pad, conv(256, 256), relu, pool, pad, conv(256, 512), relu, pad, conv(512, 512), relu,
    )  # fmt: skip
    decoder = nn.Sequential(
        pad, conv(512, 256), relu, up, pad, conv(256, 256), relu, pad, conv(256, 256), relu, pad, conv(256, 256), relu,
        pad, conv(256, 128), relu, up, pad, conv(128, 128), relu, pad, conv(128, 64), relu, up,
        pad, conv(64, 64), relu, pad, conv(64, 3),
    )  # fmt: skip
    for module in [*vgg, *decoder]:
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    last = decoder[-1].bias
    assert isinstance(last, Tensor)
    nn.init.constant_(last, 0.5)  # grey, lest all be cut off at black
    return vgg.eval(), decoder.eval()


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adain")
    vgg, decoder = published()
    torch.save(vgg.state_dict(), folder / "vgg_normalised.pth")
    torch.save(decoder.state_dict(), folder / "decoder.pth")
    (folder / "paintings").mkdir()
    for number in range(2):
        Image.fromarray(scene(number, 48, 48)).save(folder / "paintings" / f"{number}.png")
    return folder


def statistics(code: Tensor) -> tuple[Tensor, Tensor]:
    flat = code.view(*code.shape[:2], -1)
    return flat.mean(dim=2)[..., None, None], (flat.var(dim=2) + 1e-5).sqrt()[..., None, None]


def test_published_weights_give_the_published_computation(weights: Path) -> None:
    vgg, decoder = published()
    content = torch.rand(1, 3, 64, 48)
    style = torch.rand(1, 3, 40, 40)
    network = load_adain(weights / "decoder.pth")
    with torch.inference_mode():
        code = vgg[:31](content)
        other = vgg[:31](style)
        (mean, deviation), (new_mean, new_deviation) = statistics(code), statistics(other)
        mixed = 0.6 * ((code - mean) / deviation * new_deviation + new_mean) + 0.4 * code
        found = network(content, network.statistics(network.encode(style)), 0.6)
        torch.testing.assert_close(found, decoder(mixed), rtol=1e-3, atol=1e-3)


def test_a_decoder_without_its_encoder_says_so(weights: Path, tmp_path: Path) -> None:
    (tmp_path / "decoder.pth").write_bytes((weights / "decoder.pth").read_bytes())
    with pytest.raises(AugmentationError) as error:
        load_adain(tmp_path / "decoder.pth")
    assert "vgg_normalised.pth" in str(error.value.expected)


def test_five_severities_on_disk_and_the_files_on_record(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftbench.hardening.augmentations.stylize.PublishedAdaIn.size", 32)
    source = picture_folder(tmp_path / "source", classes=("a",))
    options = ["--style-network", weights / "decoder.pth", "--styles", weights / "paintings"]
    command = ["corrupt", source, tmp_path / "c", "-c", "style_transfer", "--size", 32, "--lossless", "-q", *options]
    result = call(*command, "--json")
    assert result.exit_code == 0, result.output + str(result.exception)
    assert json.loads(result.stdout)["severities"] == [1, 2, 3, 4, 5]
    images = {s: sorted((tmp_path / "c" / "style_transfer" / str(s) / "a").glob("*.png")) for s in range(1, 6)}
    files: dict[str, Any] = {"network": str(weights / "decoder.pth"), "styles": str(weights / "paintings")}
    clean = sb.open_dataset(source, space="folders")
    plain = np.asarray(Image.fromarray(clean[0].pixels).resize((32, 32)))
    strongest = sb.corrupt(plain, "style_transfer", 5, image_id="x", **files)
    assert strongest.shape == (32, 32, 3) and len({path[0].read_bytes() for path in images.values()}) == 5
    shift = Corruption("style_transfer", 5, files)
    (about,) = json.loads((tmp_path / "c" / "shiftbench-corruptions.json").read_text())["corruptions"].values()
    assert about["options"] == shift.describe()["options"] and set(about["options"]) == {"network", "encoder", "styles"}
    (tmp_path / "model.py").write_text("def make():\n    return lambda images: images.mean(axis=(1, 2))[:, :1]\n")
    command = ["eval", f"{tmp_path}/model.py:make", "--suite", "corruptions", "--corruption", "style_transfer"]
    command += ["--severity", "1,5", "--data", source, "-w", tmp_path / "w", "-q", "--json", *options]
    result = call(*command)
    assert result.exit_code == 0, result.output + str(result.exception)
    stored = {one.setting: one.spec.shift for one in sb.Workspace(tmp_path / "w").results()}
    assert stored["source-c.style_transfer.5"].description["options"] == about["options"] and len(stored) == 3
    families = {one.spec.family for one in sb.Workspace(tmp_path / "w").results() if one.setting != "source"}
    assert len(families) == 1 and "network" not in str(families)  # so that it is averaged with other corruptions
    again = rebuild_shift(shift.record())
    assert isinstance(again, Corruption)
    np.testing.assert_array_equal(again(plain, image_id="x", seed=0), strongest)


def test_without_a_network_the_option_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    source = picture_folder(tmp_path / "source", classes=("a",))
    result = call("corrupt", source, tmp_path / "c", "-c", "fog,style_transfer", "-q")
    assert isinstance(result.exception, NetworkError) and "--style-network" in str(result.exception.expected)
    assert not (tmp_path / "c").exists()
