"""Several inputs and exits of one network."""
