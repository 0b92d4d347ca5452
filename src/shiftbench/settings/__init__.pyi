from .base import Setting as Setting
from .base import Suite as Suite
from .base import SuiteOptions as SuiteOptions
from .base import build_suite as build_suite
from .base import suite as suite
from .base import suites as suites
from .roles import Selection as Selection
from .roles import open_data as open_data
