"""The study critically-damped: its code, and the report that a run wrote."""
