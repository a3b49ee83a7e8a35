"""Moments: the averages that the equations of all times need, from one pass over the data."""
