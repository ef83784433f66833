"""Write files completely or not at all: beside their target first, then moved there.

A process that is killed while it writes leaves an unfinished file under a hidden name that holds the host and
the number of the process. Whoever writes the same file next removes those of processes that no longer run.
"""

import errno
import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pluribus.errors import WriteError

# Torch's writer reports a full disk as a RuntimeError of its own, without the reason of the system
# (torch 2.6 to 2.9: "PytorchStreamWriter failed writing file", "unexpected pos").
TORCH_WRITER = re.compile(r"PytorchStreamWriter|inline_container|unexpected pos|iostream error")


def unfinished_name(name: str) -> str:
    """Return the hidden name under which this process writes a file or folder."""
    return f".{name}.{_host()}-{os.getpid()}"


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to. On success it replaces `path`; on failure `path` stays as it was.

    Raises:
        WriteError: the file cannot be written, for example because the disk is full.
    """
    remove_stale(path)
    unfinished = path.with_name(unfinished_name(path.name))
    try:
        with explaining(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            yield unfinished
            os.replace(unfinished, path)
    finally:
        remove(unfinished)


def write_words(path: Path, words: str) -> None:
    """Write a text that may name files; of names that are no Unicode, the odd bytes are escaped."""
    path.write_text(words, encoding="utf-8", errors="backslashreplace")


@contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Turn errors of the system while `path` is written into a `WriteError`."""
    try:
        yield
    except WriteError:
        raise
    except OSError as error:
        raise WriteError(_message(path, error.strerror or str(error), error.errno)) from error
    # safetensors and torch have errors of their own for a failing disk.
    except Exception as error:
        number = _system_error(str(error))
        if number is None:
            raise
        raise WriteError(_message(path, os.strerror(number), number)) from error


def _system_error(text: str) -> int | None:
    """Return the error number of the system behind a message of safetensors or torch; None if neither."""
    system = re.search(r"os error (\d+)", text)
    if system:
        return int(system[1])
    if TORCH_WRITER.search(text):
        return errno.ENOSPC
    return None


def remove_stale(path: Path) -> None:
    """Remove the unfinished files that killed processes left beside `path`."""
    names = re.compile(rf"\.{re.escape(path.name)}\.(?:(?P<host>[\w-]+)-)?(?P<process>\d+)")
    if not path.parent.is_dir():
        return
    try:
        entries = list(path.parent.iterdir())
    # A folder that cannot be listed: the write itself reports what is wrong.
    except OSError:
        return
    for entry in entries:
        found = names.fullmatch(entry.name)
        if not found:
            continue
        # Processes of another host cannot be seen from here; they may still run.
        is_here = found["host"] in (None, _host())
        if is_here and not _runs(int(found["process"])):
            remove(entry)


def remove(path: Path) -> None:
    """Remove a file or folder if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _message(path: Path, reason: str, number: int | None) -> str:
    remedy = "Free some space" if number in (errno.ENOSPC, errno.EDQUOT) else "Choose another place"
    return f"{path} must be writable, got: {reason}. {remedy} and run it again; earlier files are kept."


def _host() -> str:
    return re.sub(r"\W", "_", socket.gethostname())


def _runs(process: int) -> bool:
    """Return whether a process of this host runs, other than this one."""
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    # The process runs, and belongs to another user.
    except OSError:
        return True
    return True
