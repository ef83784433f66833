"""What a network costs: parameters, multiply-adds, bytes of weights, peak bytes of activations.

The network runs once, without gradients, and every operator that reaches the processor is seen: what
is counted is what ran. Conventions, as in the papers:

- a multiply-add counts one; products of matrices, convolutions, attention and recurrent cells are counted;
- biases, normalisation, activations, pooling, resizing and element-wise products (outer ones too) are not;
- padding and masked or causal attention count as if all of it were computed;
- an operator that multiplies and has no formula is named in `Cost.uncounted`. A formula given to
  `torch.utils.flop_counter.register_flop_formula` (two operations per multiply-add) is used.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Generator, Tensor, UntypedStorage, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from pluribus.errors import InputError
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.sites import Site, find_sites
from pluribus.notebook import html_table

Formula = Callable[..., int]


def _rows(x: Tensor) -> int:
    return x.shape[:-1].numel()


def _product(out: Tensor, a: Tensor, b: Tensor, *_: Any) -> int:
    """Every number of `a` meets every column of `b`; a vector is one column."""
    return a.numel() * (b.shape[-1] if b.ndim > 1 else 1)


def _attention(out: object, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> int:
    """Scores, then their mean of the values; grouped keys are multiplied by every query head."""
    return _rows(query) * key.shape[-2] * (key.shape[-1] + value.shape[-1])


def _bilinear(out: Tensor, left: Tensor, weight: Tensor, *_: Any) -> int:
    """`left @ weight` for weights `[out, left, right]`, then its product with the right input."""
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

# Names of operators that multiply in ways the convention would count. Fused cells (_thnn) follow a
# product that is counted; resizing is left out like pooling.
_MULTIPLIES = re.compile(
    r"^aten\.(?!_thnn|_?upsample)\w*(mm(_|$)|matmul|conv(?!ert)|linear|attention|transformer|lstm|gru|rnn"
    r"|fft|[cp]dist_|euclidean_dist|grid_sampler|affine_grid|linalg_(?!check|cross|diagonal|vector_norm|_powsum)"
    r"|cholesky|(?<!re)solve|svd|geqrf|orgqr|ormqr|_lu_with)"
)
_OWN_NAMESPACES = ("aten.", "prim.", "prims.", "profiler.")


def _formula(operator: Any) -> Formula | None:
    """Multiply-adds from output, positional and keyword arguments: our formula before torch's."""
    if own := _FORMULAS.get(str(operator).rstrip("_")):
        return lambda out, args, kwargs: own(out, *args)
    if theirs := flop_registry.get(operator):
        return lambda out, args, kwargs: theirs(*args, **kwargs, out_val=out) // 2
    return None


def _tensors(tree: object) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _plain(tensor: Tensor) -> bool:
    dense = tensor.layout in (torch.strided, torch._mkldnn)  # type: ignore[attr-defined]
    return dense and not tensor.is_nested and not tensor.is_complex()


def storages(tree: object) -> set[UntypedStorage]:
    """The memory behind the tensors in a tree; sparse and opaque tensors have none."""
    return {tensor.untyped_storage() for tensor in _tensors(tree) if torch._C._has_storage(tensor)}


@dataclass(frozen=True)
class Cost:
    """What one forward pass costs; `print` it for a table.

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
        """Each number relative to another cost, by name; `nan` where the other has none."""
        names = ("parameters", "multiply_adds", "weight_bytes", "peak_activation_bytes")
        return {name: getattr(self, name) / (getattr(other, name) or math.nan) for name in names}


def _short(value: int) -> str:
    """`1234567` to `1.23 M`."""
    for power, letter in ((12, "T"), (9, "G"), (6, "M"), (3, "k")):
        if value >= 10**power:
            return f"{value / 10**power:.2f} {letter}"
    return f"{value} "


class Meter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operator: counts its products, and weighs the storages alive after it."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.multiply_adds = 0
        self.uncounted: set[str] = set()
        self.peak = 0
        self.alive = WeakKeyDictionary[UntypedStorage, int]()  # a storage leaves as its last tensor dies

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        operator = getattr(func, "_overloadpacket", func)
        formula = _formula(operator)
        if formula is None and torch.is_inference_mode_enabled() and hasattr(func, "decompose"):
            with self:  # operators made of others arrive whole in this mode alone
                out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        out = func(*args, **kwargs)
        self._count(str(operator), formula, out, args, kwargs)
        # A tensor literal is made out of sight and first seen when lifted.
        self._weigh(out, () if func is torch.ops.aten.lift_fresh.default else (args, kwargs))
        return out

    def _count(self, name: str, formula: Formula | None, out: Any, args: Any, kwargs: Any) -> None:
        if formula is None:
            if _MULTIPLIES.match(name) or not name.startswith(_OWN_NAMESPACES):
                self.uncounted.add(name)
        elif all(_plain(tensor) for tensor in _tensors(args)):
            self.multiply_adds += formula(out, args, kwargs)
        else:
            self.uncounted.add(f"{name} (complex, sparse or nested)")

    def _weigh(self, out: object, given: object) -> None:
        known = storages(given)
        for storage in storages(out):
            if storage not in known or storage in self.alive:  # one that is alive may have been resized
                self.alive[storage] = storage.nbytes()
        self.peak = max(self.peak, sum(self.alive.values()))


@contextmanager
def _observable(module: nn.Module) -> Iterator[None]:
    """Opens fused and compiled layers; gives the module and torch's random state back as they were."""
    parts = [vars(part) for part in module.modules()]
    tables = [part.get(name) for part in parts for name in ("_parameters", "_buffers", "_modules")]
    attributes = [*parts, *(table for table in tables if isinstance(table, dict))]
    before = [dict(named) for named in attributes]
    state = [*module.parameters(), *module.buffers()]
    tensors = [tensor for tensor in state if tensor.layout is torch.strided and not tensor.is_meta]
    values = [tensor.detach().clone() for tensor in tensors]
    own = [value for part in parts for value in part.values() if isinstance(value, Generator)]
    generators = [torch.default_generator, *torch.cuda.default_generators, *own]
    seeds = [generator.get_state() for generator in generators]
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)
        for named, old in zip(attributes, before, strict=True):
            named.clear()
            named.update(old)
        for tensor, value in zip(tensors, values, strict=True):
            if not torch.equal(tensor, value):  # batch norm leaves no trace in `_version`
                tensor.data.copy_(value)
        for generator, seed in zip(generators, seeds, strict=True):
            generator.set_state(seed)


def cost(module: nn.Module, /, *args: Any, **kwargs: Any) -> Cost:
    """Parameters, multiply-adds and bytes of one forward pass, in train or eval mode as the module is.

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
            f"cost expects a torch.nn.Module, however: {type(module).__name__}. "
            "Put a function into the forward of a module."
        )
    match args:
        case [Mapping() as named]:
            args, kwargs = (), {**named, **kwargs}
        case [tuple() as several] if type(several) is tuple:  # a PackedSequence is one input
            args = several
    parameters = sum(parameter.numel() for parameter in module.parameters())
    weights = storages([*module.parameters(), *module.buffers()])
    weight_bytes = sum(storage.nbytes() for storage in weights)
    with _observable(module), torch.no_grad(), Meter() as meter:
        module(*args, **kwargs)
    return Cost(parameters, meter.multiply_adds, weight_bytes, meter.peak, tuple(sorted(meter.uncounted)))


def work_by_layer(module: nn.Module, inputs: Inputs) -> list[tuple[frozenset[str], int]]:
    """The multiply-adds of one forward pass, in the order in which layers run.

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
