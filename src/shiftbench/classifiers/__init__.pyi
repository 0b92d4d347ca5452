from .base import Classifier as Classifier
from .check import check_classifier as check_classifier
from .function import FunctionClassifier as FunctionClassifier
from .loading import classifier_loaders as classifier_loaders
from .loading import load_classifier as load_classifier
from .options import Options as Options
from .preprocessing import Normalisation as Normalisation
from .preprocessing import Preprocessing as Preprocessing
