"""The study fokker-planck: its code, and the report that a run wrote."""
