from .augmentations.base import batch_augmentations as batch_augmentations
from .augmentations.base import image_augmentations as image_augmentations
from .augmentations.base import make_batch_augmentation as make_batch_augmentation
from .augmentations.base import make_image_augmentation as make_image_augmentation
from .augmentations.check import check_augmentation as check_augmentation
from .augmentations.networks import network_for as network_for
from .recipe import Recipe as Recipe
from .recipe import load_recipe as load_recipe
from .training.train import train as train
from .training_schemes import Criterion as Criterion
from .training_schemes import SchemeOutput as SchemeOutput
from .training_schemes import jensen_shannon as jensen_shannon
from .training_schemes import schemes as schemes
from .training_schemes import soft_cross_entropy as soft_cross_entropy
from .transforms import Augment as Augment
from .transforms import JsdCrossEntropy as JsdCrossEntropy

__all__: list[str]
