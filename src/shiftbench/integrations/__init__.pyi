from .check import check_sink as check_sink
from .monitor import Monitor as Monitor
from .sinks import Sink as Sink
from .sinks import find_sink as find_sink
from .sinks import sinks as sinks
