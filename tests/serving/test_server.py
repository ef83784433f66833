"""A server: SIGTERM under load loses no accepted request, wrong addresses and files are told."""

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
import time

import pytest

from pluribus.errors import CheckpointError, SettingError
from pluribus.serving.exported import Exported
from pluribus.serving.options import ServerOptions
from pluribus.serving.server import bind, first_lines, last_line, quiet_end, serve
from pluribus.serving.service import Service
from tests.serving.files import class_file, mixing_file
from tests.serving.running import running

BODY = json.dumps({"rows": [[0.1, 0.2, 0.3, 0.4]]}).encode()


def test_sigterm_under_load_loses_no_accepted_request(tmp_path):
    pytest.importorskip("uvicorn")
    answers, unexpected = [], []

    def client(server):
        with contextlib.closing(
            http.client.HTTPConnection(server.host, server.port, timeout=60)
        ) as connection:
            while ask(connection):
                pass

    def ask(connection):
        """Send a request; return whether the server goes on."""
        try:
            connection.request("POST", "/predict", BODY)
            response = connection.getresponse()
            document = json.loads(response.read())
        # The server has closed the connection, or takes no new one: this request was not accepted.
        except (OSError, http.client.HTTPException):
            return False
        if response.status == 200:
            answers.append(document)
        elif response.status != 503:
            unexpected.append(document)
        return True

    # A long wait keeps requests in the queue while the signal comes.
    with running(class_file(tmp_path / "m.onnx"), "--max-wait-ms", "100") as server:
        threads = [threading.Thread(target=client, args=(server,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 30
        while len(answers) < 40 and time.monotonic() < deadline:
            time.sleep(0.02)
        code, line = server.stop()
        for thread in threads:
            thread.join(60)
    assert code == 0
    assert not unexpected
    accepted, finished = (int(word) for word in line.split() if word.isdecimal())
    assert len(answers) >= 40
    assert accepted == finished == len(answers)


def test_serving_imports_no_torch(tmp_path):
    path = class_file(tmp_path / "m.onnx")
    code = (
        "import sys, pluribus; from pathlib import Path\n"
        "from pluribus.serving import app, exported, options, server, service\n"
        "served = service.Service(exported.Exported(Path(sys.argv[1]), 1), options.ServerOptions(), 'm')\n"
        "app.create_app(served)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr


def test_an_address_in_use_is_told():
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            SettingError, match=f"must be a free address of this machine, got 127.0.0.1:{port}"
        ):
            bind("127.0.0.1", port)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(CheckpointError, match="got no file"):
        serve(tmp_path / "m.onnx", ServerOptions())


def test_lines_tell_address_and_limits(tmp_path):
    options = ServerOptions()
    service = Service(Exported(mixing_file(tmp_path / "m.onnx"), 1), options, "m")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        first, *notes = first_lines(service, listener)
    assert " as m at http://127.0.0.1:" in first
    assert "every request runs alone" in notes[0]
    assert "drift is not monitored" in notes[1]
    assert last_line(service) == "stopped: 0 requests accepted, 0 finished"


def test_the_end_is_quiet():
    with quiet_end():
        raise KeyboardInterrupt
