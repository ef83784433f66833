"""Shows the examples of docstrings as code: the reader of docstrings knows `Examples:` alone."""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^( *)Example:\n", re.MULTILINE)
LOOSE = re.compile(r"(?<=\n\n)(>>> .*?)(?=\n\n|\Z)", re.DOTALL)


class Doctests(griffe.Extension):
    """What mkdocstrings calls with every object that it finds."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrites the docstring of an object, if it has one."""
        if obj.docstring is not None:
            text = EXAMPLE.sub(r"\1Examples:\n", obj.docstring.value)
            obj.docstring.value = LOOSE.sub(r"```pycon\n\1\n```", text)
