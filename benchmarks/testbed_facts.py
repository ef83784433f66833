"""Facts about Layer Ensembles and Deep Ensembles on seven settings of the testbed, three seeds each.

    python benchmarks/testbed_facts.py [--seeds 3] [--stored]

Trains the three methods as `pluribus testbed` does. Results go to a folder for temporary files, from which
the command continues if it is stopped. `--stored` takes the results of the whole grid, which has these
problems too. What the prior is worth is measured by `benchmarks/layer_ensembles_ranking.py`.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from pluribus.testbed.cells import Cell, paper_seeds, parse_grid
from pluribus.testbed.protocol import Protocol
from pluribus.testbed.results import FILE, Result
from pluribus.testbed.running import run_testbed

RESULT = Path(__file__).parent / "results" / "testbed_facts.json"
GRIDS = (
    "D=10;lambda=1,10,100;epsilon=0.1",
    "D=100;lambda=1,10;epsilon=0.1",
    "D=10;lambda=10;epsilon=0.01,1",
)
METHODS = ("deep_ensembles", "layer_ensembles_3", "layer_ensembles_5")
FEW = 2
"""Ranked members at which the divergence is still huge, as they agree."""

Found = dict[str, Result]
"""By method, its result on one problem."""
NUMBERS: dict[str, Callable[[Found], float]] = {
    "deep 3": lambda found: found["deep_ensembles"].random[3]["code"],
    "deep 5": lambda found: found["deep_ensembles"].random[5]["code"],
    "deep 30": lambda found: found["deep_ensembles"].scores["code"],
    "layers 3, all 27": lambda found: found["layer_ensembles_3"].scores["code"],
    "layers 5, all 125": lambda found: found["layer_ensembles_5"].scores["code"],
    "layers 5, ranked": lambda found: best(found["layer_ensembles_5"]),
    "P": lambda found: found["layer_ensembles_5"].best,
    "layers 5, first 2 ranked": lambda found: found["layer_ensembles_5"].ranked[FEW]["code"],
    "layers 5, 5 at random": lambda found: found["layer_ensembles_5"].random[5]["code"],
}
"""Columns of the table, with the divergence that each reads."""


def best(result: Result) -> float:
    """Return the divergence of the ranked members that validation points chose."""
    return result.ranked[result.best]["code"]


def state_facts(problems: list[dict[str, float]]) -> dict[str, str]:
    """Return what the problems say of each fact, in words and numbers."""
    mean = {name: statistics.fmean(one[name] for one in problems) for name in NUMBERS}

    def count(left: str, right: str) -> str:
        better = sum(one[left] < one[right] for one in problems)
        return f"{better} of {len(problems)} problems, {mean[left]:.3f} against {mean[right]:.3f}"

    sizes = [int(one["P"]) for one in problems]
    firsts = [one["layers 5, first 2 ranked"] for one in problems]
    return {
        "K options are better than K networks, K = 3": count("layers 3, all 27", "deep 3"),
        "K options are better than K networks, K = 5": count("layers 5, all 125", "deep 5"),
        "the best number of ranked members lies inside": f"{min(sizes)} to {max(sizes)} of 125",
        "ranked members are better than all": count("layers 5, ranked", "layers 5, all 125"),
        "two ranked members are far off": f"{min(firsts):.0f} to {max(firsts):.0f}",
        "5 members at random are better than 5 networks": count("layers 5, 5 at random", "deep 5"),
        "ranked members are better than 30 networks": count("layers 5, ranked", "deep 30"),
    }


def measure(seeds: int, folder: Path) -> list[Result]:
    """Return the results on all settings."""
    protocol, results = Protocol(), list[Result]()
    for text in GRIDS:
        results = run_testbed(METHODS, parse_grid(text), paper_seeds(seeds), protocol, folder / FILE, print)
    return results


def stored(seeds: int) -> list[Result]:
    """Return the results on all settings that the whole grid has."""
    cells = {cell for text in GRIDS for cell in parse_grid(text).cells}
    found = list[Result]()
    for line in (RESULT.parent / FILE).read_text(encoding="utf-8").splitlines():
        values = json.loads(line)
        wanted = Cell(**values["cell"]) in cells and values["seed"] in paper_seeds(seeds)
        if wanted and values["method"] in METHODS:
            found.append(Result.from_dict(values))
    return found


def main() -> None:
    """Measure all settings, print the facts, and keep the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--stored", action="store_true")
    given = parser.parse_args()
    seeds = given.seeds
    torch.set_num_threads(1)
    folder = Path(tempfile.gettempdir()) / "pluribus_testbed_facts"
    wanted = stored(seeds) if given.stored else measure(seeds, folder)
    busy = sum(result.seconds for result in wanted)
    by_problem = dict[tuple[Cell, int], Found]()
    for result in wanted:
        by_problem.setdefault((result.cell, result.seed), {})[result.method] = result
    table: dict[str, list[dict[str, float]]] = {}
    for (cell, _), found in by_problem.items():
        numbers = {name: round(read(found), 5) for name, read in NUMBERS.items()}
        table.setdefault(str(cell), []).append(numbers)
    problems = [one for ones in table.values() for one in ones]
    facts = state_facts(problems)
    kept = {
        "command": f"python benchmarks/testbed_facts.py --seeds {seeds}" + " --stored" * given.stored,
        "processor seconds of training": round(busy),
        "facts": facts,
        "means over seeds": {
            cell: {name: round(statistics.fmean(one[name] for one in ones), 3) for name in NUMBERS}
            for cell, ones in table.items()
        },
        "means": {name: round(statistics.fmean(one[name] for one in problems), 3) for name in NUMBERS},
        "runs": table,
        "versions": {"torch": torch.__version__},
    }
    RESULT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for fact, found in facts.items():
        print(f"{fact}: {found}")
    print(f"{busy:.0f} s of processor time for training")


if __name__ == "__main__":
    main()
