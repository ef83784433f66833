"""The routes of a running server, without torch: right answers, refusals with reasons, and it lives on."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.serving.files import class_file, expected, table_columns, table_file, token_file
from tests.serving.running import running

pytest.importorskip("fastapi")
pytest.importorskip("uvicorn")

X = np.random.default_rng(2).normal(size=(3, 4)).astype(np.float32)
ROWS = {"rows": [{"age": 50, "pet": "b"}]}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    path = table_file(tmp_path_factory.mktemp("app") / "pets.onnx")
    with running(path, "--max-batch", "8", "--max-bytes", "20000") as found:
        yield found


def test_plain_rows_get_whole_answers(server):
    status, document = server.post("/predict", ROWS)
    assert status == 200
    (found,) = document["predictions"]
    columns = table_columns()
    x = columns.scale(columns.encode({"age": [50], "pet": ["b"]}).values)
    wanted = expected(x)
    assert found["label"] == ["cat", "dog", "cow"][wanted["labels"][0]]
    for name in ("confidence", "entropy", "mutual_information", "ood_score"):
        assert found[name] == pytest.approx(wanted[name][0], rel=1e-4)
    assert found["flagged"] == wanted["flagged"][0]
    assert isinstance(found["set"], list)


def test_the_protocol_has_its_routes(server):
    assert server.get("/v2")[1]["name"] == "pluribus"
    assert server.get("/v2/health/live") == (200, {"live": True})
    assert server.get("/v2/health/ready") == (200, {"ready": True})
    assert server.get("/v2/models/pets")[1]["inputs"][0]["shape"] == [-1, 4]
    assert server.get("/v2/models/pets/ready")[0] == 200
    assert server.get("/v2/models/pets/versions/1/ready")[0] == 200
    for path in ("/v2/models/dogs", "/v2/models/pets/versions/2", "/v2/models/dogs/ready"):
        assert server.get(path)[0] == 404
    assert server.get("/nothing") == (404, {"error": "Not Found"})


CLIENT = """
import json, sys
import numpy as np
import tritonclient.http as triton

client = triton.InferenceServerClient(sys.argv[1])
assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("pets")
assert client.get_model_metadata("pets")["name"] == "pets"
x = np.array(json.loads(sys.argv[2]), np.float32)
found = []
for binary in (False, True):
    given = triton.InferInput("x", list(x.shape), "FP32")
    given.set_data_from_numpy(x, binary_data=binary)
    wanted = [triton.InferRequestedOutput(name, binary_data=binary) for name in ("entropy", "labels", "set")]
    for outputs in (wanted, None):
        answer = client.infer("pets", [given], outputs=outputs, request_id="7")
        found.append([answer.as_numpy(name).tolist() for name in ("entropy", "labels", "set")])
try:
    given = triton.InferInput("x", [1, 3], "FP32")
    given.set_data_from_numpy(x[:1, :3])
    client.infer("pets", [given])
except triton.InferenceServerException as error:
    found.append(str(error))
print(json.dumps(found))
"""


def test_a_client_of_triton_gets_the_right_numbers(server):
    pytest.importorskip("tritonclient")
    # A process of its own: the client brings an event loop of another kind.
    command = [sys.executable, "-c", CLIENT, server.url, json.dumps(X.tolist())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    *found, refusal = json.loads(done.stdout)
    wanted = expected(X)
    assert len(found) == 4
    for entropy, labels, held in found:
        np.testing.assert_allclose(entropy, wanted["entropy"], rtol=1e-5)
        assert labels == wanted["labels"].tolist()
        assert held == wanted["set"].tolist()
    assert "x must have the shape ['batch', 4], got [1, 3]" in refusal


def test_bad_requests_are_refused_with_a_reason_and_the_server_lives_on(server):
    tensor = {"name": "x", "shape": [1, 4], "datatype": "FP32"}
    cases = [
        ("/predict", b"{", 400, "JSON"),
        ("/predict", b"\x00\xff", 400, "UTF-8"),
        ("/predict", {"rows": [[1, 2, 3]]}, 400, "shape"),
        ("/predict", b'{"rows": [[NaN, 1, 2, 3]]}', 400, "finite"),
        ("/predict", b'{"rows": [[1e999, 1, 2, 3]]}', 400, "finite"),
        ("/predict", {"rows": [{"age": "x", "pet": "a"}]}, 400, "age"),
        ("/predict", {"rows": [[1, 2, 3, 4]] * 9}, 413, "at most 8 samples, got 9"),
        ("/predict", b" " * 20_001, 413, "at most 20000 bytes"),
        ("/predict", b"[" * 19_000, 400, "nested"),
        ("/v2/models/pets/infer", {"inputs": [{**tensor, "data": [1, 2, 3]}]}, 400, "4 numbers"),
        ("/v2/models/dogs/infer", {"inputs": [{**tensor, "data": [1, 2, 3, 4]}]}, 404, "'pets'"),
        ("/v2/models/pets/infer", {"inputs": [{**tensor, "datatype": "BYTES", "data": ["a"]}]}, 400, "FP32"),
    ]
    for path, body, status, reason in cases:
        found, document = server.post(path, body)
        assert (found, reason in document["error"]) == (status, True), (path, body, document)
        assert server.post("/predict", ROWS)[0] == 200
    status, _, _ = server.request("POST", "/predict", b"x", {"Content-Encoding": "gzip"})
    assert status == 415
    assert server.request("PUT", "/predict", b"{}")[0] == 405


def test_metrics_drift_description_and_page_are_there(server):
    server.post("/predict", ROWS)
    status, headers, text = server.request("GET", "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b'pluribus_requests_total{route="predict",status="200"}' in text
    assert server.get("/drift")[1]["monitored"]
    assert server.get("/description")[1]["classes"] == ["cat", "dog", "cow"]
    assert "reference_scores" not in server.get("/description")[1]
    status, headers, text = server.request("GET", "/")
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]


def test_a_failing_request_harms_no_neighbour(tmp_path):
    good, bad = ({"rows": [{"tokens": [token, 1], "mask": [1, 1]}]} for token in (2, 99))
    with running(token_file(tmp_path / "t.onnx"), "--max-wait-ms", "200") as server:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda one: server.post("/predict", one), (good, bad, good, good)))
        assert [status for status, _ in found] == [200, 500, 200, 200]
        assert "the model failed on this request" in found[1][1]["error"]
        assert found[0][1]["predictions"][0]["mean"] == 3
        batches = server.request("GET", "/metrics")[2].decode()
        assert "pluribus_batch_samples_count 3" in batches


def test_a_full_queue_refuses_and_says_when_to_come_back(tmp_path):
    path = class_file(tmp_path / "m.onnx")
    body = json.dumps({"rows": X.tolist()}).encode()
    with running(path, "--queue", "1", "--max-wait-ms", "300") as server:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda _: server.request("POST", "/predict", body), range(4)))
        assert sorted(status for status, _, _ in found) == [200, 503, 503, 503]
        refused = next(headers for status, headers, _ in found if status == 503)
        assert refused["Retry-After"] == "1"
