"""Gradient checkpointing of the old form is seen, and no other."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from pluribus.mechanisms.network.rerun import is_run_again


@pytest.mark.parametrize("reentrant", [True, False])
def test_only_the_old_form_runs_again_what_ran_without_gradients(reentrant):
    x = torch.ones(2, requires_grad=True)
    assert is_run_again(checkpoint(torch.exp, x * 2, use_reentrant=reentrant) + 1) is reentrant
    assert not is_run_again(x.exp())
    assert not is_run_again(torch.ones(2))
