"""A package, so that its tests share linear systems."""
