"""A bridge to diffusers, Hugging Face's library of pipelines.

`predictor` makes a network of diffusers a noise predictor of the library; `read_model` and
`read_network` read folders of pipelines. `OperatorScheduler` is the sampler of the library under a
pipeline of diffusers, `OperatorPrior` its prior, and `pipeline` a trained model as a whole
pipeline.
"""

from oism._core.extras import require

require("diffusers", "diffusers", purpose="oism.diffusers")

from oism.diffusers._components import OperatorNetwork, OperatorPrior  # noqa: E402
from oism.diffusers._folders import read_model, read_network  # noqa: E402
from oism.diffusers._pipeline import OperatorPipeline, pipeline  # noqa: E402
from oism.diffusers._predictor import UNetPredictor, predictor  # noqa: E402
from oism.diffusers._scheduler import OperatorScheduler  # noqa: E402

__all__ = [
    "OperatorNetwork",
    "OperatorPipeline",
    "OperatorPrior",
    "OperatorScheduler",
    "UNetPredictor",
    "pipeline",
    "predictor",
    "read_model",
    "read_network",
]

for _part in (OperatorNetwork, OperatorPipeline, OperatorPrior, OperatorScheduler):
    _part.__module__ = __name__  # the index of a pipeline names it, and modules inside are private
