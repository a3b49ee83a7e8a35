"""Moments: one pass over the data gives every average that the equations of all times need."""
