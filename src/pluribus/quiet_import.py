"""Import packages that send reports on their use to their makers, without the reports.

    onnxruntime   sends events to Microsoft, and keeps a file `.ses` among temporary files (seen in 1.31)
    openvino      sends events to Google Analytics, the first when it is imported (seen in 2026.4)

Neither asks before. A program that handles somebody's data must not call other hosts on its own.
"""

import importlib
import os
import sys
from typing import Any

ONNXRUNTIME_SWITCH = "ORT_DISABLE_TELEMETRY"
OPENVINO_REPORTS = "openvino_telemetry"


def quiet_import(name: str) -> Any:
    """Import and return a package; if it was imported before, by whomever, it stays as it is.

    Raises:
        ImportError: It is not installed.
    """
    # A variable that the user has set counts. The package reads it when it is imported.
    os.environ.setdefault(ONNXRUNTIME_SWITCH, "1")
    if name != "openvino" or name in sys.modules or OPENVINO_REPORTS in sys.modules:
        return importlib.import_module(name)
    # With None in its place an import raises ImportError, on which OpenVINO takes a part that sends nothing.
    sys.modules[OPENVINO_REPORTS] = None  # type: ignore[assignment]
    try:
        return importlib.import_module(name)
    finally:
        del sys.modules[OPENVINO_REPORTS]
