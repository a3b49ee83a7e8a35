"""oism: operator-informed score matching, the library that fits a diffusion model in closed form.

The packages in the order of their dependence, each importing only those before it:
`oism.storage` (the file format), `oism.process` (processes, clocks, operators), `oism.basis`
(eigenfunctions), `oism.flow` (the contract of fitted models, flows, likelihoods), `oism.score`
(fitted scores), `oism.estimation` (from data to scores), `oism.images` (priors of tensors),
`oism.nn`, `oism.objectives`, `oism.training`, `oism.diffusers` and `oism.azula` (bridges to other
libraries), `oism.tables` (`OISM`), `oism.data` (toy distributions, readers of files), `oism.plot`
and `oism.cli`.

Names are imported when they are first used; ``__init__.pyi`` lists them.
"""

from pkgutil import iter_modules

import lazy_loader

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
_modules = {module.name for module in iter_modules(__path__)}
__all__ = [name for name in __all__ if name not in _modules]  # `import *` brings no modules
