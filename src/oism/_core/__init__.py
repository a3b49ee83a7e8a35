"""Shared by all packages: argument checks, array transforms, progress, atomic files, quadrature."""
