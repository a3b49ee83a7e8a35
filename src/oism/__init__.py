"""oism: operator-informed score matching, the library that fits a diffusion model in closed form.

The rooms of the house, each knowing only those before it: the ground, `oism.process` (what
diffuses), `oism.clock` (how fast), `oism.expectation` (E[f(X)]), `oism.operators` (L, L*, Γ, P_t)
and `oism.basis` (the eigenfunctions); the fit, `oism.moments`, `oism.shrinkage`, `oism.equations`,
`oism.solve`, `oism.score`, `oism.ratio` and `oism.estimation`; what a score is good for,
`oism.flow`, `oism.likelihood` and `oism.density`; images and networks that start from them,
`oism.prior`, `oism.nn`, `oism.objectives` and `oism.training`; the face, `oism.estimator` with
`OISM`; and what works on files and from the shell, `oism.files`, `oism.studies` and `oism.cli`.

Names are imported when they are first used; ``__init__.pyi`` lists them.
"""

from pkgutil import iter_modules

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_rooms = {module.name for module in iter_modules(__path__)}
__all__ = [name for name in __all__ if name not in _rooms]  # `import *` brings no modules
