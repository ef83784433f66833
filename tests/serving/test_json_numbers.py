"""JSON has no infinity."""

import numpy as np

from pluribus.serving.json_numbers import plain


def test_infinity_becomes_null():
    assert plain(np.array([1.0, np.inf, np.nan])) == [1.0, None, None]
    assert plain(np.array([[1.0, -np.inf]])) == [[1.0, None]]
    assert plain(np.array([1, 2])) == [1, 2]
