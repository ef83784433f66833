"""Find the run to predict with: a folder of `train`, the run that a search or a comparison recommends."""

from collections.abc import Sequence
from pathlib import Path

from pluribus.comparison import record
from pluribus.comparison.record import Record
from pluribus.comparison.run_folder import FILE, RUNS
from pluribus.errors import SettingError
from pluribus.report.best_run import best_run, run_folder
from pluribus.report.choice_file import FILE as CHOICE
from pluribus.report.choice_file import Choice, read_choice
from pluribus.report.groups import group_records
from pluribus.report.recommendation import recommend
from pluribus.schema import shown
from pluribus.search.study import TAKEN, read_label


def chosen_run(folder: Path) -> tuple[Path, str]:
    """Return the folder of the run to take, and a sentence on the choice; empty where there was none.

    Of a search it is the ensemble that the search took. Of a comparison it is the one that its page
    recommends, within the budget and by the metric of the page; without a page, the recommended
    configuration, and of its seeds the best run by the same measure.

    Raises:
        SettingError: the folder holds neither a run nor a comparison, or comparisons of several tasks.
    """
    taken = folder / TAKEN
    if (taken / FILE).is_file():
        return taken, f"{read_label(taken)} was chosen by its search: {taken}"
    if (folder / FILE).is_file() or not (folder / record.FILE).is_file():
        return folder, ""
    records = record.read([folder])
    choice = read_choice(folder)
    return _recommended(folder, records) if choice is None else _stored(folder, records, choice)


def _stored(folder: Path, records: Sequence[Record], choice: Choice) -> tuple[Path, str]:
    """Return the folder of the run that a page recommends, and a sentence on it."""
    for one in records:
        place = run_folder(folder, one)
        if one.key == choice.key and place.is_dir():
            return place, _told(choice, one, place)
    # Another run, chosen anew, could exceed the budget of the page.
    raise SettingError(
        f"{folder} must hold the run {shown(choice.key)} that {CHOICE} recommends, got none. "
        "Write it again with `pluribus report FOLDER`, or name another run."
    )


def _recommended(folder: Path, records: Sequence[Record]) -> tuple[Path, str]:
    """Return the folder of the run that would be recommended, and a sentence on it."""
    groups = [group for group in group_records(records) if group.entries]
    if len(groups) != 1:
        titles = ", ".join(group.title for group in groups) or "none"
        raise SettingError(
            f"{folder} must hold the comparison of one network on one task to choose a run, got {titles}. "
            f"Name a folder in {folder / RUNS}."
        )
    found = recommend(groups[0])
    best = best_run(found)
    if found.choice is None or found.judge is None or best is None:
        raise SettingError(f"{folder} must hold a run that can be recommended, got none. Name one in {RUNS}.")
    run = run_folder(folder, best)
    if not run.is_dir():
        raise SettingError(
            f"{folder} must hold the folder {shown(run.name)} of the recommended run, got none. "
            "Run the comparison again, or name another run."
        )
    return run, _told(Choice(best.key, found.judge.name), best, run)


def _told(choice: Choice, run: Record, place: Path) -> str:
    """Return the sentence on a recommended run."""
    (group,) = group_records([run])
    within = f" within {', '.join(choice.limits)}" if choice.limits else ""
    return f"{group.entries[0].label} seed {run.seed} is recommended, by {choice.judge}{within}: {place}"
