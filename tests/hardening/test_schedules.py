from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest
import torch

from shiftbench.errors import ShiftbenchError
from shiftbench.hardening.recipe import Schedule, load_recipe
from shiftbench.io.schema import decode


def rates(schedule: Schedule, epochs: int, per_epoch: int, highest: float = 0.1) -> list[float]:
    return [
        schedule.rate(step, highest=highest, epochs=epochs, steps_per_epoch=per_epoch)
        for step in range(epochs * per_epoch)
    ]


def by_torch(make: str, steps: int, **options: object) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1)
    scheduler = getattr(torch.optim.lr_scheduler, make)(optimizer, **options)
    found = []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def test_cosine_is_torchs() -> None:
    assert rates(Schedule("cosine", floor=1e-6), 5, 8) == pytest.approx(
        by_torch("CosineAnnealingLR", 40, T_max=40, eta_min=1e-6)
    )


def test_step_is_torchs() -> None:
    ours = rates(Schedule("step", milestones=(2, 4), factor=0.1), 6, 5)
    assert ours == pytest.approx(by_torch("MultiStepLR", 30, milestones=[10, 20], gamma=0.1))


def test_warm_up_rises_in_a_line_and_milestones_count_from_the_beginning() -> None:
    found = rates(Schedule("step", warmup_epochs=2, milestones=(4,)), 6, 4, highest=1.0)
    assert found[:8] == pytest.approx([i / 8 for i in range(1, 9)])
    assert found[8:16] == pytest.approx([1.0] * 8) and found[16:] == pytest.approx([0.1] * 8)


def test_cosine_begins_after_the_warm_up_and_ends_at_the_floor() -> None:
    found = rates(Schedule("cosine", warmup_epochs=1, floor=0.0), 4, 100, highest=1.0)
    assert max(found) == pytest.approx(1.0) and found[100] == pytest.approx(1.0)
    assert found[-1] < 1e-3 and all(a >= b for a, b in itertools.pairwise(found[100:]))


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ({"name": "cosin"}, "name"),
        ({"name": "step", "milestones": [60, 30]}, "milestones"),
        ({"warmup_epochs": -1}, "warmup_epochs"),
        ({"factor": 0}, "factor"),
        ({"floor": float("nan")}, "floor"),
    ],
)
def test_invalid_schedules_are_refused(table: dict[str, object], key: str) -> None:
    with pytest.raises(ShiftbenchError, match=key) as caught:
        decode(table, Schedule, "[schedule]")
    assert caught.value.found is not None and caught.value.expected is not None


def test_poly_and_tanh_are_timms() -> None:
    from shiftbench.classifiers.zoo import import_timm

    import_timm()
    timm = importlib.import_module("timm.scheduler")
    for name, kind in (("poly", timm.PolyLRScheduler), ("tanh", timm.TanhLRScheduler)):
        optimizer = torch.optim.SGD([torch.zeros(1)], 0.4)
        theirs = kind(optimizer, t_initial=20, lr_min=0.01)
        ours = decode({"name": name, "floor": 0.01}, Schedule, "the schedule")
        for step in range(20):
            theirs.step(step)
            found = ours.rate(step, highest=0.4, epochs=4, steps_per_epoch=5)
            assert found == pytest.approx(optimizer.param_groups[0]["lr"])


def test_wong_falls_in_straight_lines() -> None:
    """np.interp over the epochs and rates of the three phases of fast_adversarial's 4px configurations."""
    recipe = load_recipe("imagenet-wong")
    for step in range(15 * 7):
        expected = np.interp((step + 1) / 7, [0, 1, 6, 12, 15], [0, 0.4, 0.04, 0.004, 0.0004])
        found = recipe.schedule.rate(step, highest=recipe.optimizer.lr, epochs=15, steps_per_epoch=7)
        assert found == pytest.approx(expected)
