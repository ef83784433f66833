"""Methods as text: `deep_ensembles(members=5)`, on the command line and for `convert`."""

import ast
import math
from collections.abc import Iterable
from typing import Any

from pluribus.errors import SettingError
from pluribus.method import Method
from pluribus.ranges import nearest, show
from pluribus.settings import INFINITE


def read_method(text: str) -> Method:
    """Return the one method that a text names, such as `packed_ensembles(alpha=2)`.

    Example:
        >>> read_method("deep_ensembles(members=2)").members
        2
    """
    found = read_methods(text)
    if len(found) != 1:
        raise SettingError(f"method must be one, got {show(text)} with {len(found)}.")
    return found[0]


def read_methods(text: str) -> list[Method]:
    """Return the methods of a text, `single, deep_ensembles(members=5)`; raise with the nearest name."""
    known = Method.known()
    found: list[Method] = []
    for call in split_outside_brackets(text):
        name, opened, settings = (part.strip() for part in call.partition("("))
        if bool(opened) != call.endswith(")"):
            raise SettingError(f"methods are written name(setting=value, …), got {show(call)}.")
        if name not in known:
            raise SettingError(
                f"methods are {', '.join(sorted(known))}, got {show(name)}." + nearest(name, known)
            )
        values = parse_options(split_outside_brackets(settings.removesuffix(")")))
        known[name].check_names(values)
        found.append(known[name](**values))
    if not found:
        raise SettingError(f"methods must name at least one, such as single, got {show(text)}.")
    return found


def split_outside_brackets(text: str) -> list[str]:
    """Return the parts between commas that are in no brackets and no quotes, without those that are empty."""
    parts, depth, quote = [""], 0, ""
    for letter in text:
        if letter in "'\"" and quote in ("", letter):
            quote = "" if quote else letter
        depth += 0 if quote else (letter in "([") - (letter in ")]")
        if depth < 0:
            break
        if letter == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    if depth:
        raise SettingError(f"every bracket must be opened and closed, got {show(text)}.")
    return [part.strip() for part in parts if part.strip()]


def parse_options(texts: Iterable[str]) -> dict[str, Any]:
    """Return the values of each `name=value`; a name is given once."""
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise SettingError(f"settings are written name=value, got {show(text)}.")
        if name in values:
            raise SettingError(f"settings are given once, got {name} twice.")
        values[name] = parse_value(value)
    return values


def parse_value(text: str) -> Any:
    """Return a Python literal; other text is a word, or several of them in brackets, and `inf` a number."""
    if text == INFINITE:
        return math.inf
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        # Python's parser has no memory for a thousand nested brackets, which are no setting either.
        return _words(text) or text


def _words(text: str) -> tuple[Any, ...]:
    """Return `(norm, output)` as two words; nothing where it is one, such as the pattern `[ab]*.[01]`."""
    if (text[:1], text[-1:]) not in (("(", ")"), ("[", "]")):
        return ()
    try:
        words = split_outside_brackets(text[1:-1])
    except SettingError:  # the first bracket is closed before the end
        return ()
    return tuple(map(parse_value, words)) if len(words) > 1 else ()
