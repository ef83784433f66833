"""Several processes: torchrun ends at the weights of one process, and only the first one writes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.data import Split, Task
from pluribus.errors import CheckpointError
from pluribus.methods import EMP, SAE, BatchEnsemble, DeepEnsembles, Masksembles, PackedEnsembles, Single
from pluribus.training import Training, processes, train
from pluribus.training.one_cpu import OneCPU

ROOT = Path(__file__).parents[2]
PATIENCE = 300
"""Seconds that a loaded machine may take."""
SAMPLES = 45
"""Batches of 16 leave one of 13, and two processes have unequal shares of it."""

METHODS = {
    "single": Single(),
    "packed": PackedEnsembles(members=2, alpha=2),
    "masksembles": Masksembles(members=2),
    "emp": EMP(),
    "sae": SAE(inputs=2, exits=2),
}


def make_task():
    generator = torch.Generator().manual_seed(3)
    parts = []
    for count in (SAMPLES, 20, 20):
        x = torch.randn(count, 3, 4, generator=generator, dtype=torch.float64)
        parts.append(Split(x, x.mean(1).argmax(1)))
    return Task("corners", *parts, pl.likelihood.Categorical(), classes=4)


class Tokens(nn.Module):
    """Reads `[batch, tokens, 4]`. Exits of tokens have no batch statistics, other than those of vectors."""

    def __init__(self, norm):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.norm(self.body(x).mean(1)))


def make_network(norm=False):
    torch.manual_seed(0)
    return Tokens(norm)


def trained(name, out=None, norm=False, fabric=None, stop_after=None):
    """Return an ensemble in double precision after three epochs, and its history."""
    ensemble = pl.convert(make_network(norm), METHODS[name], example=torch.zeros(2, 3, 4)).double()
    training = Training(epochs=3, batch=16, lr=1e-2, weight_decay=1e-2, clip=1.0, ema=0.5, keep="last")

    def stop(row):
        # The checkpoint of this epoch is not written yet.
        if row["epoch"] == stop_after:
            raise KeyboardInterrupt

    history = train(ensemble, make_task(), training, out=out, show=False, fabric=fabric, on_epoch=stop)
    return ensemble, history


SCRIPT = """
import sys
from pathlib import Path
import torch
from pluribus.training.loop import make_fabric
from tests.training.test_processes import trained

folder, norm = Path(sys.argv[1]), sys.argv[2] == "norm"
fabric = make_fabric("cpu")
assert fabric.world_size == 2
for name in sys.argv[3:]:
    ensemble, history = trained(name, folder / name, norm=norm, fabric=fabric)
    found = {"weights": ensemble.state_dict(), "history": history}
    torch.save(found, folder / f"{name}-{fabric.global_rank}.pt")
"""


def run_two(folder, *arguments):
    """Run the script in two processes that torchrun starts."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    ended = subprocess.run(
        [*command, script, folder, *arguments],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_torchrun_ends_at_the_weights_of_one_process(tmp_path):
    # One process was stopped in its second epoch, and two go on.
    with pytest.raises(KeyboardInterrupt):
        trained("emp", tmp_path / "emp", stop_after=2)
    run_two(tmp_path, "plain", *METHODS)
    for name in METHODS:
        expected, history = trained(name)
        for rank in range(2):
            found = torch.load(tmp_path / f"{name}-{rank}.pt")
            assert_close(found["weights"], dict(expected.state_dict()), rtol=1e-7, atol=1e-9)
            assert_close(found["history"], history, rtol=1e-7, atol=1e-9)
        assert sorted(path.name for path in (tmp_path / name).iterdir()) == ["log.csv", "training.pt"]
        # One process takes over what two have written.
        again, _ = trained(name, tmp_path / name)
        assert_close(dict(again.state_dict()), dict(expected.state_dict()), rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_batch_statistics_are_those_of_the_first_process(tmp_path):
    """The weights differ, as docs/howto/many_machines.md states, and are the same in both processes."""
    run_two(tmp_path, "norm", "single")
    expected, _ = trained("single", norm=True)
    first, second = (torch.load(tmp_path / f"single-{rank}.pt")["weights"] for rank in range(2))
    assert_close(first, second, rtol=0, atol=0)
    differences = [float((first[name] - value).abs().max()) for name, value in expected.state_dict().items()]
    assert 1e-4 < max(differences) < 0.5


@pytest.mark.parametrize(
    ("environment", "devices", "expected"),
    [
        ({}, 1, (1, 1)),
        ({"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, 1, (1, 1)),
        ({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, 1, (2, 4)),
        ({"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, [3], (1, [3])),
    ],
)
def test_torchrun_says_how_many_devices_there_are(environment, devices, expected, monkeypatch):
    for name in ("TORCHELASTIC_RUN_ID", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert processes.launched_processes(devices) == expected


@pytest.mark.parametrize(
    ("method", "training", "expected"),
    [
        (Single(), Training(batch=16), False),
        (DeepEnsembles(members=2), Training(batch=16), False),
        (DeepEnsembles(members=2, start="copy"), Training(batch=16), True),
        (BatchEnsemble(members=2), Training(batch=16), True),
        # Two of 45 samples are left for the last batch of four processes.
        (Single(), Training(batch=43), True),
        (Single(), Training(batch=3), True),
        (Single(), Training(batch=16, accumulate=2), True),
    ],
)
def test_whole_batches_are_read_where_shares_do_not_suffice(method, training, expected):
    ensemble = pl.convert(make_network(), method, example=torch.zeros(2, 3, 4))
    state = torch.get_rng_state()
    assert processes.needs_whole_batches(ensemble, make_task(), training, 4) is expected
    assert torch.equal(torch.get_rng_state(), state)


class Pretended:
    """One of two processes; what the first sends is given."""

    world_size, device = 2, torch.device("cpu")

    def __init__(self, rank, sent=None):
        self.is_global_zero, self.sent = rank == 0, sent

    def broadcast(self, value):
        return value if self.is_global_zero else self.sent


def test_the_first_process_reads_for_all():
    assert processes.from_first(OneCPU(), lambda: 3) == 3
    assert processes.from_first(Pretended(0), lambda: 3) == 3
    assert processes.from_first(Pretended(1, (3, None)), lambda: pytest.fail("read")) == 3


def test_an_error_of_the_first_process_is_raised_in_all():
    error = CheckpointError("damaged")

    def fail():
        raise error

    for process in (Pretended(0), Pretended(1, (None, error))):
        with pytest.raises(CheckpointError, match="damaged"):
            processes.from_first(process, fail)


def test_random_numbers_and_buffers_become_those_of_the_first_process(monkeypatch):
    ensemble = pl.convert(make_network(norm=True), Single(), example=torch.zeros(2, 3, 4))
    torch.manual_seed(7)
    first = torch.get_rng_state()
    monkeypatch.setattr(torch.distributed, "broadcast", lambda tensor, src: tensor.copy_(first))
    torch.manual_seed(8)
    processes.copy_random(Pretended(1))
    assert torch.equal(torch.get_rng_state(), first)
    monkeypatch.setattr(torch.distributed, "broadcast", lambda tensor, src: tensor.fill_(3))
    processes.copy_buffers(ensemble, Pretended(1))
    assert all((buffer == 3).all() for buffer in ensemble.buffers())
    # One process keeps what it has.
    processes.copy_random(OneCPU())
    processes.copy_buffers(ensemble, OneCPU())
