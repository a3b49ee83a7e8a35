from . import (
    atomic as atomic,
    basis as basis,
    checks as checks,
    clock as clock,
    datasets as datasets,
    density as density,
    equations as equations,
    estimation as estimation,
    estimator as estimator,
    expectation as expectation,
    files as files,
    flow as flow,
    likelihood as likelihood,
    moments as moments,
    nn as nn,
    objectives as objectives,
    operators as operators,
    plot as plot,
    prior as prior,
    process as process,
    progress as progress,
    quadrature as quadrature,
    ratio as ratio,
    score as score,
    shrinkage as shrinkage,
    solve as solve,
    training as training,
    transforms as transforms,
)
from .basis import (
    Basis as Basis,
    CosineFrame as CosineFrame,
    Fourier as Fourier,
    Hermite as Hermite,
    IdentityFrame as IdentityFrame,
    OrthogonalFrame as OrthogonalFrame,
    Polynomials as Polynomials,
    TensorHermite as TensorHermite,
    TransformFrame as TransformFrame,
    WhitenedHermite as WhitenedHermite,
)
from .clock import (
    Clock as Clock,
    IdentityClock as IdentityClock,
    Logarithmic as Logarithmic,
    Noising as Noising,
    VarianceExploding as VarianceExploding,
    VariancePreserving as VariancePreserving,
)
from .estimation import (
    CrossValidation as CrossValidation,
    EvenKnots as EvenKnots,
    PlacedKnots as PlacedKnots,
    fit as fit,
    fit_linear as fit_linear,
    fit_moments as fit_moments,
)
from .estimator import (
    OISM as OISM,
)
from .expectation import (
    MonteCarlo as MonteCarlo,
    Quadrature as Quadrature,
)
from .flow import (
    Adaptive as Adaptive,
    EulerMaruyama as EulerMaruyama,
    Flow as Flow,
    Heun as Heun,
    RungeKutta4 as RungeKutta4,
    StochasticHeun as StochasticHeun,
)
from .likelihood import (
    ExactTrace as ExactTrace,
    Hutchinson as Hutchinson,
    log_density as log_density,
    position_log_density as position_log_density,
    sample_with_log_density as sample_with_log_density,
)
from .moments import (
    Moments as Moments,
    principal_frame as principal_frame,
)
from .nn import (
    MLP as MLP,
    Combined as Combined,
    DDPMpp as DDPMpp,
    Diffusion as Diffusion,
    OperatorInformed as OperatorInformed,
)
from .objectives import (
    DenoisingScoreMatching as DenoisingScoreMatching,
    FokkerPlanckResidual as FokkerPlanckResidual,
    GeneralisedScoreMatching as GeneralisedScoreMatching,
    ImplicitScoreMatching as ImplicitScoreMatching,
    SlicedScoreMatching as SlicedScoreMatching,
    TimeScoreMatching as TimeScoreMatching,
    TransitionScoreMatching as TransitionScoreMatching,
    HybridScoreMatching as HybridScoreMatching,
    UniformLogSNR as UniformLogSNR,
    UniformTime as UniformTime,
)
from .operators import (
    AdjointGenerator as AdjointGenerator,
    CarreDuChamp as CarreDuChamp,
    DirichletForm as DirichletForm,
    InfinitesimalGenerator as InfinitesimalGenerator,
    Semigroup as Semigroup,
    SymmetricPart as SymmetricPart,
)
from .prior import (
    PCA as PCA,
    ByError as ByError,
    ConvolutionalPrior as ConvolutionalPrior,
    Gate as Gate,
    HermitePrior as HermitePrior,
    MixturePrior as MixturePrior,
    Open as Open,
    Pixels as Pixels,
    Prior as Prior,
    add_local_terms as add_local_terms,
    fit_mixture as fit_mixture,
    fit_prior as fit_prior,
    learn_law as learn_law,
    prior_of as prior_of,
)
from .process import (
    Brownian as Brownian,
    CriticallyDamped as CriticallyDamped,
    Linear as Linear,
    OrnsteinUhlenbeck as OrnsteinUhlenbeck,
    PhaseSpace as PhaseSpace,
    Process as Process,
    Torus as Torus,
    Whitening as Whitening,
)
from .ratio import (
    DensityRatio as DensityRatio,
    fit_ratio as fit_ratio,
)
from .score import (
    OperatorScore as OperatorScore,
)
from .shrinkage import (
    JamesStein as JamesStein,
    Modulation as Modulation,
    Monotone as Monotone,
    SampleMeans as SampleMeans,
)

__all__: list[str]
__version__: str
