"""The study stein: its code, and the report that a run wrote."""
