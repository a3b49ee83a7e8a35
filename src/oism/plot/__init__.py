"""Figures of fitted models. Each function draws into an axes, or makes one, and returns it.

A *model* is an `OISM`, a `TableModel`, or any density estimator with ``score_samples``, for which
limits must be given. Where they are not, they are the ranges of the model's columns.

>>> import numpy as np
>>> from oism import OISM
>>> rows = np.random.default_rng(0).normal(size=(200, 2))
>>> ax = density_map(OISM(max_eigenvalue=25, flow_steps=16).fit(rows), side=21)
>>> ax.get_xlabel()
'column 0'
"""

from __future__ import annotations

from oism.plot._corner import corner
from oism.plot._curves import coefficient_traces, loss_curves, noise_of, validation_loss
from oism.plot._frame import ACCENT, GREY, INK, PALE, Limits, grid, limits_of
from oism.plot._images import image_grid, write_image_grid
from oism.plot._maps import (
    cloud,
    density_curve,
    density_image,
    density_map,
    ramachandran,
    score_field,
)
from oism.plot._overview import overview
from oism.plot._priors import noise_error, prior_overview, sample_grid
from oism.plot._sphere import sphere_cloud, sphere_density, sphere_overview, sphere_score

__all__ = [
    "ACCENT",
    "GREY",
    "INK",
    "PALE",
    "Limits",
    "cloud",
    "coefficient_traces",
    "corner",
    "density_curve",
    "density_image",
    "density_map",
    "grid",
    "image_grid",
    "limits_of",
    "loss_curves",
    "noise_error",
    "noise_of",
    "overview",
    "prior_overview",
    "ramachandran",
    "sample_grid",
    "score_field",
    "sphere_cloud",
    "sphere_density",
    "sphere_overview",
    "sphere_score",
    "validation_loss",
    "write_image_grid",
]
