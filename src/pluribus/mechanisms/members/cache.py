"""Cache: what was read of a network and can be read again, so that copies do without."""

from typing import Any


class Cache(dict[Any, Any]):
    """A dict of which copies and pickles are empty.

    Another thread may add to it while an ensemble is copied; an entry is never changed once it is there.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> "Cache":
        return Cache()

    def __reduce__(self) -> tuple[type["Cache"], tuple[()]]:
        return Cache, ()
