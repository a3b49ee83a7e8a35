"""Tests of oism.nn."""
