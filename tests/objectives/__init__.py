"""Tests of oism.objectives."""
