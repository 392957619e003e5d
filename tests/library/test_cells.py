"""The reference implementation compared with formulas, and other activations."""

import torch
from torch.nn.utils.rnn import pack_padded_sequence

from varrnn import DropoutRates, Masks, VariationalGRU, VariationalLSTM, VariationalRNN
from varrnn.cells import GRUCell, LSTMCell, RNNCell, Weights, hard_sigmoid, masks_at

B, I, H = 3, 4, 5


def weights(gates: int) -> Weights:
    sizes = ((gates * H, I), (gates * H, H), (gates * H,), (gates * H,))
    return Weights(*(torch.randn(size, dtype=torch.float64) for size in sizes))


def gate_masks(gates: int) -> Masks:
    z_x = torch.rand(gates, B, I, dtype=torch.float64)
    z_h = torch.rand(gates, B, H, dtype=torch.float64)
    return Masks(z_x, z_h, torch.rand(2, B, H, dtype=torch.float64))


def by_hand(x, h, w: Weights, z: Masks, k: int):
    """The inputs of gate k: x W_k + b and h U_k + b, each gate under its own mask."""
    rows = slice(k * H, (k + 1) * H)
    return (x * z.z_x[k]) @ w.w_ih[rows].T + w.b_ih[rows], (h * z.z_h[k]) @ w.w_hh[rows].T + w.b_hh[rows]


def test_lstm_is_equation_non_tied_weights_with_a_mask_per_gate():
    w, z = weights(4), gate_masks(4)
    x, h, c = (torch.randn(B, n, dtype=torch.float64) for n in (I, H, H))
    i, f, g, o = (sum(by_hand(x, h, w, z, k)) for k in range(4))
    c_new = z.z_c[0] * (f.sigmoid() * c + i.sigmoid() * g.tanh())
    h_new = z.z_c[1] * o.sigmoid() * c_new.tanh()
    torch.testing.assert_close(LSTMCell().step(x, (h, c), w, z), (h_new, c_new))


def test_gru_resets_after_or_before_its_product():
    w, z = weights(3), gate_masks(3)
    x, h = (torch.randn(B, n, dtype=torch.float64) for n in (I, H))
    r, u = (sum(by_hand(x, h, w, z, k)).sigmoid() for k in range(2))
    x_n, h_n = by_hand(x, h, w, z, 2)
    n = (x_n + r * h_n).tanh()
    torch.testing.assert_close(GRUCell().step(x, (h,), w, z)[0], (1 - u) * n + u * h)
    n = (x_n + by_hand(x, r * h, w, z, 2)[1]).tanh()
    torch.testing.assert_close(GRUCell(reset_after=False).step(x, (h,), w, z)[0], (1 - u) * n + u * h)


def test_rnn_step():
    w, z = weights(1), gate_masks(1)
    x, h = (torch.randn(B, n, dtype=torch.float64) for n in (I, H))
    torch.testing.assert_close(RNNCell().step(x, (h,), w, z)[0], sum(by_hand(x, h, w, z, 0)).tanh())


def test_hard_sigmoid_has_slope_a_fifth():
    x = torch.tensor([-9.0, -2.5, 0.0, 1.0, 2.5, 9.0])
    torch.testing.assert_close(hard_sigmoid(x), torch.tensor([0.0, 0.0, 0.5, 0.7, 1.0, 1.0]))


def test_layers_take_the_activations_of_the_keras_fork():
    x = torch.randn(6, B, I)
    for layer in (VariationalLSTM, VariationalGRU):
        usual = layer(I, H).eval()
        fork = layer(I, H, gate_activation="hard_sigmoid", candidate_activation="sigmoid").eval()
        fork.load_state_dict(usual.state_dict())
        assert not torch.allclose(fork(x)[0], usual(x)[0], atol=1e-3)
    fork = VariationalGRU(I, H, gate_activation="hard_sigmoid", candidate_activation="sigmoid", reset_after=False)
    assert fork.eval()(x)[0].min() > 0  # a sigmoid candidate never leaves (0, 1)


def test_time_axis_of_one_is_every_step():
    masks = VariationalLSTM(I, H, dropout=DropoutRates(p_W=0.5, per_step=True)).sample_masks(B, 4)[0]
    assert torch.equal(masks_at(masks, 2).z_x, masks.z_x[2])
    assert torch.equal(masks_at(masks, 2).z_h, masks.z_h[0])


def test_the_state_of_a_packed_sequence_that_has_ended_does_not_change():
    """The second sequence would double at every padded step, and 0 * inf would reach the gradient of U."""
    layers = VariationalRNN(1, 1, nonlinearity="relu", bias=False), torch.nn.RNN(1, 1, nonlinearity="relu", bias=False)
    x = torch.full((200, 2, 1), -1.0)
    x[0, 1] = 1.0
    gradients = []
    for layer in layers:
        with torch.no_grad():
            layer.weight_ih_l0.fill_(1.0)
            layer.weight_hh_l0.fill_(2.0)
        layer(pack_padded_sequence(x, [200, 3]))[0].data.sum().backward()
        gradients.append([weight.grad for weight in layer.parameters()])
    torch.testing.assert_close(*gradients)
