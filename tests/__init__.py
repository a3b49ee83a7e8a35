"""A package, so that its parts can share what they build, and in processes of their own."""
