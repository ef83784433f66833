"""Batcher: one queue of requests, whose samples run together.

A request waits at most `max_wait_ms` for others to run with; while a batch runs, more requests gather. A
request is never split, and only requests of one kind (equal sizes of all axes) run together. A batch that
fails is run again request by request, so that a bad one harms no other.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from pluribus.serving.jobs import Job, answer_jobs, checked_outputs, count_samples, joined_inputs
from pluribus.serving.options import ServerOptions
from pluribus.serving.refusal import BUSY, FAILED, TOO_LARGE, Refusal, bad
from pluribus.serving.tensors import Array, Arrays

Run = Callable[[Mapping[str, Array]], Arrays]
Watch = Callable[[Arrays, int], None]
"""Called with the outputs of each batch and the number of its samples."""


class Batcher:
    """Collects requests and runs them together, one batch at a time, in a thread of its own.

    Args:
        run: Returns outputs by name for inputs by name.
        options: Of the server.
        together: Whether samples of several requests may run together.
        watch: Called after each batch.

    Attributes:
        accepted: Requests that entered the queue; every one of them is finished.
        finished: Requests that were answered, or whose client went away.
    """

    def __init__(self, run: Run, options: ServerOptions, together: bool, watch: Watch) -> None:
        self.run, self.watch = run, watch
        self.max_batch = options.max_batch
        self.wait = options.max_wait_ms / 1000
        self.together = together
        self.jobs: deque[Job] = deque()
        self.arrival = asyncio.Event()
        self.stopping = False
        self.accepted = self.finished = 0
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="pluribus-batch")
        self.worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to take requests; called inside the event loop."""
        self.worker = asyncio.create_task(self._work())

    async def submit(self, arrays: Arrays) -> Arrays:
        """Return the outputs for the inputs of one request.

        Raises:
            Refusal: There are too many samples, the server is stopping, or the model failed.
        """
        samples = len(next(iter(arrays.values())))
        self._check(arrays, samples)
        job = Job(arrays, samples, asyncio.get_running_loop().create_future())
        self.jobs.append(job)
        self.accepted += 1
        self.arrival.set()
        try:
            return await job.answer
        finally:
            self.finished += 1

    def _check(self, arrays: Arrays, samples: int) -> None:
        if any(len(value) != samples for value in arrays.values()):
            counts = {name: len(value) for name, value in arrays.items()}
            raise bad(f"all inputs must have one batch size, got {counts}.")
        if not samples:
            raise bad("a request must have at least 1 sample, got 0.")
        if samples > self.max_batch:
            raise Refusal(
                TOO_LARGE,
                f"a request must have at most {self.max_batch} samples, got {samples}. Divide it.",
            )
        if self.stopping:
            raise Refusal(BUSY, "the server is stopping.", retry_after=1)

    async def drain(self) -> None:
        """Finish all requests in the queue, and stop."""
        self.stopping = True
        self.arrival.set()
        if self.worker is not None:
            await self.worker
        self.thread.shutdown(wait=True)

    async def _work(self) -> None:
        while True:
            batch = await self._gather()
            if not batch:
                return
            await self._run(batch)

    async def _gather(self) -> list[Job]:
        """Return the requests of the next batch; none when the server stops and the queue is empty."""
        while not self.jobs:
            if self.stopping:
                return []
            await self._arrival(None)
        batch = [self.jobs.popleft()]
        deadline = batch[0].arrived + self.wait
        while self.together:
            self._take_matching(batch)
            left = deadline - time.monotonic()
            if left <= 0 or self.stopping or count_samples(batch) >= self.max_batch:
                break
            if not await self._arrival(left):
                break
        return batch

    def _take_matching(self, batch: list[Job]) -> None:
        """Move requests of the first one's kind from the queue to a batch while there is room, in order."""
        kind = batch[0].kind
        room = self.max_batch - count_samples(batch)
        others: deque[Job] = deque()
        while self.jobs and room > 0:
            job = self.jobs.popleft()
            if job.kind == kind and job.samples <= room:
                batch.append(job)
                room -= job.samples
            else:
                others.append(job)
        # What does not fit keeps its place at the head of the queue.
        self.jobs.extendleft(reversed(others))

    async def _arrival(self, seconds: float | None) -> bool:
        """Wait for a request or for the end; return False if time is over."""
        self.arrival.clear()
        try:
            async with asyncio.timeout(seconds):
                await self.arrival.wait()
        except TimeoutError:
            return False
        return True

    async def _run(self, batch: list[Job]) -> None:
        """Run a batch, and answer its requests; if it fails, run each of them alone."""
        loop = asyncio.get_running_loop()
        try:
            outputs = await loop.run_in_executor(self.thread, self._outputs, batch)
        # onnxruntime has errors of its own, and an error must reach its request, whatever it is.
        except Exception as error:
            await self._run_alone(batch, error)
            return
        answer_jobs(batch, outputs)
        self.watch(outputs, count_samples(batch))

    async def _run_alone(self, batch: list[Job], error: Exception) -> None:
        if len(batch) > 1:
            for job in batch:
                await self._run([job])
            return
        if not batch[0].answer.done():
            lines = str(error).splitlines() or [type(error).__name__]
            batch[0].answer.set_exception(Refusal(FAILED, f"the model failed on this request: {lines[0]}"))

    def _outputs(self, batch: list[Job]) -> Arrays:
        """Return the outputs of all samples of a batch; runs in the thread."""
        return checked_outputs(self.run(joined_inputs(batch)), count_samples(batch))
