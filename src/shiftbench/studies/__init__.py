"""Is it robustness, or just accuracy? Fits, effective and relative robustness, correlations and what follows.

A study asks a question about many models or settings and answers it with numbers and intervals: lines through
accuracies, hypotheses about methods, new test sets, gates for a candidate. Each study is one module of functions on
arrays or on tables of results (``results.Results``) that return frozen dataclasses. Studies read stored predictions
(only ``colours`` runs a model); how their numbers are printed or drawn belongs to ``reports``, and how they are asked
for to ``cli``.

>>> from shiftbench.studies import effective_robustness, fit
>>> x = {"a": 0.565, "b": 0.698, "c": 0.761, "d": 0.827}
>>> y = {"a": 0.440, "b": 0.572, "c": 0.633, "d": 0.721}
>>> line = fit(x, y, scale="logit")
>>> mine = effective_robustness({**x, "mine": 0.79}, {**y, "mine": 0.71}, line)
>>> round(mine.rho["mine"], 3)
0.037
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
