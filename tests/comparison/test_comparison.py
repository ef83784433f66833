"""compare: complete records, nothing repeated, nothing lost when it is killed."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus import methods
from pluribus.comparison import comparison, record
from pluribus.comparison.comparison import compare
from pluribus.comparison.locking import locked
from pluribus.comparison.record import Record
from pluribus.comparison.workers import Lost
from pluribus.data import two_moons
from pluribus.methods import BatchEnsemble, DeepEnsembles, MCDropout, Single
from pluribus.training import Training

QUICK = Training(epochs=2, batch=32, lr=1e-2)
METHODS = [Single(), DeepEnsembles(members=2), BatchEnsemble(members=2), MCDropout(draws=2)]


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))


@pytest.fixture(scope="module")
def task():
    return two_moons(train=60)


def test_every_method_and_seed_has_a_complete_record(task, tmp_path):
    records = compare(build, task, METHODS, seeds=2, training=QUICK, out=tmp_path, show=False)
    assert [(r.method["kind"], r.seed) for r in records] == [(m.kind(), s) for m in METHODS for s in (0, 1)]
    for one in records:
        assert not one.error
        assert {"accuracy", "nll", "ece"} <= one.metrics.keys()
        assert {"parameters_ratio", "multiply_adds_ratio", "latency_ratio"} <= one.cost.keys()
        assert {"temperature", "conformal_coverage"} <= one.posthoc.keys()
        assert all("auroc_entropy" in section for section in one.ood.values())
        assert one.history["epoch"] == list(range(1, one.training["epochs"] + 1))
        assert one.history["loss"][0] > 0
    deep = next(r for r in records if r.method["kind"] == "deep_ensembles")
    assert deep.cost["multiply_adds_ratio"] == deep.cost["parameters_ratio"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(methods.__all__))
def test_every_method_can_be_compared(task, tmp_path, name):
    method = getattr(methods, name)()
    (found,) = compare(build, task, [method], seeds=1, training=Training(steps=12), out=tmp_path, show=False)
    refused = found.error.startswith("ConversionError")
    assert not found.error or refused
    assert refused or found.metrics["nll"] > 0


def test_recipes_make_training_longer_and_its_cost_is_kept(task, tmp_path):
    methods = [Single(), BatchEnsemble(members=2)]
    how = {"seeds": 1, "training": QUICK, "shifted": False, "show": False}
    single, divided = compare(build, task, methods, out=tmp_path, **how)
    assert (single.training["epochs"], divided.training["epochs"]) == (2, 4)
    assert divided.cost["train_multiply_adds"] == pytest.approx(
        2 * single.cost["train_multiply_adds"], rel=0.05
    )
    assert single.cost["train_multiply_adds_ratio"] == 1
    assert "still_improving" in [one["code"] for one in single.findings]
    _, alike = compare(build, task, methods, out=tmp_path, recipes=False, **how)
    assert alike.training["epochs"] == 2


def test_finished_runs_are_not_repeated_and_new_ones_are_added(task, tmp_path, monkeypatch):
    first = compare(build, task, METHODS[:1], seeds=1, training=QUICK, out=tmp_path, show=False)
    ran = []
    original = comparison._measure
    monkeypatch.setattr(
        comparison, "_measure", lambda job, report: ran.append(job.seed) or original(job, report)
    )
    again = compare(build, task, METHODS[:1], seeds=2, training=QUICK, out=tmp_path, show=False)
    assert ran == [1]
    assert again[0] == first[0]


class Changed(nn.Sequential):
    """A network under the name and with the layers of another."""

    def forward(self, x):
        return -super().forward(x)


def test_a_finished_run_of_another_network_under_the_same_name_is_not_reused(task, tmp_path):
    networks = [nn.Sequential, Changed]
    Changed.__name__ = "Sequential"
    found = []
    for kind in (*networks, *networks):

        def make(kind=kind):
            return kind(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 2))

        how = {"seeds": 1, "training": QUICK, "shifted": False, "show": False, "network": "mine"}
        found += compare(make, task, METHODS[:1], out=tmp_path, **how)
    assert [one.error for one in found] == [""] * 4
    assert found[0].key != found[1].key
    # Both are found again, so that going back to the first network repeats nothing.
    assert (found[2], found[3]) == (found[0], found[1])
    assert len(record.read([tmp_path])) == 2


def test_a_failing_method_leaves_the_others_alone_and_is_tried_again(task, tmp_path, monkeypatch):
    original = comparison._measure

    def failing(job, report):
        if isinstance(job.method, BatchEnsemble):
            raise ValueError("no luck")
        return original(job, report)

    monkeypatch.setattr(comparison, "_measure", failing)
    records = compare(build, task, METHODS[:3], seeds=1, training=QUICK, out=tmp_path, show=False)
    assert [one.error for one in records] == ["", "", "ValueError: no luck"]
    monkeypatch.setattr(comparison, "_measure", original)
    records = compare(build, task, METHODS[:3], seeds=1, training=QUICK, out=tmp_path, show=False)
    assert [one.error for one in records] == ["", "", ""]


def test_a_run_can_be_loaded_again(task, tmp_path):
    (one,) = compare(
        build, task, [DeepEnsembles(members=2)], seeds=1, training=QUICK, out=tmp_path, show=False
    )
    folder = next((tmp_path / "runs").iterdir())
    ensemble = pl.load(folder / "ensemble", build()).eval()
    prediction = ensemble.predict(task.test.x)
    accuracy = (prediction.labels == task.test.y).double().mean().item()
    assert accuracy == pytest.approx(one.metrics["accuracy"])


def test_methods_may_be_a_text(task, tmp_path):
    given = {"seeds": 1, "training": QUICK, "out": tmp_path, "show": False}
    found = compare(lambda: build(), task, "single, batch_ensemble(members=2)", **given)
    assert [
        one.key for one in compare(lambda: build(), task, [Single(), "batch_ensemble(members=2)"], **given)
    ] == [one.key for one in found]
    assert [one.method["kind"] for one in found] == ["single", "batch_ensemble"]
    assert {one.network for one in found} == {"network"}  # a lambda has no name
    with pytest.raises(pl.SettingError, match=r"methods are .* got 'singel'. Did you mean 'single'"):
        compare(build, task, "singel", out=tmp_path)


def test_other_methods_and_modules_for_factories_are_refused(task, tmp_path):
    for given, came in (([Single], "<class"), (Single(), r"Single\(\) alone"), ([], "none"), ("", "none")):
        with pytest.raises(pl.SettingError, match=rf"methods must be a list of Methods .*got {came}"):
            compare(build, task, given, out=tmp_path)
    with pytest.raises(pl.SettingError, match=r"build must be a function .* Linear"):
        compare(nn.Linear(2, 2), task, [Single()], out=tmp_path)


def test_several_workers_need_what_can_be_sent_to_them(task, tmp_path):
    with pytest.raises(pl.SettingError, match="workers=1"):
        compare(
            lambda: build(), task, METHODS[:2], seeds=1, training=QUICK, out=tmp_path, workers=2, show=False
        )


def test_a_comparison_reports_every_epoch_of_a_run(task, tmp_path):
    notes = []
    comparison.run(job(task, tmp_path), notes.append)
    assert [note.share for note in notes] == [pytest.approx(0.3), pytest.approx(0.6)]
    assert notes[0].text.startswith("epoch 1 of 2, loss ")


def job(task, out) -> comparison.Job:
    return comparison.Job(build, task, Single(), 0, QUICK, "net", out)


def test_a_run_that_another_process_finished_meanwhile_is_not_done_again(task, tmp_path, monkeypatch):
    one = job(task, tmp_path)
    done = comparison.run(one)
    monkeypatch.setattr(comparison, "_measure", lambda job, report: pytest.fail("measured again"))
    assert comparison.run(one) == done
    assert len((tmp_path / record.FILE).read_text().splitlines()) == 1


def test_a_run_reports_that_it_waits_for_another_process(task, tmp_path, monkeypatch):
    pytest.importorskip("fcntl")
    monkeypatch.setattr(comparison, "_measure", lambda job, report: Record(job.key, *job.settings))
    one, lines, waits = job(task, tmp_path), [], threading.Event()
    one.folder.mkdir(parents=True)
    with locked(one.folder / "lock", lambda: pytest.fail("waited")):
        report = lambda line: (lines.append(line), waits.set())
        waiting = threading.Thread(target=lambda: (comparison.run(one, report), lines.append("run")))
        waiting.start()
        assert waits.wait(60)
        lines.append("released")
    waiting.join(timeout=60)
    told = f"waiting for another process that is running it in {one.folder}"
    assert lines == [told, "released", "run"]
    assert list(one.folder.iterdir()) == []


def test_a_run_whose_workers_were_killed_is_recorded_as_failed(task, tmp_path, monkeypatch):
    class Killed(comparison.Workers):
        def results(self):
            yield from ((job, Lost("was killed by signal 9")) for job in self.jobs)

    monkeypatch.setattr(comparison, "Workers", Killed)
    records = compare(build, task, METHODS[:1], seeds=2, training=QUICK, out=tmp_path, workers=2, show=False)
    assert all("its worker was killed by signal 9" in one.error for one in records)
    assert record.read([tmp_path]) == records


def without_times(records):
    """Records without what differs between any two runs."""
    kept = []
    for one in records:
        cost = {name: value for name, value in one.cost.items() if name != "latency_ratio"}
        kept.append(replace(one, seconds={}, cost=cost))
    return kept


def test_an_executor_computes_the_records_of_one_process(task, tmp_path):
    how = {"seeds": 1, "training": QUICK, "shifted": False, "show": False}
    alone, spread = tmp_path / "alone", tmp_path / "spread"
    expected = compare(build, task, METHODS[:2], out=alone, **how)
    with ThreadPoolExecutor(2) as pool:
        found = compare(build, task, METHODS[:2], out=spread, executor=pool, **how)
        assert without_times(found) == without_times(expected)
        # Nothing is left to do, so nothing is submitted.
        pool.shutdown()
        assert compare(build, task, METHODS[:2], out=spread, executor=pool, **how) == found
    assert len((spread / record.FILE).read_text().splitlines()) == 2
    files = [{str(path.relative_to(root)) for path in root.rglob("*")} for root in (alone, spread)]
    assert {name for name in files[0] if not name.endswith("training.pt")} == files[1]
    (deep,) = spread.glob("runs/deep_ensembles-*/ensemble")
    assert pl.load(deep, build()).predict(task.test.x).labels.shape == task.test.y.shape


def test_a_delivery_of_a_run_that_is_finished_by_now_is_left(task, tmp_path):
    one = job(task, tmp_path)
    delivery = comparison.run_detached(one)
    assert not tmp_path.joinpath("runs").exists()
    first = comparison._accept(one, delivery)
    assert comparison._accept(one, replace(delivery, record=replace(first, seconds={}))) == first
    assert len((tmp_path / record.FILE).read_text().splitlines()) == 1


def test_a_cancelled_run_ends_after_an_epoch(task, tmp_path, monkeypatch):
    monkeypatch.setattr(comparison, "is_cancelled", lambda: True)
    delivery = comparison.run_detached(job(task, tmp_path))
    assert delivery.record.error == "PluribusError: the run was cancelled"
    assert delivery.files.keys() == {"error.txt"}


COMMAND = [
    *(sys.executable, "-m", "pluribus.cli", "compare", "--task", "two_moons", "--option", "train=60"),
    *("--methods", "single,batch_ensemble(members=2)", "--seeds", "2", "--workers", "2"),
]
PATIENCE = 300
"""Seconds that a loaded machine may take for what is a matter of a few."""


def start(out, epochs):
    """A comparison in a session of its own, as a terminal starts it."""
    return subprocess.Popen(
        [*COMMAND, "--epochs", str(epochs), "--out", out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
        # Shells start what runs in the background with Ctrl-C ignored, and processes inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def session_members(session):
    """Process ids of a session, without zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds the workers in /proc")
@pytest.mark.parametrize(
    ("send", "number"), [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM)], ids=["ctrl-c", "sigterm"]
)
@pytest.mark.sampled(2)
def test_a_signal_stops_a_comparison_and_its_workers_with_one_line(send, number, tmp_path):
    process = start(tmp_path, epochs=100_000)
    try:
        wait_until(lambda: len(list(tmp_path.glob("runs/*/log.csv"))) == 2)
        send(process.pid, number)
        printed, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 128 + number
        assert errors.splitlines()[-1] == "stopped: run the same line again to continue"
        assert "Traceback" not in printed + errors
        wait_until(lambda: not session_members(process.pid))
    finally:
        for pid in session_members(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.wait()
    assert list(tmp_path.glob("runs/*/lock")) == []
    assert not (tmp_path / record.FILE).exists()


def finish(out):
    process = start(out, epochs=6)
    process.communicate()
    assert process.returncode == 0


@pytest.mark.slow
def test_a_killed_comparison_goes_on_to_the_same_weights(tmp_path):
    """SIGKILL at several moments, workers and all; the line run again ends as one that was left alone."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finish(whole)
    for _ in range(2):
        process = start(broken, epochs=6)
        deadline = time.monotonic() + 120
        before = len(list(broken.glob("runs/*/training.pt")))
        while len(list(broken.glob("runs/*/training.pt"))) <= before and time.monotonic() < deadline:
            if process.poll() is not None:
                break
            time.sleep(0.02)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    finish(broken)
    ended, expected = ({one.key: one for one in record.read([folder])} for folder in (broken, whole))
    assert ended.keys() == expected.keys()
    for key, one in ended.items():
        assert one.metrics == expected[key].metrics
    lines = (broken / record.FILE).read_text().splitlines()
    assert len(lines) == len(expected)
    for folder in (whole / "runs").iterdir():
        weights = [torch_load(root / "runs" / folder.name) for root in (whole, broken)]
        assert_close(*weights, rtol=0, atol=0)


def torch_load(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "ensemble" / "weights.safetensors")
