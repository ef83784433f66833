"""Batching: requests run together, are never split, fail alone, and are finished at the end."""

import asyncio

import numpy as np
import pytest

from pluribus.serving.batching import Batcher
from pluribus.serving.options import ServerOptions
from pluribus.serving.refusal import Refusal


class Doubling:
    """A model that doubles, records its batches, and fails on 13."""

    def __init__(self):
        self.batches, self.watched = [], []

    def run(self, arrays):
        x = arrays["x"]
        self.batches.append(len(x))
        if (x == 13).any():
            raise RuntimeError("13 is no number\nsecond line")
        return {"mean": 2 * x, "members": np.stack((x, x))}

    def watch(self, outputs, samples):
        self.watched.append(samples)


def together(model, requests, stop=False, together=True, **options):
    """Submit all requests at once, and return their outputs or errors."""

    async def main():
        batcher = Batcher(model.run, ServerOptions(**options), together, model.watch)
        tasks = [asyncio.create_task(batcher.submit({"x": np.asarray(x, float)})) for x in requests]
        # All requests are in the queue before the first batch is taken.
        await asyncio.sleep(0)
        batcher.start()
        if stop:
            await batcher.drain()
            assert all(task.done() for task in tasks)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await batcher.drain()
        with pytest.raises(Refusal, match="the server is stopping"):
            await batcher.submit({"x": np.zeros((1, 1))})
        return found

    return asyncio.run(asyncio.wait_for(main(), 30))


def test_requests_run_together_and_get_their_own_outputs():
    model = Doubling()
    found = together(model, [[[1]], [[2], [3]], [[4]]], max_wait_ms=100.0, max_batch=4)
    assert [one["mean"].tolist() for one in found] == [[[2]], [[4], [6]], [[8]]]
    assert found[1]["members"].shape == (2, 2, 1)
    assert model.batches == model.watched == [4]


def test_a_request_is_never_split():
    model = Doubling()
    together(model, [[[1]] * 3, [[2]] * 3, [[3]]], max_batch=4, max_wait_ms=0.0)
    # The third fits beside the first; the second keeps its place.
    assert model.batches == [4, 3]


def test_only_requests_of_one_kind_run_together():
    model = Doubling()
    found = together(model, [[[1]], [[1, 2]], [[3]]], max_wait_ms=5.0)
    assert model.batches == [2, 1]
    assert found[1]["mean"].tolist() == [[2, 4]]


def test_a_bad_request_fails_alone():
    model = Doubling()
    found = together(model, [[[1]], [[13]], [[2]]], max_wait_ms=5.0)
    assert [found[0]["mean"].item(), found[2]["mean"].item()] == [2, 4]
    assert isinstance(found[1], Refusal)
    assert (found[1].status, found[1].reason) == (
        500,
        "the model failed on this request: 13 is no number",
    )
    assert model.batches == [3, 1, 1, 1]


def test_samples_that_affect_one_another_run_by_request():
    model = Doubling()
    together(model, [[[1]], [[2]]], together=False)
    assert model.batches == [1, 1]


def test_draining_finishes_what_is_in_the_queue():
    model = Doubling()
    found = together(
        model, [[[number]] for number in range(10)], stop=True, max_batch=3, max_wait_ms=60_000.0
    )
    assert [one["mean"].item() for one in found] == [2 * number for number in range(10)]
    assert model.batches == [3, 3, 3, 1]


@pytest.mark.parametrize(
    ("arrays", "status", "message"),
    [
        ({"x": np.zeros((5, 1))}, 413, "at most 4 samples, got 5"),
        ({"x": np.zeros((0, 1))}, 400, "at least 1 sample"),
        ({"x": np.zeros((1, 1)), "y": np.zeros((2, 1))}, 400, "one batch size"),
    ],
)
def test_wrong_numbers_of_samples_are_refused(arrays, status, message):
    async def main():
        batcher = Batcher(Doubling().run, ServerOptions(max_batch=4), True, lambda *_: None)
        await batcher.submit(arrays)

    with pytest.raises(Refusal, match=message) as caught:
        asyncio.run(main())
    assert caught.value.status == status


def test_outputs_without_a_batch_axis_are_an_error():
    model = Doubling()
    model.run = lambda arrays: {"mean": np.zeros(3)}
    (found,) = together(model, [[[1]]])
    assert "output mean must have 1 samples, got shape [3]" in found.reason
