"""A model card for the Hub, made from the ensemble and from the record of its measurement."""

import math

from huggingface_hub import ModelCardData

from pluribus.comparison.record import Record
from pluribus.ensemble import Ensemble
from pluribus.version import VERSION

FOLDER = "ensemble"
"""Folder of the saved ensemble beside the card."""
OUTPUTS = {
    "categorical": "probabilities of classes",
    "bernoulli": "probabilities of labels",
    "gaussian": "means and variances of numbers",
    "point": "numbers",
}
"""What predictions are, by likelihood."""
UNCERTAINTY = {
    "categorical": "`mutual_information` is how far the members disagree, `entropy` the whole uncertainty.",
    "bernoulli": "`mutual_information` is how far the members disagree, `entropy` the whole uncertainty.",
    "gaussian": "`epistemic` is the variance between the members, `aleatoric` the noise that they see.",
    "point": "`epistemic` is the variance between the members.",
}
SHOWN = ("parameters", "parameters_ratio", "multiply_adds", "multiply_adds_ratio", "bytes")
"""Costs in a card, where the record has them."""


def model_card(
    ensemble: Ensemble,
    record: Record | None = None,
    *,
    name: str | None = None,
    license: str | None = None,
    task: str | None = None,
) -> str:
    """Return the text of a model card: what the ensemble is, how it is used, what was measured.

    Args:
        ensemble: The ensemble.
        record: Of `pluribus.evaluate` or `compare`; None states that nothing was measured.
        name: Title of the card; by default the method and the network.
        license: Of the weights, as the Hub names it, such as `apache-2.0`.
        task: As the Hub names it, such as `text-classification`.
    """
    title = name or f"{ensemble.case} of {ensemble.network_name}"
    data = ModelCardData(
        library_name="pluribus",
        license=license,
        pipeline_tag=task,
        tags=["pluribus", "ensemble", "uncertainty", ensemble.method.kind()],
    )
    sections = [
        f"---\n{data.to_yaml().strip()}\n---",
        f"# {title}",
        _what(ensemble),
        "## Use\n\n" + _use(ensemble),
        "## Calibration\n\n" + _calibration(ensemble),
        "## Measured\n\n" + _measured(record),
        f"## Conversion\n\n```\n{ensemble.conversion}\n```",
    ]
    return "\n\n".join(sections) + "\n"


def _what(ensemble: Ensemble) -> str:
    members, kind = len(ensemble.weights), ensemble.likelihood.kind()
    return (
        f"An ensemble of {members} members, made by `{ensemble.method}` from {ensemble.network_name} with "
        f"Pluribus {VERSION}. It predicts {OUTPUTS.get(kind, kind)}. {UNCERTAINTY.get(kind, '')}"
    ).rstrip()


def _use(ensemble: Ensemble) -> str:
    network = ensemble.network_name
    return (
        "```python\n"
        "from pluribus.huggingface import from_pretrained\n"
        "\n"
        f"# {network} is the class of the network, or a network with any weights.\n"
        f'ensemble = from_pretrained("this/repository", {network})\n'
        "prediction = ensemble.predict(inputs)\n"
        "```\n\n"
        f"The folder `{FOLDER}` holds safetensors and JSON. It names no code, and nothing in it is executed."
    )


def _calibration(ensemble: Ensemble) -> str:
    fitted = ensemble.calibration
    if fitted is None:
        return "Not calibrated. Call `ensemble.calibrate(data)` on data that was not trained on."
    lines = [f"On {fitted.samples} samples that were not trained on:", ""]
    if fitted.temperature != 1:
        lines.append(f"- temperature {fitted.temperature:.4g}")
    if fitted.variance_scale != 1:
        lines.append(f"- variance times {fitted.variance_scale:.4g}")
    if fitted.level is not None:
        lines.append(f"- sets or intervals that hold the truth with {fitted.level:.0%}")
    if fitted.threshold is not None and fitted.false_alarm is not None:
        lines.append(f"- `flagged` by {fitted.score}, {fitted.false_alarm:.0%} of such samples")
    return "\n".join(lines)


def _measured(record: Record | None) -> str:
    if record is None:
        return "Nothing was measured."
    rows = [(name, value) for name, value in record.metrics.items() if math.isfinite(value)]
    rows += [
        (f"{name.removeprefix('scaled_')} (calibrated)", value)
        for name, value in record.posthoc.items()
        if name.startswith("scaled_") and math.isfinite(value)
    ]
    rows += [(name, record.cost[name]) for name in SHOWN if name in record.cost]
    lines = [f"On the test data of {record.task}, seed {record.seed}:", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value:.5g} |" for name, value in rows]
    return "\n".join(lines)
