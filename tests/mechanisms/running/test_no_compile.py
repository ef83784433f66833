"""uncompiled: the compiler stays outside."""

import torch

from pluribus.mechanisms.running.no_compile import uncompiled


@uncompiled
def is_compiling() -> bool:
    return torch.compiler.is_compiling()


def test_a_plain_call_passes_through():
    assert is_compiling() is False
    assert is_compiling.__name__ == "is_compiling"


def test_within_compiled_code_it_runs_as_it_is():
    compiled = torch.compile(lambda x: x + is_compiling(), backend="eager")
    assert compiled(torch.zeros(1)).item() == 0
