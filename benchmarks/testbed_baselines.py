"""The baselines of Fig. 5 of Layer Ensembles as their authors have them, and the hypermodel, on the testbed.

    python benchmarks/testbed_baselines.py [--seeds 3] [--methods hypermodel_random_features]

Trains the presets seed by seed, so that every cell has its first seed before any has another, and adds what
is new to `results/testbed_variants.jsonl`; stopped, the command continues. Then prints the means of these
presets, and of all methods in `results/testbed.jsonl`, on the problems that all of them have.
"""

import argparse
from pathlib import Path

import torch

from pluribus.cli.testbed import print_results
from pluribus.testbed.cells import PAPER_GRID, Cell, paper_seeds, parse_grid
from pluribus.testbed.protocol import Protocol
from pluribus.testbed.results import Result, read_results
from pluribus.testbed.running import run_testbed

RESULTS = Path(__file__).parent / "results"
STORED = RESULTS / "testbed.jsonl"
NEW = RESULTS / "testbed_variants.jsonl"
BASELINES = (
    "hypermodel",
    "hypermodel_random_features",
    "vnn_without_activation",
    "bayes_by_backprop_free_means",
)


def problems_of(results: list[Result], methods: list[str]) -> set[tuple[Cell, int]]:
    """Return the cell and seed of each problem that all of these methods have."""
    having = [{(one.cell, one.seed) for one in results if one.method == method} for method in methods]
    return set.intersection(*having)


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default=",".join(BASELINES))
    parser.add_argument("--out", type=Path, default=NEW)
    chosen = parser.parse_args()
    names, protocol = chosen.methods.split(","), Protocol()
    torch.set_num_threads(1)
    seeds = paper_seeds(chosen.seeds)
    found = run_testbed(names, parse_grid(PAPER_GRID), seeds, protocol, chosen.out, print, at_once=1)
    found += [result for result in read_results(STORED, protocol) if result.method not in names]
    shared = problems_of(found, names)
    print_results([result for result in found if (result.cell, result.seed) in shared], protocol)


if __name__ == "__main__":
    main()
