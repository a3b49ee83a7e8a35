"""What every layer uses: argument checks, array transforms, progress, atomic files, quadrature."""
