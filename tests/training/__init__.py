"""A package, so that its tests share small runs."""
