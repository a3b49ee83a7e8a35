"""What the site has beyond Sphinx: the reference of the package, and pages of the repository."""
