"""Work that can be distributed: jobs, the executors that run them (threads, processes, Ray), and progress."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
