"""The page of a search: the choice and its price, the front, and how the search went."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pluribus.comparison import record
from pluribus.comparison.record import Record
from pluribus.report.cards import panel_card
from pluribus.report.figures.drawing import Panel
from pluribus.report.figures.grid import grid_panel
from pluribus.report.glossary import breakable, escaped, explained, term
from pluribus.report.groups import Group, group_records
from pluribus.report.page import FILE, make_document
from pluribus.report.recommendation import Recommendation
from pluribus.report.use_card import example_file
from pluribus.report.wording import times
from pluribus.search.budget import excess
from pluribus.search.figures.front_points import front_panel
from pluribus.search.figures.hypervolume_curve import hypervolume_panel
from pluribus.search.figures.importance_bars import importance_panel
from pluribus.search.figures.parallel_axes import parallel_panel
from pluribus.search.running import VALIDATION
from pluribus.search.study import TAKEN, Study, Trial, model_option
from pluribus.version import VERSION
from pluribus.writing import replacing, write_words

BUDGETS = (1.0, 1.2, 1.5, 2.0, 4.0)
"""Multiply-adds, as multiples of the single network's, for which the best trial is listed."""
MOST_EXCLUDED = 12
SCORES = ("accuracy", "nll", "ece", "rmse", "gaussian_nll")
"""Metrics of the test data in the table of the front; those that there are."""


def write_search_page(
    study: Study, chosen: Trial, final: Mapping[str, Record], others: Mapping[str, Sequence[Sequence[float]]]
) -> Path:
    """Write the page into the folder of the search, and return its path.

    Args:
        study: The search.
        chosen: The trial that was taken.
        final: Records of the front on test data, by key.
        others: By name, the losses of other searches.
    """
    file = study.problem.out / FILE
    with replacing(file) as unfinished:
        write_words(unfinished, make_search_page(study, chosen, final, others))
    return file


def make_search_page(
    study: Study, chosen: Trial, final: Mapping[str, Record], others: Mapping[str, Sequence[Sequence[float]]]
) -> str:
    """Return the page; arguments as for `write_search_page`."""
    made = [
        front_panel(study, chosen),
        hypervolume_panel(study, others),
        importance_panel(study),
        parallel_panel(study),
        _grid(study),
    ]
    panels = {panel.name: panel for panel in made if panel is not None}
    cards = [answer_card(study, chosen), front_card(study, chosen, final)]
    cards += [panel_card(name, panel, _nothing_recommended()) for name, panel in panels.items()]
    cards += [excluded_card(study), space_card(study), use_card(study, chosen)]
    title = f"{study.problem.task.name} · {study.problem.network} · search"
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    footer = (
        f"<footer>{len(study.complete)} trials by {escaped(study.sampler)}. Made by Pluribus {VERSION} on "
        f"{day}; everything is in this file.</footer>"
    )
    return make_document(title, f"<section>{''.join(cards)}</section>{footer}", panels)


def answer_card(study: Study, chosen: Trial) -> str:
    """Return the trial to take, its price, and the best for each budget."""
    values = ", ".join(
        f"{one.title} {chosen.values[one.name]:.4g}" for one in study.objectives if not one.is_cost
    )
    limits = ", ".join(map(str, study.limits))
    within = f"; the budget is {limits}" if limits else ""
    sentences = [
        f"On validation data it has {values}. {len(study.complete)} trials were measured{within}.",
        f"It costs {study.price(chosen)} for a prediction; × is times the network that you gave.",
    ]
    reasons = "".join(f"<li>{explained(sentence)}</li>" for sentence in sentences)
    return (
        f'<div class="card answer"><h2>Take {breakable(chosen.label)}</h2>'
        f"{_prices(study)}<ul>{reasons}</ul></div>"
    )


def _prices(study: Study) -> str:
    """Return the best trial for each budget of multiply-adds as a table."""
    quality = next(one for one in study.objectives if not one.is_cost)
    rows, before = "", None
    for most in BUDGETS:
        within = [
            t for t in study.complete if t.cost.get("multiply_adds_ratio", most + 1) <= most * (1 + 1e-9)
        ]
        within = [trial for trial in within if not excess(trial.cost, study.limits)[1]]
        if not within:
            continue
        best = min(within, key=lambda trial: quality.loss(trial.values[quality.name]))
        # The same trial for a larger budget says nothing new.
        if best is before:
            continue
        before = best
        rows += (
            f'<tr><th scope="row">{most:g} ×</th><td class="name">{breakable(best.label)}</td>'
            f"<td>{times(best.cost['multiply_adds_ratio'])}</td><td>{times(best.cost['parameters_ratio'])}</td>"
            f"<td>{best.values[quality.name]:.4g}</td></tr>"
        )
    if not rows:
        return ""
    meaning = "The most multiply-adds that a prediction may cost, as a multiple of the network that you gave."
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Best for each budget">'
        f'<table class="prices"><thead><tr><th>{term("budget", meaning)}</th><th>take this one</th>'
        f"<th>mult-adds</th><th>parameters</th><th>{explained(quality.title)}</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def front_card(study: Study, chosen: Trial, final: Mapping[str, Record]) -> str:
    """Return the front as a table: objectives on validation data, scores on test data, and costs."""
    names = [name for name in SCORES if any(name in one.metrics for one in final.values())]
    heads = "".join(f"<th>{explained(one.title)}</th>" for one in study.objectives if not one.is_cost)
    heads += "".join(f"<th>{escaped(name)}, test</th>" for name in names)
    rows = "".join(_front_row(study, trial, final, names, trial is chosen) for trial in study.front)
    return (
        '<div class="card"><h2>The front</h2><p class="quiet small">No trial beats these in all objectives. '
        "The search saw validation data alone; test data were looked at once, for these rows, and choose "
        'nothing.</p><div class="scroll" tabindex="0" role="region" aria-label="The front"><table><thead><tr>'
        f"<th>configuration</th>{heads}<th>parameters</th><th>mult-adds</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div></div>"
    )


def _front_row(
    study: Study, trial: Trial, final: Mapping[str, Record], names: Sequence[str], chosen: bool
) -> str:
    cells = ""
    for one in study.objectives:
        cells += "" if one.is_cost else f"<td>{trial.values[one.name]:.4g}</td>"
    measured = final[trial.key].metrics if trial.key in final else {}
    for name in names:
        cells += f"<td>{measured[name]:.4g}</td>" if name in measured else "<td>–</td>"
    for name in ("parameters_ratio", "multiply_adds_ratio"):
        cells += f"<td>{times(trial.cost.get(name, float('nan')))}</td>"
    marked = " class=chosen" if chosen else ""
    return f'<tr{marked}><th scope="row">{breakable(trial.label)}</th>{cells}</tr>'


def excluded_card(study: Study) -> str:
    """Return what was never trained or failed, with the reasons; nothing if all were trained."""
    left = [trial for trial in study.trials if trial.state in ("skipped", "failed", "halved")]
    if not left:
        return ""
    counts = Counter(_cause(trial) for trial in left)
    total = "; ".join(f"{count} {cause}" for cause, count in counts.items())
    # Repetitions tell nothing that the trial itself does not.
    shown = [trial for trial in left if _cause(trial) != "repeated"]
    rows = ""
    for trial in shown[:MOST_EXCLUDED]:
        rows += f'<tr><th scope="row">{breakable(trial.label)}</th><td>{escaped(trial.reason)}</td></tr>'
    more = f"<p class=small>and {len(shown) - MOST_EXCLUDED} more</p>" if len(shown) > MOST_EXCLUDED else ""
    table = (
        f'<div class="scroll"><table><thead><tr><th>configuration</th><th>reason</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{more}"
    )
    return (
        f'<div class="card"><h2>What was left out</h2><p class="quiet small">{escaped(total)}. Costs are '
        "known before training, and what the budget forbids is never trained.</p>"
        f"{table if rows else ''}</div>"
    )


def _cause(trial: Trial) -> str:
    if trial.state == "failed":
        return "failed"
    if trial.state == "halved":
        return "stopped early"
    kind = trial.reason.partition(":")[0]
    return "beyond the budget" if kind == "budget" else kind


def space_card(study: Study) -> str:
    """Return the space that was searched."""
    return (
        '<div class="card"><h2>The space</h2><details><summary>All settings that could vary</summary>'
        f"<pre><code>{escaped(str(study.space))}</code></pre></details></div>"
    )


def use_card(study: Study, chosen: Trial) -> str:
    """Return the lines that use the ensemble that was taken."""
    out = study.problem.out
    model = model_option(study, chosen)
    lines = [
        f"pluribus predict {out} {example_file(out / TAKEN)}{model}",
        f"pluribus export {out / TAKEN}{model}",
        'ensemble = study.best("multiply_adds<=1.2x")',
    ]
    shown = "".join(f"<pre><code>{escaped(line)}</code></pre>" for line in lines)
    return (
        '<div class="card"><h2>Use it</h2><p class="quiet small">The ensemble is trained, calibrated and '
        "stored. The first line writes predictions with their uncertainty, the second a file that runs "
        f"without Pluribus; in Python, <code>search</code> returns the study.</p>{shown}</div>"
    )


def _grid(study: Study) -> Panel | None:
    """Return the heat map of inputs and exits of SAE; None without two of its trials."""
    folder = study.problem.out / VALIDATION
    if not (folder / record.FILE).is_file():
        return None
    keys = {trial.key for trial in study.complete}
    measured = [one for one in record.read([folder]) if one.key in keys and one.method["kind"] == "sae"]
    groups = group_records(measured)
    # With a width that varies, there is a group for each width; the heat map is of the first.
    return grid_panel(groups[0]) if groups else None


def _nothing_recommended() -> Recommendation:
    """Return an empty recommendation: selectors begin with their first options."""
    return Recommendation(Group("", "", "", ()), (), None, None)
