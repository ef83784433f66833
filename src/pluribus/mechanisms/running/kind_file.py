"""Kinds of inputs in the files of frozen ensembles, which are untrusted."""

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch.fx import GraphModule

from pluribus.mechanisms.graph.graph_file import IDENTIFIER
from pluribus.mechanisms.graph.plain_values import DTYPES, plain_from_data
from pluribus.mechanisms.graph.program import Signature
from pluribus.mechanisms.running.kinds import Kind
from pluribus.schema import Anything, Fields, Flag, Items, Mismatch, Optional, Text, Whole
from pluribus.untrusted import MOST_ARRAY_BYTES

DTYPE = Text(most=20)
SIZES = Items(Optional(Whole()), most=20)
FORM = Fields(optional={"dtype": DTYPE, "sizes": SIZES, "value": Anything()})
KIND = Fields(
    {
        "names": Items(IDENTIFIER, most=1000),
        "places": Items(Whole(most=1000), most=1000),
        "plain": Flag(),
        "example": Text(),
        "structure": Text(),
        "forms": Items(FORM, most=1000),
    }
)


def kind_of(values: Mapping[str, Any]) -> Kind:
    """Return a kind of inputs."""
    forms = list[Any]()
    for place, form in enumerate(values["forms"]):
        if "dtype" in form:
            forms.append((dtype_of(form["dtype"]), tuple(form.get("sizes", ()))))
        else:
            forms.append(plain_from_data(form.get("value"), f"forms[{place}]"))
    if any(place >= len(forms) for place in values["places"]):
        raise Mismatch(f"field places must be below {len(forms)}")
    signature = Signature(values["example"], values["structure"], tuple(forms), None, None)
    return Kind(signature, tuple(values["names"]), tuple(values["places"]), values["plain"])


def check_inputs(network: GraphModule, kind: Kind) -> None:
    """Raise `Mismatch` unless a graph has the inputs of its kind, and one batch of them fits into memory."""
    count = sum(node.op == "placeholder" for node in network.graph.nodes)
    if not count == len(kind.names) == len(kind.places):
        raise Mismatch(f"fields names and places must name the {count} inputs of the graph")
    for place in kind.places:
        form = kind.signature.forms[place]
        if not isinstance(form, tuple):
            raise Mismatch(f"forms[{place}] must be a tensor, as field places says")
        dtype, sizes = form
        # Inputs are made up when the graph is prepared: of two samples, where the batch is free.
        if prod(2 if size is None else size for size in sizes) * dtype.itemsize > MOST_ARRAY_BYTES:
            raise Mismatch(f"forms[{place}].sizes must take at most {MOST_ARRAY_BYTES} bytes")


def dtype_of(name: str) -> torch.dtype:
    """Return a type of tensors by its name; raise `Mismatch` if there is none."""
    if name not in DTYPES:
        raise Mismatch(f"field dtype must be one of {', '.join(DTYPES)}, got {name[:20]}")
    return DTYPES[name]
