"""What happens to an image classifier when the data shifts, and is that robustness or just accuracy?

>>> import shiftbench as sb
>>> sb.corruptions()[:3]
['gaussian_noise', 'shot_noise', 'impulse_noise']
"""

import lazy_loader

# Names are listed in __init__.pyi and imported when they are used, so that importing the package costs next to nothing.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
