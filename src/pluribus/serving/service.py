"""Service: a request from its first byte to its answer, without the routes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from pluribus.schema import Anything, Fields, Mismatch, Schema, Text
from pluribus.serving.answers import Answers
from pluribus.serving.batching import Batcher
from pluribus.serving.exported import Exported
from pluribus.serving.options import ServerOptions
from pluribus.serving.preprocessing import Preprocessing
from pluribus.serving.protocol import read_request, write_response
from pluribus.serving.refusal import BUSY, TIMEOUT, TOO_LARGE, UNSUPPORTED, Refusal, bad
from pluribus.serving.statistics import Statistics
from pluribus.serving.tensors import Arrays
from pluribus.untrusted import parse_json

T = TypeVar("T")
ROWS: Schema = Fields({"rows": Anything()}, {"dtype": Text(most=20)})
LARGE = 1 << 16
"""Bytes of a request from which on it is parsed in a thread, so that others are not held up."""


class Service:
    """A served ensemble.

    Args:
        exported: The file.
        options: Of the server.
        name: Of the model.
    """

    def __init__(self, exported: Exported, options: ServerOptions, name: str) -> None:
        self.exported, self.options, self.name = exported, options, name
        self.preprocessing = Preprocessing(exported)
        self.answers = Answers(exported.description, self.preprocessing.target)
        self.monitor = exported.monitor(options.drift_level)
        self.statistics = Statistics(list(exported.outputs), self.monitor)
        self.batcher = Batcher(exported.run, options, exported.batches, self.statistics.watch)
        self.inside = 0

    @property
    def ready(self) -> bool:
        """Return whether requests are taken."""
        return self.batcher.worker is not None and not self.batcher.stopping

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Hold a place among the requests in progress; raise `Refusal` if there is none.

        The place is taken before the body is read, so that memory is bounded too.
        """
        if self.inside >= self.options.queue:
            raise Refusal(
                BUSY,
                f"at most {self.options.queue} requests may be in progress, got one more. Try again.",
                retry_after=1,
            )
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    async def read_body(self, headers: Mapping[str, str], stream: AsyncIterator[bytes]) -> bytes:
        """Return the body of a request; raise `Refusal` if it is too long, too slow, or compressed."""
        most = self.options.max_bytes
        if headers.get("content-encoding", "identity") != "identity":
            raise Refusal(UNSUPPORTED, "requests must not be compressed, got a Content-Encoding.")
        declared = headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared[:20]) > most:
            raise Refusal(TOO_LARGE, f"a request must have at most {most} bytes, got {declared[:20]}.")
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.options.body_seconds):
                async for part in stream:
                    size += len(part)
                    if size > most:
                        raise Refusal(TOO_LARGE, f"a request must have at most {most} bytes, got more.")
                    parts.append(part)
        except TimeoutError as error:
            raise Refusal(
                TIMEOUT, f"a request must arrive within {self.options.body_seconds:g} seconds."
            ) from error
        return b"".join(parts)

    async def predict(self, body: bytes) -> bytes:
        """Return the answer to `POST /predict`."""
        arrays, notes = await _parsed(body, self._rows)
        outputs = await self.batcher.submit(arrays)
        answers = self.answers.make(outputs, notes)
        return json.dumps({"model": self.name, "predictions": answers}, allow_nan=False).encode()

    def _rows(self, body: bytes) -> tuple[Arrays, tuple[str, ...]]:
        try:
            document = parse_json(body, ROWS)
        except (Mismatch, ValueError) as error:
            raise bad(f'the request must be JSON such as {{"rows": [...]}}: {error}.') from error
        return self.preprocessing.prepare(document["rows"], document.get("dtype", ""))

    async def infer(self, body: bytes, header: str | None) -> tuple[bytes, int | None]:
        """Return the answer to a request of the Open Inference Protocol, and the length of its JSON text.

        Args:
            body: All bytes.
            header: Length of the request's JSON text; None if it is JSON alone.
        """
        request = await _parsed(body, lambda raw: read_request(raw, header, self.exported))
        outputs = await self.batcher.submit(request.arrays)
        return write_response(request, outputs, self.name)

    def drift(self) -> dict[str, Any]:
        """Return the state of the drift monitor."""
        if self.monitor is None:
            return {
                "monitored": False,
                "reason": "the export holds no scores of validation samples: calibrate the ensemble first",
            }
        score = self.exported.description["calibration"]["score"]
        return {"monitored": True, "score": score, **self.monitor.to_dict()}


async def _parsed(body: bytes, parse: Callable[[bytes], T]) -> T:
    """Return what a function makes of a body; large ones are parsed in a thread."""
    if len(body) < LARGE:
        return parse(body)
    return await asyncio.to_thread(parse, body)
