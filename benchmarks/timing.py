"""How times are taken: contestants in turn, in one process, and ratios of them.

In every round all contestants are timed in turn, with two threads; a line is the ratio of two of them, its
median over the rounds and its quartiles. `--busy` is for a machine with much other work: one thread, and
the time that the processor spends on it instead of the time that passes.
"""

import argparse
import datetime
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

Contestants = dict[str, Callable[[], object]]
Line = dict[str, object]
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
LAST = torch.channels_last
CLOCKS = {False: time.perf_counter, True: time.process_time}


def rounds(contestants: Contestants, number: int, repeats: int = 1) -> dict[str, list[float]]:
    """Milliseconds of each contestant in each round."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    clock = CLOCKS[torch.get_num_threads() == 1]
    for round_ in range(-2, number):  # two to warm up
        for name, run in contestants.items():
            start = clock()
            for _ in range(repeats):
                run()
            if round_ >= 0:
                times[name].append((clock() - start) / repeats * 1e3)
    return times


def line(what: str, over: str, times: dict[str, list[float]]) -> Line:
    """The ratio of two contestants."""
    ratios = [a / b for a, b in zip(times[what], times[over], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    found: Line = {
        "ratio": f"{what} / {over}",
        "median": round(middle, 3),
        "quartiles": [round(low, 3), round(high, 3)],
    }
    return found | {"milliseconds": [round(statistics.median(times[name]), 2) for name in (what, over)]}


def better(times: dict[str, list[float]], names: list[str]) -> str:
    """The faster of some contestants."""
    return min(names, key=lambda name: statistics.median(times[name]))


def step(parameters: Iterable[nn.Parameter], kind: str, loss: Callable[[], Tensor]) -> Callable[[], object]:
    """Forward, loss, backward, optimizer."""
    optimizer = OPTIMIZERS[kind](parameters, lr=1e-3)

    def run() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return run


def measure(name: str, parts: Mapping[str, Callable[[int], list[Line]]]) -> None:
    """Runs the parts that the command line asks for, and keeps their lines in `results/<name>.json`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / f"{name}.json")
    parser.add_argument("--only", nargs="+", choices=parts, default=list(parts))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1 if options.busy else 2)
    record = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    for part in options.only:
        torch.manual_seed(0)
        lines = parts[part](options.rounds)
        for found in lines:
            print(part, *found.values(), flush=True)
        busy = " --busy" * options.busy
        record[part + busy] = {
            "command": f"python benchmarks/{name}.py --only {part} --rounds {options.rounds}{busy}",
            "date": datetime.date.today().isoformat(),
            "torch": torch.__version__,
            "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
            "lines": lines,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
