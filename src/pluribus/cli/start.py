"""Start the command `pluribus`: print a line at once, then import PyTorch, which takes seconds."""

import sys
from collections.abc import Sequence

from pluribus.version import VERSION

COMPUTING = (
    "compare",
    "search",
    "train",
    "finetune",
    "testbed",
    "evaluate",
    "doctor",
    "export",
    "monitor",
    "predict",
)
"""Commands that run networks. They choose the device and the precision."""
SLOW = (*COMPUTING, "report", "verify")
"""Commands that import PyTorch and then take long."""
INTERRUPTED = 130
"""Exit code that shells expect after Ctrl-C."""


def main() -> None:
    """Run the command line."""
    line = first_line(sys.argv[1:])
    if line:
        print(line, file=sys.stderr, flush=True)
    try:
        from pluribus.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()


def first_line(arguments: Sequence[str]) -> str:
    """Return a line that announces a slow command; empty for quick commands and for help."""
    command = "".join(arguments[:1])
    if command not in SLOW:
        return ""
    if "--help" in arguments:
        return ""
    return f"pluribus {VERSION} {command}: loading PyTorch"
