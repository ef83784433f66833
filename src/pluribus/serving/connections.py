"""How many connections a server takes: one for each file that the process may open, less what it needs."""

BACKLOG = 128
"""Connections that the system holds until they are accepted, and that are accepted at a time."""
OTHER_FILES = 32
"""Files of the process itself, such as the log and those of onnxruntime."""

MANY = 1 << 20
"""Connections where the system has no limit."""


def most_connections() -> int:
    """Return how many connections may be open, so that there is a file for each of them."""
    try:
        import resource
    # Windows has no such limit.
    except ImportError:
        return MANY
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return MANY
    return max(1, soft - BACKLOG - OTHER_FILES)
