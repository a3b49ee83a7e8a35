"""``oism reproduce``: the paper's figures, from the command that makes them."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from oism.cli.ending import ClaimError
from oism.cli.options import Command, print_json

Name = Literal[
    "bart-simpson",
    "plane",
    "gallery",
    "stein",
    "polynomials",
    "fokker-planck",
    "critically-damped",
    "coefficients",
    "closed-form-cifar",
    "cifar10",
]


@dataclass(frozen=True)
class Reproduce(Command):
    """Run a study of the paper, and write its figure, its numbers and a short report.

    Studies:
      bart-simpson  Figure 1: scores and densities on the circle, loss by the number of functions
      plane         Figure 2: a density of the plane, a network of equal time, kernels
      gallery       the appendix: eight laws, densities, samples of ODE and SDE
      stein         where shrinkage pays, what it breaks, and memorisation
      polynomials   a higher order does not hurt, on the line
      fokker-planck the equation of all scores: does a network solve it, does it help to ask
      critically-damped  noise that reaches data through velocities: moons in closed form
      coefficients  Figure 5: coefficients over time, exact and interpolated
      closed-form-cifar  images without a network: errors, bits per dimension, samples
      cifar10       Figure 3, Table 1: what a head start is worth to a network, and what it costs

    The last three are about images: --data is a folder that holds train*.parquet and test*.parquet
    as the Hub's uoft-cs/cifar10 and ylecun/mnist do, by default cifar10 in this one; or the word
    digits, for those of scikit-learn, as with --quick. cifar10 in full trains large networks: a
    quarter of an hour on a GPU, days without one. It goes on where it was stopped.

    Each ends with claims, every one an inequality between two of its numbers. The exit code is 1 if
    one of them does not hold.

    Examples:
      oism reproduce stein --quick
      oism reproduce bart-simpson -o studies --random-state 1
    """

    name: Annotated[Positional[Name], arg(metavar="NAME")]
    """The study."""
    quick: bool = False
    """Fewer points and simulations: less than two minutes on two cores, instead of half an hour."""
    output: Annotated[str, arg(aliases=["-o"], metavar="FOLDER")] = "runs"
    """The folder; what is written lies in a folder of the study's name there."""
    data: str | None = None
    """The folder of the images, for studies of images."""
    random_state: int = 0
    """The seed of all draws."""
    json: bool = False
    """Print the claims as JSON."""

    def run(self) -> None:
        """Run the study and say what it found."""
        import matplotlib as mpl

        mpl.use("Agg")
        from oism.studies import by_name
        from oism.studies.study import reproduce

        folder = Path(self.output) / (f"{self.name}-quick" if self.quick else self.name)
        study = by_name(self.name, quick=self.quick, seed=self.random_state, data=self.data)
        written = reproduce(study, folder)
        if self.json:
            claims = [{**asdict(claim), "holds": claim.holds} for claim in written.claims]
            files = [str(path) for path in written.files]
            print_json({"claims": claims, "files": files, "seconds": written.seconds})
        else:
            print("\n".join(map(str, written.claims)))
            print(f"{written.seconds:.0f} s; written: {', '.join(map(str, written.files))}")
        sys.stdout.flush()
        if not written.holds:
            broken = sum(not claim.holds for claim in written.claims)
            raise ClaimError(f"{broken} of {len(written.claims)} claims do not hold")
