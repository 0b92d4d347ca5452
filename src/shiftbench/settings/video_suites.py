"""Video frames: ImageNet-Vid-Robust and YTBB-Robust, as pm-k accuracy."""

from __future__ import annotations

from shiftbench.settings.base import Setting, SuiteOptions, suite
from shiftbench.settings.natural_suites import val_on


def _video(name: str, reference: str, space: str) -> list[Setting]:
    """Both numbers come from one pass: the anchors are among the frames."""
    note = "scores projected onto the set's classes by the maximum over their ImageNet classes, for every classifier"
    clean = val_on(reference, space)
    frames = Setting(f"{name}_pm0", name, space=space, metric="pm0", reference=clean.name, note=note)
    near = Setting(f"{name}_pm10", name, space=space, metric="pm10", reference=f"{name}_pm0", note=note)
    return [clean, frames, near]


@suite("imagenet-vid-robust")
def imagenet_vid_robust(options: SuiteOptions) -> list[Setting]:
    """ImageNet-Vid-Robust: anchor frames (pm-0) and all frames up to 10 away (pm-10), against val on its 30 classes."""
    return _video("imagenet-vid-robust", "vid-robust", "vid-robust-30")


@suite("ytbb-robust")
def ytbb_robust(options: SuiteOptions) -> list[Setting]:
    """YTBB-Robust: anchor frames (pm-0) and all frames up to 10 away (pm-10), against val on its classes."""
    return _video("ytbb-robust", "ytbb-robust", "ytbb-robust-24")
