"""Cells for the caller's loops: torch's results, the layers' masks, and an error for masks drawn at every step."""

import pytest
import torch
from helpers.variants import VARIANTS
from torch import nn

from varrnn import (
    DropoutRates,
    VariationalGRU,
    VariationalGRUCell,
    VariationalLSTM,
    VariationalLSTMCell,
    VariationalRNN,
    VariationalRNNCell,
    hold_masks,
    mc_dropout,
    mc_predict,
)

T, B, I, H = 5, 3, 4, 6
CELLS = {VariationalLSTMCell: nn.LSTMCell, VariationalGRUCell: nn.GRUCell, VariationalRNNCell: nn.RNNCell}
LAYERS = {VariationalLSTMCell: VariationalLSTM, VariationalGRUCell: VariationalGRU, VariationalRNNCell: VariationalRNN}
RATES = DropoutRates.variational(p_W=0.4, p_U=0.4, tied=False)


def state_of(cell, *shape, dtype=torch.float64):
    h = torch.randn(*shape, dtype=dtype, requires_grad=True)
    return (h, torch.randn(*shape, dtype=dtype)) if isinstance(cell, VariationalLSTMCell) else h


def flat(value):
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("ours", CELLS)
def test_equals_torch(ours, bias, batched):
    left, right = ours(I, H, bias, dtype=torch.float64), CELLS[ours](I, H, bias, dtype=torch.float64)
    left.load_state_dict(right.state_dict())
    right.load_state_dict(left.state_dict())
    shape = (B,) if batched else ()
    x = torch.randn(*shape, I, dtype=torch.float64, requires_grad=True)
    for hx in (None, state_of(left, *shape, H)):
        results = []
        for cell in (left, right):
            out = flat(cell(x, hx))
            loss = sum((h * h.detach().sin()).sum() for h in out)
            results.append([*out, *torch.autograd.grad(loss, [x, *cell.parameters()])])
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("ours", CELLS)
def test_a_loop_over_a_cell_is_the_layer(ours, variant):
    rates = VARIANTS[variant]
    if rates.per_step or (rates.p_c and ours is not VariationalLSTMCell):
        pytest.skip("one mask for all steps, and a memory for p_c")
    cell, layer = ours(I, H, dropout=rates), LAYERS[ours](I, H, dropout=rates)
    for name, parameter in cell.named_parameters():
        layer.get_parameter(f"{name}_l0").data.copy_(parameter)
    x, masks, state = torch.randn(T, B, I), cell.sample_masks(B), None
    outputs = []
    for step in x:
        state = cell(step, state, masks)
        outputs.append(flat(state)[0])
    torch.testing.assert_close(torch.stack(outputs), layer(x, masks=masks)[0])


@pytest.mark.parametrize("ours", CELLS)
def test_a_cell_without_held_masks_raises(ours):
    cell, x = ours(I, H, dropout=RATES), torch.randn(B, I)
    with pytest.raises(RuntimeError, match=rf"{ours.__name__} sees one step.*sample_masks\(batch_size\).*hold_masks"):
        cell(x)
    with hold_masks(cell):
        assert torch.equal(flat(cell(x))[0], flat(cell(x))[0])
    plain = flat(cell.eval()(x))[0]
    assert torch.equal(flat(cell(x))[0], plain)
    with mc_dropout(cell), pytest.raises(RuntimeError, match="sees one step"):
        cell(x)
    cell.dropout = DropoutRates(p_W=0.5, per_step=True)  # requested
    assert not torch.equal(flat(cell.train()(x))[0], flat(cell(x))[0])
    assert torch.equal(flat(ours(I, H).train()(x))[0], flat(ours(I, H).train()(x))[0]) is False  # weights differ
    ours(I, H)(x)  # without dropout there is nothing to hold


@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_mc_predict_holds_the_masks_of_cells(chunk):
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = VariationalGRUCell(I, H, dropout=RATES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = None
            for step in x:
                h = self.cell(step, h)
            return h

    samples = mc_predict(Loop(), torch.randn(T, B, I), samples=7, chunk=chunk)
    assert len(samples.stack().unique(dim=0)) == 7 and samples.mean.shape == (B, H)
    assert samples.chunk == (chunk or 6)


@pytest.mark.parametrize("ours", CELLS)
def test_mistakes_are_named(ours):
    cell, x = ours(I, H), torch.randn(B, I)
    for call, kind, message in (
        (lambda: cell([1.0]), TypeError, "input is a list"),
        (lambda: cell(torch.randn(T, B, I)), ValueError, "input has 3 axes; give one time step"),
        (lambda: cell(torch.randn(B, I + 1)), ValueError, "5 features"),
        (lambda: cell(x, state_of(cell, B + 1, H, dtype=torch.float32)), ValueError, r"expected \(3, 6\)"),
        (lambda: cell(x, "h"), TypeError, "hx is a str"),
        (lambda: cell(x, state_of(cell, B, H)), ValueError, "float64"),
        (lambda: cell(x, None, torch.ones(1)), TypeError, "masks is a Tensor"),
        (lambda: ours(I, H, 0.5), TypeError, r"bias=0\.5"),
    ):
        with pytest.raises(kind, match=f"{ours.__name__}.*{message}|{message}"):
            call()
