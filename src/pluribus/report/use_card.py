"""Use card: the lines that use the recommended ensemble, on the command line and in Python."""

from pathlib import Path

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
    # The command takes the run that the page recommends by itself.
    command = f"pluribus predict {folder} {example_file(place)}{costs_option(found.choice)}"
    python = f'prediction = pl.load("{place / "ensemble"}", build()).predict(x)'
    return (
        f'<div class="card"><h2>Use it</h2><p class="quiet small">{escaped(found.choice.label)} is trained '
        "and stored. The first line writes calibrated predictions with their uncertainty as CSV; in the "
        "second, <code>build</code> makes your network, and <code>pl</code> is pluribus.</p>"
        f"<pre><code>{escaped(command)}</code></pre><pre><code>{escaped(python)}</code></pre></div>"
    )


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
