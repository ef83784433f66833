"""PyTorch 2 files (`.pt2`): read with `torch.export.load`, without this library."""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from pluribus.export.file_format import Dynamic, FileFormat, Run


class PT2(FileFormat):
    """The archive of `torch.export.save`. The module takes inputs by position."""

    name = "pt2"
    suffix = ".pt2"

    def write(self, program: ExportedProgram, path: Path, sizes: Dynamic, description: str) -> None:
        with warnings.catch_warnings():
            # torch warns of weights that are part of a larger tensor, which it stores rightly (2.13).
            warnings.simplefilter("ignore")
            torch.export.save(program, path, extra_files={"pluribus.json": description})

    def open(self, path: Path) -> Run:
        # Loading may unpickle. This is the file that was just written, and no other is ever read.
        module: Any = torch.export.load(path).module()

        def run(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            outputs: dict[str, Tensor] = module(*tensors.values())
            return outputs

        return run
