from shiftbench.arrays import FloatArray as FloatArray
from shiftbench.arrays import IntArray as IntArray
from shiftbench.arrays import Pixels as Pixels
from shiftbench.labels.space import AskedSpace as AskedSpace
from shiftbench.labels.space import Labels as Labels
