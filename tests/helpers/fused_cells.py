"""ATen's fused cells, which exist on a GPU only, as operations of this test suite for the CPU and for meta tensors.

The arithmetic is written out from their documentation; on meta each is one operation, as it is one launch on a GPU.
"""

import pytest
import torch
from torch import Tensor

from varrnn import kernels
from varrnn.kernels import builtin, fused, matmul


@torch.library.custom_op("varrnn_test::lstm_cell", mutates_args=())
def lstm_cell(
    gi: Tensor, gh: Tensor, cx: Tensor, b_ih: Tensor | None, b_hh: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    assert gi.is_contiguous() and gh.is_contiguous() and cx.is_contiguous() and b_ih is b_hh is None
    i, f, g, o = (gi + gh).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


@torch.library.custom_op("varrnn_test::lstm_cell_backward", mutates_args=())
def lstm_cell_backward(
    dh: Tensor | None, dc: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    assert dh is not None and dc is not None and dh.is_contiguous() and dc.is_contiguous() and not has_bias
    i, f, g, o = workspace.chunk(4, 1)
    t = cy.tanh()
    d = dc + dh * o * (1 - t * t)
    gates = [d * g * i * (1 - i), d * cx * f * (1 - f), d * i * (1 - g * g), dh * t * o * (1 - o)]
    return torch.cat(gates, 1), d * f, dh.new_empty(0)


@torch.library.custom_op("varrnn_test::gru_cell", mutates_args=())
def gru_cell(gi: Tensor, gh: Tensor, hx: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> tuple[Tensor, Tensor]:
    assert gi.is_contiguous() and gh.is_contiguous() and hx.is_contiguous() and (b_ih is None) == (b_hh is None)
    i_r, i_u, i_n = (gi if b_ih is None else gi + b_ih).chunk(3, 1)
    h_r, h_u, h_n = (gh if b_hh is None else gh + b_hh).chunk(3, 1)
    r, u = (i_r + h_r).sigmoid(), (i_u + h_u).sigmoid()
    n = (i_n + r * h_n).tanh()
    return n + u * (hx - n), torch.cat([r, u, n, hx, h_n], 1)


@torch.library.custom_op("varrnn_test::gru_cell_backward", mutates_args=())
def gru_cell_backward(dh: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    assert dh.is_contiguous() and not has_bias
    r, u, n, hx, h_n = workspace.chunk(5, 1)
    d_u = dh * (hx - n) * u * (1 - u)
    d_n = dh * (1 - u) * (1 - n * n)
    d_r = d_n * h_n * r * (1 - r)
    empty = dh.new_empty(0)
    return torch.cat([d_r, d_u, d_n], 1), torch.cat([d_r, d_u, d_n * r], 1), dh * u, empty, empty.clone()


@torch.library.custom_op(
    "varrnn_test::whole_lstm",
    mutates_args=(),  # with a schema: torch 2.6 does not infer one from list[Tensor]
    schema="(Tensor x, Tensor h0, Tensor c0, Tensor[] weights) -> (Tensor, Tensor, Tensor)",
)
def whole_lstm(x: Tensor, h0: Tensor, c0: Tensor, weights: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    raise NotImplementedError("on meta tensors only")


for one, sizes in (
    (lstm_cell, lambda gi, gh, cx, *_: (cx.shape, cx.shape, gi.shape)),
    (lstm_cell_backward, lambda dh, dc, cx, cy, ws, _: (ws.shape, cx.shape, (0,))),
    (gru_cell, lambda gi, gh, hx, *_: (hx.shape, (hx.shape[0], 5 * hx.shape[1]))),
    (gru_cell_backward, lambda dh, *_: 2 * ((dh.shape[0], 3 * dh.shape[1]),) + (dh.shape, (0,), (0,))),
    (whole_lstm, lambda x, h0, *_: ((*x.shape[:2], h0.shape[-1]), h0.shape, h0.shape)),
):
    one.register_fake(
        lambda *given, sizes=sizes: tuple(
            next(t for t in given if isinstance(t, Tensor)).new_empty(size) for size in sizes(*given)
        )
    )

WHOLE = [torch.ops.varrnn_test.whole_lstm]


def _whole_backward(ctx, dh, *_):  # type: ignore[no-untyped-def]
    return dh.new_empty(ctx.shapes[0]), None, None, [dh.new_empty(shape) for shape in ctx.shapes[1]]


def _whole_setup(ctx, inputs, output):  # type: ignore[no-untyped-def]
    ctx.shapes = inputs[0].shape, [w.shape for w in inputs[3]]


whole_lstm.register_autograd(_whole_backward, setup_context=_whole_setup)


def emulate(monkeypatch: pytest.MonkeyPatch, devices: tuple[str, ...] = ("cpu",)) -> None:
    """Let the fused backend run on these devices, with the operations above."""
    own = {
        fused.LSTM: [torch.ops.varrnn_test.lstm_cell.default, torch.ops.varrnn_test.lstm_cell_backward.default],
        fused.GRU: [torch.ops.varrnn_test.gru_cell.default, torch.ops.varrnn_test.gru_cell_backward.default],
    }
    monkeypatch.setattr(fused, "DEVICES", devices)
    monkeypatch.setattr(fused, "operations", lambda names: own[names])
    monkeypatch.setattr(matmul, "weight_layout", lambda x: True)


def pretend_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meta tensors take the branches of a GPU, even while a dispatch mode is active."""
    emulate(monkeypatch, ("meta",))
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda t: t.device.type == "meta"))
    monkeypatch.setattr(kernels, "is_traced_or_transformed", lambda: False)

    def whole(x: Tensor, hx: tuple[Tensor, ...], weights: list[Tensor], *_: object) -> tuple[Tensor, ...]:
        return torch.ops.varrnn_test.whole_lstm(x, *hx, weights)

    functions = {cell: whole for cell in builtin.FUNCTIONS if cell.num_states == 2}
    monkeypatch.setattr(builtin, "FUNCTIONS", functions)
