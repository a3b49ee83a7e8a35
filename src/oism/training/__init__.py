"""Training of noise predictors, and the evaluation of trained models.

`train` trains a network, alone or with a prior, in a folder and returns the model. `Loop` is one
step after another, for a training loop of one's own.
"""

from oism.training._bits import Bits, bits_per_dim
from oism.training._checkpoint import CheckpointError
from oism.training._classifier import Classifier, fit_classifier
from oism.training._config import CHANGEABLE, TrainingConfig
from oism.training._data import Rows, stacked
from oism.training._fidelity import PrecisionRecall, nearest_rows, precision_recall
from oism.training._folder import (
    check_folder,
    check_not_running,
    holds_run,
    latest_checkpoint,
    read_settings,
    run_progress,
)
from oism.training._frechet import (
    Extractor,
    FeatureMoments,
    extractor_of,
    feature_rows,
    features_of,
    frechet_distance,
)
from oism.training._loop import DivergedError, Loop, ModelError, Report, new_accelerator
from oism.training._metrics import read_metrics
from oism.training._run import Run, train

__all__ = [
    "CHANGEABLE",
    "Bits",
    "CheckpointError",
    "Classifier",
    "DivergedError",
    "Extractor",
    "FeatureMoments",
    "Loop",
    "ModelError",
    "PrecisionRecall",
    "Report",
    "Rows",
    "Run",
    "TrainingConfig",
    "bits_per_dim",
    "check_folder",
    "check_not_running",
    "extractor_of",
    "feature_rows",
    "features_of",
    "fit_classifier",
    "frechet_distance",
    "holds_run",
    "latest_checkpoint",
    "nearest_rows",
    "new_accelerator",
    "precision_recall",
    "read_metrics",
    "read_settings",
    "run_progress",
    "stacked",
    "train",
]
