"""The study polynomials: its code, and the report that a run wrote."""
