"""Members: which there are, what tensors they are made of, and the code they run."""
