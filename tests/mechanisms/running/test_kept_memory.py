"""The process keeps what a frozen ensemble frees."""

import platform
import subprocess
import sys

import pytest

COUNT = """
import resource, torch
from pluribus.mechanisms.running.kept_memory import keep_freed_memory
{call}

def touched():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(2**22).fill_(1.0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

touched()
print(touched())
"""
PAGES = 2**24 // 4096


def new_pages(call: str) -> int:
    """Return how many pages the system gives for the second block of 16 MB, in a process of its own."""
    found = subprocess.run(
        [sys.executable, "-c", COUNT.format(call=call)], capture_output=True, text=True, check=True
    )
    return int(found.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators have rules of their own")
def test_a_second_block_needs_no_new_pages() -> None:
    assert new_pages("keep_freed_memory()") < PAGES / 8
    # Else the system gives them anew, so that the test can fail.
    assert new_pages("") > PAGES / 8
