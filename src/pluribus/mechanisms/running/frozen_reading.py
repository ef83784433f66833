"""Read frozen ensembles from their folders. Files are untrusted: everything is checked."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pluribus.errors import CheckpointError, PluribusError
from pluribus.likelihood import Likelihood
from pluribus.mechanisms.graph.graph_file import GRAPH, graph_from_list
from pluribus.mechanisms.graph.packing import MASKS
from pluribus.mechanisms.running.explain import Explanation, Fork, Saving
from pluribus.mechanisms.running.frozen import Frozen
from pluribus.mechanisms.running.frozen_file import FROZEN
from pluribus.mechanisms.running.kind_file import DTYPE, KIND, check_inputs, dtype_of, kind_of
from pluribus.saving import CALIBRATION, HASHES, read_calibration, read_folder, split_calibration
from pluribus.schema import (
    Anything,
    Fields,
    Flag,
    Items,
    Mismatch,
    Named,
    Number,
    Optional,
    Schema,
    Text,
    Whole,
)

REMEDY = "Save the frozen ensemble again."
SAVING = Optional(Fields({"planned": Whole(), "alone": Whole()}))
SUMMARY: Schema = Fields(
    {
        "rows": Whole(least=1),
        "reason": Text(),
        "together": Whole(least=1),
        "draws": Whole(),
        "shared": Items(Text()),
        "common": Number(finite=True),
        "layer_calls": SAVING,
        "multiply_adds": SAVING,
        "written_bytes": SAVING,
        "forks": Items(Fields({"layer": Text(), "runs": Whole(), "values": Whole()})),
    },
    # Older files have none.
    {"making": SAVING},
)
BITS = Fields(
    {
        "values": Items(Number(finite=True), most=2),
        "shape": Items(Whole(most=1 << 40), most=20),
        "dtype": DTYPE,
    }
)
BIT_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, *MASKS)
TENSOR = Fields({"parameter": Flag(), "channels_last": Flag(), "bits": Optional(BITS)})
SCHEMA: Schema = Fields(
    {
        "format": Text(),
        "version": Whole(),
        "graphs": Items(
            Fields({"kind": KIND, "nodes": GRAPH, "row": Optional(GRAPH), "summary": SUMMARY}), most=100
        ),
        "tensors": Named(TENSOR),
        "weights": Items(Number(finite=True), most=1_000_000),
        "notes": Items(Text()),
        "likelihood": Anything(),
        "memory": Optional(Whole(least=1)),
        CALIBRATION: Anything(),
    },
    {HASHES: Anything()},
)


def load_frozen(path: str | Path) -> Frozen:
    """Return the frozen ensemble that `Frozen.save` wrote; the network's class is not needed.

    Args:
        path: The folder.

    Raises:
        CheckpointError: Something is missing, damaged, or not allowed in such a file.

    Example:
        >>> import tempfile
        >>> frozen = pluribus.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=4)).freeze()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     frozen.save(f"{folder}/frozen")
        ...     again = pluribus.load_frozen(f"{folder}/frozen")
        >>> again(torch.zeros(7, 3)).shape
        torch.Size([4, 7, 2])
    """
    settings, stored = read_folder(path, FROZEN)
    try:
        SCHEMA.check(settings, "")
        packed, fitted = split_calibration(stored)
        frozen = _frozen(settings, _tensors(packed, settings["tensors"]))
        frozen.calibration = read_calibration(settings, fitted)
    except CheckpointError:
        raise
    # A likelihood of the file may be unknown; a graph of it may not be one.
    except (Mismatch, PluribusError) as error:
        file = Path(path) / FROZEN.settings
        raise CheckpointError(f"{file} is damaged or foreign: {error}. {REMEDY}") from error
    return frozen


def _frozen(settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Frozen:
    """Return the frozen ensemble of checked settings.

    Args:
        settings: Of the file, checked against the schema.
        tensors: By the name in the file; the number of the graph comes first.

    Raises:
        Mismatch: A graph is none, or weights do not sum to one.
    """
    networks, kinds, summaries = [], [], []
    for place, graph in enumerate(settings["graphs"]):
        prefix = f"{place}."
        own = {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}
        networks.append(graph_from_list(graph["nodes"], own, graph["row"]))
        kinds.append(kind_of(graph["kind"]))
        check_inputs(networks[-1], kinds[-1])
        summaries.append(_summary(graph["summary"]))
    if not networks:
        raise Mismatch("field graphs must have at least one graph")
    weights = torch.tensor(settings["weights"])
    if not len(weights) or bool((weights < 0).any()) or abs(float(weights.sum()) - 1) > 1e-3:
        raise Mismatch("field weights must be at least 0 and sum to one")
    likelihood = Likelihood.from_dict(settings["likelihood"])
    return Frozen(networks, kinds, summaries, weights, settings["notes"], likelihood, settings["memory"])


def _summary(values: Mapping[str, Any]) -> Explanation:
    """Return what rows share."""
    plain = {name: values[name] for name in ("rows", "reason", "together", "draws", "common")}
    savings: dict[str, Any] = {}
    for name in ("layer_calls", "multiply_adds", "written_bytes", "making"):
        savings[name] = None if values.get(name) is None else Saving(**values[name])
    forks = tuple(Fork(**fork) for fork in values["forks"])
    return Explanation(**plain, **savings, shared=tuple(values["shared"]), forks=forks)


def _tensors(stored: Mapping[str, Tensor], forms: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the tensors of all graphs as they were before they were stored.

    Args:
        stored: As they are in the file.
        forms: By name, what their reader must know.

    Raises:
        Mismatch: The file has other tensors than its settings name.
    """
    if stored.keys() != forms.keys():
        raise Mismatch(f"weights must be the {len(forms)} tensors of field tensors, got {len(stored)} others")
    found = dict[str, Tensor]()
    for name, form in forms.items():
        tensor = stored[name] if form["bits"] is None else _unpacked(stored[name], form["bits"], name)
        if form["channels_last"] and tensor.ndim == 4:
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        if form["parameter"] and tensor.is_floating_point():
            tensor = nn.Parameter(tensor, requires_grad=False)
        found[name] = tensor
    return found


def _unpacked(packed: Tensor, bits: Mapping[str, Any], name: str) -> Tensor:
    """Return a mask that was stored as bits.

    Args:
        packed: The bits.
        bits: Shape, precision and values of the mask.
        name: Of the tensor in the file.
    """
    count, dtype = prod(bits["shape"]), dtype_of(bits["dtype"])
    # Before anything is allocated: a hostile shape must not need more memory than the file has bits.
    if packed.dtype != torch.uint8 or packed.ndim != 1 or len(packed) != -(-count // 8):
        raise Mismatch(f"tensor {name[:60]} must have the bits of {count} numbers")
    if len(bits["values"]) != 2 or dtype not in BIT_TYPES:
        raise Mismatch(f"field tensors.{name[:60]}.bits must have two values of a mask")
    is_high = torch.from_numpy(np.unpackbits(packed.numpy(), count=count).astype(bool))
    low, high = bits["values"]
    mask = torch.full((count,), low, dtype=dtype)
    mask[is_high] = high
    return mask.reshape(bits["shape"])
