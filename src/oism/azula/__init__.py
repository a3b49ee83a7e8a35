"""A bridge to azula, a library of denoisers and samplers.

`ModelDenoiser` is a model of the library for the samplers of azula, `DenoiserPredictor` a denoiser
of azula as a noise predictor of the library.
"""

from oism._core.extras import require

require("azula", "azula", purpose="oism.azula")

from oism.azula._denoiser import ClockSchedule, DenoiserPredictor, ModelDenoiser  # noqa: E402

__all__ = ["ClockSchedule", "DenoiserPredictor", "ModelDenoiser"]
