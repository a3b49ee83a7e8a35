"""Tests of networks, a package because other rooms have tests of the same names."""
