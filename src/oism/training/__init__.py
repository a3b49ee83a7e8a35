"""Training of noise predictors, and what is measured of them."""
