from shiftbench.runs.results import StoredResults as StoredResults
from shiftbench.settings.roles import Data as Data
from shiftbench.store.spec import ResultSpec as ResultSpec
