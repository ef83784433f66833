"""The user's own functions, `package.module:function`, named on the command line and nowhere else.

No file ever leads here: what a file of a run names is looked up in registries (`TASKS`, `BACKBONES`).
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
    """Return what `package.module:function` names; modules of the present folder are found too."""
    if not REFERENCE.fullmatch(reference):
        raise SettingError(
            f"{reference!r} must name a function as package.module:function, got other characters. "
            "Relative names (..module) and empty names are not supported."
        )
    module, _, name = reference.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    with explaining(f"{reference} must name a function as package.module:function, however: importing it"):
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    if not callable(found):
        raise SettingError(
            f"{reference} must name a function, however: it is of type {type(found).__name__}."
        )
    return found  # type: ignore[no-any-return]


def call_own(reference: str, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call a function of the user; whatever it raises is an error of ours that names the line."""
    with explaining(f"{reference} must return what it makes, however: calling it"):
        return function(**arguments)


@contextmanager
def explaining(beginning: str) -> Iterator[None]:
    """Turn what the user's code raises into one line of ours; Ctrl-C is left alone."""
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
    if isinstance(error, SyntaxError):
        return ""  # its own message names the line
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if f.filename != __file__ and not f.filename.startswith("<frozen")]
    own = [f for f in own if not f.filename.endswith("importlib/__init__.py")]
    return f", at {own[-1].filename}:{own[-1].lineno}" if own else ""
