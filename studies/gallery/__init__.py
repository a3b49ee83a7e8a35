"""The study gallery: its code, and the report that a run wrote."""
