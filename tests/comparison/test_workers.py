"""Workers: killed ones are replaced, all stop at once, and none outlives its parent."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import pluribus as pl
from pluribus.comparison.workers import Lost, Workers

ROOT = Path(__file__).parents[2]
PATIENCE = 300
"""Seconds that a loaded machine may take for what is a matter of one or two."""
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}


def square(number, report):
    report(f"squaring {number}")
    return number * number


def die_as_named(path, report):
    """Kill the own process: `once`, `always`, or never."""
    report(path.name)
    if path.name == "always" or (path.name == "once" and not path.exists()):
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return path.name.upper()


def name_worker(number):
    os.environ["WORKER"] = str(number)


def read_name(path, report):
    """Return the number of the worker; the first to run `path` kills itself."""
    if path.name == "once" and not path.exists():
        path.write_text(os.environ["WORKER"])
        os.kill(os.getpid(), signal.SIGKILL)
    return path.read_text() if path.exists() else "", os.environ["WORKER"]


def fail(number, report):
    raise ValueError("no luck")


def sleep(folder, report):
    """Sleep after telling the own process id; remove a file at the end, as cleaning up does."""
    busy = folder / f"{os.getpid()}.busy"
    busy.touch()
    try:
        report(os.getpid())
        time.sleep(10 * PATIENCE)
    finally:
        busy.unlink()


def is_alive(pid):
    """Return whether a process runs; a zombie, whom nobody has waited for, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def ignore(job, note):
    pass


def test_a_job_whose_worker_was_killed_runs_once_more_and_the_others_go_on(tmp_path):
    jobs = [tmp_path / name for name in ("a", "once", "always", "b")]
    notes, retried = [], []
    with Workers(
        die_as_named,
        jobs,
        2,
        on_note=lambda job, note: notes.append((job.name, note)),
        on_retry=lambda job, why: retried.append((job.name, why)),
    ) as pool:
        results = {job.name: result for job, result in pool.results()}
    killed = "was killed by signal 9"
    assert results == {"a": "A", "once": "ONCE", "always": Lost(killed), "b": "B"}
    assert sorted(retried) == [("always", killed), ("once", killed)]
    assert sorted(notes) == [(name, name) for name in ("a", "always", "always", "b", "once", "once")]


@pytest.mark.slow
def test_a_worker_that_replaces_a_killed_one_has_its_number(tmp_path):
    with Workers(read_name, [tmp_path / "once"], 2, ignore, ignore, prepare=name_worker) as pool:
        ((_, (first, second)),) = pool.results()
    assert first == second == "0"


def test_an_exception_of_a_job_carries_the_traceback_of_its_worker():
    with Workers(fail, [0], 1, ignore, ignore) as pool, pytest.raises(pl.PluribusError) as caught:
        list(pool.results())
    assert str(caught.value) == "ValueError: no luck"
    assert "in fail" in caught.value.__notes__[0]


def test_jobs_must_be_picklable():
    with pytest.raises(pl.SettingError, match=r"several workers need .* use workers=1"):
        Workers(square, [lambda: None], 2, ignore, ignore)


@pytest.mark.slow
def test_leaving_the_block_stops_workers_and_lets_them_clean_up(tmp_path):
    pids = []

    def stop_when_both_run(job, pid):
        pids.append(pid)
        if len(pids) == 2:
            raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        Workers(sleep, [tmp_path] * 4, 2, stop_when_both_run, ignore) as pool,
    ):
        list(pool.results())
    assert len(pids) == 2
    assert not any(map(is_alive, pids))
    assert list(tmp_path.iterdir()) == []


PARENT = """
import sys
from pathlib import Path
from pluribus.comparison.workers import Workers
from tests.comparison.test_workers import ignore, sleep

if __name__ == "__main__":
    with Workers(sleep, [Path(sys.argv[1])] * 4, 2, lambda job, pid: print(pid, flush=True), ignore) as pool:
        list(pool.results())
"""


def test_workers_end_with_a_parent_that_was_killed(tmp_path):
    script, folder = tmp_path / "parent.py", tmp_path / "busy"
    script.write_text(PARENT)
    folder.mkdir()
    with subprocess.Popen(
        [sys.executable, script, folder], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as parent:
        too_long = threading.Timer(PATIENCE, parent.kill)
        too_long.start()
        pids = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
        too_long.cancel()
    wait_until(lambda: not any(map(is_alive, pids)))
    assert list(folder.iterdir()) == []


UNGUARDED = """
from pluribus.comparison.workers import Workers
from tests.comparison.test_workers import ignore, square

with Workers(square, [1, 2], 2, ignore, ignore) as pool:
    list(pool.results())
"""


@pytest.mark.slow
def test_a_script_that_workers_cannot_import_is_an_error(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(UNGUARDED)
    ended = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, env=ENVIRONMENT, timeout=2 * PATIENCE
    )
    assert ended.returncode == 1
    assert 'Call compare under `if __name__ == "__main__":`' in ended.stderr.splitlines()[-1]
