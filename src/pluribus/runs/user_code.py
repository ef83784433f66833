"""The user's own functions, `package.module:function`, named on the command line and nowhere else.

No file ever leads here: names in the files of a run are looked up in registries (`TASKS`, `BACKBONES`).
"""

import importlib
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pluribus.errors import PluribusError, SettingError

REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def resolve(reference: str) -> Callable[..., Any]:
    """Import and return `package.module:function`; modules of the present folder are found too.

    Raises:
        SettingError: the name is malformed, the import fails, or there is no such function.
    """
    if not REFERENCE.fullmatch(reference):
        raise SettingError(
            f"{reference!r} must name a function as package.module:function, got other characters. "
            "Relative names (..module) and empty names are not supported."
        )
    module, _, name = reference.partition(":")
    # An installed script, unlike `python -m`, does not search the present folder.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    with explaining(f"{reference} must name a function as package.module:function, but importing it"):
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    if not callable(found):
        raise SettingError(f"{reference} must name a function, got {type(found).__name__}.")
    return found  # type: ignore[no-any-return]


def call_own(reference: str, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function of the user; turn any error of it into a `SettingError` that names the line."""
    with explaining(f"{reference} must return without an error, but calling it"):
        return function(**arguments)


@contextmanager
def explaining(beginning: str) -> Iterator[None]:
    """Turn errors of the user's code into a `SettingError` of one line; Ctrl-C passes through."""
    try:
        yield
    except (PluribusError, KeyboardInterrupt):
        raise
    except SystemExit as error:
        # Code that ends the process would otherwise look like success.
        raise SettingError(f"{beginning} ended in sys.exit({error.code!r}).") from error
    except Exception as error:
        place = _place(error)
        raise SettingError(f"{beginning} raised {type(error).__name__}: {error}{place}.") from error


def _place(error: Exception) -> str:
    """Return ` at file:line` of the innermost frame outside of this file and of Python's import."""
    # The message of a syntax error names the line already.
    if isinstance(error, SyntaxError):
        return ""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not _is_import_machinery(frame.filename):
            return f", at {frame.filename}:{frame.lineno}"
    return ""


def _is_import_machinery(filename: str) -> bool:
    if filename == __file__ or filename.startswith("<frozen"):
        return True
    return filename.endswith("importlib/__init__.py")
