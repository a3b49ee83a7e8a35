"""The equations A_t α = -b_t of every noise level, from averages over the clean data.

`ProductEquations` are those of time scores as well, M_t a = b_t.
"""
