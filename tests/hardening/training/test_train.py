from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import shiftbench as sb
from shiftbench.classifiers import load_classifier
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import of_classes, sample, take
from shiftbench.errors import ClassifierError, LabelError, ResultWarning
from shiftbench.hardening.architectures.base import build
from shiftbench.hardening.classifier import save_network
from shiftbench.hardening.errors import BusyError, DivergedError, RecipeError, TrainingError
from shiftbench.hardening.recipe import Optimizer, Recipe, load_recipe
from shiftbench.hardening.recipe_check import check_recipe
from shiftbench.hardening.training import loop
from shiftbench.hardening.training.batches import Batch
from shiftbench.hardening.training.checkpoint import Checkpoint, Position, write_checkpoint
from shiftbench.hardening.training.data import open_training_set, prepare_validation
from shiftbench.hardening.training.loop import make_optimizer
from shiftbench.hardening.training.train import train
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import UnwritableError
from shiftbench.io.schema import to_toml
from shiftbench.labels.space import LabelSpace
from shiftbench.reports.page.sections.training import read_log
from tests import processes
from tests.hardening.training.conftest import same_weights, steps_of
from tests.hardening.training.kill_target import run
from tests.raised import raises

Tiny = Callable[..., Recipe]
LAYER_DECAY = (
    'architecture={name="timm", model="test_resnet"}',
    'optimizer={name="lamb", lr=0.001, layer_decay=0.7}',
)


class StoppedError(Exception):
    """Stands for a power cut."""


def stop_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """The run breaks off after so many steps."""
    honest = loop.TrainingRun.step
    left = iter(range(steps))

    def step(self: loop.TrainingRun, number: int, batch: list[Batch]) -> None:
        if next(left, None) is None:
            raise StoppedError
        honest(self, number, batch)

    monkeypatch.setattr(loop.TrainingRun, "step", step)


def test_a_killed_worker_is_named_and_the_run_resumes(tiny: Tiny, tmp_path: Path) -> None:
    recipe = tiny("train.epochs=2", "data.sample=32")

    def kill_worker(_: int) -> None:
        for worker in multiprocessing.active_children():
            worker.kill()
            worker.join()

    with pytest.raises(TrainingError) as caught:
        train(recipe, tmp_path / "killed", workers=1, progress=False, report=kill_worker)
    assert caught.value.found == "exit code -9" and "it resumes" in str(caught.value.hint)
    resumed = train(recipe, tmp_path / "killed", progress=False)
    assert same_weights(resumed.folder, train(recipe, tmp_path / "whole", progress=False).folder)


def test_a_backend_that_cannot_compile_is_named(tiny: Tiny, tmp_path: Path) -> None:
    def broken(graph: object, inputs: object) -> object:
        raise FileNotFoundError("no compiler")

    backends = importlib.import_module("torch._dynamo")
    backends.register_backend(broken)
    with pytest.raises(TrainingError) as caught:
        train(tiny("train.compile=broken", "train.epochs=1", "data.sample=32"), tmp_path, progress=False)
    assert "no compiler" in str(caught.value.found) and "train.compile=false" in str(caught.value.hint)


def test_validation_data_are_compared_with_the_classes_of_training(tmp_path: Path) -> None:
    for folder in ("train/cat", "train/dog", "few/cat", "more/cat", "more/dog", "more/zebra"):
        (tmp_path / folder).mkdir(parents=True)
        Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(tmp_path / folder / "1.png")
    recipe = load_recipe("cifar-standard", ["data.labels=folders"])
    space = open_training_set(str(tmp_path / "train"), recipe.data).space
    with pytest.warns(UserWarning, match="dog"):
        assert prepare_validation(recipe, str(tmp_path / "few"), space) is not None
    with pytest.raises(LabelError) as caught:
        prepare_validation(recipe, str(tmp_path / "more"), space)
    assert caught.value.found == "zebra" and "data.labels=folders" in str(caught.value.hint)


def test_a_batch_larger_than_the_dataset_is_reported(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"train\.batch_size = 32, but there are 20 .* try train\.batch_size=2"):
        log = train(tiny("data.sample=20", "train.epochs=2"), tmp_path / "run", progress=False).log
    assert [line["step"] for line in log] == [1, 2]  # all images in one batch: none is left out
    with pytest.raises(TrainingError) as caught:
        train(tiny("data.sample=32", "train.splits=33"), tmp_path / "parts", progress=False)
    assert caught.value.found == "train.splits = 33, batches of 32" and caught.value.expected == "at most 32 parts"


def test_it_learns_and_leaves_a_classifier(tiny: Tiny, tmp_path: Path) -> None:
    recipe = tiny("train.epochs=12", "augmentations=[]")
    trained = train(recipe, tmp_path / "run", progress=False)
    assert trained.log[-1]["loss"] < 0.85 * trained.log[0]["loss"]
    assert sorted(path.name for path in trained.folder.iterdir() if path.name[0] != ".") == [
        "classifier.json",
        "images.npy",
        "log.jsonl",
        "model.safetensors",
        "recipe.toml",
    ]
    dataset = sample(open_named("cifar-10-test"), 96)
    classifier = load_classifier(f"hardened:{trained.folder}")
    images = np.stack([dataset.read(i).pixels for i in range(96)])
    right = (classifier.scores(images).argmax(axis=1) == dataset.labels).mean()
    assert classifier.name == "run" and classifier.space.name == "cifar-10"
    assert right > 0.25
    known = classifier.trained_on
    assert known is not None and (known.fingerprint, known.images, known.by) == (dataset.fingerprint, 96, "content")
    # a sample of the dataset that holds half of the training images
    other = take(open_named("cifar-10-test"), [*dataset.indices[:48], *range(10)])
    expected = len(set(other.indices.tolist()) & set(dataset.indices.tolist()))
    with pytest.warns(ResultWarning, match=f"trained on {expected} of the 58 images"):
        sb.evaluate(f"hardened:{trained.folder}", data=other, workspace=tmp_path / "w", progress=False)


def test_the_loaded_classifier_gives_the_trained_networks_scores(tiny: Tiny, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    recipe = tiny("train.epochs=1", "data.mean=[0.4, 0.5, 0.6]", "data.std=[0.2, 0.3, 0.4]")
    folder = train(recipe, tmp_path / "run", progress=False).folder
    network = build(recipe.architecture.name, classes=10, **recipe.architecture.options).eval()
    network.load_state_dict(load_file(folder / "model.safetensors"))
    images = np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    pixels = (images / 255 - [0.4, 0.5, 0.6]) / [0.2, 0.3, 0.4]
    with torch.no_grad():
        expected = network(torch.from_numpy(pixels).permute(0, 3, 1, 2).float()).numpy()
    for engine in ("torch", "onnxruntime"):
        classifier = load_classifier(f"hardened:{folder}", engine=engine)
        assert np.allclose(classifier.scores(images), expected, atol=1e-3)
    assert load_classifier(f"hardened:{folder}").fingerprint == classifier.fingerprint


@pytest.mark.parametrize(
    ("stop", "recipe"),
    [
        (2, ("cifar-augmix", "data.sample=96")),
        (2, ("cifar-pgd", "scheme.steps=1", "train.ema=0.9", "data.sample=64")),
        (3, ("cifar-mixup", 'architecture={name="shake-shake", depth=8, width=4}', "data.sample=64")),
        (3, ("cifar-standard", 'optimizer={name="adam", lr=0.001}', "train.keep=best", "data.validation=yes")),
        (2, ("cifar-condensenet", 'architecture={name="condensenet", stages=[1, 1], growth=[4, 4]}', "data.sample=64")),
        (1, ("cifar-msdnet", 'architecture={name="msdnet", exits=2, base=1, step=1, width=2}', "data.sample=64")),
        (3, ("cifar-standard", 'batch_augmentations=["noise2net"]', "data.sample=64")),
        (3, ("cifar-standard", "train.ema=0.9", "train.ema_warmup=true", "train.splits=4", "data.sample=64")),
        (3, ("cifar-standard", *LAYER_DECAY, "data.sample=64")),
        (3, ("cifar-augmix", "train.repeats=3", "data.sample=64")),
    ],
    ids=[
        "within an epoch",
        "at its end",
        "in the second",
        "with validation",
        "condensing",
        "with exits",
        "noise2net",
        "running mean of parts",
        "layer decay",
        "repeats",
    ],
)
def test_a_stopped_run_goes_on_to_the_same_weights(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: int, recipe: tuple[str, ...]
) -> None:
    chosen = tiny("train.epochs=2", "train.checkpoint_seconds=0", *recipe[1:], recipe=recipe[0])
    held_out = sample(open_named("cifar-10-test"), 50, seed=1) if chosen.data.validation else None
    whole = train(chosen, tmp_path / "whole", progress=False, validation=held_out)
    with monkeypatch.context() as patch:
        stop_after(patch, stop)
        with pytest.raises(StoppedError):
            train(chosen, tmp_path / "stopped", progress=False, validation=held_out)
    torch.manual_seed(1234)  # of no consequence
    again = train(chosen, tmp_path / "stopped", progress=False, validation=held_out)
    assert same_weights(whole.folder, again.folder)
    assert steps_of(whole.log) == steps_of(again.log)


def test_a_run_begun_on_two_devices_goes_on_with_one(tiny: Tiny, tmp_path: Path) -> None:
    """`--devices 2` makes two parts of every batch; on one device the same command has to keep them."""
    begun = tiny("train.epochs=2", "train.splits=2", "data.sample=64")
    same = tiny("train.epochs=2", "data.sample=64")
    whole = train(begun, tmp_path / "whole", progress=False)
    with pytest.MonkeyPatch.context() as patch:
        stop_after(patch, 3)
        with pytest.raises(StoppedError):
            train(begun, tmp_path / "stopped", progress=False)
    assert same_weights(whole.folder, train(same, tmp_path / "stopped", progress=False).folder)
    assert train(same, tmp_path / "stopped", progress=False).log  # finished, it is returned at once
    assert not same_weights(whole.folder, train(same, tmp_path / "parts", progress=False).folder)
    with raises(TrainingError, found="train.splits = 1 there, 2 now"):
        train(begun, tmp_path / "parts", progress=False)


@pytest.mark.reliability("kills")
def test_kill_minus_nine_loses_nothing(tiny: Tiny, tmp_path: Path) -> None:
    recipe = tiny("train.epochs=5", "train.checkpoint_seconds=0")
    (tmp_path / "recipe.toml").write_text(to_toml(recipe.as_dict()))
    process = processes.start(run, tmp_path / "recipe.toml", tmp_path / "killed", False, {})
    checkpoint = tmp_path / "killed" / "checkpoint.pt"
    deadline = time.monotonic() + 600
    while not (checkpoint.is_file() and read_log(checkpoint.parent)):
        assert process.exitcode is None and time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    (checkpoint.parent / ".checkpoint.pt.12345678.tmp").write_bytes(b"half")  # of a kill while it was written
    assert not (checkpoint.parent / "classifier.json").exists()
    with raises(ClassifierError, found="a run that is not finished"):
        load_classifier(f"hardened:{checkpoint.parent}")
    resumed = train(recipe, checkpoint.parent, progress=False)
    whole = train(recipe, tmp_path / "whole", progress=False)
    assert same_weights(resumed.folder, whole.folder)
    assert steps_of(resumed.log) == steps_of(whole.log)
    assert not list(checkpoint.parent.glob("*checkpoint*"))


def test_another_recipe_is_refused_by_its_key(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        stop_after(patch, 4)
        with pytest.raises(StoppedError):
            train(tiny(), tmp_path, progress=False)
    before = (tmp_path / "checkpoint.pt").read_bytes()
    with pytest.raises(TrainingError, match=r"optimizer\.lr") as caught:
        train(tiny("optimizer.lr=0.2"), tmp_path, progress=False)
    assert caught.value.found == "optimizer.lr = 0.1 there, 0.2 now"
    with pytest.raises(TrainingError, match="other images"):
        train(tiny(), tmp_path, progress=False, data=sample(open_named("cifar-10-test"), 96, seed=9))
    assert (tmp_path / "checkpoint.pt").read_bytes() == before
    train(tiny(), tmp_path, progress=False)
    # A finished folder is no other.
    with raises(TrainingError, found="train.epochs = 3 there, 4 now"):
        train(tiny("train.epochs=4"), tmp_path, progress=False)
    assert len(train(tiny('about="new words"'), tmp_path, progress=False).log) == 3


def test_a_disk_that_takes_no_more_is_explained(tmp_path: Path) -> None:
    """torch and safetensors themselves raise errors that do not say so."""
    recipe = load_recipe("cifar-standard")
    weights = {"weight": torch.zeros(10_000)}
    writers: dict[str, Callable[[], None]] = {
        "checkpoint.pt": lambda: write_checkpoint(tmp_path, Checkpoint(recipe, "", Position(), [], {"model": weights})),
        "model.safetensors": lambda: save_network(tmp_path, weights, recipe, {}),
    }
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for name, write in writers.items():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
        try:
            with pytest.raises(UnwritableError) as caught:
                write()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert name in str(caught.value) and not list(tmp_path.iterdir())


def test_a_damaged_checkpoint_is_named(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(TrainingError, match="cannot be read"):
        train(tiny(), tmp_path, progress=False)


def test_a_checkpoint_that_would_run_code_does_not(tiny: Tiny, tmp_path: Path) -> None:
    import pickle

    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.touch, (tmp_path / "ran",))

    with (tmp_path / "checkpoint.pt").open("wb") as file:
        pickle.dump(Evil(), file)
    with pytest.raises(TrainingError, match="cannot be read"):
        train(tiny(), tmp_path, progress=False)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("what", ["the loss is nan", "weights are nan"])
def test_a_diverging_loss_stops_and_keeps_the_last_good_checkpoint(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    honest = loop.TrainingRun.step

    def step(self: loop.TrainingRun, number: int, batch: list[Batch]) -> None:
        weights = next(self.model.parameters()).data
        if number == 5 and "loss" in what:
            weights[0] = torch.nan
        honest(self, number, batch)
        if number == 5:
            weights[0] = torch.nan

    monkeypatch.setattr(loop.TrainingRun, "step", step)
    with pytest.raises(DivergedError, match=f"{what} in step 6, epoch 2") as caught:
        train(tiny(), tmp_path, progress=False)
    assert "lower optimizer.lr" in str(caught.value) and "checkpoint is kept" in str(caught.value)
    kept = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert kept["position"]["epoch"] == 1
    assert all(torch.isfinite(value).all() for value in kept["states"]["model"].values())
    assert [line["epoch"] for line in read_log(tmp_path)] == [1]


def test_an_absurd_learning_rate_is_called_divergence(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(DivergedError):
        train(tiny("optimizer.lr=1e30", "train.epochs=20"), tmp_path, progress=False)


def test_a_run_starts_from_a_file_of_weights_that_is_not_needed_later(tiny: Tiny, tmp_path: Path) -> None:
    """A checkpoint of other classes; one that pickles code, and one of another network, are refused."""
    from safetensors.torch import load_file

    network = build("resnet-20", classes=7, depth=8, width=4)
    file = tmp_path / "other.pth"
    torch.save({"state_dict": network.state_dict()}, file)
    recipe = tiny("train.epochs=1", "optimizer.lr=0.0", "schedule.floor=0.0", f"train.start={file}")
    folder = train(recipe, tmp_path / "run", progress=False).folder
    kept = load_file(folder / "model.safetensors")
    assert np.array_equal(kept["stem.0.weight"], network.state_dict()["stem.0.weight"])
    file.unlink()
    assert len(load_classifier(f"hardened:{folder}").space) == 10
    torch.save(network, tmp_path / "pickled.pth")
    torch.save(build("all-conv", classes=10, width=4).state_dict(), tmp_path / "all-conv.pth")
    for name, message in (("pickled", "can run code"), ("all-conv", "do not fit"), ("absent", "not found")):
        with pytest.raises(ClassifierError, match=message):
            train(tiny(f"train.start={tmp_path / name}.pth"), tmp_path / name, progress=False)


def test_a_pretrained_start_is_not_fetched_again_when_the_model_is_loaded(tiny: Tiny, tmp_path: Path) -> None:
    """timm takes pretrained weights from a file that its configuration names, as it would from the hub."""
    from safetensors.torch import load_file

    file = tmp_path / "pretrained.pth"
    model = "test_resnet.r160_in1k"
    torch.save(build("timm", classes=1000, model=model).state_dict(), file)
    options = f'{{pretrained_cfg_overlay={{file="{file}"}}}}'
    network = f'architecture={{name="timm", model="{model}", pretrained=true, options={options}}}'
    still = ("optimizer.lr=0.0", "schedule.floor=0.0")
    folder = train(tiny("train.epochs=1", *still, network), tmp_path / "run", progress=False).folder
    expected = torch.load(file)["conv1.0.weight"]
    assert np.array_equal(load_file(folder / "model.safetensors")["conv1.0.weight"], expected)
    file.unlink()
    load_classifier(f"hardened:{folder}")


def test_two_processes_do_not_train_in_one_folder(tiny: Tiny, tmp_path: Path) -> None:
    with file_lock(tmp_path / ".lock", wait=False), pytest.raises(BusyError, match="another process"):
        train(tiny(), tmp_path, progress=False)


def test_a_torn_line_of_the_log_is_passed_over(tmp_path: Path) -> None:
    whole = [{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 1.5}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in whole) + '{"epoch": 3, "lo')
    assert read_log(tmp_path) == whole
    assert read_log(tmp_path / "nowhere") == []


def test_seeds_repeat_compiled_too_and_leave_the_callers_random_numbers(tiny: Tiny, tmp_path: Path) -> None:
    torch.manual_seed(5)
    before = torch.rand(3)
    torch.manual_seed(5)
    changes = ("train.seed=0", "train.seed=0", "train.compile=eager", "train.seed=1")
    first, again, compiled, other = (
        train(tiny("train.epochs=1", "data.sample=64", change), tmp_path / str(i), progress=False).folder
        for i, change in enumerate(changes)
    )
    assert torch.equal(torch.rand(3), before)
    assert same_weights(first, again) and same_weights(first, compiled) and not same_weights(first, other)


def test_the_running_mean_is_a_mean_of_the_weights(tiny: Tiny, tmp_path: Path) -> None:
    """By hand from the weights of every step: mean = decay * mean + (1 - decay) * weights, from the first step's."""
    from safetensors.torch import load_file

    keys: list[str] = []
    seen: list[torch.Tensor] = []
    honest = loop.TrainingRun.step

    def step(self: loop.TrainingRun, number: int, batch: list[Batch]) -> None:
        honest(self, number, batch)
        key, weights = next(self.model.network.named_parameters())
        keys.append(key)
        seen.append(weights.detach().clone())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.TrainingRun, "step", step)
        folder = train(tiny("train.ema=0.7", "train.epochs=2"), tmp_path, progress=False).folder
    mean = seen[0]
    for weights in seen[1:]:
        mean = 0.7 * mean + 0.3 * weights
    kept = load_file(folder / "model.safetensors")
    assert torch.allclose(kept[keys[0]], mean, atol=1e-6)


def test_the_best_weights_are_kept_when_asked(tiny: Tiny, tmp_path: Path) -> None:
    held_out = sample(open_named("cifar-10-test"), 80, seed=3)
    recipe = tiny("train.keep=best", "train.epochs=3")
    trained = train(recipe, tmp_path / "run", validation=held_out, progress=False)
    best = max(line["validation_accuracy"] for line in trained.log)
    classifier = load_classifier(f"hardened:{trained.folder}", engine="torch")
    images = np.stack([held_out.read(i).pixels for i in range(80)])
    assert (classifier.scores(images).argmax(axis=1) == held_out.labels).mean() == pytest.approx(best, abs=0.02)
    assert not (trained.folder / "top").exists()
    for choice in ("train.keep=best", "train.top=2"):
        with pytest.raises(TrainingError, match="validation data"):
            train(tiny(choice), tmp_path / "other", progress=False)


@pytest.mark.reliability("kills")
def test_the_best_epochs_survive_a_kill_before_and_after_a_checkpoint(tiny: Tiny, tmp_path: Path) -> None:
    """Killed at any moment of the end of an epoch, the run still has the weights of the best epochs in the end."""
    held_out = sample(open_named("cifar-10-test"), 50, seed=1)
    recipe = tiny("train.keep=best", "train.top=2", "train.epochs=3", "data.sample=64")
    whole = train(recipe, tmp_path / "whole", validation=held_out, progress=False)
    for moment in ("before", "after"):

        def write(folder: Path, checkpoint: Checkpoint, moment: str = moment) -> None:
            if moment == "after":
                write_checkpoint(folder, checkpoint)
            raise StoppedError

        for _ in range(3):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(loop, "write_checkpoint", write)
                with contextlib.suppress(StoppedError):
                    train(recipe, tmp_path / moment, validation=held_out, progress=False)
        again = train(recipe, tmp_path / moment, validation=held_out, progress=False)
        assert steps_of(again.log) == steps_of(whole.log) and same_weights(whole.folder, again.folder)
        kept = [{path.name: path.read_bytes() for path in (one.folder / "top").iterdir()} for one in (whole, again)]
        assert len(kept[0]) == 2 and kept[0] == kept[1]


@pytest.mark.parametrize("device", ["cuda:97", "gpu"])
def test_a_device_that_is_not_there_is_named(tiny: Tiny, tmp_path: Path, device: str) -> None:
    with pytest.raises(ClassifierError, match=device):
        train(tiny(), tmp_path, device=device, progress=False)


def test_options_that_the_optimizer_does_not_know(tiny: Tiny, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="momentumm"):
        train(tiny("optimizer.options={momentumm=1}"), tmp_path, progress=False)


def test_clipping_and_the_rates_of_head_and_backbone() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    optimizer = make_optimizer(model, Optimizer(name="adam", lr=1e-4, backbone_factor=0.1, weight_decay=0.0))
    assert [group["lr_scale"] for group in optimizer.param_groups] == [0.1, 1.0]
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 2]


def test_timm_knows_the_head_and_the_layers_of_its_networks() -> None:
    """The head of BiT, in the recipe dfr-imagenet-21k, is a convolution. The rates of a ViT follow its blocks."""
    recipe = load_recipe("dfr-imagenet-21k", ["architecture.pretrained=false"])
    network = build("timm", classes=13, **recipe.architecture.options)
    *_, head = make_optimizer(network, recipe.optimizer).param_groups
    assert head["lr_scale"] == 1 and [tuple(param.shape) for param in head["params"]] == [(13, 2048, 1, 1), (13,)]
    distilled = build("timm", classes=13, model="deit_tiny_distilled_patch16_224")
    *_, heads = make_optimizer(distilled, recipe.optimizer).param_groups
    assert [len(param) for param in heads["params"]] == [13, 13, 13, 13]
    vit = build("timm", classes=3, model="test_vit")
    groups = make_optimizer(vit, Optimizer(name="adamw", layer_decay=0.5, decay_norms=False)).param_groups
    scale = {id(param): (group["lr_scale"], group["weight_decay"]) for group in groups for param in group["params"]}
    depth, weights = len(vit.blocks), dict(vit.named_parameters())  # type: ignore[arg-type]
    assert [scale[id(weights[f"blocks.{n}.mlp.fc1.weight"])][0] for n in range(depth)] == [
        0.5 ** (depth - n) for n in range(depth)
    ]
    assert scale[id(weights["head.weight"])] == (1.0, 5e-4) and scale[id(weights["pos_embed"])][1] == 0
    for name, message in (("dfr-standard", "backbone_factor excludes"), ("cifar-standard", "needs a network of timm")):
        with pytest.raises(RecipeError, match=message):
            check_recipe(load_recipe(name, ["optimizer.layer_decay=0.5"]))


def test_several_labels_an_image(tiny: Tiny, tmp_path: Path) -> None:
    from shiftbench.datasets.base import Dataset, DecodedImage

    class Several(Dataset):
        inner = sample(open_named("cifar-10-test"), 64)
        name = inner.name
        space = inner.space
        ids = inner.ids
        labels = np.full(64, -1, np.int32)
        label_sets = tuple(tuple(sorted((i % 10, (i + 3) % 10))) for i in range(64))
        fingerprint = "several"

        def read(self, index: int) -> DecodedImage:
            return self.inner.read(index)

    with raises(TrainingError, found="loss.name = 'cross-entropy'"):
        train(tiny(), tmp_path / "wrong", data=Several(), progress=False)
    with raises(TrainingError, found="loss.name = 'binary'"):
        train(tiny("loss.name=binary"), tmp_path / "wrong", progress=False)
    cats = of_classes(open_named("cifar-10-test"), LabelSpace("cats", ("cat",), ("cat",)))
    with raises(TrainingError, found="cat"):
        train(tiny("data.sample=16"), tmp_path / "wrong", data=cats, progress=False)
    recipe = tiny("loss.name=binary", 'optimizer={name="adam", lr=0.01, clip=1.0}', "train.epochs=4")
    log = train(recipe, tmp_path / "run", data=Several(), progress=False).log
    assert log[-1]["loss"] < log[0]["loss"] and log[-1]["accuracy"] > 0.7


@pytest.mark.parametrize("name", ["random-features", "fisher-vectors"])
def test_baselines_are_fitted_by_the_same_command(tiny: Tiny, tmp_path: Path, name: str) -> None:
    small = {"random-features": "filters=8, patches=500", "fisher-vectors": "centres=4, components=8, descriptors=500"}
    recipe = tiny(f'architecture={{name="{name}", {small[name]}}}', "augmentations=[]", "data.sample=200")
    folder = train(recipe, tmp_path / "run", progress=False, name="old").folder
    classifier = load_classifier(f"hardened:{folder}")
    dataset = sample(open_named("cifar-10-test"), 200)
    images = np.stack([dataset.read(i).pixels for i in range(200)])
    assert classifier.name == "old"
    assert (classifier.scores(images).argmax(axis=1) == dataset.labels).mean() > 0.25
    assert train(recipe, tmp_path / "run", progress=False).folder == folder
    with raises(TrainingError, found="train.seed = 0 there, 2 now"):
        train(
            tiny(
                f'architecture={{name="{name}", {small[name]}}}', "augmentations=[]", "data.sample=200", "train.seed=2"
            ),
            tmp_path / "run",
            progress=False,
        )


def _without_digests(folder: Path) -> None:
    """Make a folder as version 0.1 did."""
    description = json.loads((folder / "classifier.json").read_text())
    del description["digest"], description["digests"]
    (folder / "classifier.json").write_text(json.dumps(description))


@pytest.mark.parametrize("name", ["model.safetensors", "recipe.toml", "images.npy", "classifier.json"])
def test_a_flipped_bit_in_a_finished_run_is_noticed(tiny: Tiny, tmp_path: Path, name: str) -> None:
    folder = train(tiny("train.epochs=1", "data.sample=40"), tmp_path / "run", progress=False).folder
    content = bytearray((folder / name).read_bytes())
    place = content.rindex(b"shiftbench") if name == "classifier.json" else len(content) - 9
    content[place] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ClassifierError, match="damaged"):
        load_classifier(f"hardened:{folder}")


def test_folders_that_are_no_classifier(tmp_path: Path, tiny: Tiny) -> None:
    with raises(ClassifierError, found="no finished run"):
        load_classifier(f"hardened:{tmp_path}")
    folder = train(tiny("train.epochs=1"), tmp_path / "run", progress=False).folder
    (folder / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(ClassifierError, match=r"model\.safetensors is damaged or was changed"):
        load_classifier(f"hardened:{folder}")
    _without_digests(folder)
    with pytest.raises(ClassifierError, match="do not fit"):
        load_classifier(f"hardened:{folder}")
    (folder / "classifier.json").write_text("{}")
    with pytest.raises(ClassifierError, match="damaged"):
        load_classifier(f"hardened:{folder}")
