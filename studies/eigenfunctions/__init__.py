"""The study eigenfunctions: its code, and the report that a run wrote."""
