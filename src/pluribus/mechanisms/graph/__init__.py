"""The exported graph of the user's module: reading it, costs, the first and the last layers."""
