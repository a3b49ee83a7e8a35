"""A package, so that its tests share laws whose scores are known."""
