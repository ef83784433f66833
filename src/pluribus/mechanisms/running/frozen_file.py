"""Files of frozen ensembles: graphs as plain data in `frozen.json`, tensors in `weights.safetensors`.

Neither the user's class nor pickle is needed to read them. Masks of two values are stored as bits, and
weights that are larger than what they were computed from as operators on that (`graph/compact.py`).
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from pluribus.calibration_record import Calibration
from pluribus.errors import InputError
from pluribus.likelihood import Likelihood
from pluribus.mechanisms.graph.compact import compact
from pluribus.mechanisms.graph.graph_file import graph_to_list
from pluribus.mechanisms.graph.packing import two_values
from pluribus.mechanisms.graph.plain_values import plain_to_data
from pluribus.mechanisms.running.explain import Explanation
from pluribus.mechanisms.running.kinds import Kind
from pluribus.saving import CALIBRATION, Layout, write_folder

# Version 2 has nodes that are computed when a file is read, and masks of any type as bits.
FROZEN = Layout("frozen.json", "pluribus frozen ensemble", 2, "frozen.save(...)")
SUMMARY = ("rows", "reason", "together", "draws", "shared", "common", "layer_calls", "multiply_adds")
"""What is kept of an explanation, and the written bytes and forks."""


def write_frozen(
    path: str | Path,
    networks: Sequence[nn.Module],
    kinds: Sequence[Kind],
    summaries: Sequence[Explanation],
    weights: Tensor,
    notes: Sequence[str],
    likelihood: Likelihood,
    memory: int | None,
    calibration: Calibration | None,
) -> None:
    """Write a frozen ensemble as a folder.

    Args:
        path: The folder.
        networks: A graph for each kind of inputs.
        kinds: The kinds of inputs.
        summaries: Of each graph, what its rows share.
        weights: How much each member counts.
        notes: What became part of what.
        likelihood: What the outputs mean.
        memory: The bound of `predict`.
        calibration: Corrects predictions.

    Raises:
        InputError: Members are looped, or an operator is not in the allow list.
        CheckpointError, WriteError: As `write_folder`.
    """
    graphs, tensors, forms = list[dict[str, Any]](), dict[str, Tensor](), dict[str, dict[str, Any]]()
    for place, (network, kind, summary) in enumerate(zip(networks, kinds, summaries, strict=False)):
        assert isinstance(network, GraphModule)
        network = compact(network)
        row = getattr(network, "row", None)
        graphs.append(
            {
                "kind": _kind_to_dict(kind),
                "nodes": graph_to_list(network),
                "row": None if row is None else graph_to_list(row),
                "summary": _summary_to_dict(summary),
            }
        )
        for name, tensor in network.state_dict().items():
            stored, form = _packed(tensor, name in dict(network.named_parameters()))
            tensors[f"{place}.{name}"], forms[f"{place}.{name}"] = stored, form
    settings = {
        "graphs": graphs,
        "tensors": forms,
        "weights": weights.tolist(),
        "notes": list(notes),
        "likelihood": likelihood.to_dict(),
        "memory": memory,
        CALIBRATION: calibration and calibration.to_dict(),
    }
    fitted = calibration.tensors() if calibration else {}
    tensors |= {f"{CALIBRATION}.{name}": tensor for name, tensor in fitted.items()}
    write_folder(path, settings, tensors, FROZEN)


def _kind_to_dict(kind: Kind) -> dict[str, Any]:
    """Return a kind of inputs as plain data."""
    forms = list[Any]()
    for form in kind.signature.forms:
        if isinstance(form, tuple):
            dtype, sizes = form
            forms.append({"dtype": str(dtype).removeprefix("torch."), "sizes": list(sizes)})
        else:
            forms.append({"value": plain_to_data(form)})
    return {
        "names": list(kind.names),
        "places": list(kind.places),
        "plain": kind.plain,
        "example": kind.signature.example,
        "structure": kind.signature.structure,
        "forms": forms,
    }


def _summary_to_dict(summary: Explanation) -> dict[str, Any]:
    """Return what rows share as plain data."""
    values = asdict(summary)
    return {name: values[name] for name in (*SUMMARY, "written_bytes", "making", "forks")}


def _packed(tensor: Tensor, parameter: bool) -> tuple[Tensor, dict[str, Any]]:
    """Return a tensor as it is stored, and what its reader must know of it.

    Args:
        tensor: Of a graph.
        parameter: Whether it is a parameter.
    """
    form: dict[str, Any] = {
        "parameter": parameter,
        "channels_last": _is_channels_last(tensor),
        "bits": None,
    }
    values = () if parameter else two_values(tensor)
    if not values:
        return tensor, form
    low, high = values
    is_high = (tensor == high).cpu().contiguous().numpy().reshape(-1)
    form["bits"] = {
        "values": [low, high],
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
    }
    return torch.from_numpy(np.packbits(is_high)), form


def _is_channels_last(tensor: Tensor) -> bool:
    """Return whether a kernel has its channels last in memory, and not first."""
    if tensor.ndim != 4 or tensor.is_contiguous():
        return False
    return tensor.is_contiguous(memory_format=torch.channels_last)


def check_savable(networks: Sequence[nn.Module]) -> None:
    """Raise for members that are looped: they are code, which a file does not hold."""
    for network in networks:
        if not isinstance(network, GraphModule):
            raise InputError(
                "a frozen ensemble can be saved if it is a graph, got members that are looped; frozen.notes "
                "has the reason. Keep the ensemble itself with ensemble.save(...)."
            )
