"""A server in a process of its own, as users start it, and a client of a few lines."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading

WITHOUT_TORCH = (
    "import sys\n"
    "sys.modules['torch'] = None  # any import of it fails\n"
    "from pluribus.cli.start import main\n"
    "main()\n"
)
SECONDS = 60


class Running:
    """A running server."""

    def __init__(self, process, host, port):
        self.process, self.host, self.port = process, host, port
        self.lines = []

    @property
    def url(self):
        return f"{self.host}:{self.port}"

    def request(self, method, path, body=None, headers=None):
        """Return status, headers and body of the response."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=SECONDS)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, response.read()

    def get(self, path):
        status, _, body = self.request("GET", path)
        return status, json.loads(body)

    def post(self, path, document):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        status, _, answer = self.request("POST", path, body)
        return status, json.loads(answer)

    def stop(self):
        """Send SIGTERM, and return the exit code and the last line."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(SECONDS)
        self.reader.join(SECONDS)
        return code, self.lines[-1]


@contextlib.contextmanager
def running(path, *options):
    """Serve a file by `pluribus serve`, in an interpreter that cannot import torch."""
    command = [
        sys.executable,
        "-c",
        WITHOUT_TORCH,
        "serve",
        str(path),
        "--port",
        "0",
        "--threads",
        "1",
        *options,
    ]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "500"}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    # A server that never starts must not hold up all tests.
    killer = threading.Timer(SECONDS, process.kill)
    killer.start()
    try:
        line = process.stderr.readline()
        assert " at http://" in line, line + process.stderr.read()
        killer.cancel()
        host, _, port = line.rpartition("http://")[2].strip().rpartition(":")
        server = Running(process, host, int(port))
        # An unread pipe would fill and block the server.
        server.reader = threading.Thread(target=lambda: server.lines.extend(process.stderr), daemon=True)
        server.reader.start()
        yield server
    finally:
        killer.cancel()
        if process.poll() is None:
            process.kill()
        process.wait(SECONDS)
        process.stderr.close()
