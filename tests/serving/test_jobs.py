"""Jobs are joined and taken apart again."""

import asyncio

import numpy as np
import pytest

from pluribus.serving.jobs import Job, answer_jobs, checked_outputs, count_samples, joined_inputs


def test_parts_go_back_to_their_requests():
    async def main():
        loop = asyncio.get_running_loop()
        batch = [Job({"x": np.full((size, 2), size)}, size, loop.create_future()) for size in (1, 2)]
        gone = Job({"x": np.full((1, 2), 9)}, 1, loop.create_future())
        gone.answer.cancel()
        batch.append(gone)
        joined = joined_inputs(batch)
        assert joined["x"][:, 0].tolist() == [1, 2, 2, 9]
        assert count_samples(batch) == 4
        assert batch[0].kind == batch[1].kind
        members = np.stack((joined["x"], joined["x"]))
        answer_jobs(batch, {"mean": joined["x"], "members": members})
        return [await job.answer for job in batch[:2]]

    first, second = asyncio.run(main())
    assert first["mean"].tolist() == [[1, 1]]
    assert second["members"].shape == (2, 2, 2)


def test_outputs_must_have_a_value_for_each_sample():
    assert checked_outputs({"members": np.zeros((9, 3))}, 3)
    with pytest.raises(ValueError, match="output mean must have 2 samples"):
        checked_outputs({"mean": np.zeros(3)}, 2)
