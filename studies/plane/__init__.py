"""The study plane: its code, and the report that a run wrote."""
