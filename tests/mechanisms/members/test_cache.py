"""Cache: copies and pickles of it are empty."""

import copy
import pickle

import pytest

from pluribus.mechanisms.members.cache import Cache


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda cache: pickle.loads(pickle.dumps(cache))])
def test_a_copy_is_an_empty_cache(copied):
    cache = Cache(read=1)
    assert type(copied(cache)) is Cache
    assert copied(cache) == {}
    assert cache == {"read": 1}
