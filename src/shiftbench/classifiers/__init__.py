"""Models of any framework behind one interface: uint8 images in, scores over a label space out.

``base`` defines the interface, ``loading`` loads a model from a spec or an object, and each other module knows one kind
of model (ONNX, torch, scikit-learn, Python code, recorded predictions) or one part of its description (options,
preprocessing, sidecars). A new kind of model is a loader that is registered in ``classifier_loaders``. Runs, metrics
and reports belong elsewhere: nothing here imports them.

Importing this package imports no framework; each loader does that when it is used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
