"""Several processes share a study; one is killed in the middle of a trial, and nothing is lost or doubled.

On PostgreSQL the test starts a cluster of its own on a loopback port, and is skipped where the server is not
installed.
"""

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pluribus.comparison import record
from pluribus.search.storage import Storage
from tests.search.cases import small_search, untrained

pytest.importorskip("fcntl")

SECONDS = 900
"""How long a loaded machine may take for what a free one does in 20."""
TRIALS = 6
# Every trial waits in its first epoch, so that a kill finds it in the middle of one.
WORKER = """
import sys, time
from pathlib import Path
from pluribus.search import worker
from tests.search.cases import small_search
out, storage, name, pause = Path(sys.argv[1]), sys.argv[2] or None, sys.argv[3], float(sys.argv[4])
trained = worker.trained
def slowly(*arguments):
    (out / f"started-{name}").touch()
    with (out / "log").open("a") as log: log.write(f"{name}\\n")
    time.sleep(pause)
    return trained(*arguments)
worker.trained = slowly
space = {"single": {}, "deep_ensembles": {"members": [2, 3, 4, 5, 6, 7]}}
study = small_search(out, trials=6, storage=storage, space=space, heartbeat=60)
print(len(study.complete))
"""
ROOT = Path(__file__).parents[2]


def start(out, storage, name, pause):
    return launch(WORKER, str(out), storage, name, str(pause))


def launch(code, *arguments):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


# Nothing is trained: the trial waits for ever.
LIGHT = """
import sys, time
from pathlib import Path
from pytest import MonkeyPatch
from pluribus.search import worker
from tests.search.cases import small_search, untrained
untrained(MonkeyPatch())
def wait(*arguments):
    (Path(sys.argv[1]) / "started").touch()
    time.sleep(3600)
worker.run_candidate = wait
small_search(sys.argv[1], sampler="random", storage=sys.argv[2] or None)
"""


def wait_for(condition, *processes):
    end = time.monotonic() + SECONDS
    while not condition():
        for one in processes:
            assert one.poll() is None, one.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)


def finish(process):
    printed, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, printed
    return printed


def stored_trials(out, storage):
    import optuna

    place = Storage(storage or f"sqlite:///{out}/study.db")
    opened = place.open()
    (study,) = optuna.get_all_study_names(opened)
    trials = optuna.load_study(study_name=study, storage=opened).trials
    opened.remove_session()
    opened.engine.dispose()
    return trials


def check_killed(out, storage):
    """Run two processes, kill one in the middle of a trial, and look at what is stored."""
    out.mkdir()
    killed = start(out, storage, "killed", pause=3600)
    other = None
    try:
        wait_for((out / "started-killed").exists, killed)
        other = start(out, storage, "other", pause=0)
        wait_for((out / "started-other").exists, killed, other)
        killed.send_signal(signal.SIGKILL)
        killed.communicate(timeout=30)
        finish(other)
        # The same line once more has nothing left to do.
        finish(start(out, storage, "again", pause=0))
    finally:
        for one in (killed, other):
            if one is not None and one.poll() is None:
                one.kill()
                one.communicate(timeout=30)
    trials = stored_trials(out, storage)
    states = [trial.state.name for trial in trials]
    complete = [trial for trial in trials if trial.state.name == "COMPLETE"]
    assert len(complete) == TRIALS
    assert not {"RUNNING", "WAITING"} & set(states)
    lost = [trial for trial in trials if trial.state.name == "FAIL"]
    assert len(lost) == 1
    retried = [trial for trial in complete if trial.system_attrs.get("failed_trial") == lost[0].number]
    assert [trial.params for trial in retried] == [lost[0].params]
    keys = [trial.user_attrs["key"] for trial in complete]
    assert len(set(keys)) == TRIALS
    # Every record is there once.
    lines = (out / "validation" / record.FILE).read_text().splitlines()
    assert sorted(json.loads(line)["key"] for line in lines) == sorted(keys)
    assert "again" not in (out / "log").read_text()


def check_run_again(out, storage):
    """Kill a process in the middle of its first trial, and run the same search in this one."""
    killed = launch(LIGHT, str(out), storage)
    try:
        wait_for((out / "started").exists, killed)
    finally:
        killed.kill()
        killed.communicate(timeout=30)
    study = small_search(out, sampler="random", storage=storage or None)
    assert len(study.complete) == 3
    states = [trial.state.name for trial in stored_trials(out, storage)]
    assert states.count("COMPLETE") == 3
    assert states.count("FAIL") == 1
    assert not {"RUNNING", "WAITING"} & set(states)


def test_trial_of_a_killed_process_is_run_again_at_once(tmp_path, monkeypatch):
    untrained(monkeypatch)
    check_run_again(tmp_path, "")


@pytest.mark.slow
def test_two_processes_share_a_study_on_sqlite(tmp_path):
    check_killed(tmp_path / "out", "")


def free_port():
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def server_programs():
    """Return the programs of PostgreSQL, from the path or from Debian's folders; None without them."""
    places = [
        *os.environ.get("PATH", "").split(os.pathsep),
        *map(str, Path("/usr/lib/postgresql").glob("*/bin")),
    ]
    found = [shutil.which(name, path=os.pathsep.join(places)) for name in ("initdb", "pg_ctl", "postgres")]
    return found if all(found) else None


def as_server_user():
    """Return the beginning of a command that is not run as root, which the server refuses; or None."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        return None
    nobody = pwd.getpwnam("nobody")
    return ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]


@pytest.fixture
def database():
    programs, user = server_programs(), as_server_user()
    if programs is None or user is None:
        pytest.skip("needs the server of PostgreSQL")
    initdb, control, _ = programs
    # Not below pytest's folder, which another user may not enter; sockets need a short path too.
    folder = Path(
        subprocess.check_output([*user, "mktemp", "-d", "-t", "pluribus-pg-XXXXXX"], text=True).strip()
    )
    port = free_port()
    cluster = str(folder / "data")
    environment = {**os.environ, "HOME": str(folder), "TMPDIR": str(folder)}
    try:
        made = subprocess.run(
            [*user, initdb, "-D", cluster, "-U", "pluribus", "--auth=trust", "--no-sync"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            cwd=folder,
        )
        if made.returncode:
            pytest.skip(f"the server of PostgreSQL does not run here: {made.stderr[-300:]}")
        options = f"-h 127.0.0.1 -p {port} -k {folder} -F"
        begin = [*user, control, "-D", cluster, "-o", options, "-l", str(folder / "log"), "-w", "start"]
        begun = subprocess.run(begin, env=environment, stdout=subprocess.DEVNULL, timeout=SECONDS, cwd=folder)
        if begun.returncode:
            pytest.skip("the server of PostgreSQL does not start here")
        yield f"postgresql://pluribus@127.0.0.1:{port}/postgres"
    finally:
        end = [*user, control, "-D", cluster, "-m", "immediate", "stop"]
        subprocess.run(end, env=environment, capture_output=True, timeout=60, check=False, cwd="/")
        shutil.rmtree(folder, ignore_errors=True)


# Many processes make the tables of an empty database at the same moment.
TABLES = """
import sys, time
from pluribus.search.storage import Storage
place = Storage(sys.argv[1])
import optuna, sqlalchemy, optuna.storages
time.sleep(max(0.0, float(sys.argv[2]) - time.time()))
place.open().engine.dispose()
"""


def check_tables(url):
    moment = str(time.time() + 20)
    begun = [launch(TABLES, url, moment) for _ in range(4)]
    for one in begun:
        finish(one)


@pytest.mark.slow
def test_processes_that_begin_at_once_make_the_tables_of_sqlite_once(tmp_path):
    check_tables(f"sqlite:///{tmp_path}/study.db")


@pytest.mark.slow
def test_processes_that_begin_at_once_make_the_tables_of_postgresql_once(database):
    check_tables(database)


@pytest.mark.slow
def test_two_processes_share_a_study_on_postgresql(tmp_path, database):
    check_killed(tmp_path / "out", database)


@pytest.mark.slow
def test_trial_of_a_killed_process_is_run_again_at_once_on_postgresql(tmp_path, monkeypatch, database):
    untrained(monkeypatch)
    check_run_again(tmp_path, database)
