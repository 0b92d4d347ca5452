"""The corruptions of ImageNet-C: one call, reproducible, without ImageMagick or scikit-image.

>>> import numpy as np
>>> import shiftbench as sb
>>> image = np.full((64, 64, 3), 100, np.uint8)
>>> sb.corrupt(image, sb.corruptions()[0], severity=3, seed=0, image_id="a.png").dtype
dtype('uint8')
"""
