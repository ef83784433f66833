"""A fuzzing campaign: `make fuzz`, or `python -m tests.fuzz --minutes 120`."""
