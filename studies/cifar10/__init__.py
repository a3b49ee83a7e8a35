"""The study cifar10: its code, and the report that a run wrote."""
