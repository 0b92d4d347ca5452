"""From predictions to scores: accuracy, corruption error, calibration, detection, flips, intervals, paired tests.

Plain functions on arrays, in fractions, independent of the rest of the package; imported when used:

>>> from shiftbench.metrics import aurra, clopper_pearson, rms_calibration_error
>>> aurra(confidence=[0.9, 0.6], correct=[True, True])
1.0
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
