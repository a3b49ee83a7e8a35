"""Estimation: the scores of all noise levels from data, in closed form.

data ─► moments ─► shrinkage ─► system ─► ridge and truncation over t ─► α(t) ─► score
"""

from oism.estimation._equations.fourier import FourierEquations
from oism.estimation._equations.hermite import HermiteEquations, TensorHermiteEquations
from oism.estimation._equations.linear import LinearEquations
from oism.estimation._equations.products import ProductEquations
from oism.estimation._fit import fit, fit_moments, fit_standardised
from oism.estimation._fit_linear import fit_linear, fit_linear_moments
from oism.estimation._fit_simulated import fit_simulated
from oism.estimation._knots import EvenKnots, Knots, KnownKnots, PlacedKnots
from oism.estimation._langevin import langevin_of
from oism.estimation._moments.base import Moments
from oism.estimation._moments.dither import dithered, uniform_averages, uniform_reach
from oism.estimation._moments.fourier import FourierMoments
from oism.estimation._moments.gathering import gather, moments_of, principal_frame
from oism.estimation._moments.hermite import HermiteFamilyMoments, HermiteMoments
from oism.estimation._moments.histogram import HistogramMoments
from oism.estimation._moments.pairs import PairMoments
from oism.estimation._moments.products import ProductMoments
from oism.estimation._moments.rows import fold_of
from oism.estimation._moments.sharing import Accumulator, across_processes, gathered, together
from oism.estimation._moments.simulated import SimulatedMoments
from oism.estimation._moments.spectrum import Spectrum, principal_axes, spectrum
from oism.estimation._moments.splines import SplineMoments
from oism.estimation._moments.tensor_hermite import GaussianMoments, TensorHermiteMoments
from oism.estimation._ratio import DensityRatio, GaussPanels, fit_ratio
from oism.estimation._ridge import ChosenRidge, CrossValidation, FixedRidge, Ridge
from oism.estimation._shrinkage import JamesStein, Modulation, Monotone, SampleMeans, Shrinkage
from oism.estimation._systems.eigenfunctions import EigenfunctionSystem
from oism.estimation._systems.hermite import HermiteSystem, TensorHermiteSystem
from oism.estimation._systems.linear import LinearSystem
from oism.estimation._systems.products import ProductSystem
from oism.estimation._systems.reversible import ReversibleSystem
from oism.estimation._systems.simulated import SimulatedSystem
from oism.estimation._systems.torus import TorusSystem

__all__ = [
    "Accumulator",
    "ChosenRidge",
    "CrossValidation",
    "DensityRatio",
    "EigenfunctionSystem",
    "EvenKnots",
    "FixedRidge",
    "FourierEquations",
    "FourierMoments",
    "GaussPanels",
    "GaussianMoments",
    "HermiteEquations",
    "HermiteFamilyMoments",
    "HermiteMoments",
    "HermiteSystem",
    "HistogramMoments",
    "JamesStein",
    "Knots",
    "KnownKnots",
    "LinearEquations",
    "LinearSystem",
    "Modulation",
    "Moments",
    "Monotone",
    "PairMoments",
    "PlacedKnots",
    "ProductEquations",
    "ProductMoments",
    "ProductSystem",
    "ReversibleSystem",
    "Ridge",
    "SampleMeans",
    "Shrinkage",
    "SimulatedMoments",
    "SimulatedSystem",
    "Spectrum",
    "SplineMoments",
    "TensorHermiteEquations",
    "TensorHermiteMoments",
    "TensorHermiteSystem",
    "TorusSystem",
    "across_processes",
    "dithered",
    "fit",
    "fit_linear",
    "fit_linear_moments",
    "fit_moments",
    "fit_ratio",
    "fit_simulated",
    "fit_standardised",
    "fold_of",
    "gather",
    "gathered",
    "langevin_of",
    "moments_of",
    "principal_axes",
    "principal_frame",
    "spectrum",
    "together",
    "uniform_averages",
    "uniform_reach",
]
