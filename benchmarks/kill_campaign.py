"""Kill `pluribus compare` and `train` at random moments, run the same line again, and check the result.

    python benchmarks/kill_campaign.py [--compare 50] [--train 100] [--seed 0] [--seconds 30] [--out FOLDER]
        [--result FILE]

A kill is SIGKILL of the command, of one of its workers or of all of its processes, or SIGTERM, or Ctrl-C.
After each, all processes must end within so many seconds. A command that comes to its end must have the
weights and metrics of one that was left alone, every run once, and no temporary file. Linux only: it reads
/proc.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

COMPARE = "compare --methods single,batch_ensemble(members=2) --seeds 2 --workers 2 --no-shifted"
TRAIN = "train --method batch_ensemble(members=2) --accelerator cpu"
TASK = "--task two_moons --option train=60 --epochs 40"
LITTER = ("lock", "error.txt")


def start(line: str, out: Path) -> "subprocess.Popen[str]":
    """Start a command in a session of its own, as a terminal does."""
    command = [sys.executable, "-m", "pluribus.cli", *line.split(), *TASK.split(), "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(out.parent / "tmp")}
    with (out.parent / "output.txt").open("a", encoding="utf-8") as output:
        return subprocess.Popen(
            command, stdout=output, stderr=output, text=True, env=environment, start_new_session=True
        )


def members(session: int) -> Iterator[int]:
    """Yield the process ids of a session, without zombies."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            yield int(stat.parent.name)


def kill_worker(pid: int) -> None:
    """Kill one of the processes that a command started; the command itself where there is none."""
    others = [one for one in members(pid) if one != pid]
    os.kill(random.choice(others or [pid]), signal.SIGKILL)


KILLS: dict[str, Callable[[int], None]] = {
    "SIGKILL of the command": lambda pid: os.kill(pid, signal.SIGKILL),
    "SIGKILL of a worker": kill_worker,
    "SIGKILL of all": lambda pid: os.killpg(pid, signal.SIGKILL),
    "SIGTERM of the command": lambda pid: os.kill(pid, signal.SIGTERM),
    "Ctrl-C": lambda pid: os.killpg(pid, signal.SIGINT),
}


def wait_for_end(process: "subprocess.Popen[str]", how: str, seconds: float) -> None:
    """Raise where a process outlives the kill."""
    deadline = time.monotonic() + seconds
    while process.poll() is None or any(members(process.pid)):
        if time.monotonic() > deadline:
            left = list(members(process.pid))
            os.killpg(process.pid, signal.SIGKILL)
            raise SystemExit(f"{how}: processes {left} still ran after {seconds:.0f} seconds")
        time.sleep(0.05)


def contents(out: Path) -> dict[str, object]:
    """Return what a finished command wrote and must not depend on kills: weights, and metrics by key."""
    found: dict[str, object] = {
        str(path.relative_to(out)): path.read_bytes() for path in out.rglob("weights.safetensors")
    }
    records = out / "records.jsonl"
    lines = records.read_text(encoding="utf-8").splitlines() if records.exists() else []
    for line in lines:
        one = json.loads(line)
        if one["key"] in found:
            raise SystemExit(f"{one['key']} is recorded twice in {records}")
        found[one["key"]] = (one["metrics"], one["error"])
    return found


def litter(out: Path) -> list[str]:
    """Return temporary files that a finished command left."""
    files = [path for path in out.rglob("*") if path.name.startswith(".") or path.name in LITTER]
    # torch keeps a cache of its compiler there, killed or not.
    temporary = [path for path in (out.parent / "tmp").iterdir() if not path.name.startswith("torchinductor")]
    return [str(path) for path in [*files, *temporary]]


def attack(line: str, kills: int, root: Path, choose: random.Random, seconds: float) -> dict[str, object]:
    """Kill a command so many times; print and return how often each kind of kill hit."""
    (root / "tmp").mkdir(parents=True)
    began = time.monotonic()
    if start(line, root / "whole").wait() != 0:
        raise SystemExit(f"the command failed without a kill: see {root / 'output.txt'}")
    whole, expected = time.monotonic() - began, contents(root / "whole")
    hits: Counter[str] = Counter()
    finished = 0
    while sum(hits.values()) < kills:
        out = root / f"killed_{finished}"
        hit, finished_now = attack_once(line, out, whole, choose, seconds)
        if hit:
            hits[hit] += 1
        if finished_now:
            finished += 1
            check(out, expected)
    if start(line, out).wait() != 0:
        raise SystemExit(f"the last command failed: see {root / 'output.txt'}")
    check(out, expected)
    print(f"{line.split()[0]}: {sum(hits.values())} kills, {finished + 1} folders as if left alone")
    for how, count in sorted(hits.items()):
        print(f"    {count:4} {how}")
    return {"kills": dict(hits), "folders": finished + 1, "lost": 0, "litter": 0}


def attack_once(
    line: str, out: Path, whole: float, choose: random.Random, seconds: float
) -> tuple[str, bool]:
    """Start a command and kill it at random; return the kind of kill that hit, and whether it finished."""
    process = start(line, out)
    try:
        process.wait(choose.uniform(0, 1.2 * whole))
    except subprocess.TimeoutExpired:
        how = choose.choice(list(KILLS))
        KILLS[how](process.pid)
        # A comparison survives the loss of a worker; then it ends by itself.
        if how == "SIGKILL of a worker" and line.startswith("compare"):
            return how, process.wait() == 0
        wait_for_end(process, how, seconds)
        return how, False
    return "", process.returncode == 0


def check(out: Path, expected: dict[str, object]) -> None:
    """Raise where a finished folder differs from that of a command left alone, or holds temporary files."""
    found = contents(out)
    if found.keys() != expected.keys():
        raise SystemExit(f"{out} lacks or adds {sorted(found.keys() ^ expected.keys())}")
    odd = [name for name, value in found.items() if value != expected[name]]
    if odd:
        raise SystemExit(f"{out} differs in {odd}")
    if left := litter(out):
        raise SystemExit(f"left behind: {left}")


def main() -> None:
    """Attack both commands in fresh folders."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--compare", type=int, default=50)
    parser.add_argument("--train", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--result", type=Path)
    options = parser.parse_args()
    # A shell that starts a job in the background lets it ignore Ctrl-C, and its commands would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    root = options.out or Path(tempfile.mkdtemp(prefix="kill-campaign-"))
    choose = random.Random(options.seed)
    random.seed(options.seed)
    for name, line, kills in (("compare", COMPARE, options.compare), ("train", TRAIN, options.train)):
        if kills:
            found = attack(line, kills, root / name, choose, options.seconds)
            if options.result:
                write_result(options.result, name, {"seed": options.seed, **found})


def write_result(path: Path, name: str, found: dict[str, object]) -> None:
    """Add the counts of one command to a file."""
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(earlier | {name: found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
