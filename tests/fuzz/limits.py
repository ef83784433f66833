"""Limits of time and memory beyond which a case is a finding."""

SECONDS = {"files": 30.0, "lines": 60.0, "networks": 240.0, "tensors": 60.0}
"""Seconds of CPU time of a case, by its kind. A case that waits for nothing takes at most so many."""
WAITING = 20
"""So many times that in real time: other programs may take the processor, but a pipe waits for ever."""
MOST_BYTES = 4 * 2**30
"""Memory beyond that of the libraries; whoever wants more asks for terabytes."""
MOST_MESSAGE = 6000
"""Characters of an error message."""
MOST_OUTPUT = 200_000
"""Characters that a command may print; more would flood the terminal of a user."""
