"""The Open Inference Protocol: JSON and binary requests and responses, and refusals."""

import json

import numpy as np
import pytest

from pluribus.serving.exported import Exported
from pluribus.serving.protocol import model_metadata, read_request, server_metadata, write_response
from pluribus.serving.refusal import Refusal
from tests.serving.files import class_file, token_file

X = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return Exported(class_file(tmp_path_factory.mktemp("protocol") / "m.onnx"), 1)


def tensor(**changes):
    return {"name": "x", "shape": [2, 4], "datatype": "FP32", "data": X.ravel().tolist(), **changes}


def body(*tensors, **others):
    return json.dumps({"inputs": list(tensors), **others}).encode()


def test_metadata_names_types_and_free_sizes(exported, tmp_path):
    assert server_metadata()["extensions"] == ["binary_tensor_data"]
    found = model_metadata("m", exported)
    assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert {"name": "labels", "datatype": "INT64", "shape": [-1]} in found["outputs"]
    tokens = model_metadata("t", Exported(token_file(tmp_path / "t.onnx"), 1))
    assert tokens["inputs"][0] == {"name": "tokens", "datatype": "INT64", "shape": [-1, -1]}


@pytest.mark.parametrize("data", [X.ravel().tolist(), X.tolist()])
def test_json_may_be_flat_or_nested(data, exported):
    request = read_request(body(tensor(data=data), id="7"), None, exported)
    np.testing.assert_array_equal(request.arrays["x"], X)
    assert request.id == "7"
    assert set(request.outputs) == set(exported.outputs)
    assert not any(request.outputs.values())


def binary(tensors, *parts, **others):
    text = json.dumps({"inputs": tensors, **others}).encode()
    return b"".join((text, *parts)), str(len(text))


def test_binary_tensors_follow_the_text(exported):
    entry = {"name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": {"binary_data_size": 32}}
    raw, header = binary([entry], X.tobytes(), parameters={"binary_data_output": True})
    request = read_request(raw, header, exported)
    np.testing.assert_array_equal(request.arrays["x"], X)
    assert all(request.outputs.values())


def test_responses_hold_json_and_binary_outputs(exported):
    outputs = [{"name": "labels"}, {"name": "entropy", "parameters": {"binary_data": True}}]
    request = read_request(body(tensor(), outputs=outputs, id="a"), None, exported)
    values = exported.run(request.arrays)
    raw, length = write_response(request, values, "m")
    document = json.loads(raw[:length])
    assert document["id"] == "a"
    assert [one["name"] for one in document["outputs"]] == ["labels", "entropy"]
    assert document["outputs"][0]["data"] == values["labels"].tolist()
    assert document["outputs"][1]["parameters"] == {"binary_data_size": 8}
    np.testing.assert_array_equal(np.frombuffer(raw[length:], "<f4"), values["entropy"])
    assert write_response(read_request(body(tensor()), None, exported), values, "m")[1] is None


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", "must be JSON"),
        (b"\xff", "UTF-8"),
        (b"[" * 1000, "nested brackets"),
        (b"{}", "inputs"),
        (body(), "must have the input 'x'"),
        (body(tensor(name="y")), "inputs must be x, each once, got 'y'"),
        (body(tensor(), tensor()), "each once"),
        (body(tensor(datatype="FP64")), "datatype FP32, got 'FP64'"),
        (body(tensor(shape=[2, 3])), "must have 6 numbers"),
        (body(tensor(shape=[4, 2])), r"must have the shape \['batch', 4\], got \[4, 2\]"),
        (body(tensor(shape=[2, -4])), "shape"),
        (body(tensor(shape=[10**12, 10**12])), "numbers for shape"),
        (body(tensor(shape=[2**62] * 16)), r"numbers for shape a list of 16, got 8\.$"),
        (body(tensor(shape=[0, 2**62, 2**62], data=[])), "at least 1 number"),
        (body(tensor(shape=[2**62] * 15 + [0], data=[])), "at least 1 number"),
        (body(tensor(data=["a"] * 8)), "numbers alone"),
        (body(tensor(data=[float("nan")] * 8)), "must be finite"),
        (body(tensor(data=[10**400] * 8)), "numbers alone"),
        (body({"name": "x", "shape": [2, 4], "datatype": "FP32"}), "must have data"),
        (body(tensor(), outputs=[{"name": "nothing"}]), "outputs are .* got 'nothing'"),
    ],
)
def test_wrong_requests_are_refused_with_a_reason(raw, message, exported):
    with pytest.raises(Refusal, match=message) as caught:
        read_request(raw, None, exported)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("size", "part", "message"),
    [
        (32, X.tobytes()[:-1], "must have 32 bytes"),
        (16, X.tobytes(), "must have 32 bytes"),
        (32, X.tobytes() + b"x", "binary data must have 32 bytes"),
        (32, np.full(8, np.nan, np.float32).tobytes(), "must be finite"),
    ],
)
def test_wrong_binary_data_is_refused(size, part, message, exported):
    entry = {"name": "x", "shape": [2, 4], "datatype": "FP32", "parameters": {"binary_data_size": size}}
    raw, header = binary([entry], part)
    with pytest.raises(Refusal, match=message):
        read_request(raw, header, exported)


@pytest.mark.parametrize("header", ["-1", "a", "99999", "9" * 5000])
def test_a_wrong_header_is_refused(header, exported):
    with pytest.raises(Refusal, match="Inference-Header-Content-Length must be a number"):
        read_request(body(tensor()), header, exported)


def test_no_bytes_are_no_numbers(exported):
    entry = {"name": "x", "shape": [0, 2**62], "datatype": "FP32", "parameters": {"binary_data_size": 0}}
    raw, header = binary([entry])
    with pytest.raises(Refusal, match="at least 1 number"):
        read_request(raw, header, exported)
