"""Statistics of a server, in the text format of Prometheus.

prometheus.io/docs/instrumenting/exposition_formats. The format is a page long; a client library would be one
package more in a lean server.
"""

import bisect
from collections.abc import Mapping, Sequence

import numpy as np

from pluribus.monitoring import DriftMonitor
from pluribus.serving.answers import sample_means
from pluribus.serving.tensors import Arrays

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
UNCERTAINTY = {
    "entropy": "total uncertainty in nats",
    "mutual_information": "uncertainty from the model in nats",
    "variance": "variance of the prediction",
    "epistemic": "variance from the model",
    "flagged": "1 for a sample that is flagged as strange, else 0",
}
"""Outputs whose mean over samples is reported; a file has some of them."""
RECENT = 1000
"""Samples of the means of late."""


class Histogram:
    """Counts of values up to some bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    @property
    def count(self) -> int:
        """Return how many values there were."""
        return sum(self.counts)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect.bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, about: str) -> list[str]:
        """Return the lines of the text format."""
        lines = heading(name, about, "histogram")
        below = 0
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            below += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {below}')
        return [*lines, f"{name}_sum {self.sum!r}", f"{name}_count {below}"]


class Mean:
    """Sum and count of all values, and the mean of the latest ones."""

    def __init__(self) -> None:
        self.sum = 0.0
        self.count = 0
        self.latest = np.zeros(RECENT)

    def add(self, values: Sequence[float]) -> None:
        """Add values; those that are not finite are left out, since one would spoil the sum for ever."""
        for value in values:
            if np.isfinite(value):
                self.latest[self.count % RECENT] = value
                self.sum += value
                self.count += 1

    @property
    def recent(self) -> float:
        """Return the mean of the latest values; 0 before the first."""
        kept = self.latest[: min(self.count, RECENT)]
        return float(kept.mean()) if len(kept) else 0.0

    def lines(self, name: str, about: str) -> list[str]:
        """Return the lines of the text format."""
        lines = heading(name, f"{about}, over samples", "summary")
        lines += [f"{name}_sum {self.sum!r}", f"{name}_count {self.count}"]
        lines += heading(f"{name}_recent_mean", f"{about}: mean of the latest {RECENT} samples", "gauge")
        return [*lines, f"{name}_recent_mean {self.recent!r}"]


class Statistics:
    """Everything that `/metrics` reports.

    Args:
        outputs: Names of the outputs of the file.
        monitor: Of drift; None if the ensemble was not calibrated.
    """

    def __init__(self, outputs: Sequence[str], monitor: DriftMonitor | None) -> None:
        self.requests: dict[tuple[str, int], int] = {}
        self.seconds = Histogram(SECONDS)
        self.batches = Histogram(SIZES)
        self.means = {name: Mean() for name in UNCERTAINTY if name in outputs}
        self.monitor = monitor

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a response."""
        key = (route, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        self.seconds.add(seconds)

    def watch(self, outputs: Arrays, samples: int) -> None:
        """Take the outputs of a batch."""
        self.batches.add(samples)
        for name, mean in self.means.items():
            mean.add(sample_means(outputs[name].astype(np.float64)).tolist())
        if self.monitor is not None:
            scores = outputs["ood_score"].astype(np.float64)
            self.monitor.add(scores[np.isfinite(scores)])

    def text(self, waiting: int, inside: int) -> str:
        """Return everything in the text format.

        Args:
            waiting: Requests in the queue.
            inside: Requests that are read, wait or run.
        """
        lines = heading("pluribus_requests_total", "responses by route and status", "counter")
        for (route, status), count in sorted(self.requests.items()):
            lines.append(f'pluribus_requests_total{{route="{route}",status="{status}"}} {count}')
        lines += self.seconds.lines(
            "pluribus_request_seconds", "time from the head of a request to its response"
        )
        lines += self.batches.lines("pluribus_batch_samples", "samples that ran together")
        gauges = {"queue_length": (waiting, "requests that wait"), "inside": (inside, "requests in progress")}
        lines += gauge_lines(gauges)
        for name, mean in self.means.items():
            lines += mean.lines(f"pluribus_{name}", UNCERTAINTY[name])
        if self.monitor is not None:
            lines += _drift_lines(self.monitor)
        return "\n".join(lines) + "\n"


def heading(name: str, about: str, kind: str) -> list[str]:
    """Return the two lines that introduce a metric."""
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def gauge_lines(gauges: Mapping[str, tuple[float, str]]) -> list[str]:
    """Return the lines of numbers that go up and down, each with its meaning."""
    lines = []
    for name, (value, about) in gauges.items():
        lines += [*heading(f"pluribus_{name}", about, "gauge"), f"pluribus_{name} {value!r}"]
    return lines


def _drift_lines(monitor: DriftMonitor) -> list[str]:
    alarm = monitor.alarm
    return gauge_lines(
        {
            "drift_samples": (monitor.samples, "samples that the drift monitor has seen"),
            "drift_log_wealth": (monitor.wealth.log, "logarithm of the wealth of the drift monitor"),
            "drift_alarm": (int(alarm is not None), "1 after samples stopped to look like validation data"),
            "drift_since_sample": (0 if alarm is None else alarm.since, "estimated first strange sample"),
        }
    )
