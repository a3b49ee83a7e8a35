"""What a prior gives to the training of a network, against the parametrisations in use."""
