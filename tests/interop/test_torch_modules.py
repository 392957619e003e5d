"""torch's module tests: every sample input that torch ships for its recurrent layers and their cells."""

import copy
import pickle

import pytest
import torch
from torch import nn

from varrnn import (
    VariationalGRU,
    VariationalGRUCell,
    VariationalLSTM,
    VariationalLSTMCell,
    VariationalRNN,
    VariationalRNNCell,
    WordEmbedding,
)

pytest.importorskip("expecttest")
common_modules = pytest.importorskip("torch.testing._internal.common_modules")
OURS = {
    nn.LSTM: VariationalLSTM,
    nn.GRU: VariationalGRU,
    nn.RNN: VariationalRNN,
    nn.LSTMCell: VariationalLSTMCell,
    nn.GRUCell: VariationalGRUCell,
    nn.RNNCell: VariationalRNNCell,
    nn.Embedding: WordEmbedding,
}
pytestmark = pytest.mark.filterwarnings("ignore")


def cases():
    """Our module, torch's with the same weights, and the input, for each of torch's samples."""
    for info in common_modules.module_db:
        ours = OURS.get(info.module_cls)
        if ours is None:
            continue
        samples = info.module_inputs_func(info, device="cpu", dtype=torch.float64, requires_grad=True, training=True)
        for number, sample in enumerate(samples):
            made = sample.constructor_input
            if made.kwargs.get("proj_size"):
                continue  # not supported, as from_torch says
            yield pytest.param(info.module_cls, ours, sample, id=f"{ours.__name__}-{number}")


def pair(theirs, ours, sample):
    made = sample.constructor_input
    kwargs = {**made.kwargs, "dtype": torch.float64}
    if issubclass(ours, VariationalLSTM | VariationalGRU | VariationalRNN):
        kwargs = {**kwargs, "dropout": 0.0}  # torch's means something else
    right = theirs(*made.args, **{**kwargs, **({"dropout": 0.0} if "dropout" in made.kwargs else {})})
    left = ours(*made.args, **kwargs)
    left.load_state_dict(right.state_dict())
    return left, right


def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [t for part in value for t in flat(part)] if isinstance(value, tuple | list) else []


def inputs_of(sample):
    return copy.deepcopy(sample.forward_input.args), copy.deepcopy(sample.forward_input.kwargs)


@pytest.mark.parametrize(("theirs", "ours", "sample"), list(cases()))
def test_forward_and_gradients(theirs, ours, sample):
    left, right = pair(theirs, ours, sample)
    results = []
    for module in (left, right):
        args, kwargs = inputs_of(sample)
        out = [t for t in flat(module(*args, **kwargs)) if t.is_floating_point()]
        wanted = [t for t in flat(args) if t.requires_grad] + list(module.parameters())
        grads = torch.autograd.grad(sum((t * t.detach().sin()).sum() for t in out), wanted, allow_unused=True)
        results.append([*out, *(g for g in grads if g is not None)])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def recurrent_cases():
    return [case for case in cases() if case.values[1] is not WordEmbedding]


@pytest.mark.parametrize(("theirs", "ours", "sample"), recurrent_cases())
def test_grad_and_gradgrad(theirs, ours, sample):
    """torch's test_grad and test_gradgrad, by finite differences."""
    module, _ = pair(theirs, ours, sample)
    args, kwargs = inputs_of(sample)
    x, *rest = args
    if not isinstance(x, torch.Tensor):
        pytest.skip("packed: its data are compared in test_forward_and_gradients")
    x = x.detach()[:2, :1] if x.dim() == 3 else x.detach()  # finite differences take a call per number
    rest = [None] if x.dim() == 3 else rest

    def call(x):
        return next(t for t in flat(module(x, *rest, **kwargs)) if t.is_floating_point())

    x.requires_grad_()
    assert torch.autograd.gradcheck(call, (x,), fast_mode=True)
    assert torch.autograd.gradgradcheck(call, (x,), fast_mode=True)


@pytest.mark.parametrize(("theirs", "ours", "sample"), list(cases()))
def test_pickle_repr_and_factory_arguments(theirs, ours, sample):
    """torch's test_pickle, test_repr, test_factory_kwargs and test_to."""
    left, _ = pair(theirs, ours, sample)
    args, kwargs = inputs_of(sample)
    again = pickle.loads(pickle.dumps(left))
    for a, b in zip(flat(again(*args, **kwargs)), flat(left(*args, **kwargs)), strict=True):
        torch.testing.assert_close(a, b)
    assert type(left).__name__ in repr(left)
    made = sample.constructor_input
    meta = ours(*made.args, **{**made.kwargs, "device": "meta", "dtype": torch.float16})
    assert all(p.device.type == "meta" and p.dtype == torch.float16 for p in meta.parameters())
    assert all(p.dtype == torch.float32 for p in left.to(torch.float32).parameters())


def test_every_module_is_there():
    assert {case.values[0] for case in cases()} >= {nn.LSTM, nn.GRU, nn.RNN, nn.LSTMCell, nn.GRUCell, nn.RNNCell}
