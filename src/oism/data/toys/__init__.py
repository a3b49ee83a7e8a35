"""Toy distributions with exact densities: eight on the plane, and one on the circle.

The distributions on the plane (`PLANE`) are the toy sets of FFJORD (Grathwohl et al., 2019), with
its scales and noise. FFJORD's samplers stratify: equal numbers per class, angles on a grid. Here
every point draws its own class and its own parameter, so that n points are independent draws from
one distribution, which has a density:

==============  =================================================================  ===========
swissroll       normal noise around a spiral: a sum over its parameter             `SwissRoll`
circles, rings  normal noise around circles: a Bessel function                     `Circles`
moons           normal noise around half a circle, and its reflection              `Moon`
8gaussians      normal distributions around eight centres                          `Normals`
pinwheel        a change of variables, summed over the preimages                   `Pinwheel`
2spirals        uniform and normal noise around a spiral, and its reflection       `Spiral`
checkerboard    uniform on the black cells                                         `Checkerboard`
==============  =================================================================  ===========

Densities are per unit of area of the data as they are drawn, and entropies in nats. Scaling the
data by c in both directions adds 2 log c to the entropy and to every negative log-likelihood.

On the circle there is the *Bart Simpson* mixture of the paper (`BART_SIMPSON`), with the density,
scores and moments of all its noised versions.

>>> import torch
>>> moons = PLANE["moons"]
>>> x = moons.sample(10_000, torch.Generator().manual_seed(0))
>>> x.shape, x.dtype
(torch.Size([10000, 2]), torch.float64)
>>> print(f"{moons.entropy():.4f} {-moons.log_density(x).mean():.2f}")
2.3939 2.39
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from oism.data.toys._base import PlaneDistribution, SmoothDistribution
from oism.data.toys._clusters import Checkerboard, Circles, Normals, ring_of_normals
from oism.data.toys._curves import Moon, NoisyCurve, Reflected, Spiral, SwissRoll
from oism.data.toys._mixture import BART_SIMPSON, WrappedMixture
from oism.data.toys._pinwheel import Pinwheel

__all__ = [
    "BART_SIMPSON",
    "PLANE",
    "Checkerboard",
    "Circles",
    "Moon",
    "NoisyCurve",
    "Normals",
    "Pinwheel",
    "PlaneDistribution",
    "Reflected",
    "SmoothDistribution",
    "Spiral",
    "SwissRoll",
    "WrappedMixture",
]

PLANE: Mapping[str, PlaneDistribution] = MappingProxyType(
    {
        "swissroll": SwissRoll(),
        "circles": Circles((3.0, 1.5), deviation=0.24),
        "rings": Circles((3.0, 2.25, 1.5, 0.75), deviation=0.08),
        "moons": Reflected(Moon(), centre=(0.0, 0.3)),
        "8gaussians": ring_of_normals(8, radius=4 / 1.414, deviation=0.5 / 1.414),
        "pinwheel": Pinwheel(),
        "2spirals": Reflected(Spiral()),
        "checkerboard": Checkerboard(),
    }
)
"""The eight toy distributions of the plane, by name."""
