"""Memory of all K^4 members of a layer ensemble, planned and one by one, with and without autograd.

    python benchmarks/layer_ensembles_memory.py

The Layer Ensembles paper reports that shared execution takes less memory, by a factor that grows with K². Its
baseline may have kept the graph of autograd for every member. Here both are counted both ways: bytes of all
tensors alive at once that the forward passes create, without weights and inputs, for the small variant of
the paper's CNN at batch 2. The count is exact and does not depend on the machine.
"""

import json
from pathlib import Path

import torch
from layer_ensembles_speed import layer_ensemble
from torch import Tensor

import pluribus as pl
from pluribus.mechanisms.graph.cost import Meter

RESULT = Path(__file__).parent / "results" / "layer_ensembles_memory.json"
WIDTHS, BATCH, OPTIONS = (32, 32), 2, (2, 3, 4)


def peak_planned(ensemble: pl.Ensemble, x: Tensor, autograd: bool) -> int:
    """Return the peak of all members in one call."""
    with torch.set_grad_enabled(autograd), Meter() as meter:
        outputs = ensemble(x)
    del outputs
    return meter.peak


def peak_alone(ensemble: pl.Ensemble, x: Tensor, autograd: bool) -> int:
    """Return the peak of members one after the other, whose outputs are all kept."""
    networks = [ensemble.member(row) for row in ensemble.members.index.rows(training=False)]
    with torch.set_grad_enabled(autograd), Meter() as meter:
        outputs = [network(x) for network in networks]
    del outputs
    return meter.peak


def main() -> None:
    """Count, print and keep the peaks."""
    torch.manual_seed(0)
    x = torch.randn(BATCH, 1, 28, 28)
    lines = []
    for options in OPTIONS:
        ensemble = layer_ensemble(WIDTHS, options, x)
        found = {"options": options, "members": options**4}
        for name, autograd in (("without autograd", False), ("with autograd", True)):
            planned, alone = (peak(ensemble, x, autograd) for peak in (peak_planned, peak_alone))
            found |= {f"planned, {name}": planned, f"one after the other, {name}": alone}
        print(found, flush=True)
        lines.append(found)
    record = {"command": "python benchmarks/layer_ensembles_memory.py", "lines": lines}
    RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
