"""Refusal: a request that is answered with a status and a reason in place of a prediction."""

BAD_REQUEST, NOT_FOUND, TIMEOUT, TOO_LARGE, UNSUPPORTED = 400, 404, 408, 413, 415
FAILED, BUSY = 500, 503


class Refusal(Exception):
    """Raised for a request that the server does not carry out.

    Attributes:
        status: HTTP status.
        reason: What must be different, in one sentence.
        retry_after: Seconds after which the same request may succeed; None if it will not.
    """

    def __init__(self, status: int, reason: str, retry_after: int | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.retry_after = status, reason, retry_after


def bad(reason: str) -> Refusal:
    """Return the refusal of a request that is wrong in itself."""
    return Refusal(BAD_REQUEST, reason)
