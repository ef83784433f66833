import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.testing import assert_close

from pluribus.mechanisms.network.settle import settle_parametrizations


def test_spectral_norm_sees_a_weight_that_was_written_over():
    model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 3)), nn.Linear(3, 2)).eval()
    with torch.no_grad():
        model[0].parametrizations.weight.original.copy_(
            torch.diag(torch.tensor([1.0, 5.0, 2.0]), 0) @ torch.eye(3, 6)
        )
    settle_parametrizations(model)
    assert_close(torch.linalg.matrix_norm(model[0].weight, 2), torch.tensor(1.0), rtol=1e-3, atol=0)
    assert not any(part.training for part in model.modules())
