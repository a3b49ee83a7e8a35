"""The study coefficients: its code, and the report that a run wrote."""
