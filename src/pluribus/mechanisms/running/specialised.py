"""Specialise: members of a masked network as graphs of their own."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from pluribus.errors import ConversionError
from pluribus.mechanisms.graph.program import Signature, read_program
from pluribus.mechanisms.masks.code import MaskedCode
from pluribus.mechanisms.masks.specialise import Specialiser
from pluribus.mechanisms.members.index import Row
from pluribus.mechanisms.members.members import Members
from pluribus.mechanisms.members.skeleton import materialise
from pluribus.mechanisms.members.tree import named_tensors
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.running.engines import run_slowly


class SpecialisedMember(nn.Module):
    """One member alone, `[batch, ...]`, with the channels alone that it needs; always in eval mode."""

    def __init__(self, signature: Signature, network: GraphModule) -> None:
        super().__init__()
        self.signature, self.network = signature, network
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        """The member's prediction."""
        return self.signature.predict(self.network(*self.signature.flatten(Inputs(args, kwargs))))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Take inputs of the precision that it is moved to."""
        self.signature = self.signature.cast(fn)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        return self


@dataclass(frozen=True)
class CutMembers:
    """Several members; what no mask precedes is computed once.

    Attributes:
        signature: Of inputs and results.
        trunk: From the inputs to the values that members read.
        members: One graph for each member, from these values to its results.
    """

    signature: Signature
    trunk: GraphModule
    members: tuple[GraphModule, ...]


def cut_members(members: Members, example: Inputs | None) -> tuple[CutMembers, list[str]]:
    """Return all members of a network with masks, and notes on what they are.

    Raises:
        ConversionError: the network cannot be exported.
    """
    with _or_reason():
        specialiser, _ = make_specialiser(members, example)
        rows = members.index.rows(training=False)
        trunk, tails = specialiser.members(members.tensors.of(rows))
        cut = CutMembers(specialiser.program.signature, trunk, tuple(tails))
    shared = sum(parameter.numel() for parameter in trunk.parameters())
    sizes = [sum(p.numel() for p in one.parameters()) for one in tails]
    return cut, [f"members have {min(sizes):,} to {max(sizes):,} weights of their own, {shared:,} in common"]


def cut_member(members: Members, row: Row, example: Inputs | None) -> SpecialisedMember:
    """Return one row of a network with masks; raise as `cut_members` does."""
    with _or_reason():
        specialiser, inputs = make_specialiser(members, example)
        graph = specialiser.member(members.tensors.of_one(row))
        member = SpecialisedMember(specialiser.program.signature, graph)
        _prove(member, inputs, lambda: run_slowly(members, [row], inputs)[0])
    return member


def make_specialiser(members: Members, example: Inputs | None) -> tuple[Specialiser, Inputs]:
    """Return what cuts members out of a network with masks, and an input of the network."""
    code, cache = members.code, members.code.caller.cache
    assert isinstance(code, MaskedCode)
    kept = cache.get("specialiser")
    if kept is None or kept[0] is not example:
        row = members.index.pick([0])[0]
        member = materialise(code.caller.module, members.tensors.of_one(row))
        device = next(iter(named_tensors(member).values())).device
        network = Network(member, example and example.to(device), code.caller.output, own=True)
        program = read_program(network)
        if program.writes:
            raise ConversionError(f"the network writes into {program.writes[0]} in eval mode")
        kept = (example, Specialiser(program, code.masks, code.align), network.example)
        cache["specialiser"] = kept
    _, specialiser, inputs = kept
    return specialiser, inputs


@contextmanager
def _or_reason() -> Iterator[None]:
    """Whatever a network does that was not thought of is a reason to multiply its masks, and no failure."""
    try:
        yield
    except ConversionError:
        raise
    except Exception as error:
        raise ConversionError(f"{type(error).__name__}: {error}") from error


@torch.no_grad()
def _prove(slices: nn.Module, inputs: Inputs, expected: Callable[[], Tensor]) -> None:
    """Raises where the example comes out other than with masks multiplied."""
    copied = inputs.copy()
    came, right = slices(*copied.args, **copied.keywords), expected()
    error = float((came - right).abs().max() / right.abs().max().clamp(min=1e-12))
    if not error < torch.finfo(right.dtype).eps ** 0.5:
        raise ConversionError(
            "a member that is cut out must compute what it computed with masks, however: its outputs "
            f"differ by {error:.1e} of the largest."
        )
