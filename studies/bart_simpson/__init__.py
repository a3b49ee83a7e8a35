"""The study bart-simpson: its code, and the report that a run wrote."""
