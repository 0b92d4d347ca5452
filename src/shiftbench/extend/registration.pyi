from shiftbench.native import kernel as kernel
from shiftbench.registry import Registry as Registry
