"""The measurements, in stages that continue where they were stopped and end before a deadline.

    train        the network of a case, its weights at the marks
    classifier   the classifier whose features measure distances
    rmse         root mean square distance per dimension to a reference from the same noise
    long-grids   the same for the grids of the peers over all levels
    separation   how far apart the flow carries perturbed paths
    frechet      Fréchet distance to the training images, in the features of the classifier
    times        the time of an evaluation, with and without the coordinates
    bits         bits per dimension by evaluations, and their deviation by one probe

Each writes its numbers to ``STAGE.json`` in the folder of the case as it goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from studies import classifier
from studies.sampling import networks
from studies.sampling.context import Context
from studies.sampling.distances import long_grids, rmse
from studies.sampling.frechet import frechet
from studies.sampling.likelihood import bits
from studies.sampling.separation import measure_separations
from studies.sampling.times import times


def train(context: Context) -> None:
    """Train the network of the case."""
    networks.train(
        context.case, context.images.sets, context.place, deadline=context.deadline,
        report=context.say,
    )  # fmt: skip


def fit_classifier(context: Context) -> None:
    """Train the classifier of the images, unless it is stored."""
    if context.classifier_path.exists():
        context.say("the classifier is stored")
        return
    classifier.fit(
        context.images, context.classifier_path, flip=context.case.flip,
        epochs=context.settings.classifier, width=context.settings.width, report=context.say,
    )  # fmt: skip


STAGES: Mapping[str, Callable[[Context], None]] = {
    "train": train,
    "classifier": fit_classifier,
    "rmse": rmse,
    "long-grids": long_grids,
    "separation": measure_separations,
    "frechet": frechet,
    "times": times,
    "bits": bits,
}
"""The stages by name, in their order."""
