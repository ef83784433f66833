"""Plain values in files: numbers, and those arguments of operators that JSON does not have."""

import math
import re
from typing import Any

import torch

from pluribus.errors import InputError
from pluribus.schema import Mismatch, shown

# Values of operators that JSON does not have, by the names of their types.
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex64, torch.complex128),
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    )
}
MEMORY_FORMATS = {
    "contiguous_format": torch.contiguous_format,
    "channels_last": torch.channels_last,
    "channels_last_3d": torch.channels_last_3d,
    "preserve_format": torch.preserve_format,
}
FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
DEVICE = re.compile(r"(cpu|cuda|mps|xpu)(:\d{1,3})?")
TABLES: dict[str, dict[str, Any]] = {
    "dtype": DTYPES,
    "memory_format": MEMORY_FORMATS,
    "float": FLOATS,
    "layout": {"strided": torch.strided},
}


def plain_to_data(value: Any) -> Any:
    """Return a plain value as data for JSON.

    Raises:
        InputError: No file can hold it.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, str):
        return {"text": value}
    kinds = ((torch.dtype, "dtype"), (torch.device, "device"), (torch.memory_format, "memory_format"))
    for kind, name in kinds:
        if isinstance(value, kind):
            return {name: str(value).removeprefix("torch.")}
    if value is torch.strided:
        return {"layout": "strided"}
    raise InputError(f"a frozen ensemble can be saved with plain arguments, got {type(value).__name__}.")


def plain_from_data(data: Any, where: str) -> Any:
    """Return the plain value that `plain_to_data` described.

    Raises:
        Mismatch: It is none.
    """
    if data is None or type(data) in (bool, int, float):
        return data
    if isinstance(data, dict) and len(data) == 1:
        ((kind, name),) = data.items()
        known = TABLES.get(kind, {})
        if isinstance(name, str) and name in known:
            return known[name]
        if isinstance(name, str) and kind == "text":
            return name
        if isinstance(name, str) and kind == "device" and DEVICE.fullmatch(name):
            return torch.device(name)
    raise Mismatch(f"field {where} must hold plain arguments, got {shown(data)}")
