"""Service: bodies are limited, places are limited, large requests are parsed beside the others."""

import asyncio
import json

import numpy as np
import pytest

from pluribus.serving.exported import Exported
from pluribus.serving.options import ServerOptions
from pluribus.serving.refusal import Refusal
from pluribus.serving.service import LARGE, Service
from tests.serving.files import class_file, expected, number_file


def make(path, **options):
    return Service(Exported(path, 1), ServerOptions(**options), "m")


def answered(service, call):
    """Return the result of a call while the service runs."""

    async def main():
        service.batcher.start()
        try:
            return await call()
        finally:
            await service.batcher.drain()

    return asyncio.run(main())


@pytest.mark.parametrize("spaces", [0, LARGE])
def test_predictions_are_those_of_the_model(spaces, tmp_path):
    service = make(class_file(tmp_path / "m.onnx"))
    x = [[1.0, -1.0, 0.5, 0.0]]
    body = json.dumps({"rows": x}).encode() + b" " * spaces
    document = json.loads(answered(service, lambda: service.predict(body)))
    found = document["predictions"][0]
    wanted = expected(np.array(x))
    assert found["entropy"] == pytest.approx(wanted["entropy"][0], rel=1e-5)
    assert found["confidence"] == pytest.approx(wanted["confidence"][0], rel=1e-5)
    assert (service.batcher.accepted, service.batcher.finished) == (1, 1)
    assert service.drift()["samples"] == 1
    assert not service.ready


def test_an_uncalibrated_export_is_not_monitored(tmp_path):
    service = make(number_file(tmp_path / "m.onnx"))
    assert not service.drift()["monitored"]
    body = b'{"rows": [{"a": 3, "b": 2}]}'
    (found,) = json.loads(answered(service, lambda: service.predict(body)))["predictions"]
    assert (found["mean"], found["lower"], found["upper"], found["std"]) == (105, 100, 110, 20)


def read(service, parts, headers=None, pause=0.0):
    async def stream():
        for part in parts:
            await asyncio.sleep(pause)
            yield part

    return asyncio.run(service.read_body(headers or {}, stream()))


def test_bodies_are_limited(tmp_path):
    service = make(class_file(tmp_path / "m.onnx"), max_bytes=10, body_seconds=0.01)
    assert read(service, [b"12345", b"67890"]) == b"1234567890"
    for parts, headers, pause, status in [
        ([b"12345678901"], {}, 0, 413),
        ([], {"content-length": "11"}, 0, 413),
        ([], {"content-length": "9" * 5000}, 0, 413),
        ([b"1"], {"content-encoding": "gzip"}, 0, 415),
        ([b"1"], {}, 1, 408),
    ]:
        with pytest.raises(Refusal) as caught:
            read(service, parts, headers, pause)
        assert caught.value.status == status


def test_places_are_limited(tmp_path):
    service = make(class_file(tmp_path / "m.onnx"), queue=1)
    with service.admitted():
        with (
            pytest.raises(Refusal, match="at most 1 requests may be in progress") as caught,
            service.admitted(),
        ):
            raise AssertionError
        assert (caught.value.status, caught.value.retry_after) == (503, 1)
    with service.admitted():
        assert service.inside == 1


@pytest.mark.parametrize("body", [b"", b"[]", b'{"row": []}', b'{"rows": [], "rows": []}'])
def test_a_body_that_is_no_json_is_refused(body, tmp_path):
    service = make(class_file(tmp_path / "m.onnx"))
    with pytest.raises(Refusal, match="the request must be JSON such as") as caught:
        answered(service, lambda: service.predict(body))
    assert caught.value.status == 400
