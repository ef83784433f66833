"""Load a server for two minutes: no error, requests batched, memory flat.

    python benchmarks/serving.py --seconds 120 --clients 32

A deep ensemble of four networks for handwritten digits is trained for a moment, calibrated, exported, and
served by `pluribus serve` in a process of its own, without PyTorch. Clients send one image at a time, half of
them as plain JSON and half in the Open Inference Protocol with binary tensors. In the end the server gets
SIGTERM. Written to benchmarks/results/serving.json.
"""

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

OUT = Path(__file__).parent / "results" / "serving.json"
WARM_UP = 5.0
"""Seconds before the first reading of memory: libraries allocate their pools with the first requests."""


def export(folder: Path) -> tuple[Path, np.ndarray]:
    """Train, calibrate and export an ensemble; return the file and raw images."""
    import torch

    import pluribus as pl
    from pluribus.backbones import BACKBONES
    from pluribus.data import Signature, digits

    torch.manual_seed(0)
    task = digits()
    network = BACKBONES["cnn"](classes=10)
    ensemble = pl.convert(network, pl.methods.DeepEnsembles(members=4), example=task.train.x[:2])
    pl.train(ensemble, task, pl.Training(epochs=2), show=False)
    path = ensemble.eval().export(folder / "digits.onnx", signature=Signature.of(task))
    return path, task.scaling.invert(task.test.x).numpy()[:64]


class Clients:
    """Threads that send requests until they are told to stop."""

    def __init__(self, port: int, images: np.ndarray, count: int) -> None:
        self.port, self.images = port, images
        self.stop = threading.Event()
        self.answers = [0] * count
        self.errors: list[str] = []
        self.threads = [threading.Thread(target=self.run, args=(place,)) for place in range(count)]

    def bodies(self, place: int):
        """Return path, headers and body of the request of one client."""
        image = self.images[place % len(self.images)][None].astype(np.float32)
        if place % 2:
            return "/predict", {}, json.dumps({"rows": image.tolist()}).encode()
        shape = list(image.shape)
        tensor = {
            "name": "input",
            "shape": shape,
            "datatype": "FP32",
            "parameters": {"binary_data_size": image.nbytes},
        }
        text = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
        headers = {"Inference-Header-Content-Length": str(len(text))}
        return "/v2/models/digits/infer", headers, text + image.tobytes()

    def run(self, place: int) -> None:
        path, headers, body = self.bodies(place)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        while not self.stop.is_set():
            try:
                connection.request("POST", path, body, headers)
                response = connection.getresponse()
                answer = response.read()
            except (OSError, http.client.HTTPException) as error:
                self.errors.append(repr(error))
                return
            if response.status == 200:
                self.answers[place] += 1
            else:
                self.errors.append(f"{response.status}: {answer[:200]!r}")
        connection.close()


def resident(process: int) -> float:
    """Return the resident memory of a process in MiB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def metrics(port: int) -> dict[str, float]:
    """Return the numbers of `/metrics` without labels."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return {name: float(value) for name, value in re.findall(r"^([a-z_]+) (\S+)$", text, re.MULTILINE)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path, images = export(Path(folder))
        command = [sys.executable, "-m", "pluribus.cli", "serve", str(path), "--port", "0", "--threads", "1"]
        server = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "500"}
        )
        try:
            found = load(server, images, given.seconds, given.clients)
        finally:
            server.kill()
            server.wait()
    given.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


def load(server: subprocess.Popen, images: np.ndarray, seconds: float, count: int) -> dict:
    """Send requests for some seconds, then SIGTERM; return what was seen."""
    line = server.stderr.readline()
    port = int(line.rpartition(":")[2])
    clients = Clients(port, images, count)
    for thread in clients.threads:
        thread.start()
    time.sleep(min(WARM_UP, seconds / 2))
    memory = [resident(server.pid)]
    end = time.monotonic() + seconds - WARM_UP
    while time.monotonic() < end:
        time.sleep(min(10, max(0, end - time.monotonic())))
        memory.append(resident(server.pid))
    seen = metrics(port)
    clients.stop.set()
    for thread in clients.threads:
        thread.join()
    server.send_signal(signal.SIGTERM)
    last = server.stderr.read().strip().splitlines()[-1]
    return {
        "seconds": seconds,
        "clients": count,
        "requests": sum(clients.answers),
        "errors": len(clients.errors),
        "first_errors": clients.errors[:3],
        "batches": int(seen["pluribus_batch_samples_count"]),
        "mean_batch_size": seen["pluribus_batch_samples_sum"] / seen["pluribus_batch_samples_count"],
        "memory_mib": {"start": memory[0], "end": memory[-1], "every_10_seconds": memory},
        "exit_code": server.wait(60),
        "last_line": last,
    }


if __name__ == "__main__":
    main()
