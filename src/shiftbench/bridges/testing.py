"""Robustness in a test suite: assertions with the statistics of the gate."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from shiftbench import evaluate
from shiftbench.errors import SettingError
from shiftbench.extend.studies import Policy, Rule, judge_by_default_policy
from shiftbench.extend.tables import verdict_line

if TYPE_CHECKING:
    from shiftbench import LabelSpace, Run
    from shiftbench.extend.settings import Data
    from shiftbench.extend.studies import GateResult

#: What the assertions of this process have found: for the summary of a test run.
verdicts: list[str] = []


@dataclass(frozen=True)
class ModelVerdict:
    """What ``assert_not_worse`` has found.

    Attributes:
        run: The evaluation of both models.
        gate: The verdict, rule by rule; None if both models are the same.
        text: The verdict in one line.
    """

    run: Run
    gate: GateResult | None
    text: str


def assert_not_worse(
    model: object,
    baseline: object,
    data: Data,
    *,
    suite: str = "clean",
    margin: float | Mapping[str, float] = 2.0,
    labels: Sequence[str] | LabelSpace | str | None = None,
    preprocessing: object = None,
    severities: float | Sequence[float] = (1, 2, 3, 4, 5),
    corruptions: str | Sequence[str] = (),
    alpha: float = 0.05,
    undecided: Literal["fail", "pass"] = "fail",
    workspace: str | Path | None = None,
) -> ModelVerdict:
    """Assert that a model is not worse than another one, by more than a margin, on the same images.

    The decision is that of ``shiftbench gate``: "worse" and "not worse" have to be shown, each with an error
    probability of at most ``alpha``. Too few images show neither, which fails the assertion unless you say otherwise.

    Args:
        model: The candidate: a spec, a torch module, a function, a loaded model.
        baseline: The model that it is compared with.
        data: Images with labels, as in ``evaluate``.
        suite: What is evaluated: ``"clean"``, ``"corruptions"``, ...
        margin: The accepted drop in points, of clean accuracy and of the mean under shift; or one for each kind of
            number, such as ``{"clean": 2, "corruption": 5}``.
        labels: Classes of data and models, as in ``evaluate``.
        preprocessing: What both models were trained with, or a list of two, as in ``evaluate``.
        severities: Severities of corruption suites.
        corruptions: Only these corruptions.
        alpha: Error probability.
        undecided: What happens if there are too few images for a decision: ``"fail"`` or ``"pass"``.
        workspace: Folder for the results; default: a temporary one, so that both models are evaluated each time.

    Returns:
        The evaluation and the verdict.

    Raises:
        AssertionError: The model is worse, or ("not enough images") it cannot be shown that it is not.
        ShiftbenchError: Models or data cannot be opened.

    Example:
        >>> import numpy as np
        >>> from shiftbench.datasets import from_arrays
        >>> images = np.random.default_rng(0).integers(0, 256, (400, 8, 8, 3), dtype=np.uint8)
        >>> data = from_arrays(images, (images.mean((1, 2, 3)) > 127.5).astype(int), space=["dark", "light"])
        >>> def by_mean(batch):
        ...     return np.stack([127.5 - batch.mean((1, 2, 3)), batch.mean((1, 2, 3)) - 127.5], axis=1)
        >>> def by_median(batch):
        ...     return by_mean(np.median(batch, axis=(1, 2, 3), keepdims=True))
        >>> stated = {"size": 8, "interpolation": "bilinear", "outputs": "logits"}
        >>> assert_not_worse(by_mean, by_median, data, preprocessing=stated).text[:4]
        'PASS'
    """
    if undecided not in ("fail", "pass"):
        raise SettingError("unknown treatment of undecided rules", found=repr(undecided), expected="fail or pass")
    margins = margin if isinstance(margin, Mapping) else {"clean": margin}
    policy = _policy(margins, alpha)
    with tempfile.TemporaryDirectory(prefix="shiftbench-") as folder:
        run = evaluate(
            [model, baseline],
            suite,
            data,
            workspace or folder,
            labels=labels,
            name=["candidate", "baseline"] if _are_unnamed(model, baseline) else None,
            preprocessing=preprocessing,
            severities=severities,
            corruptions=corruptions,
            progress=False,
        )
        titles = list(dict.fromkeys(result.title for result in run.results))
        if len(titles) == 1:
            return _noted(ModelVerdict(run, None, f"IDENTICAL: {titles[0]} is both the model and the baseline"))
        candidate, other = titles
        results = (run.select([candidate]).results, run.select([other]).results)
        gate = judge_by_default_policy(run.workspace, *results, policy)
        if not isinstance(margin, Mapping) and any(setting.shifted for setting in gate.settings):
            policy = _policy({"clean": margin, "mean": margin}, alpha)
            gate = judge_by_default_policy(run.workspace, *results, policy)
    comparison = _noted(ModelVerdict(run, gate, verdict_line(gate)))
    is_accepted = gate.verdict == "pass" or (gate.verdict == "not enough images" and undecided == "pass")
    if not is_accepted:
        raise AssertionError(comparison.text)
    return comparison


def _policy(margins: Mapping[str, float], alpha: float) -> Policy:
    """One blocking rule per margin."""
    kinds = ("clean", "mean", "family", "corruption", "setting", "class", "calibration")
    unknown = [kind for kind in margins if kind not in kinds]
    if unknown:
        raise SettingError("unknown kind of number", found=", ".join(unknown), expected=", ".join(kinds))
    return Policy(tuple(Rule(kind, points) for kind, points in margins.items()), alpha=alpha)  # type: ignore[arg-type]


def _are_unnamed(model: object, baseline: object) -> bool:
    """Whether both are objects of one name, such as two modules of one class; loaded models and specs have names."""
    if model is baseline:
        return False
    names = [getattr(entry, "__name__", type(entry).__name__) for entry in (model, baseline)]
    return not isinstance(model, str) and not hasattr(model, "fingerprint") and names[0] == names[1]


def _noted(comparison: ModelVerdict) -> ModelVerdict:
    verdicts.append(comparison.text)
    return comparison
