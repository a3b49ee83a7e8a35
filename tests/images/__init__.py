"""Tests of oism.images."""
