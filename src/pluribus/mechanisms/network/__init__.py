"""The user's module: its tensors and layers, example inputs, outputs, dry runs, initialisers."""
