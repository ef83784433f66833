"""Command line of Pluribus."""
