"""Train presets of the testbed on a pretended device; print those that do not stay there.

    python -m tests.testbed.on_device emp,hypermodel

A process of its own, because torch takes the pretended device for an accelerator from then on.
"""

import sys

from pluribus.data.testbed import draw_problems
from pluribus.testbed.presets import make_preset
from pluribus.testbed.protocol import Protocol
from pluribus.testbed.training import train
from tests.pretended import DEVICE, Pretend, Pretended

PROBLEMS = draw_problems(3, 4, [0.1, 1.0], seed=0, points=8)


def quiet(progress: float) -> None:
    """Report no progress."""


def check(name: str) -> str:
    """Return what is wrong with a preset on the device; empty if nothing is."""
    try:
        learner = train(make_preset(name, 3, False), PROBLEMS, Protocol(steps=2, device=str(DEVICE)), quiet)
        outputs = learner.evaluate(0, PROBLEMS[0].test[0].to(DEVICE))
    except RuntimeError as error:
        return f"{name}: {str(error).splitlines()[0]}"
    return "" if isinstance(outputs, Pretended) else f"{name}: outputs on {outputs.device}"


def main() -> None:
    """Check the presets of the command line."""
    names = sys.argv[1].split(",")
    with Pretend():
        problems = [problem for problem in map(check, names) if problem]
    print(*problems, f"checked {len(names)}", sep="\n")


if __name__ == "__main__":
    main()
