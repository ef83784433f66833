"""Run command lines in this process, and write random ones."""

import io
import logging
import random
import shutil
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from uvicorn import Server

from pluribus.cli import main as cli
from tests.fuzz import mutations

METHOD_TEXTS = (
    *("single", "deep_ensembles(members=2)", "mc_dropout(draws=2)", "emp(draws=2)", "sae", "mimo(inputs=2)"),
    *(
        "masksembles(members=2)",
        "batch_ensemble(members=2,std=0.1)",
        "swag",
        "packed_ensembles",
        "none",
        "all(",
    ),
    *(
        "deep_ensembles(members=0)",
        "single()",
        "single(x=1)",
        "single,single",
        "emp(draws=1e9)",
        "(",
        "a(b(c))",
    ),
    *("mc_dropout(rate=2)", "deep_ensembles(members=True)", "os:system('x')", "json:loads", "deep_ensemble"),
)
TASKS = (
    "two_moons",
    "two_sinusoids",
    "diabetes",
    "csv",
    "npz",
    "folder",
    "mnist",
    "json:loads",
    "os:getcwd",
    "",
)
MODELS = (
    "mlp",
    "residual_mlp",
    "cnn",
    "resnet18",
    "vit",
    "sys:exit",
    "os:getcwd",
    "a.b:c",
    ":x",
    "..a:b",
    "x:",
    "",
)
OPTIONS = (
    *("train=40", "train=0", "train=-1", "train=x", "noise=0.1", "seed=1", "x=1", "=", "train", "train=40=3"),
    *(
        "path=none.csv",
        "path=/dev/zero",
        "target=y",
        "size=1e6",
        "train=[1]",
        "train=__import__('os')",
        "fold=1",
    ),
)
BUDGETS = ("multiply_adds<=1.5x", "parameters<=2M", "parameters<=", "x<=1", "parameters<=1e999x", "<=", ",,,")
COSTS = (
    *(
        "miss=10,alarm=1,defer=0.5",
        "wrong=1,defer=0.2",
        "wrong=0",
        "defer=0",
        "miss=-1",
        "miss=1e400",
        "mis=1",
    ),
    *(
        "miss=1e308,alarm=1e308",
        "miss=",
        "=",
        ",",
        "miss=٣",
        "miss=1.2.3",
        "miss=" + "9" * 5000,
        "\x1b[31m=1",
    ),
)
METRICS = ("nll", "accuracy", "ece", "rmse", "elo", "")
COUNTS = ("1", "2", "0", "-1", "x", "1e3", "9" * 400, "1.5", "", "٣", " 1")
RATES = ("0.001", "0", "-1", "nan", "inf", "1e400", "x", "1e-300")
WORDS = (
    "auto",
    "cpu",
    "cuda",
    "tpu",
    "mps",
    "",
    "32-true",
    "64-true",
    "bf16-mixed",
    "16",
    "best",
    "last",
    "nll",
)
PLACES = ("out", "a/b/c", "out.csv", "/dev/null", "/proc/x", "ä", "a" * 300, "", ".", "…", "a\udcff")

OBJECTIVES = ("nll,multiply_adds", "multiply_adds", "nll,nll", "", "x", "scaled_nll,parameters", ",,")
GRIDS = ("D=1", "D=0", "D=x", "D=1e9", "lambda=-1", "=;;", "D=1;D=2", "epsilon=nan", "x=1", "D=" + "1," * 500)
QUICK = ("--task", "two_moons", "--option", "train=40", "--epochs", "1")
COMMANDS: dict[str, tuple[tuple[str, ...], dict[str, tuple[str, ...]]]] = {
    "train": (
        (*QUICK, "--method", "single", "--out", "out"),
        {
            "--method": METHOD_TEXTS,
            "--task": TASKS,
            "--model": MODELS,
            "--epochs": COUNTS,
            "--steps": COUNTS,
            "--batch": COUNTS,
            "--lr": RATES,
            "--seed": COUNTS,
            "--accelerator": WORDS,
            "--precision": WORDS,
            "--option": OPTIONS,
            "--data-dir": PLACES,
            "--out": PLACES,
            "--tensorboard": (),
        },
    ),
    "compare": (
        (*QUICK, "--methods", "single", "--seeds", "1", "--workers", "1", "--no-shifted", "--out", "out"),
        {
            "--methods": METHOD_TEXTS,
            "--task": TASKS,
            "--model": MODELS,
            "--seeds": ("1", "0", "-1", "x"),
            "--epochs": COUNTS,
            "--steps": COUNTS,
            "--batch": COUNTS,
            "--lr": RATES,
            "--keep": WORDS,
            "--option": OPTIONS,
            "--budget": BUDGETS,
            "--metric": METRICS,
            "--costs": COSTS,
            "--data-dir": PLACES,
            "--out": PLACES,
            "--no-recipes": (),
            "--train-for": ("steps", "compute", "convergence", "x", ""),
        },
    ),
    "report": (
        ("compare", "--out", "out"),
        {
            "--budget": BUDGETS,
            "--metric": METRICS,
            "--costs": COSTS,
            "--figures": (),
            "--out": PLACES,
        },
    ),
    "evaluate": (
        ("run", "--out", "out"),
        {"--task": TASKS, "--model": MODELS, "--data-dir": PLACES, "--costs": COSTS, "--out": PLACES},
    ),
    "doctor": (("run",), {"--task": TASKS, "--model": MODELS, "--data-dir": PLACES}),
    "predict": (
        ("run", "inputs/points.csv", "--out", "out.csv"),
        {
            "--task": TASKS,
            "--model": MODELS,
            "--costs": COSTS,
            "--out": PLACES,
            "--most-bytes": COUNTS,
            "--data-dir": PLACES,
        },
    ),
    "verify": (("run",), {}),
    "methods": ((), {}),
    "search": (
        (*QUICK, "--methods", "single", "--trials", "1", "--sampler", "random", "--out", "out"),
        {
            "--objectives": OBJECTIVES,
            "--methods": METHOD_TEXTS,
            "--space": ("search/space.json", "none.json", "/dev/zero", "run", ""),
            "--vary": ("lr", "width", "x", ""),
            "--enumerate": ("single", "x", "all"),
            "--budget": BUDGETS,
            "--take": BUDGETS,
            "--storage": (
                "sqlite:///a.db",
                "sqlite:////dev/null",
                "mysql://x",
                "postgresql://a:b@127.0.0.1:9/x",
            ),
            "--warm-start": ("compare", "run", "none", ""),
            "--against": ("search", "run", "none"),
            "--name": ("", "a\x1b[31m", "x" * 600),
            "--out": PLACES,
        },
    ),
    "monitor": (("run", "inputs/points.csv"), {"--level": RATES, "--task": TASKS, "--most-bytes": COUNTS}),
    "export": (
        ("run", "--format", "none", "--out", "out"),
        {"--format": ("pt", "ONNX", "", "pt3"), "--level": RATES, "--task": TASKS, "--out": PLACES},
    ),
    "finetune": (
        ("weights/weights.pt", *QUICK[:-2], "--epochs", "1", "--out", "out"),
        {"--method": METHOD_TEXTS, "--model": MODELS, "--batch": COUNTS, "--lr": RATES, "--out": PLACES},
    ),
    "testbed": (
        (
            "--methods",
            "x",
            "--grid",
            "D=1;lambda=1;epsilon=1",
            "--seeds",
            "1",
            "--steps",
            "1",
            "--out",
            "out",
        ),
        {"--grid": GRIDS, "--methods": METHOD_TEXTS, "--noise": WORDS, "--direction": WORDS, "--out": PLACES},
    ),
    "serve": (
        ("served", "--port", "99999"),
        {"--host": ("localhost", "256.1.1.1", "", "a" * 300), "--max-wait-ms": RATES, "--drift-level": RATES},
    ),
    "tasks": ((), {}),
}
# Commands that train take a hundred times longer than those that read.
WEIGHTS = {
    "train": 3,
    "compare": 2,
    "report": 2,
    "evaluate": 1,
    "doctor": 1,
    "predict": 6,
    "verify": 6,
    "methods": 5,
    "search": 2,
    "monitor": 3,
    "export": 3,
    "finetune": 2,
    "testbed": 4,
    "serve": 4,
    "tasks": 1,
}
FORBIDDEN = ("--devices", "--workers")
"""Options that start processes; they keep the value of the sound line."""


def run_line(arguments: Sequence[str]) -> tuple[int, str]:
    """Run a command line as the installed command does; return the exit code and everything printed.

    Raises:
        Exception: anything that the command does not turn into one line for the user.
    """
    # Lightning's logger keeps the stream of the first line that imported it, which is closed by now.
    logging.raiseExceptions = False
    # A stream of bytes, because a terminal refuses half characters where a text in memory takes them.
    printed = io.BytesIO()
    stream = io.TextIOWrapper(printed, encoding="utf-8", write_through=True)
    complaints = io.TextIOWrapper(printed, encoding="utf-8", errors="backslashreplace", write_through=True)
    before = sys.argv
    sys.argv = ["pluribus", *arguments]
    code = 0
    try:
        # A server that starts would run for ever.
        with redirect_stdout(stream), redirect_stderr(complaints), patch.object(Server, "run"):
            cli.main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    finally:
        sys.argv = before
    return code, printed.getvalue().decode("utf-8", "replace")


def random_line(rng: random.Random) -> list[str]:
    """Return a command line that is sound but for a few random words."""
    command = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    base, options = COMMANDS[command]
    arguments = [command, *base]
    for name in rng.sample(list(options), min(len(options), rng.choice((0, 1, 1, 2, 3)))):
        arguments += _option(rng, name, options[name])
    if command in ("methods", "tasks"):
        arguments += [rng.choice(METHOD_TEXTS if command == "methods" else TASKS)]
    damage = rng.random()
    if damage < 0.5:
        _damage(rng, arguments)
    if damage < 0.03:
        rng.shuffle(arguments)
    if rng.random() < 0.02:
        arguments = [mutations.text(rng, " ".join(arguments))]
    # The operating system cannot pass these to a program.
    return [word.replace("\0", "") for word in arguments]


def _option(rng: random.Random, name: str, values: tuple[str, ...]) -> list[str]:
    if not values:
        return [name]
    chosen = rng.choice(values)
    if rng.random() < 0.2:
        chosen = mutations.text(rng, chosen)
    return [f"{name}={chosen}"] if rng.random() < 0.2 else [name, chosen]


def _damage(rng: random.Random, arguments: list[str]) -> None:
    place = rng.randrange(len(arguments))
    # A line without its number of epochs or its tiny task would train for minutes, rightly.
    if arguments[place] in ("--epochs", "1", "--option", "--task", "--workers", "--seeds") or place == 0:
        return
    if any(word in arguments[place] for word in FORBIDDEN):
        return
    kind = rng.randrange(4)
    if kind == 0:
        arguments[place] = mutations.text(rng, arguments[place])
    elif kind == 1:
        arguments.insert(place, str(rng.choice(mutations.WORDS)))
    elif kind == 2:
        arguments[place] = str(rng.choice(mutations.WORDS))
    else:
        arguments.append(rng.choice(("--help", "--version", "--x", "-", "--", "-h", "--out")))


def prepared(folder: Path, corpus: Path) -> None:
    """Put the files that lines name into the folder where a line runs."""
    for name in ("run", "compare", "inputs", "table", "search", "served", "weights"):
        # Copies, because a command may write beside what it reads.
        shutil.copytree(corpus / name, folder / name)
