"""The regression network, its two protocols, and Adam with L2 inside the loss."""

import math

import pytest
import torch
from torch import nn

from varrnn.config import compose
from varrnn.tasks import sentiment_model
from varrnn.tasks.sentiment_model import SentimentModel
from varrnn.training import optim

WORDS = 50
SMALL = ("task=synthetic_reviews", "size.units=8")
RATES = ("model.p_E=0.3", "model.p_W=0.4", "model.p_U=0.2", "model.p_y=0.1")


def make(*overrides: str) -> SentimentModel:
    return sentiment_model.build(compose.compose([*SMALL, *overrides]), WORDS)


def some_words(steps: int = 7, batch: int = 5) -> torch.Tensor:
    return torch.randint(0, WORDS, (steps, batch))


def test_without_dropout_it_is_a_plain_lstm_regressor():
    model, words = make("model=none"), some_words()
    lstm = nn.LSTM(8, 8)
    lstm.load_state_dict(model.layers.state_dict())
    embedded = nn.functional.embedding(words, model.embedding.weight)
    expected = nn.functional.linear(lstm(embedded)[0][-1], model.output.weight, model.output.bias)
    model.train()
    found, _ = model(words)
    torch.testing.assert_close(found, expected)
    found.square().mean().backward()
    expected.square().mean().backward()
    torch.testing.assert_close(model.layers.weight_hh_l0.grad, lstm.weight_hh_l0.grad)


def test_the_gru_resets_before_the_product():
    """Cho et al.: the candidate reads U (r o h); torch's GRU computes r o (U h)."""
    model, words = make("model=none", "cell=gru"), some_words(steps=3, batch=2)
    w, u, b = model.layers.weight_ih_l0, model.layers.weight_hh_l0, model.layers.bias_ih_l0
    with torch.no_grad():
        b.normal_()
    h = torch.zeros(2, 8)
    for x in model.embedding.weight[words]:
        a = x @ w.t() + b
        r, z = torch.sigmoid(a[:, :16] + h @ u[:16].t()).chunk(2, dim=1)
        h = z * h + (1 - z) * torch.tanh(a[:, 16:] + (r * h) @ u[16:].t())
    torch.testing.assert_close(model.eval()(words)[0], model.output(h))


@pytest.mark.parametrize(("protocol", "gain"), [("paper", 1.0), ("authors_code", 1.1)])
@pytest.mark.parametrize(("cell", "gates"), [("lstm", 4), ("gru", 3)])
@pytest.mark.slow
def test_initial_weights(protocol: str, gain: float, cell: str, gates: int):
    model = make(f"protocol={protocol}", f"cell={cell}")
    for u in model.layers.weight_hh_l0.detach().split(8):
        torch.testing.assert_close(u @ u.t(), gain**2 * torch.eye(8), atol=1e-5, rtol=0)
    w = model.layers.weight_ih_l0.detach()
    assert 0.8 * math.sqrt(6 / 16) < w.abs().max() <= math.sqrt(6 / 16), "Glorot, each gate on its own"
    assert 0.04 < model.embedding.weight.abs().max() <= 0.05
    bias = model.layers.bias_ih_l0.detach().split(8)
    assert len(bias) == gates
    assert [float(gate.mean()) for gate in bias] == ([0, 1, 0, 0] if cell == "lstm" else [0, 0, 0])
    assert not model.layers.bias_hh_l0.any() and not model.layers.bias_hh_l0.requires_grad


@pytest.mark.slow
def test_the_seed_decides_the_weights():
    first, same, other = make(), make(), make("seed=2")
    assert torch.equal(first.embedding.weight, same.embedding.weight)
    assert not torch.equal(first.layers.weight_hh_l0, other.layers.weight_hh_l0)


@pytest.mark.parametrize(
    ("cell", "activations"), [("lstm", ("hard_sigmoid", "tanh")), ("gru", ("hard_sigmoid", "sigmoid"))]
)
def test_activations_of_the_authors_code(cell: str, activations: tuple[str, str]):
    made = make("protocol=authors_code", f"cell={cell}").layers.cell
    assert (made.gate_activation.__name__, made.candidate_activation.__name__) == activations
    x = torch.tensor([-3.0, -1.0, 0.0, 1.0, 3.0])
    torch.testing.assert_close(made.gate_activation(x), torch.tensor([0.0, 0.3, 0.5, 0.7, 1.0]))


@pytest.mark.slow
def test_word_masks_per_sequence_and_per_minibatch():
    words = torch.arange(20).unsqueeze(1).expand(20, 30)
    ours = make(*RATES).sample_masks(words).words[..., 0]
    assert not torch.equal(ours[:, 0], ours[:, 1]), "a draw per sequence"
    theirs = make("protocol=authors_code", *RATES).sample_masks(words).words[..., 0]
    assert (theirs == theirs[:, :1]).all(), "one draw for all sequences"
    assert 0 < theirs[:, 0].count_nonzero() < 20


def test_each_mc_pass_has_a_separate_word_mask_in_the_authors_code():
    words = torch.arange(40).unsqueeze(1).expand(40, 3)
    mask = make("protocol=authors_code", *RATES).sample_mc_masks(words, 4).words[..., 0].view(40, 4, 3)
    assert (mask == mask[:, :, :1]).all(), "shared within a pass"
    assert not torch.equal(mask[:, 0], mask[:, 1])


def test_masks_of_0_and_1_with_the_factor_at_test():
    model = make(*RATES)
    drawn, mean = model.sample_masks(some_words()), model.mean_masks()
    for mask in (drawn.words, drawn.layers[0].z_x, drawn.layers[0].z_h, drawn.output):
        assert set(mask.unique().tolist()) <= {0.0, 1.0}
    found = [float(m) for m in (mean.words, mean.layers[0].z_x, mean.layers[0].z_h, mean.output)]
    assert found == pytest.approx([0.7, 0.6, 0.8, 0.9])
    inverted = make("task.scaling=inverted", *RATES)
    assert inverted.sample_masks(some_words()).layers[0].z_x.max() == pytest.approx(1 / 0.6)
    assert all(float(mask) == 1 for mask in (inverted.mean_masks().words, inverted.mean_masks().layers[0].z_x))


@pytest.mark.parametrize(("protocol", "gates"), [("paper", 1), ("authors_code", 4)])
def test_naive_masks_are_drawn_at_every_step(protocol: str, gates: int):
    masks = make("model=naive", f"protocol={protocol}").sample_masks(some_words(7, 5))
    assert masks.layers[0].z_x.shape == (7, gates, 5, 8)
    assert masks.layers[0].z_h.numel() == 1 and masks.words.numel() == 1
    assert masks.output.shape == (1, 5, 8), "only the last step is read"


def test_padding_is_an_ordinary_word():
    model = make("model=none")
    text = torch.tensor([[7], [8], [9]])
    padded = torch.cat([torch.zeros(4, 1, dtype=torch.long), text])
    plain, other = model(text)[0], model(padded)[0]
    assert not torch.allclose(plain, other, atol=1e-6), "the network reads it"
    other.sum().backward()
    assert model.embedding.weight.grad[0].any(), "and learns it"
    dropped = make("model.p_E=0.9", "model.p_U=0").sample_masks(padded.expand(7, 200)).words[:4, :, 0]
    assert (dropped == dropped[:1]).all() and 0 < dropped[0].count_nonzero() < 100, "and drops it as one word type"


def penalty(model: SentimentModel, rule: str, decay: float) -> torch.Tensor:
    """The penalty of an LSTM written out: on everything, or as the Keras fork had it."""
    layers = model.layers
    recurrent = [layers.weight_ih_l0, layers.weight_hh_l0, layers.bias_ih_l0]
    others = [model.embedding.weight, model.output.weight, model.output.bias]
    if rule == "one_gate":
        recurrent = [2.0 * p[-8:] for p in recurrent]  # squared: 4 lambda on the output gate alone
    return decay * sum(p.square().sum() for p in (*recurrent, *others))


@pytest.mark.parametrize("rule", ["all", "one_gate"])
def test_adam_sees_the_penalty_as_part_of_the_loss(rule: str):
    words, decay = some_words(), 0.01
    ours, theirs = make("model=none"), make("model=none")
    our_adam = optim.Adam(ours, 0.0, decay, rule)
    their_adam = torch.optim.Adam([p for p in theirs.parameters() if p.requires_grad], lr=0.02)
    for _ in range(4):
        ours(words)[0].sub(1).square().mean().backward()
        our_adam.step(0.02)
        their_adam.zero_grad()
        (theirs(words)[0].sub(1).square().mean() + penalty(theirs, rule, decay)).backward()
        their_adam.step()
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter, theirs.get_parameter(name), msg=name, atol=1e-6, rtol=1e-4)


def test_one_gate_of_the_gru_is_the_candidate():
    penalties = optim.one_gate(make("cell=gru"), 0.5)
    assert [(p.rows.start, p.factor) for p in penalties] == [(16, 1.5)] * 3


@pytest.mark.parametrize("rule", ["all", "one_gate"])
def test_the_norm_and_clipping_exclude_the_penalty(rule: str):
    model = make("model=none").double()
    model(some_words())[0].sum().backward()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = [parameter.grad.clone() for parameter in parameters]
    expected = math.sqrt(sum(float(g.square().sum()) for g in gradients))
    first = {}  # Adam's first moments after one step: a tenth of the clipped gradient and its penalty
    for clip in (0.0, 0.5, 2.0):
        for parameter, gradient in zip(parameters, gradients):
            parameter.grad = gradient.clone()
        adam = optim.Adam(model, clip * expected, 10.0, rule)
        assert float(adam.step(lr=0.0)) == pytest.approx(expected)  # at rate 0 the parameters stay as they are
        first[clip] = [adam.adam.state[parameter]["exp_avg"] for parameter in parameters]
    torch.testing.assert_close(first[0.5], [m - 0.1 * g / 2 for m, g in zip(first[0.0], gradients)])
    torch.testing.assert_close(first[2.0], first[0.0])


def listing(x, b_w, b_u, w, u, b, inner) -> torch.Tensor:
    """The appendix's code, `get_output` and `_step`, line by line: x (T, B, I), masks (4, B, I) and (4, B, H).

    Its gates are i, f, c, o; it divides by nothing, and returns the last output.
    """
    xi, xf, xc, xo = ((x * b_w[gate]) @ w[gate] + b[gate] for gate in range(4))
    h, c = torch.zeros_like(b_u[0]), torch.zeros_like(b_u[0])
    for t in range(len(x)):
        i = inner(xi[t] + (h * b_u[0]) @ u[0])
        f = inner(xf[t] + (h * b_u[1]) @ u[1])
        c = f * c + i * torch.tanh(xc[t] + (h * b_u[2]) @ u[2])
        o = inner(xo[t] + (h * b_u[3]) @ u[3])
        h = o * torch.tanh(c)
    return h


@pytest.mark.parametrize("gates", ["sigmoid", "hard_sigmoid"])
def test_the_untied_lstm_is_that_of_the_papers_listing(gates: str):
    """Masks of 0 and 1 for each gate and sequence, the same at all steps, on inputs and states before each product."""
    model = make(*RATES, "model=variational_untied", f"task.gate_activation={gates}").double()
    with torch.no_grad():
        for parameter in model.layers.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
            parameter.mul_(parameter.requires_grad)  # one bias, as in the paper
    words = some_words()
    masks = model.sample_masks(words, torch.Generator().manual_seed(2))
    layer, (z_x, z_h, z_c) = model.layers, masks.layers[0]
    batch, units = words.shape[1], layer.hidden_size
    assert z_x.shape == (1, 4, batch, units) and z_h.shape == (1, 4, batch, units) and float(z_c) == 1
    assert {*z_x.unique().tolist(), *z_h.unique().tolist()} == {0.0, 1.0}
    w, u = ([gate.t() for gate in weight.split(units)] for weight in (layer.weight_ih_l0, layer.weight_hh_l0))
    x = model.embedding.weight[words] * masks.words
    inner = torch.sigmoid if gates == "sigmoid" else lambda a: (0.2 * a + 0.5).clamp(0, 1)
    h = listing(x, z_x[0], z_h[0], w, u, layer.bias_ih_l0.split(units), inner)
    expected = (h * masks.output.reshape(batch, units)) @ model.output.weight.t() + model.output.bias
    torch.testing.assert_close(model(words, masks=masks)[0], expected, rtol=1e-10, atol=1e-12)
    others = masks._replace(layers=(masks.layers[0]._replace(z_h=z_h.roll(1, dims=1)),))
    assert not torch.allclose(model(words, masks=others)[0], expected), "every gate has its mask"
