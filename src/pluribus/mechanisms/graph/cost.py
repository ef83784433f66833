"""Costs of a network: parameters, multiply-adds, bytes of weights, peak bytes of activations.

The network runs once, without gradients, and every operator that reaches the processor is seen: what
is counted is what ran. Conventions, as in the papers:

- a multiply-add counts one; products of matrices, convolutions, attention and recurrent cells are counted;
- biases, normalisation, activations, pooling, resizing and element-wise products (outer ones too) are not;
- padding and masked or causal attention count as if all of it were computed;
- an operator that multiplies and has no formula is named in `Cost.uncounted`. A formula given to
  `torch.utils.flop_counter.register_flop_formula` (two operations per multiply-add) is used.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Generator, Tensor, UntypedStorage, nn
from torch.utils.flop_counter import flop_registry

from pluribus.errors import InputError
from pluribus.mechanisms.graph.operators import multiplies
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.layers import Site, find_sites
from pluribus.mechanisms.network.torch_private import (
    MKLDNN_LAYOUT,
    TorchDispatchMode,
    has_storage,
    module_tables,
    operator_packet,
    tree_leaves,
)
from pluribus.notebook import html_table

Formula = Callable[..., int]


def _rows(x: Tensor) -> int:
    """Return the number of vectors along the last axis."""
    return x.shape[:-1].numel()


def _product(out: Tensor, a: Tensor, b: Tensor, *_: Any) -> int:
    """Count a product: every number of `a` meets every column of `b`; a vector is one column."""
    return a.numel() * (b.shape[-1] if b.ndim > 1 else 1)


def _attention(out: object, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> int:
    """Count scores, then their mean of the values; grouped keys are multiplied by every query head."""
    return _rows(query) * key.shape[-2] * (key.shape[-1] + value.shape[-1])


def _bilinear(out: Tensor, left: Tensor, weight: Tensor, *_: Any) -> int:
    """Count `left @ weight` for weights `[out, left, right]`, then its product with the right input."""
    return _rows(left) * (weight.numel() + weight[:, 0].numel())


# Multiply-adds from output and arguments, for what torch's own counter passes over in silence,
# in-place products such as `addmm_` included.
_FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("aten.mv", "aten.dot", "aten.vdot", "aten._int_mm"), _product),
    **dict.fromkeys(
        ("aten.addmm", "aten.baddbmm", "aten.addbmm", "aten.addmv"),
        lambda out, added, *factors: _product(out, *factors),
    ),
    "aten._scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten._trilinear": _bilinear,
    "aten.mkldnn_linear": lambda out, x, weight, *_: _rows(x) * weight.numel(),
    "aten.mkldnn_convolution": lambda out, x, weight, *_: out.numel() // out.shape[1] * weight.numel(),
    "aten.mkldnn_rnn_layer": lambda out, x, inward, hidden, *_: _rows(x) * (inward.numel() + hidden.numel()),
    "aten._cudnn_rnn": lambda out, x, weights, *_: _rows(x) * sum(w.numel() for w in weights if w.ndim > 1),
}

# What is in none of these is another library's operator, which may multiply.
_OWN_NAMESPACES = ("aten.", "prim.", "prims.", "profiler.")


def _formula(operator: Any) -> Formula | None:
    """Return the formula of an operator, our own before torch's; None where there is none.

    A formula takes the output, the positional and the keyword arguments of a call.
    """
    if own := _FORMULAS.get(str(operator).rstrip("_")):
        return lambda out, args, kwargs: own(out, *args)
    # torch counts two operations for each multiply-add.
    if theirs := flop_registry.get(operator):
        return lambda out, args, kwargs: theirs(*args, **kwargs, out_val=out) // 2
    return None


def _tensors(tree: object) -> list[Tensor]:
    """Return the tensors in nested lists, tuples and dicts."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _plain(tensor: Tensor) -> bool:
    """Return whether formulas hold for a tensor: its entries are real, and all of them are there."""
    dense = tensor.layout in (torch.strided, MKLDNN_LAYOUT)
    return dense and not tensor.is_nested and not tensor.is_complex()


def storages(tree: object) -> set[UntypedStorage]:
    """Return the memory behind the tensors in a tree; sparse and opaque tensors have none."""
    return {tensor.untyped_storage() for tensor in _tensors(tree) if has_storage(tensor)}


@dataclass(frozen=True)
class Cost:
    """Costs of one forward pass; `print` them for a table.

    Attributes:
        parameters: Numbers that are parameters, tied ones once, frozen ones included.
        multiply_adds: Multiply-adds of the pass, exact by the conventions on top of this file.
        weight_bytes: Bytes of parameters and buffers, each storage once; sparse and opaque tensors have none.
        peak_activation_bytes: The most bytes alive at once of what operators created during the pass;
            parameters, buffers, the input and operators' inner work space excluded.
        uncounted: Names of the operators that multiply and are missing in `multiply_adds`.
    """

    parameters: int
    multiply_adds: int
    weight_bytes: int
    peak_activation_bytes: int
    uncounted: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [
            f"{name:<18}{value:>20,}  {_short(value)}{unit}".rstrip() for name, value, unit in self._rows()
        ]
        return "\n".join(lines + self._notes())

    def _repr_html_(self) -> str:
        """Return the same table for notebooks."""
        rows = [(name, value, _short(value) + unit) for name, value, unit in self._rows()]
        return html_table("Cost of one forward pass", ("", "exact", ""), rows, self._notes())

    def _rows(self) -> list[tuple[str, int, str]]:
        return [
            ("parameters", self.parameters, ""),
            ("multiply-adds", self.multiply_adds, ""),
            ("weights", self.weight_bytes, "B"),
            ("peak activations", self.peak_activation_bytes, "B"),
        ]

    def _notes(self) -> list[str]:
        return ["not counted: " + ", ".join(self.uncounted)] if self.uncounted else []

    def ratio_to(self, other: "Cost") -> dict[str, float]:
        """Return each number relative to another cost, by name; `nan` where the other has none."""
        names = ("parameters", "multiply_adds", "weight_bytes", "peak_activation_bytes")
        return {name: getattr(self, name) / (getattr(other, name) or math.nan) for name in names}


def _short(value: int) -> str:
    """Return `1.23 M` for `1234567`."""
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.2f} {letter}"
    return f"{value} "


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that counts the products of every operator, and the bytes alive after it."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.multiply_adds = 0
        self.uncounted: set[str] = set()
        self.peak = 0
        # A storage leaves as its last tensor dies.
        self.alive = WeakKeyDictionary[UntypedStorage, int]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operator = operator_packet(func)
        formula = _formula(operator)
        if formula is None and torch.is_inference_mode_enabled() and hasattr(func, "decompose"):
            # In inference mode alone, operators that are made of others arrive whole.
            with self:
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        out = func(*args, **kwargs)
        self._count(str(operator), formula, out, args, kwargs)
        # A tensor literal is made out of sight and first seen when lifted: it is new, though an argument.
        lifted = func is torch.ops.aten.lift_fresh.default
        self._track_memory(out, () if lifted else (args, kwargs))
        return out

    def _count(self, name: str, formula: Formula | None, out: Any, args: Any, kwargs: Any) -> None:
        """Add the multiply-adds of an operator, or its name to those that are not counted."""
        if formula is None:
            own = name.startswith("aten.") and multiplies(name.removeprefix("aten."))
            if own or not name.startswith(_OWN_NAMESPACES):
                self.uncounted.add(name)
        elif all(_plain(tensor) for tensor in _tensors(args)):
            self.multiply_adds += formula(out, args, kwargs)
        else:
            self.uncounted.add(f"{name} (complex, sparse or nested)")

    def _track_memory(self, out: object, given: object) -> None:
        """Add the storages that an operator created to those alive, and raise the peak to their sum."""
        known = storages(given)
        for storage in storages(out):
            # One that is alive may have been resized; a given one that is not is an input or a weight.
            if storage not in known or storage in self.alive:
                self.alive[storage] = storage.nbytes()
        self.peak = max(self.peak, sum(self.alive.values()))


@contextmanager
def _observable(module: nn.Module) -> Iterator[None]:
    """Open fused and compiled layers, so that their operators are seen; restore everything afterwards."""
    fused = torch.backends.mha.get_fastpath_enabled()
    with _restored_attributes(module), _restored_values(module), _restored_generators(module):
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with torch.compiler.set_stance("force_eager"):
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fused)


@contextmanager
def _restored_attributes(module: nn.Module) -> Iterator[None]:
    """Give all parts of a module their attributes, tensors and children back."""
    tables = []
    for part in module.modules():
        tables += [vars(part), *module_tables(part)]
    before = [dict(table) for table in tables]
    try:
        yield
    finally:
        for table, old in zip(tables, before, strict=True):
            # Another thread that runs the module must find no empty table.
            if not _is_same(table, old):
                table.clear()
                table.update(old)


def _is_same(table: Mapping[str, Any], old: Mapping[str, Any]) -> bool:
    """Return whether a table holds the same objects under the same names, in the same order."""
    if list(table) != list(old):
        return False
    return all(value is old[name] for name, value in table.items())


@contextmanager
def _restored_values(module: nn.Module) -> Iterator[None]:
    """Give the tensors of a module their values back, such as running means."""
    state = [*module.parameters(), *module.buffers()]
    tensors = [tensor for tensor in state if tensor.layout is torch.strided and not tensor.is_meta]
    values = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        for tensor, value in zip(tensors, values, strict=True):
            # Values are compared, because batch norm writes without counting it (torch 2.13).
            if not torch.equal(tensor, value):
                tensor.data.copy_(value)


@contextmanager
def _restored_generators(module: nn.Module) -> Iterator[None]:
    """Give torch's random generators, and those that a module holds, their states back."""
    generators = [torch.default_generator, *torch.cuda.default_generators]
    for part in module.modules():
        generators += [value for value in vars(part).values() if isinstance(value, Generator)]
    states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def cost(module: nn.Module, /, *args: Any, **kwargs: Any) -> Cost:
    """Return parameters, multiply-adds and bytes of one forward pass, in the mode that the module is in.

    The module and torch's random state are the same afterwards.

    Args:
        module: A network or an ensemble.
        args: One input as the module takes it. A single tuple or dict is spread into arguments.
        kwargs: Further arguments by name.

    Example:
        >>> cost(nn.Linear(3, 2), torch.zeros(7, 3)).multiply_adds
        42
    """
    if not isinstance(module, nn.Module):
        raise InputError(
            f"expected a torch.nn.Module, got {type(module).__name__}. "
            "Put a function into the forward of a module."
        )
    match args:
        case [Mapping() as named]:
            args, kwargs = (), {**named, **kwargs}
        # `type`, because a PackedSequence is a tuple, and one input.
        case [tuple() as several] if type(several) is tuple:
            args = several
    parameters = sum(parameter.numel() for parameter in module.parameters())
    weights = storages([*module.parameters(), *module.buffers()])
    weight_bytes = sum(storage.nbytes() for storage in weights)
    with _observable(module), torch.no_grad(), Meter() as meter:
        module(*args, **kwargs)
    return Cost(parameters, meter.multiply_adds, weight_bytes, meter.peak, tuple(sorted(meter.uncounted)))


def work_by_layer(module: nn.Module, inputs: Inputs) -> list[tuple[frozenset[str], int]]:
    """Return the multiply-adds of one forward pass, in the order in which layers run.

    Returns:
        For each stretch of the pass, the names of the tensors that layers held up to its end, and its
        multiply-adds.
    """
    work, held, counted = list[tuple[frozenset[str], int]](), frozenset[str](), 0

    def close() -> None:
        nonlocal counted
        work.append((held, meter.multiply_adds - counted))
        counted = meter.multiply_adds

    def enter(site: Site) -> None:
        nonlocal held
        close()
        held |= {*site.parameters, *site.statistics}

    handles = []
    for site in find_sites(module):
        handles.append(site.module.register_forward_pre_hook(lambda *_, site=site: enter(site)))
        handles.append(site.module.register_forward_hook(lambda *_: close()))
    try:
        with _observable(module), torch.no_grad(), Meter() as meter:
            module(*inputs.args, **inputs.keywords)
            close()
    finally:
        for handle in handles:
            handle.remove()
    return [(names, count) for names, count in work if count]
