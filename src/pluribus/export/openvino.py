"""OpenVINO files (`.xml` with `.bin`), made from the ONNX graph."""

import tempfile
import threading
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from pluribus.errors import ExportError
from pluribus.export.file_format import Dynamic, FileFormat, Run
from pluribus.export.onnx import PACKAGES as ONNX_PACKAGES
from pluribus.export.onnx import Onnx


class OpenVino(FileFormat):
    """The format of Intel's runtime."""

    name = "openvino"
    suffix = ".xml"
    # Its fused operators round differently; up to 2e-5 was seen.
    tolerance = 5e-5
    packages = (*ONNX_PACKAGES, "openvino")
    extra = "openvino"
    computes_weights = True

    def write(self, program: ExportedProgram, path: Path, sizes: Dynamic, description: str) -> None:
        openvino = self.load_packages()[-1]
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            between = Path(folder) / "model.onnx"
            Onnx().write(program, between, sizes, description)
            model = _converted(openvino, between)
            model.set_rt_info(description, "pluribus")
            # Half precision, the default, would change the outputs.
            openvino.save_model(model, str(path), compress_to_fp16=False)

    def open(self, path: Path) -> Run:
        openvino = self.load_packages()[-1]
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
        model = openvino.Core().compile_model(str(path), "CPU", settings)
        # A request holds the tensors of one call, so every thread has one of its own.
        own = threading.local()

        def run(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            if not hasattr(own, "request"):
                own.request = model.create_infer_request()
            outputs = own.request.infer(
                {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
            )
            found = dict[str, Tensor]()
            for output in model.outputs:
                # An output that equals another one has the names of both.
                for name in output.names:
                    found[name] = torch.as_tensor(outputs[output].copy())
            return found

        return run


def _converted(openvino: Any, path: Path) -> Any:
    """Return an ONNX file as a model of OpenVINO.

    Raises:
        ExportError: An operator has no counterpart.
    """
    try:
        return openvino.convert_model(str(path))
    # OpenVINO has errors of its own, one for each of its parts.
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise ExportError(
            f"every operator must have a counterpart in OpenVINO, got {type(error).__name__}: "
            f"{lines[0][:300]}. Export to format='onnx' or 'pt2' instead."
        ) from error
