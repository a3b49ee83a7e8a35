"""Sampling in the prior's coordinates, compared with the schedulers of diffusers."""
