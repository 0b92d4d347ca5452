"""Datasets: folders, arrays, shards and tables of labelled images behind one interface."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
