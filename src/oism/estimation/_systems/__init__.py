"""Systems: small ones in batches, large ones by conjugate gradients; ridge and truncation."""
