"""Options of a task on the command line, `name=value`; words with commas between them are a list."""

import re
from collections.abc import Iterable
from typing import Any

from pluribus.method_text import parse_options

# At least two plain words with commas between them.
WORDS = re.compile(r"[\w.-]+(,[\w.-]+)+")


def parse_task_options(texts: Iterable[str]) -> dict[str, Any]:
    """Return the values of options of a task; `a,b,c` is a list of words, unless it stands in quotes.

    >>> parse_task_options(["features=a,b", "kinds=zip=category,year=number", "path='a,b.csv'"])
    {'features': ['a', 'b'], 'kinds': 'zip=category,year=number', 'path': 'a,b.csv'}
    """
    values = parse_options(texts)
    for text in texts:
        name, _, raw = (part.strip() for part in text.partition("="))
        # Numbers with commas are a tuple already.
        if isinstance(values[name], str) and WORDS.fullmatch(raw):
            values[name] = raw.split(",")
    return values
