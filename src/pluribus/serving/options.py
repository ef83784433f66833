"""Options of a server."""

from dataclasses import dataclass
from typing import final

from pluribus.settings import Settings, setting


@final
@dataclass(frozen=True)
class ServerOptions(Settings):
    """How a server listens, queues and batches.

    Args:
        host: Address to listen at. Loopback by default: there is no password, so that only programs on the
            same machine should reach it unless something in front of it decides who may.
        port: 0 chooses a free one.
        max_batch: Samples that run at once, and the most in one request.
        max_wait_ms: How long a sample waits for others to run with, in milliseconds; 0 waits for none.
        queue: Requests that are read, wait or run at once; more are refused with 503.
        max_bytes: Length of a request.
        threads: Of onnxruntime; 0 takes as many as there are cores.
        drift_level: Probability of a false alarm of the drift monitor, over all time.
        head_seconds: Time in which the head of a request must arrive; the connection is closed otherwise.
        body_seconds: Time in which the body of a request must arrive.
        drain_seconds: Time that accepted requests have to finish after SIGTERM.
    """

    host: str = setting("127.0.0.1")
    port: int = setting(8000, at_least=0, at_most=65_535)
    max_batch: int = setting(64, at_least=1, at_most=1_000_000)
    max_wait_ms: float = setting(2.0, at_least=0, at_most=60_000)
    queue: int = setting(256, at_least=1, at_most=1_000_000)
    max_bytes: int = setting(16 << 20, at_least=1, at_most=64 << 20)
    threads: int = setting(0, at_least=0, at_most=1024)
    drift_level: float = setting(0.01, above=0, below=1)
    head_seconds: float = setting(10.0, above=0, at_most=3600)
    body_seconds: float = setting(30.0, above=0, at_most=3600)
    drain_seconds: int = setting(60, at_least=1, at_most=3600)
