"""Results of a testbed that was never run, with curves whose means are known."""

from pluribus.testbed.cells import Cell
from pluribus.testbed.results import Result


def curve(*scores):
    return {size: {"code": score, "printed": score} for size, score in enumerate(scores, 1)}


def make_results():
    found = []
    for noise, shift in ((0.1, 0.0), (1.0, 1.0)):
        for seed in (0, 1):
            more = {
                "deep_ensembles": {"random": curve(9.0, 2 + shift, 1 + shift)},
                "layer_ensembles_2": {
                    "random": curve(8.0, 3.0, 2.0),
                    "ranked": curve(900.0, 1 + shift, 0.5 + shift, 0.7 + shift),
                    "best": 3,
                },
                "prior": {},
            }
            for method, curves in more.items():
                scores = {"code": 1 + shift, "printed": 2.0}
                found.append(Result(method, Cell(10, 1, noise), seed, {}, scores, 0.1, **curves))
    return found
