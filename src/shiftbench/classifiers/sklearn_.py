"""scikit-learn estimators, or anything with ``predict_proba`` or ``decision_function``."""

from __future__ import annotations

import math
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import BatchedClassifier, trial_scores
from shiftbench.classifiers.options import KnownInput, Options, settle
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing, luma
from shiftbench.errors import ClassifierError, LabelError
from shiftbench.io.code_state import value_digest
from shiftbench.io.hashing import digest
from shiftbench.labels.space import LabelSpace, Scores

# Finite, since scores must be; its exponential is zero all the same.
_FAR_BELOW = -1e30
_RAW = Normalisation(mean=(0, 0, 0), std=(1, 1, 1), scale=1, layout="nhwc")


class SklearnClassifier(BatchedClassifier):
    """An estimator on flattened pixels.

    The normalised pixels are flattened, after a conversion to grey (Pillow's "L") if the estimator has a third as
    many features. Classes the estimator never saw get probability 0, or a score far below all others.
    """

    def __init__(
        self,
        estimator: Any,
        *,
        name: str,
        space: LabelSpace,
        preprocessing: Preprocessing,
        batch_size: int | None = None,
    ) -> None:
        super().__init__()
        self.estimator = estimator
        self.name, self.space, self.preprocessing = name, space, preprocessing
        self.outputs = "probabilities" if hasattr(estimator, "predict_proba") else "logits"
        self.batch_size = batch_size or 32
        self.engine = "scikit-learn"
        self._columns = _columns(estimator, space)

    @property
    def fingerprint(self) -> str:
        """Over the pickled estimator and the preprocessing."""
        try:
            import joblib  # type: ignore[import-untyped]

            weights = str(joblib.hash(self.estimator))
        except ImportError:
            weights = digest(pickle.dumps(self.estimator, protocol=4))
        except pickle.PicklingError:  # a function of a notebook among its parts
            weights = value_digest(self.estimator)
        return digest("estimator", weights, None, self.preprocessing.describe())

    def rows(self) -> int:
        """Matrix products round differently for other shapes, so all batches have one."""
        return self.batch_size

    def forward(self, images: Pixels) -> Scores:
        features = self._features(images)
        with self._running:
            if self.outputs == "probabilities":
                values = np.array(self.estimator.predict_proba(features))
            else:
                values = np.array(self.estimator.decision_function(features))
        if values.ndim == 1:  # two classes: the second one's side of the plane
            values = np.stack([np.zeros_like(values), values], axis=1)
        absent = 0.0 if self.outputs == "probabilities" else _FAR_BELOW
        scores = np.full((len(images), len(self.space)), absent, np.float32)
        scores[:, self._columns] = values
        return scores

    def _features(self, images: Pixels) -> NDArray[np.float64]:
        chosen = self.preprocessing.normalisation
        grey = getattr(self.estimator, "n_features_in_", None) == images.shape[1] * images.shape[2]
        images = luma(images) if grey else images
        ordered = images[..., ::-1] if chosen.colour_order == "bgr" else images
        # In double precision and by division, as scripts write it: a tree may ask for the last bit.
        values: NDArray[np.float64] = (ordered / (1 / chosen.scale) - chosen.mean) / chosen.std
        if grey:
            values = values[..., 0]
        elif chosen.layout == "nchw":
            values = values.transpose(0, 3, 1, 2)
        return values.reshape(len(images), -1)


def from_estimator(estimator: object, options: Options) -> SklearnClassifier:
    """Space from ``classes_``, input size from ``n_features_in_``, unless given; values from 0 to 255, row by row."""
    name = options.name or type(estimator).__name__
    if not hasattr(estimator, "classes_"):
        raise ClassifierError(f"{name} is not fitted", found="no attribute classes_", hint="call fit first")
    space, default, classes = options.labels, options.default_labels, estimator.classes_
    if space is None:
        # Numbers are indices into the default's classes, if there are as many.
        fits = default is not None and len(default) == len(classes) and not isinstance(classes[0], str)
        space = default if fits and default is not None else LabelSpace(name, tuple(str(key) for key in classes))
    classifier = SklearnClassifier(
        estimator,
        name=name,
        space=space,
        preprocessing=options.preprocessing or Preprocessing(normalisation=_RAW),
        batch_size=options.batch_size,
    )

    def trial(preprocessing: Preprocessing) -> Scores:
        classifier.preprocessing = preprocessing
        return trial_scores(name, options.trial_images(preprocessing), classifier.padded_forward)

    known = KnownInput(None, _RAW, ("scale", "colour order", "layout"))
    features = int(getattr(estimator, "n_features_in_", 0))
    for planes in (1, 3):  # the square image that has as many values, in colour or grey
        side = math.isqrt(features // planes)
        if side and side * side * planes == features:
            assumed = ("scale", "colour order", "layout") if planes == 3 else ("scale",)
            known = KnownInput((side, side), _RAW, assumed)
    settled, _ = settle(name, options, known, trial)
    classifier.sources = {"labels": "file", "outputs": "file", **settled.sources}
    return classifier


def _columns(estimator: Any, space: LabelSpace) -> NDArray[np.int64]:
    """For each of the estimator's classes its column in the space: by key, by name, or by number."""
    classes = [cls.item() if isinstance(cls, np.generic) else cls for cls in estimator.classes_]
    if all(str(cls) in space for cls in classes):
        return np.array([space.index(str(cls)) for cls in classes])
    if all(space.names.count(cls) == 1 for cls in classes):
        return np.array([space.names.index(cls) for cls in classes])
    if all(isinstance(cls, int) and 0 <= cls < len(space) for cls in classes):
        return np.array(classes)
    raise LabelError(
        f"the estimator's classes are not those of {space.name!r}",
        found=", ".join(map(str, classes[:5])),
        expected=", ".join(space.keys[:5]) + ", ..., or their numbers",
    )
