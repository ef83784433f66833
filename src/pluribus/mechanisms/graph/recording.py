"""Recording: how constants were computed, so that a file can hold what they were computed from.

The weights of a BatchEnsemble are products of one shared matrix and two vectors for each member. A graph
holds the products, because they are used in every call; a file should hold the matrix and the vectors.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.fx.node import map_aggregate

from pluribus.mechanisms.graph.operators import find_operator
from pluribus.mechanisms.network.torch_private import TorchDispatchMode

_RECIPE = "_pluribus_recipe"


@dataclass(frozen=True, eq=False)
class Recipe:
    """A tensor as the value of an operator.

    Attributes:
        operator: Its full name, one that files may have.
        args: Its arguments; tensors are recipes again, or leaves, which are there from the start.
        kwargs: Its arguments by name.
    """

    operator: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def leaves(self) -> Iterator[Tensor]:
        """Yield the tensors that it is made of in the end, some of them several times."""
        waiting, seen = [self], set[int]()
        while waiting:
            one = waiting.pop()
            parts = list[Any]()
            map_aggregate((one.args, one.kwargs), parts.append)
            for part in parts:
                if isinstance(part, Tensor):
                    yield part
                # Rows have parts in common, which must not be followed once for each of them.
                elif isinstance(part, Recipe) and id(part) not in seen:
                    seen.add(id(part))
                    waiting.append(part)

    def with_leaves(self, change: Callable[[Tensor], Tensor], known: dict[int, Any]) -> "Recipe":
        """Return the same recipe with other leaves.

        Args:
            change: Returns the tensor that takes the place of a leaf.
            known: By identity, recipes that were changed already; equal parts stay equal.
        """
        if id(self) not in known:

            def changed(part: Any) -> Any:
                if isinstance(part, Recipe):
                    return part.with_leaves(change, known)
                return change(part) if isinstance(part, Tensor) else part

            args, kwargs = map_aggregate((self.args, self.kwargs), changed)
            # With the recipe itself, whose identity must not be given away meanwhile.
            known[id(self)] = (self, Recipe(self.operator, args, dict(kwargs)))
        found: Recipe = known[id(self)][1]
        return found

    def value(self, known: dict[int, Any]) -> Tensor:
        """Return the tensor.

        Args:
            known: By identity, the values of recipes that were computed already.
        """
        if id(self) not in known:

            def computed(part: Any) -> Any:
                return part.value(known) if isinstance(part, Recipe) else part

            args, kwargs = map_aggregate((self.args, self.kwargs), computed)
            known[id(self)] = (self, find_operator(self.operator)(*args, **kwargs))
        found: Tensor = known[id(self)][1]
        return found


def recipe_of(tensor: Tensor) -> Recipe | None:
    """Return how a tensor was computed under a `Recording`; None where it was not.

    Args:
        tensor: Any tensor.
    """
    found: Recipe | None = getattr(tensor, _RECIPE, None)
    return found


class Recording(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Note on every tensor of real numbers that an operator returns how it was computed.

    Whole numbers and truth values are leaves: they are masks and choices, smaller than what is made of them,
    and often drawn at random.
    """

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        found = func(*args, **given)
        if not isinstance(found, Tensor) or not found.is_floating_point():
            return found
        name = str(func)
        # Operators that no file may name, such as random ones, make leaves.
        if find_operator(name) is not func:
            return found

        def noted(part: Any) -> Any:
            return (recipe_of(part) or part) if isinstance(part, Tensor) else part

        noted_args, noted_kwargs = map_aggregate((tuple(args), dict(given)), noted)
        setattr(found, _RECIPE, Recipe(name, noted_args, dict(noted_kwargs)))
        return found
