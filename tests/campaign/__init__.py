"""The campaign: its cases, what it judges, and its records."""
