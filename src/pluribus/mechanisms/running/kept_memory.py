"""Kept memory: the process keeps what a frozen ensemble frees, for its next call.

glibc gives large freed blocks back to the system, and new ones come page by page: for 32 samples a packed ViT
took 1.47 to 1.49 times the plain network so, and 1.37 to 1.45 times where the pages were kept. How large a
block is kept, and how much in all (twice that), glibc learns from the largest block that was freed, up to
32 MB. Whether that happens by itself depends on what the process did before.
"""

import torch

LARGEST = (1 << 25) - (1 << 13)
"""Bytes of a block from which glibc (2.36) learns most: its limit of 32 MB, less what it adds itself."""


def keep_freed_memory() -> None:
    """Make glibc keep up to 64 MB of freed memory; other allocators just free what they gave.

    Nothing is written into the block, so that the system gives no page of it.
    """
    torch.empty(LARGEST, dtype=torch.uint8, device="cpu")
