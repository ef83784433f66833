"""Connections that end if no request begins: a client that never sends a whole head would hold one for ever.

uvicorn has a limit for the time between requests, and none for the head of a request (0.54). Some hundred
such connections take all that a process may have, and nobody else is served. Until they end, further ones are
closed at once: asyncio writes a traceback for every connection that no file is left for (Python 3.11), which
would fill the log.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

Protocol: Any = AutoHTTPProtocol


def impatient(seconds: float, most: int) -> type[asyncio.Protocol]:
    """Return the protocol of a connection that closes if it waits for the head of a request twice in a row.

    Args:
        seconds: Between two looks, so that a head has at least so long to arrive.
        most: Connections that may be open; one more is closed at once.
    """

    class Impatient(Protocol):  # type: ignore[misc]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            # Not the cycle of any request.
            self._seen: Any = object()
            self._look()
            # Those of the server, this one among them.
            if len(self.connections) > most:
                transport.abort()

        def _look(self) -> None:
            waits = self.cycle is None or self.cycle.response_complete
            if waits and self.cycle is self._seen:
                self.transport.close()
                return
            self._seen = self.cycle if waits else object()
            self._timer = self.loop.call_later(seconds, self._look)

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            super().connection_lost(exc)

    return Impatient
