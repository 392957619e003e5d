"""captum: attributions of a model with these layers are those of the same model with torch's."""

import pytest
import torch
from torch import nn

from varrnn import DropoutRates, VariationalLSTM, to_torch

attr = pytest.importorskip("captum.attr")


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = VariationalLSTM(3, 6, batch_first=True, dropout=DropoutRates.variational(p_W=0.3, p_U=0.3))
        self.out = nn.Linear(6, 2)

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


@pytest.mark.filterwarnings("ignore")
def test_attributions():
    model, x = Model().eval(), torch.randn(4, 5, 3)
    plain = to_torch(model)
    for method in (attr.IntegratedGradients, attr.Saliency, attr.InputXGradient):
        ours, theirs = (method(m).attribute(x.clone().requires_grad_(), target=1) for m in (model, plain))
        assert ours.abs().sum() > 0
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)
    layer = attr.LayerIntegratedGradients(model, model.out).attribute(x, target=0)
    assert layer.shape == (4, 2)
