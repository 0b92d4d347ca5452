from shiftbench.runs.import_predictions import import_answers as import_answers
from shiftbench.runs.plan import setting_geometry as setting_geometry
from shiftbench.runs.results import StoredResults as StoredResults
from shiftbench.settings.roles import Data as Data
from shiftbench.settings.roles import data_name as data_name
from shiftbench.settings.roles import of_split as of_split
from shiftbench.settings.roles import path_of_split as path_of_split
from shiftbench.store.spec import ResultSpec as ResultSpec
