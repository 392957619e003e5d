"""from_torch and to_torch: the same parameters, the same results in eval."""

import io

import pytest
import torch
from torch import Tensor, nn

from varrnn import (
    DropoutRates,
    SequenceDropout,
    VariationalGRU,
    VariationalGRUCell,
    VariationalLSTM,
    VariationalLSTMCell,
    VariationalRNN,
    VariationalRNNCell,
    WordEmbedding,
    from_torch,
    mc_predict,
    to_torch,
)

RATES = DropoutRates.variational(p_W=0.3, p_U=0.3)
PAIRS = {nn.LSTM: VariationalLSTM, nn.GRU: VariationalGRU, nn.RNN: VariationalRNN}
CELLS = {nn.LSTMCell: VariationalLSTMCell, nn.GRUCell: VariationalGRUCell, nn.RNNCell: VariationalRNNCell}


class Tagger(nn.Module):
    """A user's model: an embedding, layers with dropout between them, a cell, and one module that is used twice."""

    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 6, padding_idx=0)
        self.rnn = nn.LSTM(6, 5, 2, batch_first=batch_first, bidirectional=True, dropout=0.5)
        self.second = nn.Sequential(nn.Linear(10, 5), nn.Dropout(0.5))
        self.cell = nn.GRUCell(5, 5)
        self.same = self.cell

    def forward(self, words: Tensor) -> Tensor:
        out = self.second(self.rnn(self.words(words))[0])
        return self.same(out[:, -1], self.cell(out[:, 0]))


@pytest.mark.parametrize(
    "options", [{}, {"bias": False, "bidirectional": True}, {"num_layers": 2, "batch_first": True}]
)
@pytest.mark.parametrize("theirs", PAIRS)
def test_a_layer_and_back(theirs, options):
    old = theirs(3, 4, **options, dtype=torch.float64)
    made = from_torch(old, RATES)
    assert type(made) is PAIRS[theirs] and made.dropout == RATES and made.training
    assert all(p is old.get_parameter(name) for name, p in made.named_parameters())
    back, x = to_torch(made), torch.randn(5, 2, 3, dtype=torch.float64)
    assert type(back) is theirs and not back.training
    assert all(p is old.get_parameter(name) for name, p in back.named_parameters())
    wanted = old.eval()(x)[0]
    torch.testing.assert_close(made.eval()(x)[0], wanted)
    torch.testing.assert_close(back(x)[0], wanted)
    assert repr(back) == repr(old)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("theirs", CELLS)
def test_a_cell_and_back(theirs, bias):
    old = theirs(3, 4, bias)
    made = from_torch(old, RATES).eval()
    back, x = to_torch(made), torch.randn(2, 3)
    assert type(made) is CELLS[theirs] and type(back) is theirs
    torch.testing.assert_close(made(x), old(x))
    torch.testing.assert_close(back(x), old(x))


def test_a_relu_rnn():
    old = nn.RNN(3, 4, nonlinearity="relu")
    made = from_torch(old, 0.0)
    assert made.nonlinearity == "relu" and to_torch(made).nonlinearity == "relu"


def test_a_model_keeps_its_parameters_and_stays_as_it_is():
    model = Tagger().eval()
    made = from_torch(model, DropoutRates(p_E=0.2, p_W=0.3, p_U=0.3), embeddings=True)
    assert isinstance(model.rnn, nn.LSTM) and isinstance(made.rnn, VariationalLSTM)
    assert isinstance(made.words, WordEmbedding) and made.words.batch_first and made.words.p_E == 0.2
    assert made.words.padding_idx == 0 and isinstance(made.cell, VariationalGRUCell) and made.cell is made.same
    assert not made.rnn.training and made.rnn.dropout.p_E == 0
    assert dict(made.named_parameters()).keys() == dict(model.named_parameters()).keys()
    assert all(p is model.get_parameter(name) for name, p in made.named_parameters())
    words = torch.randint(11, (3, 7))
    torch.testing.assert_close(made(words), model(words))
    assert (mc_predict(made, words, samples=5, also=()).std > 0).all()
    back = to_torch(made)
    assert type(back.words) is nn.Embedding and type(back.rnn) is nn.LSTM and back.cell is back.same
    torch.testing.assert_close(back(words), model(words))
    assert type(from_torch(model, RATES).words) is nn.Embedding  # on request only


def test_hooks_and_modes_are_kept():
    model, calls = nn.Sequential(nn.LSTM(3, 4)), []
    model[0].eval()
    model[0].register_forward_hook(lambda *_: calls.append(1))
    made = from_torch(model, RATES)
    made(torch.randn(5, 2, 3))
    assert calls == [1] and made.training and not made[0].training


class First(nn.Module):
    """A model that torch.jit.script can compile."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = VariationalLSTM(3, 4, dropout=RATES)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0]


def test_full_backward_hooks_run_on_the_copy():
    calls: list[str] = []
    plain = nn.LSTM(3, 4)
    plain.register_full_backward_hook(lambda *_: calls.append("called"))
    from_torch(plain, 0.0)(torch.randn(5, 2, 3, requires_grad=True))[0].sum().backward()
    assert calls == ["called"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.slow
def test_scripting_and_quantisation_through_to_torch():
    model, x = First(), torch.randn(5, 2, 3)
    plain, file = to_torch(model), io.BytesIO()
    torch.jit.save(torch.jit.script(plain), file)
    file.seek(0)
    torch.testing.assert_close(torch.jit.load(file)(x), model.eval()(x))
    quantized = torch.ao.quantization.quantize_dynamic(plain, {nn.LSTM}, dtype=torch.qint8)
    assert type(quantized.rnn) is not nn.LSTM and (quantized(x) - model(x)).abs().max() < 0.05


def test_to_torch_removes_modules_that_have_no_mask_in_eval():
    model = nn.ModuleDict({"drop": SequenceDropout(0.5), "words": WordEmbedding(5, 3, p_E=0.5, sparse=True)})
    plain = to_torch(model)
    assert type(plain["drop"]) is nn.Identity and type(plain["words"]) is nn.Embedding and plain["words"].sparse


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_torch(nn.Linear(2, 2), RATES), "from_torch: Linear .*nn.LSTM"),
        (lambda: from_torch(nn.LSTM(3, 4, proj_size=2), RATES), "LSTM has proj_size=2"),
        (lambda: from_torch(nn.Sequential(type("Own", (nn.GRU,), {})(3, 4)), RATES), "0 is a Own, a subclass"),
        (lambda: from_torch(nn.utils.weight_norm(nn.LSTM(3, 4), "weight_hh_l0"), RATES), "convert it by hand"),
        (lambda: from_torch(nn.LSTM(3, 4), {"p_w": 0.5}), "unknown dropout rate p_w"),
        (lambda: from_torch(nn.Embedding(3, 4), RATES, embeddings=True), "give batch_first="),
        (lambda: to_torch(nn.LSTM(3, 4)), "to_torch: LSTM .*varrnn"),
        (lambda: to_torch(VariationalGRU(3, 4, reset_after=False)), "reset_after=False.*torch does not have"),
        (lambda: to_torch(VariationalLSTM(3, 4, gate_activation="hard_sigmoid")), "torch does not have"),
        (
            lambda: to_torch(VariationalLSTM(3, 4, dropout=DropoutRates(p_c=0.5), cell_scaling="step")),
            "cell_scaling='step'",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_converted_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
