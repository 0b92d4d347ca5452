from .publish import Publication as Publication
from .publish import publication as publication
from .publish import write_publication as write_publication
from .site import write_site as write_site
from .testing import Comparison as Comparison
from .testing import assert_not_worse as assert_not_worse
from .torch_data import SettingDataset as SettingDataset
from .torch_data import from_torch_dataset as from_torch_dataset
from .torch_data import torch_dataset as torch_dataset

__all__: list[str]
