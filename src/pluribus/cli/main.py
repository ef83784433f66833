"""The command line: one function for each command."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

try:
    import typer
# The command is installed with the library, but its dependencies only with the extra.
except ImportError as error:
    raise SystemExit("the command line needs typer and rich: install pluribus with the extra cli") from error

from pluribus.cli.printing import console, never_fail_on_characters, say
from pluribus.cli.termination import exit_code, interrupts_return, sigterm_interrupts
from pluribus.errors import PluribusError
from pluribus.version import VERSION

if TYPE_CHECKING:
    from types import ModuleType

# The functions behind these names need PyTorch, which takes seconds to import; help texts need names alone.
MOST_DRAWS = 16
MOST_BYTES = 4 * 2**30
PLAIN = "32-true"
# Few draws and options, and options that start alike, which need a third of the steps: a first answer should
# come within minutes.
DEMO_DRAWS = 8
DEMO = (
    "single,deep_ensembles,packed_ensembles,sae,mimo,masksembles,"
    f"emp(draws={DEMO_DRAWS}),layer_ensembles(options=3,start=copy,train_draws=3,draws={DEMO_DRAWS})"
)
SEARCHED = "single,sae,deep_ensembles,packed_ensembles,mc_dropout"
TASK_NAMES = (
    "digits",
    "diabetes",
    "two_moons",
    "two_sinusoids",
    "sign_network",
    "mnist",
    "fashion_mnist",
    "kmnist",
    "cifar10",
    "cifar100",
    "tiny_imagenet",
    "pneumonia_mnist",
    "breast_mnist",
    "blood_mnist",
    "retina_mnist",
    "boston",
    "concrete",
    "energy",
    "kin8nm",
    "naval",
    "power",
    "protein",
    "wine_red",
    "yacht",
    "csv",
    "npz",
    "folder",
)
PAPER_GRID = "D=10,100;lambda=1,10,100;epsilon=0.01,0.1,1"
FORMAT_NAMES = ("onnx", "pt2", "openvino")
BACKBONE_NAMES = (
    "mlp",
    "residual_mlp",
    "cnn",
    "vgg",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "wide_resnet",
    "pyramidnet",
    "vit",
)

# Plain help: the boxes of rich cut words that are longer than their column, such as examples of settings.
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 110},
)

Methods = Annotated[
    str,
    typer.Option(
        help="Names, with settings if needed: single,deep_ensembles(members=5); or all, with at most "
        f"{MOST_DRAWS} draws each.",
        # Blanks let the help break lines between names, and not within them.
        show_default=DEMO.replace(",", ", "),
    ),
]
TaskName = Annotated[
    str, typer.Option(help=f"{', '.join(TASK_NAMES)}, or package.module:function that returns a task.")
]
Model = Annotated[
    str | None,
    typer.Option(help=f"{', '.join(BACKBONE_NAMES)}, or package.module:function that returns the network."),
]
DataDir = Annotated[Path | None, typer.Option(help="The folder of the data sets; by default $PLURIBUS_DATA.")]
Options = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        help="An option of the task, name=value or features=a,b,c; `pluribus tasks csv` lists those of csv.",
    ),
]
Epochs = Annotated[
    int | None,
    typer.Option(min=1, help="Passes over the training set; by default 30, or more for 1000 steps."),
]
Steps = Annotated[int | None, typer.Option(min=1, help="Steps of the optimizer, in place of --epochs.")]
Batch = Annotated[int, typer.Option(min=1, help="Samples in a training step.")]
Rate = Annotated[float, typer.Option("--lr", help="Learning rate.")]
Out = Annotated[
    Path | None, typer.Option(help="The folder to write to; by default ./pluribus_runs/<command>.")
]
Recipes = Annotated[
    bool, typer.Option(help="Train a method as it wants to be, most often longer, or all methods alike.")
]
TrainFor = Annotated[
    str,
    typer.Option(
        help="What is held equal: recipe (nothing), steps, compute (multiply-adds of training), convergence."
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of initial weights and training.")]
BudgetText = Annotated[
    str, typer.Option("--budget", help="Limits of cost: multiply_adds<=1.5x,parameters<=2M")
]
Judge = Annotated[
    str | None, typer.Option("--metric", help="The metric to judge by: nll, accuracy, ece, rmse…")
]
CostText = Annotated[
    str,
    typer.Option(
        "--costs",
        help="What decisions cost: miss=10,alarm=1,defer=0.5 of two classes; wrong=1,defer=0.2 of more.",
    ),
]
Accelerator = Annotated[str, typer.Option(help="Where to compute: auto, cpu, cuda, mps.")]
Devices = Annotated[int, typer.Option(min=1, help="How many devices.")]
Precision = Annotated[
    str, typer.Option(help="32-true, bf16-mixed, 16-mixed; 64-true where data are float64.")
]
ExecutorName = Annotated[
    str | None,
    typer.Option(
        "--executor",
        help="Where to compute the runs: dask://host:port, or slurm://?slurm_partition=gpu&gpus_per_node=1; "
        "by default processes of this machine.",
    ),
]
Run = Annotated[Path, typer.Argument(help="The folder that `pluribus train` wrote.")]
AnyRun = Annotated[
    Path,
    typer.Argument(
        help="The folder of `pluribus train` or `pluribus search`, or of `pluribus compare`: its best run."
    ),
]
OwnTask = Annotated[
    str | None,
    typer.Option("--task", help="Your own task again, if the run has one."),
]
OwnModel = Annotated[
    str | None,
    typer.Option("--model", help="Your own network again, if the run has one."),
]


def print_version(asked: bool) -> None:
    """Print the version and exit, if the option is given."""
    if asked:
        console.print(f"pluribus {VERSION}", highlight=False)
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
]


def commands(name: str = "commands") -> "ModuleType":
    """Import and return the module of the commands, and PyTorch with it."""
    return importlib.import_module(f"pluribus.cli.{name}")


@contextmanager
def resumable() -> Iterator[None]:
    """Exit with one line if Ctrl-C or SIGTERM stops a command that can continue later."""
    try:
        with sigterm_interrupts():
            yield
    except KeyboardInterrupt as interrupt:
        say("stopped: run the same line again to continue")
        raise typer.Exit(exit_code(interrupt)) from None


@app.callback()
def start(version: Version = False) -> None:
    """Turn networks into ensembles, measure them, and recommend one."""


@app.command()
@resumable()
def compare(
    methods: Methods = DEMO,
    task: TaskName = "digits",
    model: Model = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 3,
    epochs: Epochs = None,
    steps: Steps = None,
    batch: Batch = 64,
    rate: Rate = 3e-3,
    workers: Annotated[int, typer.Option(min=1, help="Processes, each with one thread.")] = 2,
    shifted: Annotated[bool, typer.Option(help="Measure on shifted data too, which takes longest.")] = True,
    keep: Annotated[
        str, typer.Option(help="Weights to keep: best on validation data, best by a metric, or last.")
    ] = "best",
    recipes: Recipes = True,
    train_for: TrainFor = "recipe",
    data_dir: DataDir = None,
    option: Options = None,
    budget: BudgetText = "",
    metric: Judge = None,
    costs: CostText = "",
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    precision: Precision = PLAIN,
    executor: ExecutorName = None,
    out: Out = None,
) -> None:
    """Train and measure methods on a task, and recommend one. Run again, it continues."""
    commands().compare(
        methods=methods,
        task=task,
        model=model,
        seeds=seeds,
        epochs=epochs,
        steps=steps,
        batch=batch,
        rate=rate,
        workers=workers,
        shifted=shifted,
        keep=keep,
        recipes=recipes,
        train_for=train_for,
        data_dir=data_dir,
        option=option,
        budget=budget,
        metric=metric,
        costs=costs,
        accelerator=accelerator,
        devices=devices,
        precision=precision,
        executor=executor,
        out=out,
    )


@app.command()
@resumable()
def search(
    objectives: Annotated[
        str,
        typer.Option(help="Metrics (nll, ece), calibrated ones (scaled_nll) and costs (multiply_adds)."),
    ] = "nll,multiply_adds",
    trials: Annotated[
        int, typer.Option(min=1, help="Configurations to train, by all processes together.")
    ] = 40,
    task: TaskName = "digits",
    model: Model = None,
    methods: Annotated[
        str, typer.Option(help="Names of methods; settings that are given stay as they are.")
    ] = SEARCHED,
    space: Annotated[
        Path | None, typer.Option(help="A JSON file with the space, such as space.json of an earlier search.")
    ] = None,
    vary: Annotated[
        str, typer.Option(help="Settings of training that vary too, and sizes of the network: lr,width,depth")
    ] = "",
    enumerated: Annotated[
        str, typer.Option("--enumerate", help="Methods whose configurations are all tried first.")
    ] = "",
    budget: BudgetText = "",
    take: Annotated[
        str, typer.Option(help="Limits of cost of the ensemble to take at the end: multiply_adds<=1.2x")
    ] = "",
    sampler: Annotated[str, typer.Option(help="tpe, improvement, gp, mobo or random.")] = "tpe",
    storage: Annotated[
        str | None,
        typer.Option(help="postgresql://user:password@host/database; by default a file of SQLite in --out."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the study in the storage.")] = None,
    halving: Annotated[
        bool, typer.Option(help="Stop trials early that many others are better than.")
    ] = False,
    warm_start: Annotated[
        list[Path] | None, typer.Option(help="A folder of compare, whose runs count as trials.")
    ] = None,
    against: Annotated[
        list[Path] | None,
        typer.Option(help="A folder of another search of this task, such as a random one, for the page."),
    ] = None,
    epochs: Epochs = None,
    steps: Steps = None,
    batch: Batch = 64,
    rate: Rate = 3e-3,
    seed: Seed = 0,
    recipes: Recipes = True,
    threads: Annotated[int, typer.Option(min=1, help="Threads of this process.")] = 1,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    precision: Precision = PLAIN,
    data_dir: DataDir = None,
    option: Options = None,
    out: Out = None,
) -> None:
    """Search for the best ensembles within a budget. Run again, or on other machines, it continues."""
    commands("search_command").search(
        objectives=objectives,
        trials=trials,
        task=task,
        model=model,
        methods=methods,
        space=space,
        vary=vary,
        enumerated=enumerated,
        budget=budget,
        take=take,
        sampler=sampler,
        storage=storage,
        name=name,
        halving=halving,
        warm_start=warm_start or [],
        against=against or [],
        epochs=epochs,
        steps=steps,
        batch=batch,
        rate=rate,
        seed=seed,
        recipes=recipes,
        threads=threads,
        accelerator=accelerator,
        devices=devices,
        precision=precision,
        data_dir=data_dir,
        option=option,
        out=out,
    )


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders with records, of compare or evaluate.")],
    budget: BudgetText = "",
    metric: Judge = None,
    costs: CostText = "",
    figures: Annotated[bool, typer.Option("--figures", help="Save PNG and SVG files too.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="The folder to write to; by default that of the first records.")
    ] = None,
) -> None:
    """Write one page about records of runs, and recommend a method."""
    commands().report(runs=runs, budget=budget, metric=metric, costs=costs, figures=figures, out=out)


@app.command()
@resumable()
def train(
    method: Annotated[
        str, typer.Option(help="A method: masksembles, deep_ensembles(members=5)")
    ] = "deep_ensembles",
    task: TaskName = "digits",
    model: Model = None,
    epochs: Epochs = None,
    steps: Steps = None,
    batch: Batch = 64,
    rate: Rate = 3e-3,
    seed: Seed = 0,
    recipes: Recipes = True,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    precision: Precision = PLAIN,
    tensorboard: Annotated[bool, typer.Option(help="Write TensorBoard logs too.")] = False,
    data_dir: DataDir = None,
    option: Options = None,
    out: Out = None,
) -> None:
    """Train one ensemble. The same line run again continues where it stopped."""
    commands().train(
        method=method,
        task=task,
        model=model,
        epochs=epochs,
        steps=steps,
        batch=batch,
        rate=rate,
        seed=seed,
        recipes=recipes,
        accelerator=accelerator,
        devices=devices,
        precision=precision,
        tensorboard=tensorboard,
        data_dir=data_dir,
        option=option,
        out=out,
    )


# A function whose name begins with `test` would look like a test.
@app.command("testbed")
@resumable()
def score_uncertainty(
    methods: Annotated[
        str,
        typer.Option(help="Presets, or methods with settings in brackets; all is all presets."),
    ] = "all",
    grid: Annotated[
        str, typer.Option(help="Problems: inputs, training points for each input, noise of the targets.")
    ] = PAPER_GRID,
    seeds: Annotated[int, typer.Option(min=1, help="Problems of each kind.")] = 10,
    noise: Annotated[
        str,
        typer.Option(help="Noise of the posterior: relative, as in the authors' code, or absolute."),
    ] = "relative",
    direction: Annotated[
        str, typer.Option(help="Of the divergence: code, KL(posterior ‖ model), or printed, the other one.")
    ] = "code",
    as_in_paper: Annotated[
        bool, typer.Option("--as-in-paper", help="Draw as many members in a step as the authors do.")
    ] = False,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 1000,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    precision: Precision = PLAIN,
    out: Out = None,
) -> None:
    """Score the uncertainty of methods against an exact posterior. Run again, it continues."""
    commands().testbed(
        methods=methods,
        grid=grid,
        seeds=seeds,
        noise=noise,
        direction=direction,
        as_in_paper=as_in_paper,
        steps=steps,
        accelerator=accelerator,
        devices=devices,
        precision=precision,
        out=out,
    )


@app.command()
@resumable()
def finetune(
    checkpoint: Annotated[
        Path, typer.Argument(help="Weights of the trained network: .safetensors, or a state_dict of torch.")
    ],
    method: Annotated[
        str, typer.Option(help="A method: lora_ensembles, swag, laplace, emp(options=3)")
    ] = "lora_ensembles",
    task: TaskName = "digits",
    model: Model = None,
    freeze_shared: Annotated[
        bool | None,
        typer.Option(help="Whether weights that members share stay as they are, where the method allows it."),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Passes over the training set; by default what suits the method."),
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Samples in a training step.")] = None,
    rate: Annotated[
        float | None, typer.Option("--lr", help="Learning rate; by default what suits the method.")
    ] = None,
    seed: Seed = 0,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    precision: Precision = PLAIN,
    data_dir: DataDir = None,
    option: Options = None,
    out: Out = None,
) -> None:
    """Make a trained network an ensemble, and calibrate it. It is compared with the network."""
    commands().finetune(
        checkpoint=checkpoint,
        method=method,
        task=task,
        model=model,
        freeze_shared=freeze_shared,
        epochs=epochs,
        batch=batch,
        rate=rate,
        seed=seed,
        accelerator=accelerator,
        devices=devices,
        precision=precision,
        data_dir=data_dir,
        option=option,
        out=out,
    )


@app.command()
def evaluate(
    run: Run,
    task: OwnTask = None,
    model: OwnModel = None,
    data_dir: DataDir = None,
    costs: CostText = "",
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    precision: Precision = PLAIN,
    out: Out = None,
) -> None:
    """Measure a trained ensemble on its task."""
    given = {"task": task, "model": model, "data_dir": data_dir}
    computed = {"accelerator": accelerator, "devices": devices, "precision": precision}
    commands().evaluate(run=run, costs=costs, out=out, **given, **computed)


@app.command()
def doctor(
    run: Run,
    task: OwnTask = None,
    model: OwnModel = None,
    data_dir: DataDir = None,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    precision: Precision = PLAIN,
) -> None:
    """Look for defects of a trained ensemble, and name remedies."""
    computed = {"accelerator": accelerator, "devices": devices, "precision": precision}
    commands().doctor(run=run, task=task, model=model, data_dir=data_dir, **computed)


@app.command()
def predict(
    run: AnyRun,
    inputs: Annotated[
        Path,
        typer.Argument(
            help="Raw inputs, before scaling, as in the source of the task (images as bytes or from 0 to "
            "1): a .npy or .npz file (x, or the names of several inputs), a CSV file whose first line names "
            "the columns, a .parquet file, or a folder of pictures."
        ),
    ],
    task: OwnTask = None,
    model: OwnModel = None,
    data_dir: DataDir = None,
    out: Annotated[Path, typer.Option(help="The CSV file to write, or a .parquet or .npz file.")] = Path(
        "pluribus_runs/predict/predictions.csv"
    ),
    costs: CostText = "",
    most_bytes: Annotated[
        int, typer.Option(min=1, help="Memory that a chunk of inputs may take.")
    ] = MOST_BYTES,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    precision: Precision = PLAIN,
) -> None:
    """Write predictions with their uncertainty, a row for each input. Needs no training data."""
    given = {"task": task, "model": model, "data_dir": data_dir}
    computed = {"accelerator": accelerator, "devices": devices, "precision": precision}
    commands().predict(
        run=run, inputs=inputs, out=out, costs=costs, most_bytes=most_bytes, **given, **computed
    )


@app.command()
def export(
    run: AnyRun,
    format: Annotated[str, typer.Option(help=", ".join(FORMAT_NAMES))] = "onnx",
    members: Annotated[bool, typer.Option("--members", help="Export all members' outputs too.")] = False,
    level: Annotated[float, typer.Option(help="Probability of the interval of a number.")] = 0.9,
    task: OwnTask = None,
    model: OwnModel = None,
    data_dir: DataDir = None,
    accelerator: Annotated[
        str, typer.Option(help="Where the ensemble runs while it is written and checked: cpu, cuda, mps.")
    ] = "cpu",
    devices: Devices = 1,
    precision: Annotated[str, typer.Option(help=f"Of the file: {PLAIN}.")] = PLAIN,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; by default RUN/ensemble with the format's suffix.")
    ] = None,
) -> None:
    """Write a trained ensemble as a file that runs without Pluribus. Needs no training data."""
    given = {"task": task, "model": model, "data_dir": data_dir}
    computed = {"accelerator": accelerator, "devices": devices, "precision": precision}
    commands().export(run=run, format=format, members=members, level=level, out=out, **given, **computed)


@app.command()
def serve(
    export: Annotated[
        Path, typer.Argument(help="The .onnx file of `pluribus export`, or the folder that holds it.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen at; there is no password, so take care.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 finds a free one.")] = 8000,
    name: Annotated[str | None, typer.Option(help="Of the model; by default that of the file.")] = None,
    max_batch: Annotated[int, typer.Option(help="Samples that run at once.")] = 64,
    max_wait_ms: Annotated[
        float, typer.Option(help="How long a sample waits for others to run with, in milliseconds.")
    ] = 2.0,
    queue: Annotated[int, typer.Option(help="Requests in progress; more are refused with status 503.")] = 256,
    max_bytes: Annotated[int, typer.Option(help="Length of a request.")] = 16 << 20,
    threads: Annotated[int, typer.Option(help="Of onnxruntime; 0 takes all cores.")] = 0,
    drift_level: Annotated[
        float, typer.Option(help="Probability of a false alarm of drift, over all time.")
    ] = 0.01,
) -> None:
    """Serve an exported ensemble over HTTP, without PyTorch. Speaks the Open Inference Protocol and JSON."""
    from pluribus.serving.options import ServerOptions
    from pluribus.serving.server import serve as run_server

    options = ServerOptions(
        host=host,
        port=port,
        max_batch=max_batch,
        max_wait_ms=max_wait_ms,
        queue=queue,
        max_bytes=max_bytes,
        threads=threads,
        drift_level=drift_level,
    )
    run_server(export, options, name, lambda line: say(line, "none"))


@app.command()
def monitor(
    run: AnyRun,
    inputs: Annotated[
        Path, typer.Argument(help="Raw inputs in the order in which they came; files as for `predict`.")
    ],
    level: Annotated[
        float, typer.Option(help="Probability of a false alarm, however many inputs there are.")
    ] = 0.01,
    task: OwnTask = None,
    model: OwnModel = None,
    data_dir: DataDir = None,
    most_bytes: Annotated[
        int, typer.Option(min=1, help="Memory that a chunk of inputs may take.")
    ] = MOST_BYTES,
    accelerator: Accelerator = "auto",
    devices: Devices = 1,
    precision: Precision = PLAIN,
) -> None:
    """Tell whether inputs still look like validation data. Exit code 1 if not."""
    from pluribus.cli.monitor_run import monitor_run

    monitor_run(
        run=run,
        inputs=inputs,
        level=level,
        task=task,
        model=model,
        data_dir=data_dir,
        most_bytes=most_bytes,
        accelerator=accelerator,
        devices=devices,
        precision=precision,
    )


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(help="A folder of train, compare or evaluate, or a saved ensemble.")],
) -> None:
    """Check the files of a folder without running any of your code."""
    commands().verify(run=run)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="A method whose settings to explain.")] = None,
) -> None:
    """List the methods with their settings, or explain those of one."""
    commands().methods(name=name)


@app.command()
def tasks(
    name: Annotated[str | None, typer.Argument(help="A task whose options to explain.")] = None,
) -> None:
    """List the tasks, or explain the options of one task."""
    commands().tasks(name=name)


def main() -> None:
    """Run the command `pluribus`. Errors of Pluribus are one line, without a traceback."""
    never_fail_on_characters()
    try:
        with interrupts_return():
            app(standalone_mode=True)
    except PluribusError as error:
        say(f"error: {error}", "red")
        sys.exit(2)
    # A full disk or a file that vanished can raise anywhere, and a traceback would not help the user.
    except OSError as error:
        say(f"error: {error.filename or 'a file'}: {error.strerror or error}", "red")
        sys.exit(2)
    # torch raises RuntimeError for it, on a CPU without a class of its own.
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        say(f"error: not enough memory: {error}. Use smaller batches or less data.", "red")
        sys.exit(2)


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an error says that memory could not be allocated."""
    told = str(error)
    return isinstance(error, MemoryError) or "can't allocate memory" in told or "out of memory" in told
