"""Run random cases for hours, and write what fell.

    python -m tests.fuzz --minutes 120 --seed 0 --out fuzz        runs, or continues an earlier campaign
    python -m tests.fuzz --only files:123 --seed 0                one case again, with its findings in full

A case is defined by its seed, its kind and its number, and by nothing else. Cases run in a process of their
own, which is killed and started again where a case takes too long; memory is limited. `log.jsonl` in the
folder has a line for each case, `summary.json` the counts. A finding is an error that is not one of Pluribus,
a case over its limit, a wrong result, or a file left behind. Linux only: it reads /proc and forks.
"""

import argparse
import collections
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from pluribus.version import VERSION
from tests.fuzz import corpus, files, lines, networks, tensors
from tests.fuzz.limits import MOST_BYTES, SECONDS, WAITING
from tests.fuzz.outcome import FINDING, Case

SHARES = {"files": 0.45, "lines": 0.3, "networks": 0.15, "tensors": 0.1}
"""Shares of the time that kinds of cases get."""
FORK = multiprocessing.get_context("fork")
TICKS = os.sysconf("SC_CLK_TCK")


def line_case(case: Case, rng: random.Random) -> None:
    """Run one random command line."""
    lines.prepared(case.folder, case.corpus)
    arguments = lines.random_line(rng)
    case.describe(arguments[0][:20] if arguments else "", repr(arguments))
    # A user may name a hidden folder.
    for word in arguments:
        case.allowed.update(Path(word.rpartition("=")[2]).parts)
    case.command(lines.run_line, arguments)


RUN = {"files": files.run, "lines": line_case, "networks": networks.run, "tensors": tensors.run}


def run_case(kind: str, number: int, seed: int, root: Path) -> dict[str, Any]:
    """Run one case in a folder of its own, and return its line of the log."""
    folder, temporary = root / "case", root / "tmp"
    for one in (folder, temporary):
        shutil.rmtree(one, ignore_errors=True)
        one.mkdir(parents=True)
    tempfile.tempdir = str(temporary)
    os.environ["TMPDIR"] = str(temporary)
    os.chdir(folder)
    rng = random.Random(f"{seed} {kind} {number}")
    torch.manual_seed(number)
    case = Case(folder, root / "corpus")
    began = time.process_time()
    try:
        RUN[kind](case, rng)
    # A fault of the campaign itself is a finding too: it must not end in silence.
    except Exception as error:
        case.foreign(error)
    case.check_litter(temporary)
    line = {"kind": kind, "case": number, "name": case.name, "outcome": case.outcome}
    line["seconds"] = round(time.process_time() - began, 3)
    if case.findings:
        line |= {"detail": case.detail, "findings": case.findings}
    return line


def work(connection: Connection, other: Connection, seed: int, root: Path) -> None:
    """Run the cases whose kinds and numbers arrive, until the connection closes."""
    # The fork copied the other end too; while it is open, the end of the campaign would not be noticed.
    other.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, used + MOST_BYTES))
    while True:
        try:
            kind, number = connection.recv()
        except EOFError:
            return
        connection.send(run_case(kind, number, seed, root))


class Worker:
    """A process that runs cases, and the connection to it."""

    def __init__(self, seed: int, root: Path) -> None:
        self.connection, other = FORK.Pipe()
        arguments = (other, self.connection, seed, root)
        self.process = FORK.Process(target=work, args=arguments, daemon=True)
        self.process.start()
        other.close()
        self.cases = 0

    def run(self, kind: str, number: int) -> dict[str, Any] | None:
        """Return the line of a case; None if it took too long or ended the process."""
        self.cases += 1
        self.connection.send((kind, number))
        began, used = time.monotonic(), self.used()
        while not self.connection.poll(0.5):
            slow = self.used() - used > SECONDS[kind]
            stuck = time.monotonic() - began > WAITING * SECONDS[kind]
            if slow or stuck or not self.process.is_alive():
                return None
        try:
            line: dict[str, Any] = self.connection.recv()
        except EOFError:
            return None
        return line

    def used(self) -> float:
        """Return the seconds of CPU time that the process took so far."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / TICKS

    def end(self) -> str:
        """End the process; return what became of it."""
        alive = self.process.is_alive()
        self.connection.close()
        if alive:
            self.process.kill()
        self.process.join()
        return "over its limit of time" if alive else f"the process died with {self.process.exitcode}"


RENEWED = 400
"""Cases after which a process is replaced, so that what it gathered in memory does not count as a finding."""


def earlier(log: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a log; a last line that was cut off is left out."""
    if not log.exists():
        return
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


class Campaign:
    """Counts of a campaign, and its log.

    Args:
        out: Its folder.
        seed: Of all cases.
    """

    def __init__(self, out: Path, seed: int) -> None:
        self.out, self.seed = out, seed
        self.next = dict.fromkeys(SHARES, 0)
        self.seconds = dict.fromkeys(SHARES, 0.0)
        self.counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
        self.findings: dict[str, dict[str, Any]] = {}
        for line in earlier(out / "log.jsonl"):
            self.count(line)
        self.file = (out / "log.jsonl").open("a", encoding="utf-8")

    def count(self, line: dict[str, Any]) -> list[str]:
        """Add a line to the counts; return the kinds of findings that are new."""
        kind = line["kind"]
        self.next[kind] = max(self.next[kind], line["case"] + 1)
        self.seconds[kind] += line["seconds"]
        self.counts[kind, line["name"], line["outcome"]] += 1
        new = []
        for finding in line.get("findings", ()):
            name = f"{kind}: {finding['kind']}"
            if name not in self.findings:
                new.append(name)
                self.findings[name] = {"case": f"{kind}:{line['case']}", "count": 0, "detail": line["detail"]}
                self.findings[name]["text"] = finding["text"]
            self.findings[name]["count"] += 1
        return new

    def write(self, line: dict[str, Any]) -> None:
        """Add a line to the log; texts of findings that are known are left out."""
        new = self.count(line)
        for finding in line.get("findings", ()):
            if f"{line['kind']}: {finding['kind']}" not in new:
                finding.pop("text", None)
        for name in new:
            print(f"{time.strftime('%H:%M:%S')} {name}: {self.findings[name]['case']}", flush=True)
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()

    def summary(self, minutes: float) -> dict[str, Any]:
        """Return the counts, and each kind of finding once."""
        tried: dict[str, dict[str, dict[str, int]]] = {}
        for (kind, name, outcome), count in sorted(self.counts.items()):
            tried.setdefault(kind, {}).setdefault(name, {})[outcome] = count
        totals = {kind: sum(sum(one.values()) for one in names.values()) for kind, names in tried.items()}
        seconds = {kind: round(value) for kind, value in self.seconds.items()}
        return {
            "pluribus": VERSION,
            "torch": torch.__version__,
            "seed": self.seed,
            "minutes": round(minutes, 1),
            "cases": totals,
            "cpu_seconds": seconds,
            "tried": tried,
            "findings": self.findings,
        }

    def pick(self, kinds: Sequence[str]) -> tuple[str, int]:
        """Return the next case: of the kind that had the least of its share."""
        kind = min(kinds, key=lambda one: self.seconds[one] / SHARES[one])
        return kind, self.next[kind]


def make_corpus(root: Path) -> None:
    """Write the sound files in a process of their own: training starts threads, which a fork would lose."""
    if (root / "corpus").exists():
        shutil.rmtree(root / "corpus")
    maker = FORK.Process(target=corpus.make, args=(root / "corpus", lines.run_line))
    maker.start()
    maker.join()
    if maker.exitcode:
        raise SystemExit("the corpus could not be made")


def main() -> None:
    """Run a campaign, or one case of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--kinds", default=",".join(SHARES), help="which kinds of cases to run")
    parser.add_argument("--only", help="one case, as kind:number")
    options = parser.parse_args()
    # A campaign that is told to end writes its counts and removes its files, as with Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    root = Path(tempfile.mkdtemp(prefix="pluribus-fuzz-"))
    try:
        make_corpus(root)
        if options.only:
            kind, _, number = options.only.partition(":")
            line = run_case(kind, int(number), options.seed, root)
            print(json.dumps({k: v for k, v in line.items() if k != "findings"}, indent=2))
            for finding in line.get("findings", ()):
                print(f"== {finding['kind']}\n{finding['text']}")
            sys.exit(line["outcome"] == FINDING)
        campaign(out, options.seed, options.minutes, root, options.kinds.split(","))
    finally:
        os.chdir("/")
        shutil.rmtree(root, ignore_errors=True)


def campaign(out: Path, seed: int, minutes: float, root: Path, kinds: Sequence[str]) -> None:
    """Run cases until the time is over; print findings when they are new, and the counts at the end."""
    log = Campaign(out, seed)
    began = time.monotonic()
    worker = Worker(seed, root)
    try:
        while time.monotonic() - began < 60 * minutes:
            kind, number = log.pick(kinds)
            line = worker.run(kind, number)
            if line is None or worker.cases >= RENEWED:
                fate = worker.end()
                worker = Worker(seed, root)
            if line is None:
                found = [{"kind": fate, "text": f"see --only {kind}:{number}"}]
                line = {"kind": kind, "case": number, "name": "", "outcome": FINDING, "detail": ""}
                line |= {"seconds": SECONDS[kind], "findings": found}
            log.write(line)
            if not number % 50:
                write_summary(out, log.summary((time.monotonic() - began) / 60))
    except KeyboardInterrupt:
        print("stopped: run the same line again to continue")
    worker.end()
    found = log.summary((time.monotonic() - began) / 60)
    write_summary(out, found)
    print(json.dumps(found["cases"]), f"{len(found['findings'])} kinds of findings: {out / 'summary.json'}")


def write_summary(out: Path, summary: dict[str, Any]) -> None:
    """Write the counts."""
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
