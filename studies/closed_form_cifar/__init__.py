"""The study closed-form-cifar: its code, and the report that a run wrote."""
