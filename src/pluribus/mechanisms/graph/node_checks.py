"""Check nodes of a graph in a file: operators of the allow list, arguments they have, short arithmetic."""

import keyword
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.fx import Node

from pluribus.mechanisms.graph.operators import find_operator
from pluribus.mechanisms.network.torch_private import argument_names
from pluribus.schema import Mismatch, shown

# Arithmetic on sizes, which torch.export writes as Python's own operators.
PYTHON_OPERATORS = {
    f"operator.{name}": getattr(operator, name)
    for name in ("getitem", "add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pow", "eq", "ge", "le")
}
PYTHON_NAMES = {function: name for name, function in PYTHON_OPERATORS.items()}
MOST_EXPONENT = 64
"""Exponent of a size in a file. Python computes whole numbers of any length, so that two short numbers could
take hours."""


def allowed(name: Any, where: str) -> Any:
    """Return the operator of a name.

    Args:
        name: From a file.
        where: The place of the node in the file.

    Raises:
        Mismatch: It is not in the allow list.
    """
    found = PYTHON_OPERATORS.get(name) if isinstance(name, str) else None
    if found is None and isinstance(name, str):
        found = find_operator(name)
    if found is None:
        raise Mismatch(f"field {where}.operator must be a known operator, got {shown(name)}")
    return found


def check_arguments(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any], where: str) -> None:
    """Raise for arguments that the operator does not have.

    Args:
        target: The operator.
        args: Its arguments.
        kwargs: Its arguments by name, which become words of generated code.
        where: The place of the node in the file.
    """
    known = argument_names(target)
    unknown = set(kwargs) - set(known)
    if unknown:
        raise Mismatch(f"field {where}.kwargs must be arguments of {target}, got {shown(sorted(unknown)[0])}")
    # Passes look for the value that an operator reads at its first place, where graphs are written with it.
    if known and not 1 <= len(args) <= len(known):
        raise Mismatch(f"field {where}.args must be 1 to {len(known)} arguments of {target}, got {len(args)}")


def check_word(name: str, where: str) -> None:
    """Raise unless the name of an input may be a word of generated code.

    Args:
        name: Of the input; its letters were checked by the schema.
        where: The place of the node in the file.
    """
    if not name.isidentifier() or keyword.iskeyword(name) or name == "self":
        raise Mismatch(f"field {where}.name must be a name, got {shown(name)}")


def check_tensor(value: Any, data: Any, where: str) -> None:
    """Raise unless the value of a node that returns is a tensor, as far as its operator tells.

    Args:
        value: A node, a tensor, or anything else.
        data: As it is in the file.
        where: The place of the node in the file.
    """
    if isinstance(value, Tensor) or (isinstance(value, Node) and not _is_size(value.target)):
        return
    raise Mismatch(f"field {where}.value must be a tensor, got {shown(data)}")


def _is_size(target: Any) -> bool:
    """Return whether an operator gives a size, and no tensor."""
    is_arithmetic = target in PYTHON_NAMES and target is not operator.getitem
    return is_arithmetic or str(target).startswith("aten.sym_")


def check_arithmetic(name: str, does: str, args: Sequence[Any], where: str) -> None:
    """Raise unless one of Python's operators computes with sizes of the graph, in no time.

    Args:
        name: Of the operator.
        does: What the node does.
        args: Its arguments.
        where: The place of the node in the file.
    """
    # Lists could be multiplied, and constants alone are never computed by a graph that was saved.
    plain = all(isinstance(one, Node | int | float) for one in args)
    if does != "call" or not plain or not any(isinstance(one, Node) for one in args):
        raise Mismatch(f"field {where}.args must be of sizes and numbers, each computed in a call of {name}")
    count = 1 if name == "operator.neg" else 2
    if len(args) != count:
        raise Mismatch(f"field {where}.args must be {count} arguments of {name}, got {len(args)}")
    if name != "operator.pow":
        return
    exponent = args[-1]
    if isinstance(exponent, Node) or not abs(exponent) <= MOST_EXPONENT:
        raise Mismatch(f"field {where}.args must have an exponent of at most {MOST_EXPONENT}")
