"""Attacks: their geometry, their independence of batches, their strength, and who is refused."""

from __future__ import annotations

import importlib
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import shiftbench as sb
from shiftbench.classifiers.defences import Defended
from shiftbench.classifiers.onnx_ import OnnxClassifier
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing
from shiftbench.classifiers.torch_ import TorchClassifier
from shiftbench.datasets.geometry import Geometry
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError, DatasetError, MissingExtraError, ShiftError
from shiftbench.jobs.threads import one_torch_thread
from shiftbench.labels.space import LabelSpace
from shiftbench.shifts.attacks.attack import ATTACKS, Attack, Attacked, fgsm, published_attacks
from shiftbench.shifts.attacks.autoattack import AutoAttack
from shiftbench.shifts.attacks.base import Norm, Victim, lengths, project, steepest, unit_start
from shiftbench.shifts.attacks.checks import check_attack
from tests.classifiers.networks import SMALL, Small
from tests.raised import raises

PETS = LabelSpace("pets", ("cat", "dog", "fish"))
IMAGES = sample_images(5, (32, 32))
IDS = [f"{i}.png" for i in range(5)]
LABELS = np.array([0, 1, 2, 0, 1], np.int32)
NORMS: tuple[Norm, ...] = ("linf", "l2")
FAST = {
    norm: Attack("fast", norm, 0.02 if norm == "linf" else 2.0, 5, 0.005 if norm == "linf" else 0.1) for norm in NORMS
}


def small(module: nn.Module | None = None, **options: Any) -> sb.Classifier:
    options = {"labels": PETS, "preprocessing": SMALL, "engine": "torch", "batch_size": 16, **options}
    return sb.load_classifier(Small() if module is None else module, **options)


def attacked(attack: Attack, classifier: sb.Classifier | None = None, images: Any = IMAGES, **options: Any) -> Attacked:
    options = {"image_ids": IDS[: len(images)], "labels": LABELS[: len(images)], **options}
    return attack.attack(classifier or small(), images, options.pop("labels"), **options)


class Pictures:
    """Some real pictures in a real classifier's geometry."""

    def __init__(self, data: str, spec: str, count: int, batch_size: int) -> None:
        try:
            dataset = sb.open_dataset(data)
            self.classifier = sb.load_classifier(spec, batch_size=batch_size)
        except (DatasetError, MissingExtraError) as error:
            pytest.skip(f"not to be had here: {error}")
        rows = np.linspace(0, len(dataset) - 1, count).astype(int)
        geometry = self.classifier.preprocessing.geometry
        self.images = np.stack([geometry(dataset.read(int(row)).pixels) for row in rows])
        self.labels = np.asarray(dataset.labels)[rows].astype(np.int32)
        self.ids = [dataset.ids[int(row)] for row in rows]

    def accuracy(self, attack: Attack | AutoAttack, count: int | None = None, seed: int = 0) -> float:
        scores, _ = attack.scores_and_images(
            self.classifier, self.images[:count], self.labels[:count], image_ids=self.ids[:count], seed=seed
        )
        return float((scores.argmax(axis=1) == self.labels[:count]).mean())


@pytest.fixture(scope="module")
def cifar() -> Pictures:
    return Pictures("cifar-10-test", "demo:resnet8-cifar10", 16, batch_size=128)


@pytest.fixture(scope="module")
def photographs() -> Pictures:
    return Pictures("demo", "demo:squeezenet1_1", 20, batch_size=16)


# -- geometry -------------------------------------------------------------------------------------------------


def perturbation(seed: int, scale: float) -> Tensor:
    values = np.random.default_rng(seed).normal(0, scale, (3, 3, 5, 4))
    return torch.from_numpy(values.astype(np.float32))


@given(st.integers(0, 10**6), st.floats(1e-4, 10), st.floats(1e-3, 5), st.sampled_from(NORMS))
@settings(deadline=None, max_examples=60)
def test_projection_is_the_nearest_point_of_the_ball(seed: int, scale: float, eps: float, norm: Norm) -> None:
    delta = perturbation(seed, scale)
    inside = project(delta, norm, eps)
    assert (lengths(inside, norm) <= eps * (1 + 1e-5)).all()
    torch.testing.assert_close(project(inside, norm, eps), inside, rtol=1e-5, atol=0)
    short = lengths(delta, norm).flatten() <= eps
    assert torch.equal(inside[short], delta[short]), "what is inside stays"
    other = project(perturbation(seed + 1, scale), norm, eps)
    assert ((delta - inside).flatten(1).norm(dim=1) <= (delta - other).flatten(1).norm(dim=1) * (1 + 1e-5)).all()


@given(st.integers(0, 10**6), st.floats(1e-12, 10), st.sampled_from(NORMS))
@settings(deadline=None, max_examples=60)
def test_no_direction_of_length_one_is_steeper(seed: int, scale: float, norm: Norm) -> None:
    gradient = perturbation(seed, scale)
    best = steepest(gradient, norm)
    torch.testing.assert_close(lengths(best, norm).flatten(), torch.ones(3), rtol=1e-5, atol=0)
    other = perturbation(seed + 1, 1)
    other = other / lengths(other, norm)
    gain, less = ((gradient.double() * one).flatten(1).sum(dim=1) for one in (best, other))
    assert (gain >= less * (1 - 1e-5)).all()


def test_a_gradient_of_zero_has_no_direction() -> None:
    assert all(steepest(torch.zeros(1, 3, 2, 2), norm).eq(0).all() for norm in NORMS)


@pytest.mark.parametrize("norm", NORMS)
def test_starts_belong_to_image_seed_and_restart(norm: Norm) -> None:
    def start(image_id: str = "a", seed: int = 0, restart: int = 0) -> Any:
        return unit_start(norm, (3, 8, 8), image_id=image_id, seed=seed, restart=restart)

    assert np.array_equal(start(), start())
    assert all((start() != other).any() for other in (start("b"), start(seed=1), start(restart=1)))
    size = np.abs(start()).max() if norm == "linf" else np.linalg.norm(start())
    assert 0.9 < size <= 1 + 1e-6, "in many dimensions nearly all of a ball lies near its surface"


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("steps", [0, 5])
def test_results_stay_in_the_ball_and_among_colours(norm: Norm, steps: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, IMAGES.shape, np.uint8)
    noise[0], noise[1] = 0, 255
    found = attacked(replace(FAST[norm], steps=steps), images=noise).images
    assert found.dtype == np.float32 and found.min() >= 0 and found.max() <= 1
    delta = found.astype(np.float64) - noise / 255
    size = np.abs(delta).max(axis=(1, 2, 3)) if norm == "linf" else np.sqrt((delta**2).sum(axis=(1, 2, 3)))
    assert (size <= (0.02 if norm == "linf" else 2.0 * 32 / 224) + 1e-6).all()


@pytest.mark.parametrize("side", [32, 64])
def test_l2_radii_grow_with_the_side(side: int) -> None:
    """In the middle of the colours nothing is clipped, and a long attack ends on the surface of the ball."""
    grey = np.full((2, side, side, 3), 128, np.uint8)
    found = attacked(Attack("l2", "l2", 0.5, 20, 0.05), images=grey).images.astype(np.float64)
    size = np.sqrt(((found - 128 / 255) ** 2).sum(axis=(1, 2, 3)))
    np.testing.assert_allclose(size, 0.5 * side / 224, rtol=1e-4)


# -- against what is known ------------------------------------------------------------------------------------


class Linear(nn.Module):
    """Two classes whose difference is w . x: the best attack is known."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(
            torch.from_numpy(np.random.default_rng(1).normal(size=(3 * 8 * 8)).astype(np.float32))
        )

    def forward(self, x: Tensor) -> Tensor:
        difference = x.flatten(1) @ self.weight
        return torch.stack([-difference / 2, difference / 2], dim=1)


PLAIN = Preprocessing(Geometry(8, 8), Normalisation((0, 0, 0), (1, 1, 1)))


@pytest.mark.parametrize("norm", NORMS)
def test_a_linear_classifier_is_attacked_by_the_formula(norm: Norm) -> None:
    """x + eps sign(w), or x + eps w / ||w||, for the class that the difference speaks against."""
    classifier = small(Linear(), labels=LabelSpace("two", ("a", "b")), preprocessing=PLAIN)
    images = np.random.default_rng(2).integers(60, 190, (3, 8, 8, 3)).astype(np.uint8)
    eps = 0.01 if norm == "linf" else 2.0
    weight = Linear().weight.detach().numpy().reshape(3, 8, 8).transpose(1, 2, 0)
    best = np.sign(weight) * eps if norm == "linf" else weight / np.linalg.norm(weight) * eps * 8 / 224
    labels = np.array([0, 1, 0], np.int32)
    for attack in (fgsm("fgsm", norm, eps), Attack("pgd", norm, eps, 60, eps / 10, random_start=norm == "linf")):
        found = attacked(attack, classifier, images, labels=labels).images - images / 255
        for delta, label in zip(found, labels, strict=True):
            np.testing.assert_allclose(delta, best if label == 0 else -best, atol=2e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_one_step_of_pgd_is_fgsm(norm: Norm) -> None:
    eps = 0.02
    radius = eps if norm == "linf" else eps * 32 / 224
    one = attacked(Attack("pgd", norm, eps, 1, radius, random_start=False))
    assert np.array_equal(one.images, attacked(fgsm("fgsm", norm, eps)).images)


def test_the_testbeds_settings() -> None:
    found = {name: (a.norm, a.eps, a.steps, a.step_size, a.restarts) for name, a in published_attacks().items()}
    assert found == {
        "pgd.linf.eps0.5": ("linf", pytest.approx(0.001960784314), 100, pytest.approx(5.88235294117647e-05), 1),
        "pgd.linf.eps2": ("linf", pytest.approx(0.007843137255), 100, pytest.approx(2.352941176470588e-04), 1),
        "pgd.l2.eps0.1": ("l2", 0.1, 100, 0.01, 1),
        "pgd.l2.eps0.5": ("l2", 0.5, 100, 0.05, 1),
    }
    assert all(ATTACKS[name].describe() != attack.describe() for name, attack in published_attacks().items())
    assert [Victim.of(small(batch_size=size)).batch_size for size in (64, 8, 3)] == [8, 1, 1]


@pytest.mark.parametrize("norm", NORMS)
def test_another_library_reaches_the_same_loss(cifar: Pictures, norm: Norm) -> None:
    """The Adversarial Robustness Toolbox's PGD, from the image itself, on the same network."""
    evasion = pytest.importorskip("art.attacks.evasion")
    estimators = importlib.import_module("art.estimators.classification")
    images = cifar.images[:8]
    labels = cifar.labels[:8]
    eps, steps = (1 / 255, 10) if norm == "linf" else (0.5, 10)
    radius = eps if norm == "linf" else eps * 32 / 224
    ours = Attack("pgd", norm, eps, steps, radius / 4, random_start=False).attack(
        cifar.classifier, images, labels, image_ids=cifar.ids[:8]
    )
    model = cifar.classifier.gradient_model()
    estimator = estimators.PyTorchClassifier(
        model, nn.CrossEntropyLoss(), (3, 32, 32), 10, clip_values=(0, 1), device_type="cpu"
    )
    attack = evasion.ProjectedGradientDescentPyTorch(
        estimator, norm=np.inf if norm == "linf" else 2, eps=radius, eps_step=radius / 4, max_iter=steps, verbose=False
    )
    pixels = (images.transpose(0, 3, 1, 2) / 255).astype(np.float32)
    with one_torch_thread():
        theirs = torch.from_numpy(attack.generate(pixels, labels))
    with torch.no_grad():
        losses = nn.functional.cross_entropy(model(theirs), torch.from_numpy(labels).long(), reduction="none")
    np.testing.assert_allclose(ours.losses, losses.numpy(), rtol=0.02, atol=0.02)


# -- one image, one result ------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
def test_order_and_batch_do_not_matter(cifar: Pictures, norm: Norm) -> None:
    attack = replace(ATTACKS["pgd.linf.eps2" if norm == "linf" else "pgd.l2.eps0.5"], steps=10)

    def run(rows: list[int]) -> Any:
        ids = [cifar.ids[row] for row in rows]
        return attack.attack(cifar.classifier, cifar.images[rows], cifar.labels[rows], image_ids=ids, seed=3)

    whole = run(list(range(16)))
    back = run(list(range(16))[::-1])
    single = run([5])
    for what in ("images", "scores", "losses"):
        assert np.array_equal(getattr(whole, what), getattr(back, what)[::-1]), what
        assert np.array_equal(getattr(whole, what)[5], getattr(single, what)[0]), what
    other = attack.attack(cifar.classifier, cifar.images, cifar.labels, image_ids=cifar.ids, seed=4)
    assert (other.images != whole.images).any()


def test_threads_and_copies_give_the_same() -> None:
    """And torch's own number of threads is put back."""
    classifier = small()
    before = torch.get_num_threads()
    expected = attacked(FAST["linf"], classifier)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: attacked(FAST["linf"], classifier), range(8)))
    found.append(attacked(FAST["linf"], pickle.loads(pickle.dumps(classifier))))
    assert all(np.array_equal(one.images, expected.images) for one in found)
    assert torch.get_num_threads() == before
    assert pickle.loads(pickle.dumps(FAST["l2"])) == FAST["l2"]


def test_the_network_is_left_as_it_was() -> None:
    module = Small()
    module.train()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    classifier = small(module)
    attacked(FAST["linf"], classifier)
    classifier.gradient_model().eval()
    assert module.training and module.features.training
    assert all(torch.equal(before[key], value) for key, value in module.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in module.parameters())


def test_no_images_give_no_scores() -> None:
    found, _ = FAST["linf"].scores_and_images(small(), IMAGES[:0], LABELS[:0], image_ids=[], seed=0)
    assert found.shape == (0, 3)


# -- gradients of classifiers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "normalisation",
    [SMALL.normalisation, Normalisation((100, 110, 120), (50, 60, 70), 1, "bgr"), Normalisation(layout="nhwc")],
)
def test_the_gradient_model_gives_the_classifiers_scores(normalisation: Normalisation) -> None:
    class LastAxis(Small):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.shape[1] == 3 else x.permute(0, 3, 1, 2))

    classifier = small(LastAxis(), preprocessing=Preprocessing(SMALL.geometry, normalisation))
    pixels = torch.from_numpy(IMAGES.transpose(0, 3, 1, 2).copy()).float() / 255
    with torch.no_grad():
        found = classifier.gradient_model()(pixels).numpy()
    np.testing.assert_allclose(found, classifier.scores(IMAGES), atol=1e-5)


def test_a_twin_of_onnxruntime_has_its_networks_gradients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path))
    twin = small(engine="onnxruntime")
    assert isinstance(twin, OnnxClassifier)
    assert np.array_equal(attacked(FAST["linf"], twin).images, attacked(FAST["linf"]).images)
    # By its file it knows no network, and an object does not follow into another process.
    copy = pickle.loads(pickle.dumps(twin))
    assert np.array_equal(copy.scores(IMAGES), twin.scores(IMAGES))
    with pytest.raises(ClassifierError, match="worker processes"):
        copy.gradient_model()
    exported = sb.load_classifier(twin.path, labels=PETS, preprocessing=SMALL)
    with raises(
        ClassifierError,
        found="OnnxClassifier, run by onnxruntime cpu",
        hint="give the torch model instead of its export",
    ):
        exported.gradient_model()


def test_a_spec_is_loaded_again_for_its_gradients(cifar: Pictures) -> None:
    assert isinstance(cifar.classifier, OnnxClassifier) and cifar.classifier.twin is None
    copy = pickle.loads(pickle.dumps(cifar.classifier))
    pixels = torch.from_numpy(cifar.images[:2].transpose(0, 3, 1, 2).copy()).float() / 255
    with torch.no_grad():
        for classifier in (cifar.classifier, copy):
            found = classifier.gradient_model()(pixels).numpy()
            np.testing.assert_allclose(found, cifar.classifier.scores(cifar.images[:2]), rtol=1e-3, atol=1e-3)


class Detached(Small):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).detach()


def test_classifiers_without_gradients_are_refused() -> None:
    function = sb.load_classifier(lambda images: np.ones((len(images), 3), np.float32), labels=PETS, name="constant")
    for classifier in (function, Defended(small(), "clahe")):
        with raises(ClassifierError, hint="give the torch model instead of its export"):
            FAST["linf"].check(classifier)
    with pytest.raises(ClassifierError, match="gives no gradients"):
        attacked(FAST["linf"], small(Detached()))


def test_impossible_attacks_are_refused() -> None:
    for wrong in (
        {"norm": "l1"},
        {"eps": -1.0},
        {"steps": -1},
        {"restarts": 0},
        {"away_from": "truth"},
        {"eps": np.nan},
    ):
        with pytest.raises(ShiftError):
            replace(FAST["linf"], **wrong)
    with pytest.raises(ShiftError, match="depends on the classifier"):
        FAST["linf"](IMAGES[0], image_id="a", seed=0)


# -- strength -------------------------------------------------------------------------------------------------


def test_restarts_are_at_least_as_strong(cifar: Pictures) -> None:
    attack = replace(ATTACKS["pgd.linf.eps0.5"], steps=4, step_size=0.2 / 255)
    one, many = (
        replace(attack, restarts=count).attack(cifar.classifier, cifar.images, cifar.labels, image_ids=cifar.ids)
        for count in (1, 4)
    )
    right_one, right_many = (found.scores.argmax(axis=1) == cifar.labels for found in (one, many))
    assert not (right_many & ~right_one).any()
    same = right_one == right_many
    assert (many.losses[same] >= one.losses[same]).all() and (many.losses > one.losses).any()


def test_only_competing_classes_count() -> None:
    """An image pushed into a class that the setting lacks is not pushed anywhere."""
    classifier = small()
    free = attacked(FAST["linf"], classifier, labels=np.zeros(5, np.int32)).scores
    bound = attacked(FAST["linf"], classifier, labels=np.zeros(5, np.int32), classes=[0, 2]).scores
    margin = [scores[:, 2] - scores[:, 0] for scores in (free, bound)]
    assert (margin[1] >= margin[0] - 1e-6).all() and (margin[1] > margin[0]).any()


class Probable(Small):
    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(super().forward(x), dim=1)


def test_probabilities_are_attacked_like_their_logits() -> None:
    probable = small(Probable())
    assert probable.outputs == "probabilities"
    ours = attacked(FAST["l2"], probable)
    logits = attacked(FAST["l2"])
    np.testing.assert_allclose(ours.losses, logits.losses, rtol=1e-3)
    np.testing.assert_allclose(ours.scores.sum(axis=1), 1, rtol=1e-5)


def test_away_from_the_prediction_some_images_become_right(cifar: Pictures) -> None:
    """The testbed's way: what is wrong may be driven into the right class, so the accuracy has a floor."""
    wrong = cifar.classifier.scores(cifar.images).argmax(axis=1) != cifar.labels
    assert wrong.any()
    strong = replace(ATTACKS["pgd.linf.eps2"], steps=20, step_size=0.3 / 255)
    predicted = replace(strong, away_from="prediction")
    assert not predicted.needs_labels and strong.needs_labels
    assert cifar.accuracy(strong) == 0
    nobody = np.full(16, -1, np.int32)
    blind, _ = predicted.scores_and_images(cifar.classifier, cifar.images, nobody, image_ids=cifar.ids, seed=0)
    seeing, _ = predicted.scores_and_images(cifar.classifier, cifar.images, cifar.labels, image_ids=cifar.ids, seed=0)
    assert np.array_equal(blind, seeing)


def test_a_real_classifier_falls_to_zero(photographs: Pictures) -> None:
    """SqueezeNet at 2 grey levels, with larger steps than the testbed's because there are fewer."""
    assert photographs.accuracy(Attack("none", "linf", 0, 0, None)) >= 0.7
    assert photographs.accuracy(Attack("pgd", "linf", 2 / 255, 6, 0.7 / 255)) <= 0.05


@pytest.mark.soak
def test_a_hundred_steps_on_real_photographs(photographs: Pictures) -> None:
    attack = ATTACKS["pgd.linf.eps2"]
    found = attack.attack(
        photographs.classifier, photographs.images[:2], photographs.labels[:2], image_ids=photographs.ids[:2]
    )
    assert (found.scores.argmax(axis=1) != photographs.labels[:2]).all()
    assert np.abs(found.images - photographs.images[:2] / 255).max() <= 2 / 255 + 1e-6
    assert found.losses.min() > 10


# -- AutoAttack -----------------------------------------------------------------------------------------------


def test_autoattack_is_as_strong_as_pgd_and_draws_by_image(cifar: Pictures) -> None:
    pytest.importorskip("art")
    attack = AutoAttack("autoattack", "linf", 0.5 / 255, steps=8, queries=20)
    state = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
    rows = {"image_ids": cifar.ids[:4], "seed": 0}
    whole, _ = attack.scores_and_images(cifar.classifier, cifar.images[:4], cifar.labels[:4], **rows)  # type: ignore[arg-type]
    back, _ = attack.scores_and_images(
        cifar.classifier, cifar.images[1:2], cifar.labels[1:2], image_ids=cifar.ids[1:2], seed=0
    )
    assert np.array_equal(whole[1], back[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == state  # type: ignore[index]  # noqa: NPY002
    pgd = replace(ATTACKS["pgd.linf.eps0.5"], steps=8, step_size=0.15 / 255)
    assert (whole.argmax(axis=1) == cifar.labels[:4]).mean() <= cifar.accuracy(pgd, 4)


def test_autoattack_without_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "art.attacks.evasion", None)
    with raises(MissingExtraError, hint="pip install 'shiftbench[attacks]'"):
        AutoAttack("autoattack", "linf", 0.1).check(small())


# -- checks ---------------------------------------------------------------------------------------------------


class Saturated(Small):
    """Logits so large that the softmax is one in 32 bits: the loss is flat, and the network is no sturdier."""

    def forward(self, x: Tensor) -> Tensor:
        return 1e6 * super().forward(x)


class Rounded(Small):
    """The input in a few grey levels: the gradient is zero almost everywhere."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(torch.round(8 * x) / 8)


def test_an_honest_network_passes_the_checks(cifar: Pictures) -> None:
    results = check_attack(cifar.classifier, cifar.images[:8], cifar.labels[:8], steps=8)
    assert len(results) == 7 and [result for result in results if not result.ok] == []


@pytest.mark.parametrize("kind", [Saturated, Rounded])
def test_masked_gradients_are_caught(kind: type[Small]) -> None:
    failed = {result.name for result in check_attack(small(kind()), IMAGES, steps=4) if not result.ok}
    assert {"every image has a gradient", "the loss rises with eps", "an unbounded attack reaches 0 %"} <= failed


class Parity(Small):
    """The class hangs on the last digits of some pixels: gradients say nothing, chance finds the other class."""

    def forward(self, x: Tensor) -> Tensor:
        odd = torch.floor(1000 * x[:, :, :4, :4]).sum(dim=(1, 2, 3)) % 2
        return torch.stack([odd, 1 - odd, 0 * odd], dim=1) + 0 * super().forward(x)


def test_chance_and_restarts_tell_a_blind_attack() -> None:
    failed = {
        result.name for result in check_attack(small(Parity()), sample_images(20, (32, 32)), steps=3) if not result.ok
    }
    assert {"one run finds what restarts find", "gradients find what chance finds"} <= failed


def test_the_checks_need_something_to_lose() -> None:
    predicted = small().scores(IMAGES).argmax(axis=1)
    (only,) = check_attack(small(), IMAGES, ((predicted + 1) % 3).astype(np.int32))
    assert not only.ok


def test_torch_is_imported_when_used() -> None:
    import subprocess
    import sys

    code = "import sys, shiftbench.settings.builtin; assert not {'torch', 'art'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert isinstance(small(), TorchClassifier)
