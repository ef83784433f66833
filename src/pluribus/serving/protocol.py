"""The Open Inference Protocol, version 2, over REST: requests and responses, in JSON and in binary.

github.com/kserve/open-inference-protocol. The binary extension puts tensors behind the JSON text, in the
order of the JSON, little-endian and without gaps; the header `Inference-Header-Content-Length` has the length
of the text.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pluribus.schema import Anything, Fields, Flag, Items, Mismatch, Schema, Text, Whole, shown
from pluribus.serving.exported import Exported
from pluribus.serving.input_checks import fitted, to_array
from pluribus.serving.json_numbers import plain
from pluribus.serving.refusal import bad
from pluribus.serving.tensors import PROTOCOL, Array, Arrays, Input, little_endian
from pluribus.untrusted import parse_json
from pluribus.version import VERSION

HEADER = "Inference-Header-Content-Length"
MODEL_VERSION = "1"
SIZE, AS_BINARY, ALL_BINARY = "binary_data_size", "binary_data", "binary_data_output"
MOST_AXES = 8
"""Axes of a shape that a message shows; a request may have more."""
TENSOR = Fields(
    {"name": Text(most=1000), "shape": Items(Whole(0), most=16), "datatype": Text(most=20)},
    {"data": Anything(), "parameters": Fields({}, {SIZE: Whole(0)}, others=True)},
)
REQUEST: Schema = Fields(
    {"inputs": Items(TENSOR, most=1000)},
    {
        "id": Text(most=1000),
        "parameters": Fields({}, {ALL_BINARY: Flag()}, others=True),
        "outputs": Items(
            Fields({"name": Text(most=1000)}, {"parameters": Fields({}, {AS_BINARY: Flag()}, others=True)}),
            most=1000,
        ),
    },
    others=True,
)


@dataclass(frozen=True)
class InferRequest:
    """A request for inference, checked.

    Attributes:
        arrays: The inputs by name.
        outputs: By name of each requested output, whether it is to be binary.
        id: Chosen by the client, or empty.
    """

    arrays: Arrays
    outputs: dict[str, bool]
    id: str


def server_metadata() -> dict[str, Any]:
    """Return the answer of `GET /v2`."""
    return {"name": "pluribus", "version": VERSION, "extensions": ["binary_tensor_data"]}


def model_metadata(name: str, exported: Exported) -> dict[str, Any]:
    """Return the answer of `GET /v2/models/{name}`; a size that may vary is −1."""
    inputs = [_place(one.name, one.dtype, ["batch", *one.shape]) for one in exported.inputs]
    outputs = []
    for output in exported.session.get_outputs():
        outputs.append(_place(output.name, exported.outputs[output.name], output.shape))
    return {
        "name": name,
        "versions": [MODEL_VERSION],
        "platform": "onnxruntime_onnx",
        "inputs": inputs,
        "outputs": outputs,
    }


def _place(name: str, dtype: str, shape: Sequence[int | str]) -> dict[str, Any]:
    """Return the metadata of an input or output."""
    sizes = [size if isinstance(size, int) else -1 for size in shape]
    return {"name": name, "datatype": PROTOCOL[dtype], "shape": sizes}


def read_request(body: bytes, header: str | None, exported: Exported) -> InferRequest:
    """Return a request for inference.

    Args:
        body: All bytes.
        header: Value of `HEADER`; None if the body is JSON alone.
        exported: The model.

    Raises:
        Refusal: The request is malformed, or does not fit the model.
    """
    text, binary = _divided(body, header)
    try:
        document = parse_json(text, REQUEST)
    except (Mismatch, ValueError) as error:
        raise bad(f"the request must be JSON of the Open Inference Protocol: {error}.") from error
    known = {one.name: one for one in exported.inputs}
    arrays: Arrays = {}
    start = 0
    for tensor in document["inputs"]:
        name = tensor["name"]
        if name not in known or name in arrays:
            raise bad(f"inputs must be {', '.join(known)}, each once, got {shown(name)}.")
        size = tensor.get("parameters", {}).get(SIZE)
        part = b"" if size is None else binary[start : start + size]
        start += len(part)
        arrays[name] = _input(known[name], tensor, part, size)
    if start != len(binary):
        raise bad(f"binary data must have {start} bytes as its sizes say, got {len(binary)}.")
    lacking = [name for name in known if name not in arrays]
    if lacking:
        raise bad(f"the request must have the input {lacking[0]!r}, got none of that name.")
    return InferRequest(arrays, _requested(document, exported), document.get("id", ""))


def write_response(
    request: InferRequest, outputs: Mapping[str, Array], name: str
) -> tuple[bytes, int | None]:
    """Return the body of a response, and the length of its JSON text if tensors follow it."""
    entries, parts = [], []
    for output, as_binary in request.outputs.items():
        value = outputs[output]
        entry: dict[str, Any] = {
            "name": output,
            "datatype": PROTOCOL[value.dtype.name],
            "shape": list(value.shape),
        }
        if as_binary:
            raw = np.ascontiguousarray(value, little_endian(value.dtype.name)).tobytes()
            entry["parameters"] = {SIZE: len(raw)}
            parts.append(raw)
        else:
            entry["data"] = plain(value.ravel())
        entries.append(entry)
    document = {"model_name": name, "model_version": MODEL_VERSION, "outputs": entries}
    if request.id:
        document["id"] = request.id
    text = json.dumps(document, allow_nan=False).encode()
    return b"".join((text, *parts)), len(text) if parts else None


def _divided(body: bytes, header: str | None) -> tuple[bytes, bytes]:
    """Return the JSON text and the binary part of a body."""
    if header is None:
        return body, b""
    if not header.isdecimal() or len(header) > 12 or int(header) > len(body):
        raise bad(f"{HEADER} must be a number of at most {len(body)}, got {shown(header)}.")
    return body[: int(header)], body[int(header) :]


def _input(one: Input, tensor: Mapping[str, Any], part: bytes, size: int | None) -> Array:
    """Return the array of one input of a request.

    Args:
        one: The input of the model.
        tensor: Its entry in the JSON.
        part: Its binary data.
        size: How many bytes it was to have; None if the data is in the JSON.
    """
    expected = PROTOCOL[one.dtype]
    if tensor["datatype"] != expected:
        raise bad(f"{one.name} must have the datatype {expected}, got {shown(tensor['datatype'])}.")
    shape = tensor["shape"]
    # Python's own integers do not overflow, even for a hostile shape.
    count = math.prod(shape)
    if size is None:
        if "data" not in tensor:
            raise bad(f"{one.name} must have data, or {SIZE} in its parameters, got neither.")
        values = to_array(one.name, tensor["data"])
    else:
        dtype = little_endian(one.dtype)
        if size != count * dtype.itemsize or len(part) != size:
            raise bad(
                f"{one.name} must have {shown(count * dtype.itemsize)} bytes for shape {shown_sizes(shape)}, "
                f"got {SIZE} {size} and {len(part)} bytes."
            )
        values = np.frombuffer(part, dtype)
    if values.size != count:
        sizes = shown_sizes(shape)
        raise bad(f"{one.name} must have {shown(count)} numbers for shape {sizes}, got {values.size}.")
    # Other sizes beside a 0 may be larger than NumPy takes.
    if count == 0:
        raise bad(f"{one.name} must have at least 1 number, got the shape {shown_sizes(shape)}.")
    return fitted(one, values.reshape(shape))


def shown_sizes(shape: Sequence[int]) -> str:
    """Return a shape as text, cut where a request makes it long."""
    return shown(shape) if len(shape) > MOST_AXES else str(shape)


def _requested(document: Mapping[str, Any], exported: Exported) -> dict[str, bool]:
    """Return the requested outputs with the form of each; all of them if none is named."""
    everything: bool = document.get("parameters", {}).get(ALL_BINARY, False)
    named = document.get("outputs") or [{"name": name} for name in exported.outputs]
    found: dict[str, bool] = {}
    for output in named:
        name = output["name"]
        if name not in exported.outputs:
            raise bad(f"outputs are {', '.join(exported.outputs)}, got {shown(name)}.")
        found[name] = output.get("parameters", {}).get(AS_BINARY, everything)
    return found
