"""Our layers raise for the arguments that torch's layers reject, and name the argument."""

import inspect
import re

import pytest
import torch
from torch import nn

from varrnn import VariationalGRU, VariationalLSTM, VariationalRNN, WordEmbedding

try:
    from torch.testing._internal.common_modules import module_db
except ImportError:  # torch's tests need expecttest
    module_db = []
LAYERS = {nn.LSTM: VariationalLSTM, nn.GRU: VariationalGRU, nn.RNN: VariationalRNN}


def torch_error_inputs():
    """The inputs of torch's own test_errors for its recurrent layers."""
    for info in module_db:
        ours = LAYERS.get(info.module_cls)
        if ours is not None and info.module_error_inputs_func is not None:
            found = info.module_error_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=False, training=False
            )
            for number, one in enumerate(found):
                yield pytest.param(ours, one, id=f"{ours.__name__}-{number}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("layer", "error"), list(torch_error_inputs()))
def test_errors_where_torch_raises_too(layer, error):
    """As torch's test_errors does it: the constructor or the call raises."""
    made, given = error.module_error_input.constructor_input, error.module_error_input.forward_input
    kinds = (TypeError, ValueError, RuntimeError)
    if "CONSTRUCTION" in str(error.error_on):
        with pytest.raises(kinds):
            layer(*made.args, **made.kwargs)
    else:
        module = layer(*made.args, **made.kwargs)
        with pytest.raises(kinds):
            module(*given.args, **given.kwargs)


@pytest.mark.skipif(not module_db, reason="needs torch's own tests (pip install expecttest)")
def test_torch_has_such_inputs():
    assert len(list(torch_error_inputs())) > 10


@pytest.mark.parametrize("layer", LAYERS.values())
@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ({"input_size": "3"}, TypeError, "input_size='3' must be an int, not a str"),
        ({"hidden_size": 4.0}, TypeError, r"hidden_size=4\.0 must be an int"),
        ({"num_layers": True}, TypeError, "num_layers=True must be an int, not a bool"),
        ({"num_layers": 0}, ValueError, "num_layers=0 must be at least 1"),
        ({"bias": 0.5}, TypeError, r"bias=0\.5 must be True or False.*dropout="),
        ({"batch_first": "False"}, TypeError, "batch_first='False' must be True or False"),
        ({"bidirectional": 1}, TypeError, "bidirectional=1 must be True or False"),
    ],
    ids=str,
)
def test_constructors(layer, arguments, kind, message):
    with pytest.raises(kind, match=f"{layer.__name__}: {message}"):
        layer(**{"input_size": 3, "hidden_size": 4, **arguments})


def test_the_fourth_argument_is_bias():
    """The fourth argument is `bias`, as in nn.LSTM(10, 20, 2, 0.5), which older versions of torch read as bias=True."""
    with pytest.raises(TypeError, match=r"bias=0\.5"):
        VariationalLSTM(10, 20, 2, 0.5)


@pytest.mark.parametrize("layer", LAYERS.values())
def test_calls(layer):
    made, x = layer(3, 4), torch.randn(5, 2, 3)
    with pytest.raises(TypeError, match=rf"{layer.__name__}: input is a list; give a tensor or a PackedSequence"):
        made([[1.0, 2.0, 3.0]])
    for dtype in (torch.float64, torch.int64):
        h = torch.zeros(1, 2, 4, dtype=dtype)
        with pytest.raises(ValueError, match=re.escape(f"hx has dtype {dtype}")):
            made(x, (h, h) if layer is VariationalLSTM else h)
    with pytest.raises(ValueError, match="steps=0 must be at least 1"):
        made.sample_masks(2, steps=0)
    with pytest.raises(TypeError, match=r"batch_size=2\.5 must be an int"):
        made.sample_masks(2.5)


@pytest.mark.parametrize("layer", LAYERS.values())
def test_states_under_autocast(layer):
    made, x, h = layer(3, 4), torch.randn(5, 2, 3), torch.zeros(1, 2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, state = made(x, (h, h) if layer is VariationalLSTM else h)
        assert out.dtype == torch.bfloat16
        made(x, state)  # of another type than the input


@pytest.mark.parametrize("layer", [*LAYERS, nn.Embedding])
def test_the_first_arguments_are_torchs(layer):
    ours = {**LAYERS, nn.Embedding: WordEmbedding}[layer]
    if layer is nn.Embedding:
        theirs = list(inspect.signature(layer).parameters)
    else:
        theirs = [n for n in inspect.signature(nn.modules.rnn.RNNBase).parameters if n != "mode"]
        theirs = theirs if layer is nn.LSTM else [n for n in theirs if n != "proj_size"]
        if layer is nn.RNN:
            theirs.insert(3, "nonlinearity")
    found = inspect.signature(ours).parameters.values()
    assert [p.name for p in found if p.kind is p.POSITIONAL_OR_KEYWORD] == theirs


def test_word_embedding():
    with pytest.raises(TypeError, match=r"padding_idx=0\.5 must be an int.*p_E="):
        WordEmbedding(10, 3, 0.5)
    with pytest.raises(TypeError, match="num_embeddings='10' must be an int"):
        WordEmbedding("10", 3)
    with pytest.raises(TypeError, match="per_token='no' must be True or False"):
        WordEmbedding(10, 3, per_token="no")
