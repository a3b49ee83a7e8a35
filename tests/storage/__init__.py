"""Tests of storage, a package because other tests have a file of the same name."""
