"""Use card: the lines that use the recommended ensemble, on the command line and in Python."""

from pathlib import Path

from pluribus.comparison.run_folder import FILE as RUN_FILE
from pluribus.comparison.run_folder import has_built_in_network, read_run
from pluribus.data.signature import FILE, Signature
from pluribus.report.best_run import best_run, run_folder
from pluribus.report.decision_costs import costs_option
from pluribus.report.glossary import escaped
from pluribus.report.recommendation import Recommendation


def use_card(found: Recommendation, folder: Path | None) -> str:
    """Return the lines that use the recommended ensemble; nothing where no trained one lies in the folder."""
    place = trained_place(found, folder)
    if place is None or found.choice is None or folder is None:
        return ""
    # The command and `load_run` take the run that the page recommends by themselves.
    inputs = example_file(place)
    model, network, argument, note = "", "", f'"{inputs}"', ""
    if has_own_network(place):
        model, network, argument = " --model PACKAGE.MODULE:FUNCTION", ", network=build()", "x"
        note = " The network is your own: the function, here <code>build</code>, makes it."
    command = f"pluribus predict {folder} {inputs}{model}{costs_option(found.choice)}"
    python = f'prediction = pl.load_run("{folder.as_posix()}"{network}).predict({argument})'
    return (
        f'<div class="card"><h2>Use it</h2><p class="quiet small">{escaped(found.choice.label)} is trained '
        "and stored. The first line writes calibrated predictions with their uncertainty as CSV; the second "
        f"makes them in Python, where <code>pl</code> is pluribus.{note}</p>"
        f"<pre><code>{escaped(command)}</code></pre><pre><code>{escaped(python)}</code></pre></div>"
    )


def has_own_network(run: Path) -> bool:
    """Return whether a run needs the code of a network of the user's own."""
    return (run / RUN_FILE).is_file() and not has_built_in_network(read_run(run))


def example_file(run: Path) -> str:
    """Return a made-up name of a file that the inputs of a run may be in."""
    if not (run / FILE).is_file():
        return "INPUTS"
    return Signature.load(run).example_file


def trained_place(found: Recommendation, folder: Path | None) -> Path | None:
    """Return the folder of the best run of the recommended configuration, if its ensemble is stored."""
    run = best_run(found)
    if folder is None or run is None:
        return None
    place = run_folder(folder, run)
    return place if (place / "ensemble").is_dir() else None
