"""Systems: the equations of each basis, their solution, and the choice of regularisation."""
