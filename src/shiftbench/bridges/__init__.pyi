from .fiftyone_ import from_fiftyone as from_fiftyone
from .fiftyone_ import to_fiftyone as to_fiftyone
from .inspect_ import InspectImport as InspectImport
from .inspect_ import import_inspect_log as import_inspect_log
from .inspect_ import inspect_task as inspect_task
from .maite_ import MaiteAugmentation as MaiteAugmentation
from .maite_ import MaiteDataset as MaiteDataset
from .maite_ import MaiteModel as MaiteModel
from .maite_ import MaiteTop1 as MaiteTop1
from .maite_ import as_maite as as_maite
from .maite_ import from_maite_dataset as from_maite_dataset
from .maite_ import from_maite_model as from_maite_model
from .maite_ import score_by_maite as score_by_maite
from .nrtk_ import nrtk_shift as nrtk_shift
from .publish import Publication as Publication
from .publish import publication as publication
from .publish import write_publication as write_publication
from .site import write_site as write_site
from .testing import ModelVerdict as ModelVerdict
from .testing import assert_not_worse as assert_not_worse
from .torch_data import SettingDataset as SettingDataset
from .torch_data import from_torch_dataset as from_torch_dataset
from .torch_data import torch_dataset as torch_dataset

__all__: list[str]
