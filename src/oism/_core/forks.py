"""Forked processes use one thread of torch, until they set another number.

A fork does not copy the threads of OpenMP. If the parent has used some, the first parallel
operation of the child would wait for them without end. torch's data loaders do the same.
"""

from __future__ import annotations

import os

import torch


def _use_one_thread() -> None:
    torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_use_one_thread)
