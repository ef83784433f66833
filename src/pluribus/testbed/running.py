"""Running the testbed: methods × cells × seeds, in parts that are kept as soon as they are done."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor

from pluribus.data.testbed import Problem, draw_problems
from pluribus.likelihood import Likelihood
from pluribus.mechanisms.ranking.rank import rank_members
from pluribus.testbed.cells import Cell, Grid
from pluribus.testbed.presets import REFERENCES, Preset, make_preset
from pluribus.testbed.protocol import Protocol
from pluribus.testbed.references import sample_reference
from pluribus.testbed.results import Curve, Result, append_results, read_results
from pluribus.testbed.scoring import joint_score, score, score_prefixes
from pluribus.testbed.training import AGENT_SEED, Tick, train
from pluribus.training.progress import Show

SEEDS_AT_ONCE = 5
"""Seeds whose problems are trained together: five take 0.8 of the time of two, and more is lost by Ctrl-C."""
DEEP_SIZES = (2, 3, 5, 6, 8, 10, 20, 30)
"""Members of Deep Ensembles in Fig. 2; members are independent, so that K networks are the first K of 30."""
LAYER_FACTORS = (1, 2, 3, 5, 10, 20)
"""Random members of a layer ensemble in Fig. 2, as multiples of K."""


@dataclass(frozen=True)
class Part:
    """One method on several problems of one shape, trained at once.

    Attributes:
        name: Of the preset.
        shape: D and λ.
        seeds: Of the problems.
        cells: Those of the shape; the problems are all pairs of a seed and a cell.
    """

    name: str
    shape: tuple[int, int]
    seeds: tuple[int, ...]
    cells: tuple[Cell, ...]

    def __str__(self) -> str:
        seeds = ", ".join(map(str, self.seeds))
        return f"{self.name}: D={self.shape[0]}, λ={self.shape[1]}, seeds {seeds}"

    @property
    def steps(self) -> int:
        """Return how many problems count for the progress."""
        return len(self.seeds) * len(self.cells)


def plan_parts(
    names: Sequence[str], grid: Grid, seeds: Sequence[int], at_once: int = SEEDS_AT_ONCE
) -> Iterator[Part]:
    """Yield all parts; every method and cell comes with the first seeds before any comes with others."""
    for start in range(0, len(seeds), at_once):
        some = tuple(seeds[start : start + at_once])
        for shape in grid.shapes():
            cells = tuple(Cell(*shape, noise) for noise in grid.noises)
            for name in names:
                yield Part(name, shape, some, cells)


def run_testbed(
    names: Sequence[str],
    grid: Grid,
    seeds: Sequence[int],
    protocol: Protocol,
    path: Path,
    say: Callable[[str], None],
    at_once: int = SEEDS_AT_ONCE,
) -> list[Result]:
    """Score methods on all cells and seeds, and return all results of this protocol in the file.

    Args:
        names: Of presets, or texts of methods.
        grid: The cells.
        seeds: Of the problems.
        protocol: How to train and score.
        path: The file to which results are added; those that it has are not computed again.
        say: Prints a line.
        at_once: Seeds whose problems are trained together.
    """
    done = {result.key for result in read_results(path, protocol)}
    parts = [part for part in plan_parts(names, grid, seeds, at_once) if not _is_done(part, done)]
    total = sum(part.steps for part in parts)
    say(f"{total} of {len(names) * len(grid.cells) * len(seeds)} scores to compute, into {path}")
    held: tuple[object, dict[tuple[Cell, int], Problem]] = (None, {})
    path.parent.mkdir(parents=True, exist_ok=True)
    with Show("testbed", total * protocol.steps) as show:
        for part in parts:
            if held[0] != (part.shape, part.seeds):
                show.tell(f"drawing problems of D={part.shape[0]}, λ={part.shape[1]}")
                held = ((part.shape, part.seeds), _draw(part, protocol))
            show.tell(str(part))

            def tick(progress: float, steps: int = part.steps) -> None:
                for _ in range(steps):
                    show.advance()

            found = _run_part(part, held[1], protocol, tick)
            append_results(path, found)
            show.say(f"{part}: {_told(found, protocol)}")
    return read_results(path, protocol)


def _is_done(part: Part, done: set[tuple[str, Cell, int]]) -> bool:
    return all((part.name, cell, seed) in done for cell in part.cells for seed in part.seeds)


def _draw(part: Part, protocol: Protocol) -> dict[tuple[Cell, int], Problem]:
    """Return the problems of a part by cell and seed; those of one seed share inputs and function."""
    noises = [cell.noise for cell in part.cells]
    relative = protocol.noise == "relative"
    found = dict[tuple[Cell, int], Problem]()
    for seed in part.seeds:
        drawn = draw_problems(*part.shape, noises, seed, protocol.points, relative=relative)
        found |= {(cell, seed): problem for cell, problem in zip(part.cells, drawn, strict=True)}
    return found


def _run_part(
    part: Part, problems: dict[tuple[Cell, int], Problem], protocol: Protocol, tick: Tick
) -> list[Result]:
    """Train and score one method on the problems of a part."""
    if part.name in REFERENCES:
        found = [_score_reference(part.name, key, one, protocol) for key, one in problems.items()]
        for _ in range(protocol.steps):
            tick(1.0)
        return found
    preset = make_preset(part.name, part.shape[0], protocol.as_in_paper)
    start = time.process_time()
    learner = train(preset, list(problems.values()), protocol, tick)
    seconds = (time.process_time() - start) / len(problems)
    found = list[Result]()
    for place, ((cell, seed), problem) in enumerate(problems.items()):
        points = torch.cat((problem.validation[0], problem.test[0]))
        held = learner.evaluate(place, points.to(learner.data.x)).cpu().float()
        validation, test = torch.split(held, protocol.points, 1)
        curves = _curves(preset, validation, test, problem, learner.stack.template.likelihood)
        found.append(
            Result(
                part.name,
                cell,
                seed,
                protocol.training,
                score(test, problem.test[1]),
                joint_score(test, problem),
                *curves,
                seconds=seconds,
            )
        )
    return found


def _score_reference(name: str, key: tuple[Cell, int], problem: Problem, protocol: Protocol) -> Result:
    """Score a sampler of a known distribution."""
    cell, seed = key
    outputs = sample_reference(name, problem, seed)
    scores = score(outputs, problem.test[1])
    return Result(name, cell, seed, protocol.training, scores, joint_score(outputs, problem))


def _curves(
    preset: Preset, validation: Tensor, test: Tensor, problem: Problem, likelihood: Likelihood
) -> tuple[Curve, Curve, int]:
    """Return scores of random subsets, scores of ranked ones, and the best size of the latter."""
    members, reference = len(test), problem.test[1]
    if preset.target_noise == "member":
        prefixes = score_prefixes(test, range(members), reference)
        return {size: prefixes[size - 1] for size in DEEP_SIZES if size <= members}, {}, 0
    options = getattr(preset.method, "options", 0)
    if not preset.name.startswith("layer_ensembles"):
        return {}, {}, 0
    order = torch.randperm(members, generator=Generator().manual_seed(AGENT_SEED)).tolist()
    prefixes = score_prefixes(test, order, reference)
    sizes = [factor * options for factor in LAYER_FACTORS if factor * options <= members]
    random = {size: prefixes[size - 1] for size in dict.fromkeys((*sizes, members))}
    prediction = likelihood.prediction(validation.unsqueeze(-1), torch.full((members,), 1 / members))
    ranking = rank_members(prediction, problem.validation[1], "kl")
    ranked = score_prefixes(test, list(ranking), reference)
    return random, dict(enumerate(ranked, 1)), ranking.best


def _told(results: Sequence[Result], protocol: Protocol) -> str:
    """Return the mean score of results in a few characters."""
    mean = sum(result.scores[protocol.direction] for result in results) / len(results)
    return f"KL {mean:.3f}"
