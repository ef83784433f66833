"""The optional packages that formats need, and the line that installs them."""

from collections.abc import Sequence
from typing import Any

from pluribus.errors import ExportError
from pluribus.quiet_import import quiet_import


def load_packages(wanted: str, names: Sequence[str], extra: str) -> list[Any]:
    """Return imported packages.

    Args:
        wanted: What needs them, such as "format 'onnx'".
        names: What to import.
        extra: The extra of this library that installs all of them.

    Raises:
        ExportError: At least one is not installed; the message has the line that installs it.
    """
    found, missing = [], []
    for name in names:
        try:
            found.append(quiet_import(name))
        except ImportError:
            missing.append(name)
    if missing:
        raise ExportError(
            f"{wanted} needs {', '.join(names)}, got no {' and no '.join(missing)}. "
            f"Install them: pip install 'pluribus[{extra}]'"
        )
    return found
