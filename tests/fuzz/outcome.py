"""One case of the campaign: what it did, and what fell."""

import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pluribus.errors import PluribusError
from tests.fuzz.limits import MOST_MESSAGE, MOST_OUTPUT

ATTEMPTED = "ok"
REFUSED = "refused"
FINDING = "finding"


class Case:
    """Collect the findings of one case.

    Args:
        folder: A new folder that it may write to; the working directory.
        corpus: The folder of sound files.
    """

    def __init__(self, folder: Path, corpus: Path) -> None:
        self.folder, self.corpus = folder, corpus
        self.name, self.detail = "", ""
        self.outcome = ATTEMPTED
        self.findings: list[dict[str, str]] = []
        self.allowed: set[str] = set()
        self._watched: Path | None = None
        self._names: set[str] = set()

    def describe(self, name: str, detail: str) -> None:
        """Name the kind of the case, and what is special about it."""
        self.name, self.detail = name, detail[:2000]

    def watch(self, folder: Path) -> None:
        """Expect the names in a folder to stay as they are."""
        self._watched, self._names = folder, _names(folder)

    def allow(self, *folders: str) -> None:
        """Expect new files in some folders of the watched one."""
        assert self._watched is not None
        self.allowed |= {name for name in _names(self._watched) if name.split("/")[0] in folders}

    def attempt(self, verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a verb; return what it returns, or None if it refuses or fails."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return verb(*args, **kwargs)
        except PluribusError as error:
            self.outcome = REFUSED
            if len(str(error)) > MOST_MESSAGE:
                self.find("long message", f"{len(str(error))} characters: {str(error)[:300]}")
        except Exception as error:
            self.foreign(error)
        return None

    def command(self, run_line: Callable[[Sequence[str]], tuple[int, str]], arguments: Sequence[str]) -> None:
        """Run a command line."""
        found = self.attempt(run_line, arguments)
        if found is None:
            return
        code, printed = found
        if code:
            self.outcome = REFUSED
        if "Traceback (most recent call last)" in printed:
            self.find("printed traceback", printed[-1500:])
        if len(printed) > MOST_OUTPUT:
            self.find("long output", f"{len(printed)} characters: {printed[:300]}")

    def foreign(self, error: Exception) -> None:
        """Note an error that is not one of ours, by the innermost line of the library that it passed."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if "/pluribus/" in frame.filename]
        place = f"{Path(own[-1].filename).name}:{own[-1].lineno} {own[-1].name}" if own else "outside"
        # Messages of torch can have hundreds of lines.
        lines = [str(error)[:500], *traceback.format_list(frames)[-8:]]
        self.find(f"{type(error).__name__} at {place}", "\n".join(lines))

    def find(self, kind: str, text: str) -> None:
        """Note a finding."""
        self.outcome = FINDING
        self.findings.append({"kind": kind, "text": text})

    def check_litter(self, temporary: Path) -> None:
        """Note files that were left behind: beside what was read, hidden, or in the folder for such files."""
        left = []
        if self._watched is not None:
            left += sorted(_names(self._watched) - self._names - self.allowed)
        left += [str(path) for path in self.folder.rglob(".*") if path.name not in self.allowed]
        # torch keeps a cache of its compiler there.
        left += [path.name for path in temporary.iterdir() if not path.name.startswith("torchinductor")]
        if left:
            self.find("litter", ", ".join(left))


def _names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}
