from . import (
    azula as azula,
    basis as basis,
    data as data,
    diffusers as diffusers,
    estimation as estimation,
    flow as flow,
    images as images,
    nn as nn,
    objectives as objectives,
    plot as plot,
    process as process,
    score as score,
    storage as storage,
    tables as tables,
    training as training,
)
from .basis import (
    Fourier as Fourier,
    Hermite as Hermite,
    Polynomials as Polynomials,
    TensorHermite as TensorHermite,
)
from .estimation import (
    CrossValidation as CrossValidation,
    fit as fit,
    fit_linear as fit_linear,
    fit_ratio as fit_ratio,
)
from .flow import (
    FittedModel as FittedModel,
    Flow as Flow,
)
from .images import (
    fit_mixture as fit_mixture,
    fit_prior as fit_prior,
)
from .nn import (
    Combined as Combined,
    DDPMpp as DDPMpp,
    Diffusion as Diffusion,
)
from .process import (
    Brownian as Brownian,
    CriticallyDamped as CriticallyDamped,
    Linear as Linear,
    Logarithmic as Logarithmic,
    OrnsteinUhlenbeck as OrnsteinUhlenbeck,
    Torus as Torus,
    VarianceExploding as VarianceExploding,
    VariancePreserving as VariancePreserving,
)
from .storage import (
    load as load,
)
from .tables import (
    OISM as OISM,
)
from .training import (
    train as train,
)

__all__: list[str]
__version__: str
