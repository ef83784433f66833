"""Run a server: bind, listen, and finish accepted requests when told to stop."""

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from pluribus.errors import ExportError, SettingError
from pluribus.serving.connections import BACKLOG, most_connections
from pluribus.serving.exported import Exported
from pluribus.serving.options import ServerOptions
from pluribus.serving.service import Service

Say = Callable[[str], None]


def serve(path: Path, options: ServerOptions, name: str | None = None, say: Say = print) -> None:
    """Serve an exported file until SIGTERM or Ctrl-C; accepted requests are finished before it returns.

    Args:
        path: The `.onnx` file, or a folder that holds exactly one.
        options: How to listen, queue and batch.
        name: Of the model; by default that of the file.
        say: Prints a line.

    Raises:
        ExportError: A package is missing.
        CheckpointError: The file is damaged or foreign.
        SettingError: The address cannot be used.
    """
    try:
        import uvicorn

        from pluribus.serving.app import create_app
        from pluribus.serving.impatient import impatient
    except ImportError as error:
        raise ExportError(
            f"a server needs fastapi and uvicorn, got no {error.name}. Install them: "
            "pip install 'pluribus[serve]'"
        ) from error
    exported = Exported(path, options.threads)
    service = Service(exported, options, name or exported.path.stem)
    listener = bind(options.host, options.port)
    config = uvicorn.Config(
        create_app(service, lambda done: say(last_line(done))),
        http=impatient(options.head_seconds, most_connections()),
        backlog=BACKLOG,
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=options.drain_seconds,
    )
    for line in first_lines(service, listener):
        say(line)
    with contextlib.closing(listener), quiet_end():
        uvicorn.Server(config).run(sockets=[listener])


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address; raise `SettingError` if it cannot be used."""
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise SettingError(
            f"--host and --port must be a free address of this machine, got {host}:{port}: "
            f"{error.strerror or error}. Choose another port; 0 finds a free one."
        ) from error
    return listener


def first_lines(service: Service, listener: socket.socket) -> list[str]:
    """Return what a user needs to know at the start."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    lines = [f"serving {service.exported.path} as {service.name} at http://{shown}:{port}"]
    if not service.exported.batches:
        lines.append("note: samples affect one another, so that every request runs alone")
    if service.monitor is None:
        lines.append("note: drift is not monitored, because the ensemble was not calibrated")
    return lines


def last_line(service: Service) -> str:
    """Return the line that tells that nothing was lost."""
    batcher = service.batcher
    return f"stopped: {batcher.accepted} requests accepted, {batcher.finished} finished"


@contextlib.contextmanager
def quiet_end() -> Iterator[None]:
    """End the block without an error on SIGTERM and Ctrl-C, once uvicorn has finished its requests.

    uvicorn raises the signal again after it has stopped; a server that was told to end has not failed.
    """
    # Python lets only the main thread handle signals.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        yield
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)
