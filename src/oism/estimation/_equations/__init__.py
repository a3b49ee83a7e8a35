"""The equations A_t α = -b_t of every noise level, from averages over the clean data.

`ProductEquations` also give those of time scores, M_t a = b_t.
"""
