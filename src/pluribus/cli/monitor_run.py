"""`pluribus monitor`: test whether inputs of a file still look like the validation data of a run."""

from pathlib import Path

import typer

from pluribus.cli.announced_run import announced_run
from pluribus.cli.printing import console, counted
from pluribus.cli.run_file import load_for_prediction
from pluribus.data.raw_inputs import RawInputs, input_chunks
from pluribus.data.signature import Signature
from pluribus.ensemble import Ensemble
from pluribus.errors import SettingError
from pluribus.monitoring import DriftMonitor
from pluribus.runs.loaded_run import predicted
from pluribus.training.hardware import Hardware


def monitor_run(
    *,
    run: Path,
    inputs: Path,
    level: float,
    task: str | None,
    model: str | None,
    data_dir: Path | None,
    most_bytes: int,
    accelerator: str,
    devices: int,
    precision: str,
) -> None:
    """Print whether inputs look like validation data, and exit with 1 if not.

    Raises:
        SettingError: The run has no scores of validation samples.
    """
    folder = announced_run(run)
    ensemble, signature = load_for_prediction(folder, data_dir, task, model)
    monitor = make_monitor(ensemble, folder, level)
    count = flagged = 0
    with Hardware(accelerator, devices, precision).predicting(ensemble):
        for raw in input_chunks(inputs, signature, most_bytes=most_bytes):
            scores, strange = scored(ensemble, signature, raw)
            monitor.add(scores)
            count += len(scores)
            flagged += strange
    assert ensemble.calibration is not None
    expected = ensemble.calibration.false_alarm
    console.print(
        f"{counted(count, 'input')}, {flagged} flagged ({flagged / count:.1%}; expected {expected:.1%}), "
        f"score {ensemble.calibration.score}",
        highlight=False,
    )
    if monitor.alarm is None:
        console.print(f"no alarm at level {level:g}: they look like validation data", highlight=False)
        return
    console.print(f"alarm at level {level:g}: {monitor.alarm}", highlight=False, soft_wrap=True)
    raise typer.Exit(1)


def make_monitor(ensemble: Ensemble, folder: Path, level: float) -> DriftMonitor:
    """Return a monitor with the scores that the calibration of a run stored."""
    calibration = ensemble.calibration
    if calibration is None or calibration.reference is None:
        raise SettingError(
            f"{folder} must hold a calibrated ensemble, got one without scores of validation samples. "
            "Train again with validation data."
        )
    return DriftMonitor(calibration.reference.tolist(), level, calibration.score)


def scored(ensemble: Ensemble, signature: Signature, raw: RawInputs) -> tuple[list[float], int]:
    """Return the scores of inputs, and how many of them are flagged."""
    prediction = predicted(ensemble, signature, raw)
    return prediction.ood_score.double().tolist(), int(prediction.flagged.sum())
