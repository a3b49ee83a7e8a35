"""Plans on the device of the samples.

A prior that stays on the CPU has its directions there. Products with samples on a device copy the
matrix each time; a plan on the device has it there already. Apple's devices have no float64: there
the means and variances, which are in float64, stay where they are.
"""

from __future__ import annotations

import torch
from torch import Tensor

from oism.basis import Frame
from oism.images import Directions, GaussianPart
from oism.sampling import Plan, Step


def has_doubles(device: torch.device | str | None) -> bool:
    """Return whether a device has float64; None is the default one."""
    return device is None or torch.device(device).type != "mps"


def part_on(part: GaussianPart, device: torch.device | str) -> GaussianPart:
    """Return a Gaussian part on a device: the same object if it is there."""
    frame, numbers = _frame_on(part.frame, device), (part.mean, part.variances)
    if has_doubles(device):
        numbers = (part.mean.to(device), part.variances.to(device))
    if frame is part.frame and numbers[0] is part.mean:
        return part
    return GaussianPart(frame, part.dim, *numbers)


def plan_with(plan: Plan, part: GaussianPart) -> Plan:
    """Return a plan with the same Gaussian part on another device."""
    if part is plan.part:
        return plan
    place = part.mean.device
    steps = [
        Step(step.weights.to(place), _on(step.decay, place), _on(step.noise, place))
        for step in plan.steps
    ]
    end = _on(plan.end, place)
    return Plan(part, plan.span, plan.levels, steps, end, plan.expected_error)


def _frame_on(frame: Frame, device: torch.device | str) -> Frame:
    """Return a frame with its matrix on a device; one without a matrix works on all of them."""
    matrix = frame.stored_directions()
    moved = _on(matrix, device)
    return frame if moved is None or moved is matrix else Directions(moved)


def _on(values: Tensor | None, device: torch.device | str) -> Tensor | None:
    return None if values is None else values.to(device)
