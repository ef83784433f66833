"""Refusals carry status, reason and when to come back."""

from pluribus.serving.refusal import BUSY, Refusal, bad


def test_refusals_have_status_and_reason():
    assert (bad("x must be y").status, str(bad("x must be y"))) == (400, "x must be y")
    assert Refusal(BUSY, "full", retry_after=1).retry_after == 1
    assert bad("").retry_after is None
