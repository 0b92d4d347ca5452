"""The quickest model that can be trained on what a descriptor sees: logistic regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.errors import MissingExtraError

Rows = NDArray[Any]
Classes = NDArray[np.int64]


def by_logistic_regression(rows: Rows, classes: Classes, others: Rows, seed: int) -> Classes:
    """The classes of ``others``. Standardised values, a strong ridge: there are often more values than images.

    On one thread: its many small products gain nothing from more, and the answers then depend on the seed alone.
    """
    try:
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "sklearn", "logistic regression") from error
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300, random_state=seed))
    with threadpool_limits(1):
        model.fit(rows.astype(np.float32), classes)
        return np.asarray(model.predict(others.astype(np.float32)))
