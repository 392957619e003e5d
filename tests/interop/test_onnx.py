"""ONNX through to_torch: a handful of nodes, and onnxruntime gives the layer's numbers."""

import pytest
import torch
from torch import nn

from varrnn import DropoutRates, VariationalGRU, VariationalLSTM, to_torch

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


class Model(nn.Module):
    def __init__(self, layer) -> None:
        super().__init__()
        self.rnn = layer(3, 6, dropout=DropoutRates.variational(p_W=0.3, p_U=0.3))

    def forward(self, x):
        return self.rnn(x)[0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layer", [VariationalLSTM, VariationalGRU])
def test_export(layer, tmp_path):
    model, x, file = Model(layer).eval(), torch.randn(50, 2, 3), tmp_path / "model.onnx"
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "T", 1: "B"}}}
    torch.onnx.export(to_torch(model), (x,), str(file), dynamo=False, **names)
    kinds = [node.op_type for node in onnx.load(file).graph.node]
    assert kinds.count("LSTM" if layer is VariationalLSTM else "GRU") == 1 and len(kinds) < 20
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for inputs in (x, torch.randn(7, 4, 3)):  # of another length and batch size too
        (found,) = session.run(None, {"x": inputs.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), model(inputs), rtol=1e-4, atol=1e-5)
