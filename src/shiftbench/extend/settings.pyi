from shiftbench.runs.results import StoredResults as StoredResults
from shiftbench.settings.roles import Data as Data
from shiftbench.settings.roles import path_of_split as path_of_split
from shiftbench.store.spec import ResultSpec as ResultSpec
